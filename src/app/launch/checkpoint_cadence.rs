//! Whether the checkpoint interval suits the planned machine, by the saves that earlier runs of
//! this job name measured.
//!
//! The rule is `policy::watch::checkpoint_interval`; a rehearsal uses it with its own save. `lamp
//! plan` shows all of it. `lamp run` refuses a spot machine if the last save does not fit into the
//! notice, unless `--late-save` is given.

use futures::future::join_all;
use serde::Serialize;

use crate::app::find_job;
use crate::app::text::counted;
use crate::app::{ExitCode, Fault};
use crate::controller::Planned;
use crate::job::{CheckpointSpec, MarketChoice, REHEARSAL, ResolvedSpec};
use crate::jobdir::{self, EventDetail, JobDir, layout};
use crate::market::{CloudKind, Span};
use crate::policy::market::auto_market::UNMEASURED_START;
use crate::policy::market::pool_history::Pool;
use crate::policy::{Cadence, CadenceFault, CadenceVerdict, check_cadence};
use crate::wire::StoreHandle;

/// Enough saves to know how long one takes; older ones are from an older program.
const SAVES_READ: usize = 10;

/// EC2's notice. A rehearsal may use a shorter one to be faster; a separate check judges that one.
pub const CLOUDS_NOTICE: Span = Span::from_secs(120);

/// A mean life above this counts as unlimited, in hours.
const LIFE_HOURS_MAX: f64 = 48.0;

/// The result in `lamp plan`; the field names are an interface.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct CadenceShown {
    pub job: String,
    pub saves: usize,
    pub save_seconds: f64,
    pub whole_seconds: f64,
    pub interval_seconds: f64,
    pub taken_every_seconds: f64,
    pub saving_share: f64,
    pub lost_share: f64,
    pub best_seconds: f64,
    pub best_share: f64,
    pub fault: Option<String>,
    #[serde(skip)]
    verdict: CadenceVerdict,
    #[serde(skip)]
    cadence: Cadence,
}

/// The saves that the newest job of a name, or its rehearsal, measured.
#[derive(Clone, Debug)]
pub struct MeasuredSaves {
    job: String,
    /// Seconds of each: the save, and its upload.
    saves: Vec<(f64, f64)>,
    spec: CheckpointSpec,
}

/// `None`: no measured save, or a machine that cannot be interrupted.
///
/// Reads the job root three times in turn, whatever the number of saves; five times if the
/// checkpoints are gone.
pub async fn measured(store: &StoreHandle, spec: &ResolvedSpec) -> Option<MeasuredSaves> {
    let machine = &spec.spec.machine;
    let is_taken = machine.cloud != CloudKind::Local && machine.market != MarketChoice::OnDemand;
    if is_taken { ever_measured(store, spec).await } else { None }
}

/// The same for every kind of machine.
pub async fn ever_measured(store: &StoreHandle, spec: &ResolvedSpec) -> Option<MeasuredSaves> {
    let job = &spec.spec;
    let checkpoint = job.checkpoint.as_ref()?;
    let rehearsed = format!("{}{REHEARSAL}", job.name);
    let dir = find_job::newest_named(store, &[&job.name, &rehearsed]).await.ok()??;
    let (numbers, earlier, gone) =
        tokio::join!(dir.checkpoint_numbers(), dir.spec(), dir.discarded());
    // The upload from this workstation says nothing about a machine in the cloud.
    let uploads = earlier
        .ok()
        .flatten()
        .is_some_and(|earlier| earlier.spec.machine.cloud != CloudKind::Local);
    let read = join_all(
        numbers
            .unwrap_or_default()
            .into_iter()
            .rev()
            .take(SAVES_READ)
            .map(|number| dir.manifest(number)),
    )
    .await;
    let mut saves: Vec<(f64, f64)> = read
        .into_iter()
        .filter_map(|manifest| manifest.ok().flatten())
        .map(|save| (save.save_secs, save.upload_secs))
        .collect();
    // Only after a discard, so that a launch does not wait for more reads.
    if saves.is_empty() && gone.is_ok_and(|gone| gone.is_some()) {
        saves = told(&dir).await.unwrap_or_default();
    }
    saves.iter_mut().filter(|_| !uploads).for_each(|(_, upload)| *upload = 0.0);
    Some(MeasuredSaves { job: dir.job().as_str().to_owned(), saves, spec: checkpoint.clone() })
}

