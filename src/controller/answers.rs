//! What the clouds said in one tick, place by place.
//!
//! A region that does not answer is unknown to the jobs that are there, and says nothing of the others. A place that was not
//! asked is unknown too: nothing is ever gone because nobody looked.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::instance::InstanceView;
use crate::job::Plan;
use crate::market::{Cloud, Region};
use crate::policy::reconcile::CloudAnswer;

/// What one call can describe.
pub type Place = (Cloud, Region);

/// The answers of one tick. Cheap to clone: each job of a daemon gets one.
#[derive(Clone, Debug, Default)]
pub struct Answers(Arc<BTreeMap<Place, CloudAnswer>>);

impl FromIterator<(Place, CloudAnswer)> for Answers {
    fn from_iter<I: IntoIterator<Item = (Place, CloudAnswer)>>(answers: I) -> Self {
        Answers(Arc::new(answers.into_iter().collect()))
    }
}

impl Answers {
    fn at(&self, plan: &Plan) -> Option<&CloudAnswer> {
        self.0.get(&(plan.offer.cloud, plan.offer.region.clone()))
    }

    /// The machines in the place of a plan, when the cloud told.
    pub fn known(&self, plan: &Plan) -> Option<&[InstanceView]> {
        match self.at(plan)? {
            CloudAnswer::Known(views) => Some(views),
            CloudAnswer::Unknown(_) => None,
        }
    }

    /// The answer for one job, from its plans and whether each is settled: unknown as long as the place of the open one is.
    /// Only its own machines are in it: with ten thousand others, every job would carry them all.
    pub fn of_job<'a>(&self, plans: impl Iterator<Item = (&'a Plan, bool)>) -> CloudAnswer {
        let mut views: Vec<InstanceView> = Vec::new();
        for (plan, settled) in plans {
            match self.at(plan) {
                Some(CloudAnswer::Known(known)) => {
                    for view in known.iter().filter(|view| view.tags.job == plan.job) {
                        if !views.iter().any(|seen| seen.machine() == view.machine()) {
                            views.push(view.clone());
                        }
                    }
                }
                Some(CloudAnswer::Unknown(why)) if !settled => return CloudAnswer::Unknown(why.clone()),
                None if !settled => return CloudAnswer::Unknown(format!("{} was not asked yet", plan.offer.region)),
                Some(CloudAnswer::Unknown(_)) | None => {}
            }
        }
        CloudAnswer::Known(views)
    }
}
