//! Machines that bill although no job here needs them, by the last look at the clouds.
//!
//! ```text
//! view that stays open ─ every 5 min ─┐
//! one command ─ if the look is old ───┴─> clouds ─> look ─> state folder ─> each face
//! ```
//!
//! A look asks only, and ends nothing. Without jobs on AWS and without `[aws]`, only this
//! workstation is asked.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::found_machine::{hour, is_orphan, is_stray, words};
use super::machine_look::{self, MachineLook};
use crate::account::ForeignMachine;
use crate::app::{Fault, drive};
use crate::controller::Judged;
use crate::market::{CloudKind, Region, Span, Usd, UsdPerHour, elapsed};
use crate::policy::lifecycle::orphan::OrphanVerdict;
use crate::wire::{AwsSettings, StoreHandle, Workstation};

/// As often as the daemon sweeps. A look makes some calls in each region.
const EVERY: Duration = Duration::from_secs(5 * 60);

/// A command that prints once waits this long for the clouds. Most regions answer in a second.
const PATIENCE: Duration = Duration::from_secs(4);

/// The answer of the clouds to one look. The field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct CloudLook {
    pub at: Timestamp,
    pub machines: Vec<UnneededMachine>,
    /// Places that did not answer, with the cause: their machines are unknown.
    pub unknown: Vec<String>,
    /// AWS was asked too, and not this workstation alone.
    #[serde(default)]
    pub has_aws: bool,
}

/// A machine that bills, and that no job of this job root needs. The field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct UnneededMachine {
    pub id: String,
    pub instance_type: String,
    pub region: String,
    pub kind: UnneededKind,
    /// The job in its tags.
    pub job: Option<String>,
    pub why: String,
    pub launched: Timestamp,
    /// On demand; a spot machine costs less. Null: unknown.
    pub usd_per_hour: Option<UsdPerHour>,
    /// Its hard cap. Null: it has none.
    pub ends: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum UnneededKind {
    /// Its job has ended, or its agent is silent.
    Orphan,
    /// Its job is not in this job root.
    Stray,
    /// `lamp` did not launch it.
    Foreign,
}

impl CloudLook {
    fn of(look: &MachineLook, has_aws: bool) -> CloudLook {
        let ours = look.found.machines.iter().filter_map(unneeded);
        let unjudged = look.found.machines.iter().filter_map(unjudged);
        let foreign = look.foreign.iter().map(foreign);
        let unknown = look.found.unknown.iter().chain(&look.foreign_unknown);
        let mut unknown: Vec<String> =
            unknown.map(|(place, why)| format!("{place}: {why}")).chain(unjudged).collect();
        unknown.sort();
        unknown.dedup();
        CloudLook { at: look.at, machines: ours.chain(foreign).collect(), unknown, has_aws }
    }

    /// How old a look is; `None`: there was none.
    pub fn age_text(look: Option<&CloudLook>, now: Timestamp) -> String {
        match look {
            Some(look) => {
                let age = Span::from_secs(elapsed(look.at, now).as_secs());
                let who =
                    if look.has_aws { "The clouds were" } else { "Only this workstation was" };
                format!("{who} asked {age} ago for machines that no job needs.")
            }
            None => "The clouds were not asked for machines that no job needs.".to_owned(),
        }
    }

    /// Whether it is so new that its machines bill still.
    pub fn is_current(&self, now: Timestamp) -> bool {
        elapsed(self.at, now) <= 3 * EVERY
    }

    /// The machines that `lamp` launched: their cost is part of yours.
    pub fn ours(&self) -> impl Iterator<Item = &UnneededMachine> {
        self.machines.iter().filter(|machine| machine.kind != UnneededKind::Foreign)
    }
}

