//! `lamp daemon`: drives every job of its job roots in the foreground. systemd runs it
//! (systemd/lamp-controller.service).
//!
//! ```text
//!   --job-root A --job-root B ──> a lock, a store, a controller and a loop for each, on one thread
//! ```
//!
//! The loops share only the spending: the user's caps count all these job roots together. Not here:
//! decisions about a job.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use clap::Args as ClapArgs;
use futures::future::join_all;
use tracing::Instrument as _;

#[cfg(feature = "web")]
use super::daemon_page as page;
use crate::app::drive;
use crate::app::find_job;
use crate::app::record_errors;
use crate::app::text::counted;
use crate::cli::run::attach::TELLING_MAX;
use crate::cli::shell::{ctrl_c, job_root};
use crate::cli::status::driverless_jobs::Undriven;
use crate::cli::tune::tuning_daemon::drive_tunings;
use crate::cli::{Context, ExitCode, Fault};
use crate::controller::Controller;
use crate::job::JobId;
use crate::jobdir::{JobDir, JobDirError};
use crate::wire::{DaemonLock, DrivingLock, Service, StoreHandle, Workstation};

/// Drive all jobs of the job root: relaunch after interruptions, write receipts
///
/// For several job roots: `lamp --job-root A --job-root B daemon`. Caps count all their jobs.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Only this job, by its id, the beginning of it, or its name; may be repeated
    #[arg(long, value_name = "JOB")]
    pub job: Vec<String>,

    /// End when the jobs named have ended, or when this process gets no answers and a newer one
    /// drives them too
    #[arg(long, requires = "job")]
    pub until_done: bool,

    /// Serve the page and the API of the first job root too, as `lamp web` does [default address:
    /// 127.0.0.1:7878]
    #[cfg(feature = "web")]
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:7878")]
    pub web: Option<std::net::SocketAddr>,

    /// A further host name of the page, for a proxy in front of it; may be repeated
    #[cfg(feature = "web")]
    #[arg(long, value_name = "NAME", requires = "web")]
    pub host: Vec<String>,
}