/// From the events of the last attempt that saved: they stay when checkpoints are discarded.
async fn told(dir: &JobDir) -> Option<Vec<(f64, f64)>> {
    for attempt in dir.attempts().await.ok()?.into_iter().rev() {
        let events = dir.events(attempt).await.ok()?;
        let saves = events.iter().rev().filter_map(|event| match event.what {
            EventDetail::Checkpoint { save_secs, upload_secs, .. } => {
                Some((save_secs, upload_secs))
            }
            _ => None,
        });
        let saves: Vec<(f64, f64)> = saves.take(SAVES_READ).collect();
        if !saves.is_empty() {
            return Some(saves);
        }
    }
    None
}

/// For a plan: the cost of the job's interval on machines of the planned pool.
pub async fn of(
    store: &StoreHandle,
    measured: Option<&MeasuredSaves>,
    planned: &Planned,
) -> Option<CadenceShown> {
    let measured = measured?;
    let pool = match &planned.outlook {
        Some(outlook) => outlook.pool.clone(),
        None => pool(store, planned).await,
    };
    let taken_every = hours(pool.spells.met().life_hours(LIFE_HOURS_MAX));
    let restart =
        pool.starts.iter().max().copied().unwrap_or(Span::from_duration(UNMEASURED_START));
    CadenceShown::judge(measured, taken_every, restart)
}

impl MeasuredSaves {
    /// How long a save stops the work, in seconds, and the job that measured it.
    pub fn save(&self) -> Option<(f64, &str)> {
        Some((self.seconds()?.0, &self.job))
    }

    /// The median stop for a save, and the 95th percentile including the upload.
    fn seconds(&self) -> Option<(f64, f64)> {
        let save = quantile(self.saves.iter().map(|(save, _)| *save).collect(), 50)?;
        let whole = quantile(self.saves.iter().map(|(save, upload)| save + upload).collect(), 95)?;
        Some((save, whole))
    }

    /// Before a run: whether an interrupted machine has time for a save.
    ///
    /// # Errors
    /// Fails when a save is longer than the notice: each interruption would lose all work since the
    /// last one.
    pub fn refuse(&self) -> Result<(), Fault> {
        let Some((_, whole)) = self.seconds() else { return Ok(()) };
        match check_cadence(self.spec.interval, secs(whole), Some(CLOUDS_NOTICE)) {
            Err(fault @ CadenceFault::LongerThanNotice { .. }) => Err(self.refusal(fault)),
            _ => Ok(()),
        }
    }

    fn refusal(&self, fault: CadenceFault) -> Fault {
        let measured = counted(self.saves.len() as u64, "save");
        Fault::new(ExitCode::REFUSED, format!("by what `{}` has measured ({measured}), no last checkpoint fits into the notice of a spot machine", self.job))
            .because(&fault)
            .meaning("nothing was started or billed")
            .hint("save less, or to a faster disk, and let `lamp rehearse` measure it again; or `--market on-demand`; or `--late-save`: it may lose what it did since the last save")
    }
}

async fn pool(store: &StoreHandle, planned: &Planned) -> Pool {
    let (zone, kind) =
        (planned.plan.offer.zone.as_str(), planned.plan.offer.instance_type.as_str());
    let key = layout::pool(zone, kind);
    let known = store.get(&key).await.ok().flatten();
    known
        .and_then(|bytes| jobdir::decode(&key, &bytes).ok())
        .unwrap_or_else(|| Pool::new(zone, kind))
}

fn hours(hours: f64) -> Span {
    Span::from_secs((hours * 3600.0).round() as u64)
}

fn secs(secs: f64) -> Span {
    Span::from_duration(std::time::Duration::from_millis((secs.max(0.0) * 1000.0).round() as u64))
}

fn quantile(mut numbers: Vec<f64>, percent: usize) -> Option<f64> {
    numbers.sort_unstable_by(f64::total_cmp);
    numbers.get((numbers.len() * percent).div_ceil(100).checked_sub(1)?).copied()
}

