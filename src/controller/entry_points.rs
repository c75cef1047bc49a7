//! The calls of the command line, of the sweeper in the cloud and of the simulated world. Each goes
//! to a part of the controller, which says what the call does and when it fails.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::act_result::ActError;
use super::cloud_answers::CloudRegion;
use super::controller::Controller;
use super::job_memory::JobMemory;
use super::launch::agent_shipping::ShipError;
use super::launch::continue_job::Kept;
use super::launch::first_launch::FirstLaunch;
use super::launch::plan::Planned;
use super::launch::scheduled_runs::ScheduleMemory;
use super::launch::submit::{Archive, SubmitError};
use super::settle::release_kept::GaveUp;
use super::sweep::sweeper::{EndAnswer, Everywhere, Judged, SweepFindings};
use crate::account::sweeper_visit::Visit;
use crate::account::{ForeignMachine, Residue};
use crate::instance::{InstanceView, MachineRef};
use crate::job::{Continues, Plan, Reason, Receipt, ResolvedSpec, Spec};
use crate::jobdir::{JobDir, JobDirError};
use crate::market::{Offer, PriceHistory, Span, UsdPerHour};
use crate::policy::purchase::spending_cap::Spending;
use crate::ports::CloudError;

/// Plans and launches.
impl Controller {
    pub async fn check_clock(&self) -> Result<(), ActError> {
        self.clock.check().await
    }

    pub async fn first_plan(&self, spec: &ResolvedSpec) -> Result<Planned, ActError> {
        self.launcher.first_plan(spec).await
    }

    pub async fn past_prices(&self, plan: &Plan, time: Span) -> Result<PriceHistory, String> {
        self.launcher.past_prices(plan, time).await
    }

    pub async fn permissions<'a>(
        &self,
        spec: &Spec,
        planned: &'a Planned,
    ) -> (Result<(), ActError>, Vec<(&'a Offer, Result<(), ActError>)>) {
        self.launcher.permissions(spec, planned).await
    }

    pub async fn agent_fits(&self, plan: &Plan) -> Result<(), ShipError> {
        self.launcher.agent_fits(plan).await
    }

    pub async fn ship_ahead(&self, plan: &Plan) {
        self.launcher.ship_ahead(plan).await;
    }

    pub async fn spending(&self) -> Result<Spending, JobDirError> {
        self.launcher.caps.spending().await
    }

    pub async fn cap_on(&self, plan: &Plan) -> Result<Option<Reason>, JobDirError> {
        self.launcher.caps.cap_on(plan).await
    }

    pub fn cap_forbids(&self, plan: &Plan) -> Option<Reason> {
        self.launcher.caps.forbids(plan)
    }

    pub fn cap_forbids_rate(&self, rate: UsdPerHour) -> Option<Reason> {
        self.launcher.caps.forbids_rate(rate)
    }

    pub async fn submit(
        &self,
        spec: &ResolvedSpec,
        archive: &Archive,
    ) -> Result<JobDir, SubmitError> {
        self.launcher.submit(spec, archive).await
    }

    pub async fn upload_code(
        &self,
        spec: &ResolvedSpec,
        archive: &Archive,
    ) -> Result<(), SubmitError> {
        self.launcher.upload_code(spec, archive).await
    }

    pub async fn make(&self, dir: &JobDir, spec: &ResolvedSpec) -> Result<(), SubmitError> {
        self.launcher.make(dir, spec).await
    }

    /// Makes a job and launches its first attempt. Gives the memory for the drive, and whether the
    /// launch was requested; if not, the drive tries again.
    pub async fn begin(
        &self,
        dir: &JobDir,
        spec: &ResolvedSpec,
        planned: Planned,
    ) -> Result<(JobMemory, Result<(), ActError>), SubmitError> {
        let first = self.launcher.begin(dir, spec, planned).await?;
        let FirstLaunch { mut memory, result, was_planned, decided } = first;
        if was_planned {
            // Settles a refusal. Only the controller that made the plan knows for sure that no
            // other launched it, and only for less than a minute. A later one waits five minutes.
            if memory.attempts.values().any(|attempt| attempt.watched.refused.is_some()) {
                let answers = self.describe(memory.places()).await;
                if let Err(error) = self.tick(&spec.job, &mut memory, answers).await {
                    tracing::debug!(job = %spec.job, "{error}");
                }
            }
            self.launcher.record_first(dir, &mut memory, decided.as_ref()).await;
        }
        Ok((memory, result))
    }

    pub async fn run_schedules(&self, memory: &mut ScheduleMemory) {
        self.schedules.run(memory).await;
    }
}

