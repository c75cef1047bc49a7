//! Trouble of a job that its agent cannot report: a machine cannot be ended, the credentials fail,
//! a launch is refused for good.
//!
//! ```text
//!   a tick ──> trouble, or none ── changed? ──> attention.json (`lamp status`), the log, a message
//! ```
//! The trouble stands until a tick succeeds; the user gets one message a day. An outage is no
//! trouble: it ends by itself.

use tracing::{info, warn};

use super::job_events::JobEvent;
use super::message_key::message_key;
use super::notifier::JobNotifier;
use crate::controller::act_result::{ActError, Ticked};
use crate::controller::job_memory::{Alert, JobMemory};
use crate::controller::observe::Observed;
use crate::job::{Attention, Plan, RECORD_FORMAT, Refusal, ResolvedSpec};
use crate::jobdir::{JobDir, JobDirError};
use crate::policy::lifecycle::reconcile::{Act, history};
use crate::policy::lifecycle::relaunch;
use crate::ports::{Clock, CloudError, chain, chain_with_cure};

impl JobNotifier {
    /// The trouble of an act; `None`: it passes by itself.
    pub(crate) fn trouble(act: &Act, error: &ActError) -> Option<String> {
        if matches!(
            error,
            ActError::ClockOff { .. } | ActError::NotReady { .. } | ActError::Unstoppable(_)
        ) {
            return Some(error.to_string());
        }
        let cause = match error {
            ActError::Cloud(cause) => cause,
            ActError::Ship(error) if !error.is_silence() => return Some(chain(error)),
            _ => return None,
        };
        match (act, cause) {
            (_, CloudError::Throttled | CloudError::Ambiguous { .. }) => None,
            // The machine is ended; the request that would replace it remains.
            (Act::Terminate { .. }, CloudError::Relaunches { .. }) => Some(chain_with_cure(cause)),
            (Act::Terminate { machine, .. } | Act::Stop { machine, .. }, _) => Some(format!(
                "{machine} in {} may still run and bill: {}",
                machine.region,
                chain_with_cure(cause)
            )),
            (Act::CreatePlan { .. } | Act::Launch { .. }, _) if cause.is_unsigned() => {
                Some(format!("nothing can be launched: {}", chain_with_cure(cause)))
            }
            // Only the user can mend these: a network, an image, a permission that is missing
            // everywhere.
            (
                Act::CreatePlan { .. },
                CloudError::Invalid { .. }
                | CloudError::NoImage { .. }
                | CloudError::Unsupported { .. },
            ) => Some(chain(cause)),
            (_, CloudError::Denied { .. } | CloudError::Mismatch { .. }) => {
                Some(chain_with_cure(cause))
            }
            _ => None,
        }
    }

    /// Records the trouble of a tick, or that it is over.
    pub(crate) async fn stand(&self, dir: &JobDir, memory: &mut JobMemory, ticked: &Ticked) {
        let recorded = match (memory.trouble_met.take(), ticked) {
            (Some(text), _) => self.raise(dir, memory, text).await,
            (None, Ticked::Active) => self.lower(dir, memory).await,
            (None, _) => Ok(()),
        };
        if let Err(error) = recorded {
            warn!(job = %dir.job(), "cannot record what stands in its way: {}", chain(&error));
        }
    }

    async fn raise(
        &self,
        dir: &JobDir,
        memory: &mut JobMemory,
        text: String,
    ) -> Result<(), JobDirError> {
        if matches!(&memory.alert, Alert::Standing(known) if message_key(known) == message_key(&text))
        {
            return Ok(());
        }
        warn!(job = %dir.job(), "{text}");
        memory.alert = Alert::Standing(text.clone());
        if let Some(spec) = memory.spec.clone() {
            self.alert(dir, &spec, memory, &message_key(&text), &text).await;
        }
        let attention = Attention {
            format: RECORD_FORMAT,
            at: self.clock.now(),
            by: self.name.clone(),
            text: Some(text),
        };
        let written = dir.put_attention(&attention).await;
        if written.is_err() {
            // The next tick tries again; the message was sent already.
            memory.alert = Alert::Unread;
        }
        written
    }

    async fn lower(&self, dir: &JobDir, memory: &mut JobMemory) -> Result<(), JobDirError> {
        let standing = match &memory.alert {
            Alert::None => false,
            Alert::Standing(_) => true,
            // An unplanned job has no trouble.
            Alert::Unread if memory.attempts.is_empty() => return Ok(()),
            Alert::Unread => {
                dir.attention().await?.is_some_and(|attention| attention.text.is_some())
            }
        };
        if standing {
            info!(job = %dir.job(), "nothing stands in its way any more");
            dir.put_attention(&Attention {
                format: RECORD_FORMAT,
                at: self.clock.now(),
                by: self.name.clone(),
                text: None,
            })
            .await?;
        }
        memory.alert = Alert::None;
        Ok(())
    }