fn unneeded(judged: &Judged) -> Option<UnneededMachine> {
    let kind = match judged {
        judged if is_orphan(judged) => UnneededKind::Orphan,
        judged if is_stray(judged) => UnneededKind::Stray,
        _ => return None,
    };
    let view = &judged.view;
    view.state.bills().then(|| UnneededMachine {
        id: view.id.clone(),
        instance_type: view.instance_type.clone(),
        region: view.region.to_string(),
        kind,
        job: Some(view.tags.job.to_string()),
        why: words(&judged.verdict).1.to_owned(),
        launched: view.launched,
        usd_per_hour: hour(view),
        ends: view.tags.kill_at,
    })
}

/// A machine that bills, and whose job could not be read.
fn unjudged(judged: &Judged) -> Option<String> {
    let OrphanVerdict::Unknown { why } = &judged.verdict else { return None };
    let view = &judged.view;
    view.state.bills().then(|| format!("{} in {}: {why}", view.id, view.region))
}

fn foreign(machine: &ForeignMachine) -> UnneededMachine {
    let name = machine.name.as_ref().map(|name| format!("`{name}`, "));
    let odd = machine.odd.as_deref().unwrap_or("`lamp` did not launch it");
    UnneededMachine {
        id: machine.id.clone(),
        instance_type: machine.instance_type.clone(),
        region: machine.region.to_string(),
        kind: UnneededKind::Foreign,
        job: None,
        why: format!("{}{odd}", name.unwrap_or_default()),
        launched: machine.launched,
        usd_per_hour: machine.usd_per_hour,
        ends: None,
    }
}

impl UnneededMachine {
    pub fn usd_so_far(&self, now: Timestamp) -> Option<Usd> {
        self.usd_per_hour.map(|hour| hour.cost_of(elapsed(self.launched, now)))
    }

    /// The most that it can still cost. `None`: it has no end, or its price is unknown.
    pub fn more_at_most(&self, now: Timestamp) -> Option<Usd> {
        Some(self.usd_per_hour?.cost_of(elapsed(now, self.ends?)))
    }

    /// The command that mends it.
    pub fn command(&self) -> String {
        match self.kind {
            UnneededKind::Orphan => "lamp sweep".to_owned(),
            // It may be needed by a job of another job root, so the command asks first.
            UnneededKind::Stray => format!("lamp sweep --machine {}", self.id),
            UnneededKind::Foreign => "lamp sweep --foreign".to_owned(),
        }
    }
}

/// How a reader of overviews asks the clouds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CloudAsking {
    /// Shows the last look that another program kept.
    #[default]
    Never,
    /// One answer that is printed: asks first if the last look is old.
    Once,
    /// A view that stays open asks beside its reads.
    Beside,
}

/// The looks of one reader.
#[derive(Default)]
pub struct MachineWatch {
    asking: CloudAsking,
    asked: Arc<Mutex<LookState>>,
}

#[derive(Debug, Default)]
struct LookState {
    is_under_way: bool,
    last: Option<Timestamp>,
    /// Why the last look has no answer.
    fault: Option<String>,
}

/// A look that is under way until it is dropped, also by a panic.
struct UnderWay(Arc<Mutex<LookState>>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        lock(&self.0).is_under_way = false;
    }
}

impl MachineWatch {
    pub fn new(asking: CloudAsking) -> MachineWatch {
        MachineWatch { asking, ..MachineWatch::default() }
    }

    /// The newest look. `None`: the clouds were never asked. `has_aws`: a job here was for AWS.
    pub async fn look(
        &self,
        store: &StoreHandle,
        workstation: &Workstation,
        has_aws: bool,
        now: Timestamp,
    ) -> Option<CloudLook> {
        let kept = kept(workstation);
        let has_aws = has_aws || knows_aws(workstation, kept.as_ref());
        if self.asking == CloudAsking::Never || !self.is_due(kept.as_ref(), has_aws, now) {
            return kept;
        }
        let (store, workstation) = (Arc::clone(store), workstation.clone());
        let under_way = UnderWay(Arc::clone(&self.asked));
        let task = tokio::spawn(async move {
            let look = ask(&store, &workstation, has_aws, now).await;
            let mut asked = lock(&under_way.0);
            asked.fault = look.as_ref().err().map(|fault| fault.what.clone());
            look.ok()
        });
        if self.asking == CloudAsking::Beside {
            return kept;
        }
        match tokio::time::timeout(PATIENCE, task).await {
            Ok(Ok(Some(look))) => return Some(look),
            Ok(_) => {}
            Err(_) => {
                let text = format!("the clouds did not answer within {} s", PATIENCE.as_secs());
                lock(&self.asked).fault = Some(text);
            }
        }
        // The last look stays, with its age.
        kept
    }