/// # Errors
/// Fails when a job root cannot be opened, or another daemon drives it.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    if !args.job.is_empty() && !context.roots.more.is_empty() {
        return Err(Fault::new(
            ExitCode::USAGE,
            "--job names a job of one job root, and --job-root was given more than once",
        ));
    }
    #[cfg(feature = "web")]
    args.web.map_or(Ok(()), page::only_this_machine)?;
    let mut desks = Vec::new();
    let here = job_root::workstation(context)?;
    for root in std::iter::once(&context.roots.url).chain(&context.roots.more) {
        desks.push(DrivenRoot::open(args, context, &here.at(root)).await?);
    }
    Controller::count_together(
        &mut desks.iter_mut().map(|desk| &mut desk.controller).collect::<Vec<_>>(),
    );
    let service = here.service();
    if args.until_done {
        desks.iter_mut().for_each(|desk| desk.take_over(&here.owner));
    }
    // Listen before reporting ready: the reader may end the daemon at once.
    let mut left = ctrl_c::LeaveSignals::listen();
    service.ready();
    let roots: Vec<&str> = std::iter::once(&context.roots.url)
        .chain(&context.roots.more)
        .map(String::as_str)
        .collect();
    context.printer.note(format!(
        "driving the jobs of {}; Ctrl-C ends this, the jobs go on",
        roots.join(", ")
    ));
    if context.config.user.caps.let_nothing() {
        context.printer.warn("a cap in [caps] is 0: nothing is launched that costs anything");
        context.printer.hint("without `usd_per_hour` and `usd_per_day` there is no cap");
    }
    let pulse = Pulse::new(&*service, desks.len());
    let driven = join_all(desks.iter().enumerate().map(|(at, desk)| {
        let driven = desk.controller.drive_all(&desk.jobs, pulse.of(at));
        driven.instrument(if roots.len() > 1 { of(roots[at]) } else { tracing::Span::none() })
    }));
    let tunings =
        async {
            let roots = desks.iter().filter(|desk| desk.jobs.is_empty());
            join_all(roots.map(|desk| {
                drive_tunings(context, &desk.store, &desk.workstation, &desk.controller)
            }))
            .await;
            // A driver of named jobs drives no tuning.
            std::future::pending::<()>().await;
        };
    let mut has_left = false;
    #[cfg(feature = "web")]
    let wanted = args.web.map(|address| page::WantedPage { address, hosts: &args.host });
    #[cfg(feature = "web")]
    let page = page::beside(wanted, context, desks[0].store.clone(), &desks[0].workstation);
    #[cfg(not(feature = "web"))]
    let page = std::future::pending::<()>();
    tokio::select! {
        _ = driven => {}
        () = page => {}
        () = tunings => {}
        // The job root has all state, so nothing needs saving.
        () = left.heard() => has_left = true,
        () = taken_over(context, &desks) => context.printer.note("this process gets no answers, and a newer one drives the jobs too"),
    }
    service.stopping();
    // Running notification commands may finish.
    tokio::select! {
        _ = join_all(desks.iter().map(|desk| desk.controller.finish_telling())) => {}
        () = context.clock.sleep(TELLING_MAX) => {}
    }
    if has_left {
        let is_idle = pulse.told.get() == Some(0);
        for desk in desks {
            desk.leave(context, is_idle).await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// With several job roots, traces name theirs.
fn of(root: &str) -> tracing::Span {
    tracing::warn_span!("of", job_root = %root)
}

struct DrivenRoot {
    workstation: Workstation,
    store: StoreHandle,
    controller: Controller,
    jobs: Vec<JobId>,
    /// Held while this value exists. A driver of named jobs takes no daemon lock: the records let
    /// both run.
    _lock: Option<DaemonLock>,
    driving: Vec<DrivingLock>,
}

const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A driver without answers for this long leaves its jobs to a newer one. Sooner, an outage would
/// lose what it knows of a silent machine; later, drivers with expired credentials pile up.
const TROUBLE_MAX: Duration = Duration::from_secs(600);

/// Returns when newer processes drive all these jobs, and this one gets no answers. Else it stays:
/// it knows more about the machine.
async fn taken_over(context: &Context, desks: &[DrivenRoot]) {
    loop {
        context.clock.sleep(LOOK_EVERY).await;
        let gives_way = |desk: &DrivenRoot| {
            let is_newer =
                !desk.driving.is_empty() && desk.driving.iter().all(DrivingLock::is_taken);
            is_newer && desk.controller.troubled_for() >= TROUBLE_MAX
        };
        if desks.iter().all(gives_way) {
            return;
        }
    }
}

impl DrivenRoot {
    /// Becomes the newest driver of these jobs. Several may drive: the records allow it.
    fn take_over(&mut self, owner: &str) {
        for lock in &mut self.driving {
            if let Err(error) = lock.take_over(owner) {
                tracing::warn!("cannot take over from another driver: {error}");
            }
        }
    }

    async fn open(
        args: &Args,
        context: &Context,
        workstation: &Workstation,
    ) -> Result<DrivenRoot, Fault> {
        let store = workstation
            .open_root(false)
            .await
            .map_err(|error| job_root::open_fault(context, &error))?;
        let mut jobs = Vec::new();
        for text in &args.job {
            jobs.push(meant(&store, text).await?);
        }
        let driving =
            jobs.iter().filter_map(|job| workstation.lock_driving(job.as_str())).collect();
        let lock = if args.job.is_empty() {
            let lock = workstation.lock_daemon().map_err(|error| {
                Fault::new(ExitCode::UNREACHABLE, "cannot write in the state folder")
                    .because(&error)
            })?;
            Some(lock.ok_or_else(|| {
                Fault::new(
                    ExitCode::REFUSED,
                    format!("a daemon drives {} already", workstation.job_root),
                )
                .hint("`systemctl --user status lamp-controller` shows it")
            })?)
        } else {
            None
        };
        Ok(DrivenRoot {
            controller: drive::controller(workstation, &store)?,
            workstation: workstation.clone(),
            store,
            jobs,
            _lock: lock,
            driving,
        })
    }

    /// `is_idle`: all jobs had ended at the last look, so a bucket is not asked again, which
    /// costs money.
    async fn leave(self, context: &Context, is_idle: bool) {
        let DrivenRoot { workstation, store, controller, jobs, _lock: lock, driving } = self;
        drop((controller, lock, driving));
        if !is_idle || store.is_folder() {
            Undriven { workstation: &workstation, store: &store, jobs: &jobs }.tell(context).await;
        }
    }
}

/// Tells the service manager that every loop runs, and how many jobs are under way.
struct Pulse<'a> {
    service: &'a dyn Service,
    /// For each loop: whether it reported since the last `alive`, and its number of jobs.
    loops: RefCell<Vec<(bool, usize)>>,
    told: Cell<Option<usize>>,
}

impl<'a> Pulse<'a> {
    fn new(service: &'a dyn Service, loops: usize) -> Self {
        Pulse { service, loops: RefCell::new(vec![(false, 0); loops]), told: Cell::new(None) }
    }

    fn of(&self, at: usize) -> impl FnMut(usize) + '_ {
        move |active| self.heard(at, active)
    }

    /// Reports `alive` only after every loop has reported, so that a hung loop is noticed.
    fn heard(&self, at: usize, active: usize) {
        let mut loops = self.loops.borrow_mut();
        loops[at] = (true, active);
        if loops.iter().all(|(heard, _)| *heard) {
            loops.iter_mut().for_each(|(heard, _)| *heard = false);
            self.service.alive();
        }
        let all = loops.iter().map(|(_, active)| active).sum();
        if self.told.replace(Some(all)) != Some(all) {
            self.service.status(&format!("{} under way", counted(all as u64, "job")));
            // The sum of all job roots, so it names none of them.
            tracing::info!(parent: None, "{} under way", counted(all as u64, "job"));
        }
    }
}