    /// One message a day for each trouble. If it returns next week, the user hears of it again.
    async fn alert(
        &self,
        dir: &JobDir,
        spec: &ResolvedSpec,
        memory: &mut JobMemory,
        trouble: &str,
        text: &str,
    ) {
        let day = self.clock.now().strftime("%Y-%m-%d").to_string();
        let topic = format!("{day} {trouble}");
        let event = JobEvent { topic, ..JobEvent::attention(text) };
        self.tell_as(dir, spec, memory, &event).await;
    }

    /// Tells of a launch that was refused for good, or for a quota: the user can mend that.
    pub(crate) async fn tell_refusal(
        &self,
        dir: &JobDir,
        spec: &ResolvedSpec,
        memory: &mut JobMemory,
        observed: &Observed,
    ) {
        let Some(open) = observed.attempts.iter().find(|attempt| attempt.settled.is_none()) else {
            return;
        };
        let Some((refusal, why)) = &open.watched.refused else { return };
        let number = open.plan.attempt.number();
        match refusal {
            None if open.watched.unclear => {
                let text = format!(
                    "the launch of attempt {number} was refused, after one that may have come through: {why}"
                );
                memory.trouble_met = Some(text);
            }
            None => {
                let text = format!("attempt {number} cannot be launched: {why}");
                self.alert(dir, spec, memory, &message_key(&text), &text).await;
            }
            Some(
                refusal @ (Refusal::Quota
                | Refusal::Disks
                | Refusal::Verification
                | Refusal::SpotRole),
            ) => {
                let offer = &open.plan.offer;
                let trouble = match refusal {
                    Refusal::Quota => {
                        format!("quota {} {} {}", offer.family(), offer.market, offer.region)
                    }
                    Refusal::SpotRole => refusal.to_string(),
                    _ => format!("{refusal} in {}", offer.region),
                };
                if !memory.quotas_told.insert(trouble.clone()) {
                    return;
                }
                let cure = match refusal {
                    Refusal::Quota => self.quota(spec, &open.plan).await.map(|quota| format!("ask for more of {quota}")),
                    Refusal::Disks => Some(format!("delete disks in {}, or ask for more of its quotas for EBS", offer.region)),
                    Refusal::SpotRole => Some("this job goes on with machines on demand; `lamp doctor` looks at the role (`spot role`)".to_owned()),
                    _ => Some("that takes minutes mostly, and four hours at most; nothing bills, and it is asked again".to_owned()),
                };
                let text = cure.map_or_else(|| why.clone(), |cure| format!("{why}; {cure}"));
                warn!(job = %dir.job(), "{text}");
                self.alert(dir, spec, memory, &trouble, &text).await;
            }
            Some(
                Refusal::Capacity
                | Refusal::Price
                | Refusal::NotSold
                | Refusal::Subnet
                | Refusal::Addresses
                | Refusal::Spent,
            ) => {}
        }
    }

    /// Tells of plans without a launch: the job never runs.
    pub(crate) fn tell_lying(memory: &mut JobMemory, observed: &Observed) {
        let last = observed.attempts.last();
        let is_launched = last.is_some_and(|last| {
            last.settled.is_none() && (last.watched.launched.is_some() || last.lease.is_some())
        });
        if memory.trouble_met.is_none() && !is_launched {
            memory.trouble_met = relaunch::left_lying(&history(&observed.attempts));
        }
    }

    /// Tells of a missing alarm. The job continues without it. If AWS denies the alarm, only the
    /// user can mend that.
    pub(crate) fn tell_unguarded(memory: &mut JobMemory) {
        let open = memory
            .attempts
            .values()
            .filter(|attempt| attempt.settled.is_none() && attempt.outcome.is_none());
        let denied = open.filter_map(|attempt| attempt.guarding.denied.as_deref()).next_back();
        let text = denied.map(|why| format!("no alarm ends its machine, should that hang: {why}; `lamp doctor` looks at what it takes"));
        if memory.trouble_met.is_none() {
            memory.trouble_met = text;
        }
    }

    /// The name of a plan's quota.
    async fn quota(&self, spec: &ResolvedSpec, plan: &Plan) -> Option<String> {
        let supply =
            self.clouds.get(plan.offer.cloud).ok()?.supply(&spec.spec.machine).await.ok()?;
        let quota = supply.quotas.into_iter().find(|quota| quota.covers(&plan.offer))?;
        Some(format!(
            "`{}` ({}) in {}, which is {} vCPUs",
            quota.name, quota.code, quota.region, quota.vcpus_max
        ))
    }
}
