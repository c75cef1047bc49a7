//! The cloud `local`: machines of one price, each a folder and a process on this workstation.
//!
//! `launch` makes the folder and `instance.json` (create-if-absent, so it can be repeated), and
//! starts `agent machine <dir>` detached. `describe` reads every folder of this job root. A machine
//! without a process is cleaned up and shown as terminated.
//!
//! It answers in the words of EC2, so that a rehearsal here matches a real run. Not here: a
//! decision, or anything that touches processes of the user.

#![expect(
    clippy::disallowed_methods,
    reason = "it is a cloud: it has a clock, a disk and processes"
)]

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use jiff::Timestamp;
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::job_workdir;
use super::machine_folder::{At, EndedRecord, InstanceRecord, LocalAws, LocalFolder, RELEASED};
use super::machine_process::{ALIVE_EVERY, INSTANCE_VARIABLE, kill_below, log_file};
use crate::account::Residue;
use crate::adapters::host::remove_tree::remove_tree;
use crate::adapters::workload::holder::records::boot_id;
use crate::adapters::workstation::detach::detach;
use crate::instance::{InstanceState, InstanceView, MachineRef, Notice, NoticeKind, Tags};
use crate::job::{JobId, MachineSpec, Plan, ResolvedSpec};
use crate::market::{self, Market, Region, Span, Supply, Zone, elapsed};
use crate::ports::{Cloud, CloudError};

/// A machine that has not booted this long after its launch is started again: its launcher ended
/// too early. Shorter starts a slow machine twice (harmless: one of the two exits). Longer delays
/// the job.
const BOOT_WITHIN: Duration = Duration::from_secs(10);

/// How long the start of a machine is retried. A short lack of memory or processes, or a rebuild of
/// the program, is over by then. Longer hides a permanent failure from the user.
const START_WITHIN: Duration = Duration::from_secs(10 * 60);

/// How long records and logs of an ended machine are kept.
pub(crate) const KEEP_ENDED: Duration = Duration::from_secs(7 * 86_400);

/// Rounds of killing the processes of a lost machine. After them `describe` answers *unknown*, and
/// a later call tries again.
const KILL_ROUNDS: u32 = 200;

pub struct LocalCloud {
    /// `<state>/local`.
    pub(crate) machines: PathBuf,
    pub(crate) job_root: String,
    /// How to call the agent: the program's path, and words before the agent's own.
    pub(crate) agent: Vec<String>,
    pub(crate) aws: Option<LocalAws>,
    seen: Mutex<ObservedMachines>,
}

#[derive(Default)]
struct ObservedMachines {
    /// Machines that this process started, to be reaped when they end.
    children: Vec<Child>,
    /// Views that no longer change; `None`: a machine of another job root.
    final_views: HashMap<String, Option<InstanceView>>,
}

impl LocalCloud {
    /// Machines are folders below `state`. Only the machines of this job root are visible.
    pub fn new(state: impl Into<PathBuf>, job_root: impl Into<String>, agent: Vec<String>) -> Self {
        LocalCloud {
            machines: state.into().join("local"),
            job_root: job_root.into(),
            agent,
            aws: None,
            seen: Mutex::default(),
        }
    }

    /// Gives the agents of its machines our way to a job root on S3.
    #[must_use]
    pub fn reaching(self, aws: LocalAws) -> Self {
        let aws = (self.job_root.starts_with("s3://") && aws != LocalAws::default()).then_some(aws);
        LocalCloud { aws, ..self }
    }

