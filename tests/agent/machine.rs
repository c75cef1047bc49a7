//! A machine whose workload outlives its agents, in virtual time: what the holder is on a real one.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use jiff::Timestamp;
use lamplighter::instance::{Notice, Tags};
use lamplighter::job::{AttemptNo, ExitStatus};
use lamplighter::market::Span;
use lamplighter::ports::{
    Clock, Ended, Identity, Launch, Metadata, MetadataError, Power, PowerError, PowerOff, Scope,
    Signal, Workload, WorkloadError, Workloads,
};
use tokio::sync::{Notify, watch};

use crate::secs;
use lamp_test_support::virtual_clock::VirtualClock;

/// A checkpoint is saved every so many steps, so also at the last.
const SAVE_EVERY: u64 = 4;

pub struct Machine {
    clock: Arc<VirtualClock>,
    /// By the cloud's clock, whatever the machine's own is set to.
    launched: Timestamp,
    /// Of the training, one a second.
    steps: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    starts: Vec<(PathBuf, Arc<Run>)>,
    /// So many questions for a workload are answered with an error.
    attach_faults: u32,
    /// What was started is gone without a trace.
    vanished: bool,
    dark: Vec<PowerOff>,
    complaints: Vec<String>,
}

/// One start of a workload.
struct Run {
    launch: Launch,
    ended: watch::Sender<Option<Ended>>,
    told: Notify,
    asked: Notify,
    printed: AtomicU64,
}

impl Machine {
    pub fn new(clock: Arc<VirtualClock>, steps: u64) -> Arc<Self> {
        Arc::new(Machine { launched: clock.now(), clock, steps, state: Mutex::default() })
    }

    pub fn fail_attach(&self, times: u32) {
        self.state.lock().unwrap().attach_faults = times;
    }

    /// Starts of the user's command, without its setup.
    pub fn trainings(&self) -> usize {
        self.state.lock().unwrap().starts.iter().filter(|(_, run)| !run.is_setup()).count()
    }

    pub fn setups(&self) -> usize {
        self.state.lock().unwrap().starts.iter().filter(|(_, run)| run.is_setup()).count()
    }

    /// Whatever was started so far is gone, as with an earlier life of the machine.
    pub fn vanish(&self) {
        let mut state = self.state.lock().unwrap();
        state.starts.iter().for_each(|(_, run)| run.end(137));
        state.vanished = true;
    }

    pub fn is_dark(&self) -> bool {
        !self.state.lock().unwrap().dark.is_empty()
    }

    pub fn complaints(&self) -> Vec<String> {
        self.state.lock().unwrap().complaints.clone()
    }

    fn find(&self, dir: &Path) -> Option<Arc<Run>> {
        let state = self.state.lock().unwrap();
        state
            .starts
            .iter()
            .find(|(there, _)| there == dir && !state.vanished)
            .map(|(_, run)| Arc::clone(run))
    }
}

impl Run {
    fn is_setup(&self) -> bool {
        lamplighter::job::shown(&self.launch.argv).starts_with("/bin/sh -ec ")
    }

    fn is_over(&self) -> bool {
        self.ended.borrow().is_some()
    }

    fn end(&self, code: i32) {
        let exit = ExitStatus { code: Some(code), ..ExitStatus::default() };
        self.ended.send_if_modified(|ended| {
            ended.is_none()
                && ended.replace(Ended { exit, orphans: 0, ..Default::default() }).is_none()
        });
    }

    async fn live(&self, clock: &VirtualClock, steps: u64) {
        if self.is_setup() {
            self.print("installing");
            clock.sleep(secs(2)).await;
            return self.end(0);
        }
        let resume: u64 =
            self.launch.env.get("LAMP_RESUME_STEP").map_or(0, |step| step.parse().expect("a step"));
        for step in resume + 1..=steps {
            let next = clock.mono() + secs(1);
            loop {
                tokio::select! {
                    biased;
                    () = self.told.notified() => return self.end(143),
                    () = self.asked.notified() => self.save(step - 1),
                    () = clock.sleep(next.saturating_sub(clock.mono())) => break,
                }
            }
            self.print(&format!("step {step}"));
            self.progress(&format!("{{\"step\": {step}, \"total\": {steps}}}"));
            if step % SAVE_EVERY == 0 {
                self.save(step);
            }
        }
        self.end(0);
    }

    fn print(&self, line: &str) {
        let log = self.launch.dir.join("log");
        std::fs::create_dir_all(&log).unwrap();
        append(&log.join("00000001.log"), line);
        self.printed.fetch_add(line.len() as u64 + 1, Ordering::Relaxed);
    }

