//! What the clouds said in one tick, place by place.
//!
//! A region that does not answer is unknown to the jobs that are there, and says nothing of the others. A place that was not
//! asked is unknown too: nothing is ever gone because nobody looked.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::instance::InstanceView;
use crate::job::{JobId, Plan};
use crate::market::{Cloud, Region};
use crate::policy::continuation::is_kept_for;
use crate::policy::reconcile::CloudAnswer;

/// What one call can describe.
pub type Place = (Cloud, Region);

/// The answers of one tick. Cheap to clone: each job of a daemon gets one.
#[derive(Clone, Debug, Default)]
pub struct Answers(Arc<BTreeMap<Place, Answer>>);

/// Of one place: the machines by their jobs, since with ten thousand of them each job looks for its own; or why not.
#[derive(Debug)]
enum Answer {
    Known(BTreeMap<JobId, Vec<InstanceView>>),
    Unknown(String),
}

impl FromIterator<(Place, CloudAnswer)> for Answers {
    fn from_iter<I: IntoIterator<Item = (Place, CloudAnswer)>>(answers: I) -> Self {
        Answers(Arc::new(answers.into_iter().map(|(place, answer)| (place, answer.into())).collect()))
    }
}

impl From<CloudAnswer> for Answer {
    fn from(answer: CloudAnswer) -> Self {
        match answer {
            CloudAnswer::Known(views) => {
                let mut jobs: BTreeMap<JobId, Vec<InstanceView>> = BTreeMap::new();
                for view in views {
                    // Nearly every job has one; a vector makes room for four.
                    jobs.entry(view.tags.job.clone()).or_insert_with(|| Vec::with_capacity(1)).push(view);
                }
                Answer::Known(jobs)
            }
            CloudAnswer::Unknown(why) => Answer::Unknown(why),
        }
    }
}

impl Answers {
    fn at(&self, plan: &Plan) -> Option<&Answer> {
        self.0.get(&(plan.offer.cloud, plan.offer.region.clone()))
    }

    /// The machines of the job of a plan in its place, when the cloud told.
    pub fn known<'a>(&'a self, plan: &'a Plan) -> Option<Vec<&'a InstanceView>> {
        match self.at(plan)? {
            Answer::Known(jobs) => Some(of_plan(jobs, plan).collect()),
            Answer::Unknown(_) => None,
        }
    }

    /// The answer for one job, from its plans and whether each is settled: unknown as long as the place of the open one is.
    /// Only its own machines are in it: with ten thousand others, every job would carry them all.
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
                Some(Answer::Unknown(why)) if !settled => return CloudAnswer::Unknown(why.clone()),
                None if !settled => return CloudAnswer::Unknown(format!("{} was not asked yet", plan.offer.region)),
                Some(Answer::Unknown(_)) | None => {}
            }
        }
        CloudAnswer::Known(views)
    }
}

/// A kept machine carries the name of the job before until it is started.
fn of_plan<'a>(jobs: &'a BTreeMap<JobId, Vec<InstanceView>>, plan: &'a Plan) -> impl Iterator<Item = &'a InstanceView> {
    let before = plan.starts.as_ref().and_then(|starts| jobs.get(&starts.job));
    let kept = before.into_iter().flatten().filter(|view| is_kept_for(plan, view));
    jobs.get(&plan.job).into_iter().flatten().chain(kept)
}