    /// The name of this workstation among those that share a job root. It is drawn once and kept in
    /// the state folder. The host's name would not do: a laptop changes it with its network.
    pub fn zone(&self) -> io::Result<Zone> {
        let path = self.machines.join("workstation");
        let read = || fs::read_to_string(&path).map(|text| Zone::new(text.trim()));
        match read() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.machines)?;
        let drawn = uuid::Uuid::new_v4().simple().to_string();
        // Two processes may draw at once: the first link wins.
        let staged = self.machines.join(format!(".workstation-{drawn}"));
        crate::adapters::workstation::private_files::write(
            &staged,
            format!("{}\n", Zone::of_workstation(&drawn[..8])),
        )?;
        let _ = fs::hard_link(&staged, &path);
        fs::remove_file(&staged)?;
        read()
    }

    /// The folder of a machine.
    pub fn folder(&self, instance: &str) -> LocalFolder {
        LocalFolder::new(self.machines.join(instance))
    }

    fn start(&self, plan: &Plan) -> io::Result<String> {
        let instance = instance_id(&plan.client_token);
        let folder = self.folder(&instance);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder.dir())?;
        let record = self.record(plan, &instance);
        if folder.create("instance.json", &record)? {
            self.spawn_or_end(&folder, &record)?;
        }
        Ok(instance)
    }

    /// Starts the machine. A permanent failure ends it, so that no process waits for it. Otherwise
    /// it stays pending, and the next look tries again.
    pub(crate) fn spawn_or_end(
        &self,
        folder: &LocalFolder,
        record: &InstanceRecord,
    ) -> io::Result<()> {
        self.spawn(folder, record).or_else(|cause| {
            let for_good = cause.kind() == io::ErrorKind::PermissionDenied
                || cause.raw_os_error() == Some(Errno::NOEXEC.raw_os_error());
            if !for_good && waited(record) < START_WITHIN {
                return Err(cause);
            }
            let state_reason = format!("Client.InternalError: cannot start the machine: {cause}");
            folder.create(
                "ended.json",
                &EndedRecord { at: Timestamp::now(), state_reason, stopped: false },
            )?;
            Err(cause)
        })
    }

    /// Starts the machine in its own session: it outlives this process and gets no signals of our
    /// terminal.
    fn spawn(&self, folder: &LocalFolder, record: &InstanceRecord) -> io::Result<()> {
        let (program, words) = record
            .agent
            .split_first()
            .ok_or_else(|| io::Error::other("no program for the agent"))?;
        let log = log_file(&folder.path("machine.log"))?;
        let mut command = Command::new(program);
        command.args(words).arg("machine").arg(folder.dir());
        command.env(INSTANCE_VARIABLE, &record.instance).current_dir(folder.dir());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        detach(&mut command);
        let child = command.spawn()?;
        self.seen.lock().expect("nothing panics while it is held").children.push(child);
        Ok(())
    }

    fn views(&self) -> io::Result<Vec<InstanceView>> {
        let mut seen = self.seen.lock().expect("nothing panics while it is held");
        seen.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let mut final_views = std::mem::take(&mut seen.final_views);
        drop(seen);
        let mut views = Vec::new();
        for name in self.instances()? {
            if !final_views.contains_key(&name) {
                let folder = self.folder(&name);
                // The record is written a moment after the folder, and a stray folder is no
                // machine. An unreadable machine must not hide the others: its own job asks again
                // and is told *unknown*.
                let Ok((ours, view)) = self.look(&folder) else { continue };
                if !ours || view.as_ref().is_some_and(|view| view.state.is_terminated()) {
                    final_views.insert(name.clone(), view);
                } else {
                    views.extend(view);
                    continue;
                }
            }
            views.extend(final_views[&name].clone());
        }
        self.seen.lock().expect("nothing panics while it is held").final_views = final_views;
        Ok(views)
    }

    /// Whether a machine belongs to this job root, and its view if so.
    fn look(&self, folder: &LocalFolder) -> io::Result<(bool, Option<InstanceView>)> {
        let record = folder.instance()?;
        let ours = record.job_root == self.job_root;
        Ok((ours, if ours { self.view(folder, record)? } else { None }))
    }

    pub(crate) fn instances(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.machines) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            names.extend(
                entry?.file_name().into_string().ok().filter(|name| name.starts_with(ID_PREFIX)),
            );
        }
        names.sort_unstable();
        Ok(names)
    }

    /// One machine; `None` when its tags are not lamplighter's.
    fn view(
        &self,
        folder: &LocalFolder,
        record: InstanceRecord,
    ) -> io::Result<Option<InstanceView>> {
        let Ok(mut tags) = Tags::from_map(&record.tags) else { return Ok(None) };
        tags.kill_at = tags.kill_at.max(folder.kill_at()?.map(|raised| raised.at));
        let ended = match folder.ended()? {
            Some(ended) => Some(ended),
            None => self.lost(folder, &record)?,
        };
        let booted = folder.machine()?.is_some();
        let state = match (&ended, booted) {
            (Some(ended), _) if ended.stopped => InstanceState::Stopped,
            (Some(_), _) => InstanceState::Terminated,
            (None, true) => InstanceState::Running,
            (None, false) => InstanceState::Pending,
        };
        Ok(Some(InstanceView {
            id: record.instance,
            cloud: market::CloudKind::Local,
            region: Region::new("local"),
            instance_type: "workstation".into(),
            // The plan knows which market a local machine stands for.
            market: Market::OnDemand,
            state,
            tags,
            client_token: Some(record.client_token),
            launched: record.launched,
            ended: ended.as_ref().map(|ended| ended.at),
            state_reason: ended.map(|ended| ended.state_reason),
        }))
    }

    /// The end of a machine whose process was killed, or whose workstation restarted; `None`: it
    /// runs.
    fn lost(
        &self,
        folder: &LocalFolder,
        record: &InstanceRecord,
    ) -> io::Result<Option<EndedRecord>> {
        let rebooted = record.boot_id != boot_id();
        let Some(machine) = folder.machine()? else {
            if !rebooted && waited(record) > BOOT_WITHIN {
                // A permanent failure is already recorded.
                let _ = self.spawn_or_end(folder, record);
            }
            if !rebooted {
                return folder.ended();
            }
            let state_reason =
                "Server.HostLost: the workstation was restarted before the machine booted".into();
            return self
                .finish(folder, EndedRecord { at: record.launched, state_reason, stopped: false });
        };
        if !rebooted && machine.process.alive() {
            return Ok(None);
        }
        // It may have ended normally in the meantime.
        if let Some(ended) = folder.ended()? {
            return Ok(Some(ended));
        }
        if !rebooted {
            kill_left(&record.instance)?;
        }
        let last = folder.last_alive().unwrap_or(machine.started);
        let at = last.saturating_add(ALIVE_EVERY).unwrap_or(last).min(Timestamp::now()).max(last);
        let state_reason = match (folder.terminate()?, rebooted) {
            (Some(_), _) => "Client.UserInitiatedShutdown: terminated by its owner",
            (None, true) => "Server.HostLost: the workstation was restarted",
            (None, false) => "Server.HostLost: the machine's process was killed",
        };
        self.finish(folder, EndedRecord { at, state_reason: state_reason.into(), stopped: false })
    }

    /// Writes the end if none is written yet, and returns what is written.
    fn finish(&self, folder: &LocalFolder, record: EndedRecord) -> io::Result<Option<EndedRecord>> {
        folder.create("ended.json", &record)?;
        folder.ended()
    }

    /// Removes machines that ended [`KEEP_ENDED`] ago, if their attempt is settled.
    fn forget_old(&self) -> io::Result<()> {
        for name in self.instances()? {
            let folder = self.folder(&name);
            let age =
                fs::metadata(folder.path("ended.json")).and_then(|found| found.modified()).ok();
            let settled = folder.path(RELEASED).exists();
            let old = age
                .and_then(|ended| SystemTime::now().duration_since(ended).ok())
                .is_some_and(|age| age > KEEP_ENDED);
            if old && settled {
                remove_or_say(folder.dir());
            }
        }
        Ok(())
    }

    /// The machine's folder, if it exists, belongs to this job root and has not ended.
    fn living(&self, instance: &str) -> io::Result<Option<LocalFolder>> {
        let folder = self.folder(instance);
        if !instance.starts_with(ID_PREFIX)
            || instance.contains('/')
            || !folder.path("instance.json").exists()
        {
            return Ok(None);
        }
        let ours = folder.instance()?.job_root == self.job_root;
        Ok((ours && folder.ended()?.is_none()).then_some(folder))
    }
}