impl CadenceShown {
    fn judge(measured: &MeasuredSaves, taken_every: Span, restart: Span) -> Option<CadenceShown> {
        let (save, whole) = measured.seconds()?;
        let spec = &measured.spec;
        let cadence = Cadence {
            interval: spec.interval,
            save: secs(save),
            whole: secs(whole),
            restart,
            taken_every,
            notice: Some(CLOUDS_NOTICE),
        };
        let verdict = cadence.judge();
        Some(CadenceShown {
            job: measured.job.clone(),
            saves: measured.saves.len(),
            save_seconds: save,
            whole_seconds: whole,
            interval_seconds: spec.interval.secs_f64(),
            taken_every_seconds: taken_every.secs_f64(),
            saving_share: verdict.cost.saving_share,
            lost_share: verdict.cost.lost_share,
            best_seconds: verdict.best.secs_f64(),
            best_share: verdict.best_cost.saving_share + verdict.best_cost.lost_share,
            fault: verdict.fault.map(|fault| fault.to_string()),
            verdict,
            cadence,
        })
    }

    pub fn code(&self) -> ExitCode {
        if matches!(self.verdict.fault, Some(CadenceFault::LongerThanNotice { .. })) {
            ExitCode::REFUSED
        } else {
            ExitCode::SUCCESS
        }
    }

    pub fn text(&self) -> String {
        let CadenceShown { cadence, verdict, .. } = self;
        let percent = |share: f64| format!("{:.1}%", 100.0 * share);
        format!(
            "a checkpoint every {}: saves took {} in {}; on machines that are taken every {} {} of the time goes into saving and {} is lost, \
             with the next start; every {} would cost {}",
            cadence.interval,
            cadence.whole,
            self.job,
            cadence.taken_every,
            percent(self.saving_share),
            percent(self.lost_share),
            verdict.best,
            percent(self.best_share)
        )
    }

    /// The change to make if the interval does not suit the machine.
    pub fn cure(&self) -> &'static str {
        match self.verdict.fault {
            Some(CadenceFault::LongerThanNotice { .. }) => {
                "save less (a smaller state), or to a faster disk; or --market on-demand"
            }
            _ => "a longer `checkpoint.interval`, a smaller state, or a faster disk",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(saves: &[(f64, f64)]) -> MeasuredSaves {
        let spec = CheckpointSpec {
            path: "c".into(),
            interval: Span::from_secs(600),
            signal: None,
            grace: Span::from_secs(60),
        };
        MeasuredSaves { job: "toy-222222".to_owned(), saves: saves.to_vec(), spec }
    }

    fn shown(saves: &[(f64, f64)]) -> Option<CadenceShown> {
        CadenceShown::judge(&measured(saves), Span::from_secs(4 * 3600), Span::from_secs(600))
    }

    #[test]
    fn what_was_measured_says_what_a_cadence_costs() {
        let shown = shown(&[(5.0, 5.0), (6.0, 4.0), (8.0, 20.0)]).expect("measured");
        assert_eq!(
            (shown.save_seconds, shown.whole_seconds, shown.code()),
            (6.0, 28.0, ExitCode::SUCCESS)
        );
        let text = shown.text();
        assert!(text.starts_with("a checkpoint every 10m: saves took 28s in toy-222222; on machines that are taken every 4h 1.0% of"), "{text}");
        // Half an interval and a start of ten minutes, every four hours.
        assert!(
            (shown.lost_share - (303.0 + 600.0) / 14_400.0).abs() < 1e-9,
            "{}",
            shown.lost_share
        );
        assert!(shown.best_share <= shown.saving_share + shown.lost_share);
    }

    #[test]
    fn save_that_does_not_fit_into_the_notice_is_refused() {
        let shown = shown(&[(50.0, 60.0)]).expect("measured");
        assert!(
            shown.code() == ExitCode::REFUSED
                && shown
                    .fault
                    .as_ref()
                    .is_some_and(|fault| fault.contains("longer than the 2m of notice"))
        );
        assert_eq!(
            measured(&[(50.0, 60.0)]).refuse().expect_err("no run either").code,
            ExitCode::REFUSED
        );
        assert!(
            self::shown(&[]).is_none() && measured(&[]).refuse().is_ok(),
            "without a measurement there is no verdict"
        );
    }

    #[test]
    fn save_longer_than_its_interval_is_not_refused() {
        let mut measured = measured(&[(20.0, 10.0)]);
        measured.spec.interval = Span::from_secs(30);
        assert_eq!(measured.refuse(), Ok(()));
    }
}