/// The job that other commands would find. A missing job, or one of a newer version, is an error
/// here: the driver would skip it.
async fn meant(store: &StoreHandle, text: &str) -> Result<JobId, Fault> {
    let spec = match text.parse::<JobId>() {
        Ok(job) => match JobDir::new(Arc::clone(store), job.clone()).spec().await {
            // A driver survives failures of the job root, also at its start.
            Ok(Some(_)) | Err(JobDirError::Store(_)) => return Ok(job),
            spec => spec,
        },
        Err(_) => Ok(None),
    };
    spec.map_err(|error| record_errors::record_fault(&error))?;
    let dir = find_job::find_under_way(store, Some(text)).await?;
    if dir.job().as_str() == text {
        let fault = Fault::new(ExitCode::NOT_FOUND, format!("no job `{text}` in {}", store.url()));
        return Err(fault.meaning("it was never submitted completely"));
    }
    Ok(dir.job().clone())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Heard {
        fn say(&self, word: &str) {
            self.0.lock().expect("nobody panics with it").push(word.to_owned());
        }
    }

    impl Service for Heard {
        fn ready(&self) {
            self.say("ready");
        }
        fn alive(&self) {
            self.say("alive");
        }
        fn status(&self, text: &str) {
            self.say(text);
        }
        fn stopping(&self) {
            self.say("stopping");
        }
    }

    #[test]
    fn loop_that_hangs_does_not_hide_behind_another() {
        let heard = Heard::default();
        let pulse = Pulse::new(&heard, 2);
        let (mut one, mut other) = (pulse.of(0), pulse.of(1));
        for _ in 0..3 {
            one(2);
        }
        let words = || std::mem::take(&mut *heard.0.lock().expect("nobody panics with it"));
        assert_eq!(words(), ["2 jobs under way"], "nobody has heard the other");
        other(1);
        assert_eq!(words(), ["alive", "3 jobs under way"]);
        other(1);
        assert!(words().is_empty(), "the first agent is silent now");
        one(2);
        assert_eq!(words(), ["alive"]);
    }
}