    /// Why the last look has no answer. `None`: it was answered, or none was tried.
    pub fn fault(&self) -> Option<String> {
        lock(&self.asked).fault.clone()
    }

    /// A look at this workstation alone is not enough once AWS is set up.
    fn is_due(&self, kept: Option<&CloudLook>, has_aws: bool, now: Timestamp) -> bool {
        let mut asked = lock(&self.asked);
        let is_new = |at: Timestamp| at <= now && elapsed(at, now) < EVERY;
        if asked.is_under_way || asked.last.is_some_and(is_new) {
            return false;
        }
        if kept.is_some_and(|look| is_new(look.at) && (look.has_aws || !has_aws)) {
            return false;
        }
        asked.is_under_way = true;
        asked.last = Some(now);
        true
    }
}

/// Keeps the look of a person at all clouds. On a workstation without AWS, its silence is no news
/// for the other faces. `has_aws`: a job here was for AWS.
pub fn keep_asked(workstation: &Workstation, look: &MachineLook, has_aws: bool) {
    let is_whole = look.found.unknown.is_empty() && look.foreign_unknown.is_empty();
    if is_whole || has_aws || knows_aws(workstation, kept(workstation).as_ref()) {
        keep(workstation, look, true);
    }
}

/// Whether EC2 is set up here, or the last look was at it too.
fn knows_aws(workstation: &Workstation, last: Option<&CloudLook>) -> bool {
    let aws = &workstation.aws;
    // The cache is set in any case.
    let is_set_up = *aws != AwsSettings { cache: aws.cache.clone(), ..AwsSettings::default() };
    is_set_up || last.is_some_and(|look| look.has_aws)
}

fn lock(asked: &Mutex<LookState>) -> MutexGuard<'_, LookState> {
    asked.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A look that this version cannot read counts as none.
fn kept(workstation: &Workstation) -> Option<CloudLook> {
    serde_json::from_slice(&workstation.kept_look()?).ok()
}

/// Keeps a look for the other faces. Without a state folder it is lost, which the next look mends.
fn keep(workstation: &Workstation, look: &MachineLook, has_aws: bool) -> CloudLook {
    let look = CloudLook::of(look, has_aws);
    if let Ok(bytes) = serde_json::to_vec(&look) {
        let _ = workstation.keep_look(&bytes);
    }
    look
}

/// The clouds, asked now. EC2 only where it is set up, or where a job or a machine of ours was on
/// it. `has_aws`: a job here was for AWS.
///
/// # Errors
/// Fails when the state folder cannot be used, or the clouds are silent.
pub async fn look_now(
    store: &StoreHandle,
    workstation: &Workstation,
    has_aws: bool,
    now: Timestamp,
) -> Result<CloudLook, Fault> {
    let has_aws = has_aws || knows_aws(workstation, kept(workstation).as_ref());
    ask(store, workstation, has_aws, now).await
}

async fn ask(
    store: &StoreHandle,
    workstation: &Workstation,
    has_aws: bool,
    now: Timestamp,
) -> Result<CloudLook, Fault> {
    let look = if has_aws {
        machine_look::machines_only(store, workstation, now).await?
    } else {
        let controller = drive::controller(workstation, store)?;
        let here = BTreeSet::from([(CloudKind::Local, Region::new("local"))]);
        let found = controller.look_for_orphans(&here).await;
        MachineLook { at: now, found, foreign: Vec::new(), foreign_unknown: Vec::new() }
    };
    Ok(keep(workstation, &look, has_aws))
}
