//! The most that one trial can cost, from a plan of each kind of its machines.

use super::step::TuneDriver;
use crate::app::{ExitCode, Fault};
use crate::controller::ActError;
use crate::job::{ResolvedSpec, machine_kinds};
use crate::market::Usd;

impl TuneDriver<'_> {
    /// The most that all ranks of a trial can cost; `None`: unlimited.
    ///
    /// # Errors
    /// Fails when a budget needs the figure, and no machine can be planned now.
    pub(super) async fn most_of(&self, job: &ResolvedSpec) -> Result<Option<Usd>, Fault> {
        let own_budget = job.spec.limits.budget;
        match self.planned_most(job).await {
            Ok(most) => Ok(most),
            Err(error) if own_budget.is_none() && self.memory.tuning.tune.budget.is_some() => {
                Err(Fault::from_error(ExitCode::UNREACHABLE, &error)
                    .meaning("no further trial is started; running ones go on"))
            }
            Err(error) => {
                tracing::debug!(job = %job.job, "its cost is not known before it starts: {error}");
                let ranks = job.rank_jobs().len();
                Ok(own_budget.map(|budget| std::iter::repeat_n(budget, ranks).sum()))
            }
        }
    }

    async fn planned_most(&self, job: &ResolvedSpec) -> Result<Option<Usd>, ActError> {
        let planned = self.controller.first_plan(job).await?;
        let Some(gang) = &job.spec.gang else { return Ok(planned.most_job.usd) };
        let region = planned.plan.offer.region.to_string();
        let mut all = Some(Usd::ZERO);
        for (index, (_, machine, count)) in
            machine_kinds(gang, &job.spec.machine).into_iter().enumerate()
        {
            let most = match index {
                0 => planned.most_job.usd,
                _ => {
                    let mut alone = job.clone();
                    (alone.spec.machine, alone.spec.gang) = (machine, None);
                    alone.spec.machine.regions = vec![region.clone()];
                    self.controller.first_plan(&alone).await?.most_job.usd
                }
            };
            let most: Option<Usd> = most.map(|usd| std::iter::repeat_n(usd, count).sum());
            all = all.zip(most).map(|(sum, usd)| sum + usd);
        }
        Ok(all)
    }
}
