//! The clouds' answers in one tick, by place.
//!
//! If a region does not answer, its jobs see it as unknown; other regions are unaffected. A place
//! that was not asked is unknown too. A machine is gone only if the cloud says so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::instance::InstanceView;
use crate::job::{JobId, Plan};
use crate::market::{CloudKind, Region};
use crate::policy::lifecycle::machine_owner::is_kept_for;
use crate::policy::lifecycle::reconcile::CloudAnswer;
use crate::ports::{CloudError, chain, chain_with_cure};

/// A cloud's answer is acted on for so long. A call takes a minute at most. After more time the
/// workstation slept: the machine may have ended, and may run the next job by now (seed 12001547
/// of 24 h).
pub const ANSWER_HOLDS: Duration = Duration::from_secs(5 * 60);

/// A cloud and a region: one call describes it.
pub type CloudRegion = (CloudKind, Region);

/// The answers of one tick. Cheap to clone: each job of a daemon gets one.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    places: Arc<BTreeMap<CloudRegion, Answer>>,
    /// When they were asked for, by the steady clock.
    asked: Option<Duration>,
}

/// One place's machines by their jobs, for fast lookup among ten thousand; or the error.
#[derive(Debug)]
enum Answer {
    Known(BTreeMap<JobId, Vec<InstanceView>>),
    Unknown(String),
    /// Unknown too, until a person grants the permission.
    Denied(String),
}

/// A cloud's answer for a place.
pub type Described = Result<Vec<InstanceView>, CloudError>;

impl FromIterator<(CloudRegion, Described)> for Answers {
    fn from_iter<I: IntoIterator<Item = (CloudRegion, Described)>>(answers: I) -> Self {
        Answers {
            places: Arc::new(
                answers.into_iter().map(|(place, answer)| (place, answer.into())).collect(),
            ),
            asked: None,
        }
    }
}

impl From<Described> for Answer {
    fn from(answer: Described) -> Self {
        match answer {
            Ok(views) => {
                let mut jobs: BTreeMap<JobId, Vec<InstanceView>> = BTreeMap::new();
                for view in views {
                    jobs.entry(view.tags.job.clone()).or_default().push(view);
                }
                Answer::Known(jobs)
            }
            Err(error @ CloudError::Denied { .. }) => Answer::Denied(chain_with_cure(&error)),
            Err(error) => Answer::Unknown(chain(&error)),
        }
    }
}

impl Answers {
    #[must_use]
    pub fn asked_at(self, at: Duration) -> Self {
        Answers { asked: Some(at), ..self }
    }

    pub fn asked(&self) -> Option<Duration> {
        self.asked
    }

    fn at(&self, plan: &Plan) -> Option<&Answer> {
        self.places.get(&(plan.offer.cloud, plan.offer.region.clone()))
    }

    /// The machines of a plan's job in its place, if the cloud answered.
    pub fn known<'a>(&'a self, plan: &'a Plan) -> Option<Vec<&'a InstanceView>> {
        match self.at(plan)? {
            Answer::Known(jobs) => Some(of_plan(jobs, plan).collect()),
            Answer::Unknown(_) | Answer::Denied(_) => None,
        }
    }

    /// Why the cloud denies access to a plan's place.
    pub fn denied(&self, plan: &Plan) -> Option<&str> {
        match self.at(plan)? {
            Answer::Denied(why) => Some(why),
            Answer::Known(_) | Answer::Unknown(_) => None,
        }
    }

    /// The answer for one job, from its plans and whether each is settled. Unknown while the open
    /// plan's place is unknown. It holds only the job's own machines, to save memory.
    pub fn of_job<'a>(&self, plans: impl Iterator<Item = (&'a Plan, bool)>) -> CloudAnswer {
        let mut views: Vec<InstanceView> = Vec::new();
        for (plan, settled) in plans {
            match self.at(plan) {
                Some(Answer::Known(jobs)) => {
                    for view in of_plan(jobs, plan) {
                        if !views.iter().any(|seen| seen.machine() == view.machine()) {
                            views.push(view.clone());
                        }
                    }
                }
                Some(Answer::Unknown(why) | Answer::Denied(why)) if !settled => {
                    return CloudAnswer::Unknown(why.clone());
                }
                None if !settled => {
                    return CloudAnswer::Unknown(format!(
                        "{} was not asked yet",
                        plan.offer.region
                    ));
                }
                Some(Answer::Unknown(_) | Answer::Denied(_)) | None => {}
            }
        }
        CloudAnswer::Known(views)
    }
}

/// Until its start a kept machine carries an earlier job's name: the last job's, or an older one if
/// the last could not start it.
fn of_plan<'a>(
    jobs: &'a BTreeMap<JobId, Vec<InstanceView>>,
    plan: &'a Plan,
) -> impl Iterator<Item = &'a InstanceView> {
    let others = plan
        .starts
        .iter()
        .flat_map(|_| jobs.iter())
        .filter(|(job, _)| **job != plan.job)
        .flat_map(|(_, views)| views);
    let kept = others.filter(|view| is_kept_for(plan, view));
    jobs.get(&plan.job).into_iter().flatten().chain(kept)
}