    fn progress(&self, line: &str) {
        append(Path::new(&self.launch.env["LAMP_PROGRESS"]), line);
    }

    fn save(&self, step: u64) {
        let folder = Path::new(&self.launch.env["LAMP_CHECKPOINT_DIR"]);
        std::fs::create_dir_all(folder).unwrap();
        let part = folder.join("model.tmp");
        std::fs::write(&part, format!("step {step}")).unwrap();
        std::fs::rename(part, folder.join("model")).unwrap();
        self.progress(&format!("{{\"step\": {step}, \"checkpoint\": \"step-{step}\"}}"));
    }
}

fn append(path: &Path, line: &str) {
    use std::io::Write as _;
    let mut file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(path)
        .expect("a file of the workload");
    writeln!(file, "{line}").expect("room");
}

/// The ports of a machine.
pub struct Ports(pub Arc<Machine>);

#[async_trait]
impl Workloads for Ports {
    async fn start(&self, launch: &Launch) -> Result<Box<dyn Workload>, WorkloadError> {
        let (ended, _) = watch::channel(None);
        let run = Arc::new(Run {
            launch: launch.clone(),
            ended,
            told: Notify::new(),
            asked: Notify::new(),
            printed: AtomicU64::new(0),
        });
        {
            let mut state = self.0.state.lock().unwrap();
            if state.starts.iter().any(|(_, run)| !run.is_over()) {
                state.complaints.push(format!("{} was started beside another", launch.name));
            }
            if !state.dark.is_empty() {
                state.complaints.push(format!("{} was started in the dark", launch.name));
            }
            state.starts.push((launch.dir.clone(), Arc::clone(&run)));
        }
        let (clock, living, steps) = (Arc::clone(&self.0.clock), Arc::clone(&run), self.0.steps);
        tokio::spawn(async move { living.live(&clock, steps).await });
        Ok(Box::new(Handle(run)))
    }

    async fn attach(&self, dir: &Path) -> Result<Option<Box<dyn Workload>>, WorkloadError> {
        {
            let mut state = self.0.state.lock().unwrap();
            if state.attach_faults > 0 {
                state.attach_faults -= 1;
                return Err(WorkloadError::Failed {
                    act: "find",
                    cause: std::io::Error::other("the disk does not answer"),
                });
            }
        }
        Ok(self.0.find(dir).map(|run| Box::new(Handle(run)) as Box<dyn Workload>))
    }
}

struct Handle(Arc<Run>);

#[async_trait]
impl Workload for Handle {
    fn scope(&self) -> Scope {
        Scope::default()
    }
    async fn ended(&self) -> Ended {
        let mut ended = self.0.ended.subscribe();
        let ended = ended.wait_for(Option::is_some).await.expect("the run holds the sender");
        ended.expect("it was waited for")
    }
    fn signal(&self, signal: Signal) -> Result<(), WorkloadError> {
        match signal {
            Signal::Term => self.0.told.notify_one(),
            Signal::Kill => self.0.end(137),
            _ => {}
        }
        Ok(())
    }
    fn ask(&self, _: Signal) -> Result<u32, WorkloadError> {
        if self.0.is_over() {
            return Ok(0);
        }
        self.0.asked.notify_one();
        Ok(1)
    }
    async fn kill_tree(&self) -> Result<(), WorkloadError> {
        self.0.end(137);
        Ok(())
    }
    fn printed(&self) -> (u64, u64) {
        (self.0.printed.load(Ordering::Relaxed), 0)
    }
}

#[async_trait]
impl Metadata for Ports {
    async fn identity(&self) -> Result<Identity, MetadataError> {
        let job = "digits-222222".parse().expect("a job id");
        let tags = Tags {
            owner: "me".into(),
            job,
            attempt: AttemptNo::FIRST,
            lease: Span::from_secs(1800),
            boot: lamplighter::job::BOOT,
            kill_at: None,
        };
        Ok(Identity { instance: "i-1".into(), tags: tags.to_map(), launched: self.0.launched })
    }
    async fn notices(&self) -> Result<Vec<Notice>, MetadataError> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl Power for Ports {
    async fn off(&self, how: PowerOff, _: &str) -> Result<(), PowerError> {
        let mut state = self.0.state.lock().unwrap();
        let running: Vec<String> = state
            .starts
            .iter()
            .filter(|(_, run)| !run.is_over())
            .map(|(_, run)| run.launch.name.clone())
            .collect();
        state
            .complaints
            .extend(running.into_iter().map(|name| format!("the power went off under {name}")));
        state.dark.push(how);
        Ok(())
    }
}