/// Ended jobs, and the jobs that continue them.
impl Controller {
    pub async fn kept(&self, dir: &JobDir) -> Result<Option<Kept>, ActError> {
        self.launcher.kept(dir).await
    }

    pub async fn reusable(&self, dir: &JobDir) -> Result<Option<Continues>, ActError> {
        self.launcher.reusable(dir).await
    }

    pub async fn hand_on(&self, dir: &JobDir) -> Result<(), JobDirError> {
        self.settler.record_given_up(dir, None).await
    }

    pub async fn is_stopped(&self, dir: &JobDir) -> Result<bool, JobDirError> {
        self.launcher.is_stopped(dir).await
    }

    pub async fn carry_code(
        &self,
        from: &JobDir,
        next: &ResolvedSpec,
        scratch: &Path,
    ) -> Result<(), SubmitError> {
        self.launcher.carry_code(from, next, scratch).await
    }

    pub async fn kept_elsewhere(&self, dir: &JobDir) -> Result<Option<String>, JobDirError> {
        self.settler.kept_elsewhere(dir).await
    }

    pub async fn kept_machine(&self, dir: &JobDir) -> Result<Option<InstanceView>, ActError> {
        self.settler.kept_machine(dir).await
    }

    pub async fn give_up(&self, dir: &JobDir, machine: &MachineRef) -> Result<GaveUp, ActError> {
        self.settler.give_up(dir, machine).await
    }

    pub async fn see_gone(&self, dir: &JobDir, receipt: &Receipt) -> Result<bool, ActError> {
        self.settler.see_gone(dir, receipt).await
    }

    /// Before this process ends: no notification is cut off.
    pub async fn finish_telling(&self) {
        self.notifier.finish().await;
    }
}

/// Machines that no job needs.
impl Controller {
    pub async fn everywhere(&self) -> (BTreeSet<CloudRegion>, Vec<(String, String)>) {
        self.sweeper.everywhere().await
    }

    pub async fn ask_everywhere(&self) -> Everywhere {
        self.sweeper.ask_everywhere().await
    }

    pub async fn look_for_orphans(&self, places: &BTreeSet<CloudRegion>) -> SweepFindings {
        self.sweeper.look_for_orphans(places).await
    }

    pub async fn look_at_machines(
        &self,
        places: &BTreeSet<CloudRegion>,
        each: Duration,
    ) -> SweepFindings {
        self.sweeper.look_at_machines(places, each).await
    }

    pub async fn end_orphan(&self, before: &Judged) -> Result<Option<EndAnswer>, CloudError> {
        self.sweeper.end_orphan(before).await
    }

    pub async fn end_stray(&self, named: &MachineRef) -> Result<Option<EndAnswer>, CloudError> {
        self.sweeper.end_stray(named).await
    }

    pub async fn clear(&self, residue: &Residue) -> Result<(), CloudError> {
        self.clouds.clear(residue).await
    }

    pub async fn foreign(
        &self,
        places: &BTreeSet<CloudRegion>,
    ) -> (Vec<ForeignMachine>, Vec<(String, String)>) {
        self.sweeper.foreign(places).await
    }

    pub async fn visit(&self, sweeper: &str, version: &str, room: Duration) -> Visit {
        self.sweeper.visit(sweeper, version, room).await
    }
}
