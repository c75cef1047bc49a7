//! What the clouds said in one tick, place by place.
//!
//! A region that does not answer is unknown to the jobs that are there, and says nothing of the others. A place that was not
//! asked is unknown too: nothing is ever gone because nobody looked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::instance::InstanceView;
use crate::job::{JobId, Plan};
use crate::market::{Cloud, Region};
use crate::policy::lifecycle::continuation::is_kept_for;
use crate::policy::lifecycle::reconcile::CloudAnswer;
use crate::ports::{CloudError, NoCredentials, chain};

/// What one call can describe.
pub type Place = (Cloud, Region);

/// The answers of one tick. Cheap to clone: each job of a daemon gets one.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    places: Arc<BTreeMap<Place, Answer>>,
    /// When they were asked for, by the steady clock.
    asked: Option<Duration>,
}

/// Of one place: the machines by their jobs, since with ten thousand of them each job looks for its own; or why not.
#[derive(Debug)]
enum Answer {
    Known(BTreeMap<JobId, Vec<InstanceView>>),
    Unknown(String),
    /// Unknown too, until a person does something about it.
    Denied(String),
}

/// What a cloud said of a place.
pub type Described = Result<Vec<InstanceView>, CloudError>;

impl FromIterator<(Place, Described)> for Answers {
    fn from_iter<I: IntoIterator<Item = (Place, Described)>>(answers: I) -> Self {
        Answers { places: Arc::new(answers.into_iter().map(|(place, answer)| (place, answer.into())).collect()), asked: None }
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
            Err(error @ CloudError::Denied { .. }) => Answer::Denied(NoCredentials::with_cure(&error)),
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

    /// The machines of the job of a plan in its place, when the cloud told.
    pub fn known<'a>(&'a self, plan: &'a Plan) -> Option<Vec<&'a InstanceView>> {
        match self.at(plan)? {
            Answer::Known(jobs) => Some(of_plan(jobs, plan).collect()),
            Answer::Unknown(_) | Answer::Denied(_) => None,
        }
    }

    /// Why we may not look at the place of a plan.
    pub fn denied(&self, plan: &Plan) -> Option<&str> {
        match self.at(plan)? {
            Answer::Denied(why) => Some(why),
            Answer::Known(_) | Answer::Unknown(_) => None,
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
                Some(Answer::Unknown(why) | Answer::Denied(why)) if !settled => return CloudAnswer::Unknown(why.clone()),
                None if !settled => return CloudAnswer::Unknown(format!("{} was not asked yet", plan.offer.region)),
                Some(Answer::Unknown(_) | Answer::Denied(_)) | None => {}
            }
        }
        CloudAnswer::Known(views)
    }
}

/// A kept machine carries the name of a job before until it is started: the last one's, or an earlier one's, where the last could not
/// start it.
fn of_plan<'a>(jobs: &'a BTreeMap<JobId, Vec<InstanceView>>, plan: &'a Plan) -> impl Iterator<Item = &'a InstanceView> {
    let others = plan.starts.iter().flat_map(|_| jobs.iter()).filter(|(job, _)| **job != plan.job).flat_map(|(_, views)| views);
    let kept = others.filter(|view| is_kept_for(plan, view));
    jobs.get(&plan.job).into_iter().flatten().chain(kept)
}