pub(crate) const ID_PREFIX: &str = "i-local-";

/// The same plan always gives the same id.
fn instance_id(client_token: &str) -> String {
    format!("{ID_PREFIX}{}", hex::encode(&Sha256::digest(client_token.as_bytes())[..6]))
}

/// A folder with files of another user stays, and holds up no other.
fn remove_or_say(folder: &Path) {
    if let Err(error) = remove_tree(folder) {
        tracing::warn!("cannot remove {}: {error}", folder.display());
    }
}

/// Time since the launch.
fn waited(record: &InstanceRecord) -> Duration {
    elapsed(record.launched, Timestamp::now())
}

/// Kills the processes that a killed machine left behind. Its process number may be reused, so the
/// environment identifies them.
fn kill_left(instance: &str) -> io::Result<()> {
    for _ in 0..KILL_ROUNDS {
        if kill_below(None, instance) == 0 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(io::Error::other(format!("something of {instance} survives SIGKILL")))
}

pub(crate) fn failed(act: &str, cause: io::Error) -> CloudError {
    match cause.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            CloudError::Denied { act: act.into(), cause: cause.into() }
        }
        _ => CloudError::Ambiguous { act: act.into(), cause: cause.into() },
    }
}

#[async_trait]
impl Cloud for LocalCloud {
    async fn regions(&self) -> Result<Vec<Region>, CloudError> {
        Ok(vec![Region::new("local")])
    }

    async fn supply(&self, machine: &MachineSpec) -> Result<Supply, CloudError> {
        let zone = self.zone().map_err(|cause| failed("name this workstation", cause))?;
        Ok(Supply { offers: vec![super::offer::offer(zone, machine)], ..Supply::default() })
    }

    fn submitted(&self, spec: &ResolvedSpec) {
        self.keep_environment(&spec.job, &spec.spec.secrets);
    }

    fn settled(&self, job: &JobId) {
        self.forget_environment(job);
    }

    async fn launch(&self, plan: &Plan) -> Result<String, CloudError> {
        // A failed cleanup must not stop a launch.
        let _ = self.forget_old().and_then(|()| self.forget_environments());
        // If the job was submitted elsewhere, or by an older program, the first launch keeps the
        // environment for later attempts.
        self.keep_environment(&plan.job, &BTreeMap::new());
        self.start(plan).map_err(|cause| failed("launch a machine", cause))
    }

    async fn describe(
        &self,
        owner: &str,
        _region: &Region,
    ) -> Result<Vec<InstanceView>, CloudError> {
        let views = self.views().map_err(|cause| failed("describe the machines", cause))?;
        Ok(views.into_iter().filter(|view| view.tags.owner == owner).collect())
    }

    async fn residue(&self, owner: &str, _region: &Region) -> Result<Vec<Residue>, CloudError> {
        let views = self.views().map_err(|cause| failed("look at the machines", cause))?;
        Ok(views
            .iter()
            .filter(|view| view.tags.owner == owner)
            .filter_map(|view| super::offer::kept_disk(view, &self.machines))
            .collect())
    }

    async fn confirm_missing(&self, plan: &Plan) -> Result<Option<InstanceView>, CloudError> {
        let unknown =
            |cause| CloudError::Ambiguous { act: "read the records of the machine".into(), cause };
        match self.look(&self.folder(&instance_id(&plan.client_token))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unknown(error.into())),
            // It appeared, or became readable, after `describe` looked at the others.
            Ok((true, Some(view))) => {
                Err(unknown(format!("{} is there after all", view.id).into()))
            }
            Ok(_) => Ok(None),
        }
    }

    async fn terminate(&self, machine: &MachineRef) -> Result<(), CloudError> {
        let asked = self.living(&machine.id).and_then(|folder| match folder {
            Some(folder) => folder.create("terminate.json", &At { at: Timestamp::now() }).map(drop),
            None => self.give_up(&machine.id),
        });
        asked.map_err(|cause| failed("terminate a machine", cause))
    }

    async fn start(&self, machine: &MachineRef, plan: &Plan) -> Result<(), CloudError> {
        self.start_again(&machine.id, plan)
    }

    async fn interrupt(&self, machine: &MachineRef, notice: Span) -> Result<(), CloudError> {
        let at = Timestamp::now()
            .saturating_add(notice.duration())
            .map_err(|error| CloudError::Invalid { what: error.to_string() })?;
        let notice = Notice { kind: NoticeKind::Interruption, at, detail: "terminate".into() };
        let served = self.living(&machine.id).and_then(|folder| {
            folder.map_or(Ok(()), |folder| folder.write("notice.json", &vec![notice]))
        });
        served.map_err(|cause| failed("serve a notice", cause))
    }

    async fn raise_kill_at(
        &self,
        machine: &MachineRef,
        kill_at: Timestamp,
    ) -> Result<(), CloudError> {
        let raised = self.living(&machine.id).and_then(|folder| match folder {
            Some(folder) if folder.kill_at()?.is_none_or(|old| old.at < kill_at) => {
                folder.write("kill-at.json", &At { at: kill_at })
            }
            _ => Ok(()),
        });
        raised.map_err(|cause| failed("raise the hard cap", cause))
    }

    async fn release(&self, machine: &MachineRef) -> Result<(), CloudError> {
        let folder = self.folder(&machine.id);
        // The folder of a stopped machine is its disk, so it stays.
        let gone = || Ok::<_, io::Error>(folder.ended()?.is_some_and(|ended| !ended.stopped));
        let clear = || {
            if machine.id.starts_with(ID_PREFIX) && gone()? {
                job_workdir::release(&folder).map(Some)
            } else {
                Ok(None)
            }
        };
        let gone = clear().map_err(|cause| failed("clear a machine's folder", cause))?;
        // The receipt does not wait for this. The end of the program does, and what a crash leaves
        // is removed with the folder of the machine.
        drop(gone.map(|gone| tokio::task::spawn_blocking(move || remove_or_say(&gone))));
        Ok(())
    }
}
