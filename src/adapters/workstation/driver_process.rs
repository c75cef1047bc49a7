//! Processes that drive jobs: at most one daemon per job root, and detached drivers of single jobs.

#![expect(clippy::disallowed_methods, reason = "starts processes and keeps lock files")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

use super::detach::detach;

/// Held by the daemon of a job root while it runs.
#[derive(Debug)]
pub struct DaemonLock {
    _file: File,
}

/// Becomes the daemon of a job root; `None`: another one runs.
///
/// # Errors
/// When the state folder cannot be written.
pub fn lock_daemon(state: &Path, job_root: &str) -> io::Result<Option<DaemonLock>> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(state)?;
    let file = open_lock(&lock_path(state, job_root))?;
    Ok(flock(&file, FlockOperation::NonBlockingLockExclusive)
        .is_ok()
        .then_some(DaemonLock { _file: file }))
}

/// Whether a daemon drives this job root on this workstation.
pub fn daemon_runs(state: &Path, job_root: &str) -> bool {
    // A shared lock fails only while the daemon holds its own. It is released when the file closes.
    File::open(lock_path(state, job_root))
        .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err())
}

/// Held by each process that drives a job here; several can share it. It is released when the
/// process ends.
#[derive(Debug)]
pub struct DrivingLock {
    file: File,
    path: PathBuf,
    /// The name that this process wrote there, and a lock that proves that it runs.
    newest: Option<(String, File)>,
}

impl DrivingLock {
    /// Records this process as the newest detached driver of the job for this owner. It has the
    /// credentials and endpoint of the latest call.
    ///
    /// # Errors
    /// When the state folder cannot be written.
    pub fn take_over(&mut self, owner: &str) -> io::Result<()> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // Unique, even across two machines that share a home folder.
        let name = [hash(owner), hash(&format!("{} {now:?} {:p}", std::process::id(), &self.file))]
            .concat();
        let alive = open_lock(&self.path.with_extension(&name))?;
        flock(&alive, FlockOperation::NonBlockingLockExclusive)?;
        self.file.write_all_at(name.as_bytes(), 0)?;
        self.newest = Some((name, alive));
        Ok(())
    }

    /// Whether a newer process of the same owner runs. Another owner's process leaves our machines
    /// alone. If this cannot be read from here, the answer is no.
    pub fn is_taken(&self) -> bool {
        let Some((name, _)) = &self.newest else { return false };
        let Some(said) = newest(&self.file) else { return false };
        said != *name
            && said.get(..HASH_CHARS) == name.get(..HASH_CHARS)
            && is_held(&self.path.with_extension(said))
    }
}

/// The name of the process that took over last.
fn newest(file: &File) -> Option<String> {
    let mut said = [0; 2 * HASH_CHARS];
    file.read_exact_at(&mut said, 0).ok()?;
    String::from_utf8(said.to_vec())
        .ok()
        .filter(|said| said.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Whether a process took over this job for this owner within this time, and still runs.
pub fn is_driven_anew(
    state: &Path,
    job_root: &str,
    job: &str,
    owner: &str,
    within: Duration,
) -> bool {
    let path = driving_path(state, job_root, job);
    let Some(name) = File::open(&path).ok().and_then(|file| newest(&file)) else { return false };
    let alive = path.with_extension(&name);
    let age = fs::metadata(&alive)
        .and_then(|found| found.modified())
        .ok()
        .and_then(|at| SystemTime::now().duration_since(at).ok());
    name.starts_with(&hash(owner)) && age.is_some_and(|age| age < within) && is_held(&alive)
}

pub(crate) fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Marks that this process drives a job. `None`: the state folder cannot be written, and only the
/// mark is lost.
pub fn lock_driving(state: &Path, job_root: &str, job: &str) -> Option<DrivingLock> {
    let path = driving_path(state, job_root, job);
    let folder = path.parent()?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).ok()?;
    forget_old_unless(folder, is_held);
    // Between open and lock another process may have removed the file as old.
    for _ in 0..3 {
        let file = open_lock(&path).ok()?;
        flock(&file, FlockOperation::LockShared).ok()?;
        let is_there = file.metadata().ok()?.nlink() > 0;
        if is_there {
            return Some(DrivingLock { file, path, newest: None });
        }
    }
    None
}

/// Whether a process here drives this job. A daemon drives all jobs and holds its own lock.
pub fn is_driven(state: &Path, job_root: &str, job: &str) -> bool {
    is_held(&driving_path(state, job_root, job))
}

/// The name of a tuning among the driving locks. No job has a colon in its name.
pub fn tuning_lock(tuning: &str) -> String {
    format!("{TUNING}{tuning}")
}

const TUNING: &str = "tuning:";

/// The jobs of this job root with their own process here.
pub fn driven(state: &Path, job_root: &str) -> Vec<String> {
    let end = format!("-{}.lock", hash(job_root));
    let entries = fs::read_dir(state.join("driving"))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| is_held(&entry.path()));
    let mut jobs: Vec<String> = entries
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(&end)?.to_owned()))
        .filter(|name| !name.starts_with(TUNING))
        .collect();
    jobs.sort_unstable();
    jobs
}

/// An exclusive lock fails only while another process holds the lock. It is released when the file
/// closes.
fn is_held(path: &Path) -> bool {
    // For reading and writing: a home on NFS refuses the other locks. Only `WOULDBLOCK` means held.
    let Ok(file) = OpenOptions::new().read(true).write(true).open(path) else { return false };
    matches!(
        flock(&file, FlockOperation::NonBlockingLockExclusive),
        Err(rustix::io::Errno::WOULDBLOCK)
    )
}

fn driving_path(state: &Path, job_root: &str, job: &str) -> PathBuf {
    state.join("driving").join(format!("{job}-{}.lock", hash(job_root)))
}

/// Characters of a hash in a file name in the state folder.
const HASH_CHARS: usize = 12;

pub(crate) fn hash(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))[..HASH_CHARS].to_owned()
}

fn lock_path(state: &Path, job_root: &str) -> PathBuf {
    state.join(format!("daemon-{}.lock", hash(job_root)))
}

/// Starts this program again in its own session, with its output in a log. The child inherits the
/// driving lock as its standard input, so it holds the lock from its start. That file has nothing
/// to read.
///
/// # Errors
/// When the process cannot be started.
pub fn start_detached(
    words: &[String],
    log: &Path,
    driving: Option<DrivingLock>,
) -> io::Result<u32> {
    if let Some(folder) = log.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        forget_old(folder);
    }
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(log)?;
    let mut command = Command::new(std::env::current_exe()?);
    let input = driving.map_or_else(Stdio::null, |lock| Stdio::from(lock.file));
    command.args(words).stdin(input).stdout(log.try_clone()?).stderr(log);
    detach(&mut command);
    Ok(command.spawn()?.id())
}

/// A temporary file with this process's number in its name: another process may make the same job
/// at the same moment.
///
/// # Errors
/// When the folder cannot be created.
pub fn scratch_file(folder: &Path, name: &str) -> io::Result<PathBuf> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    forget_old(folder);
    Ok(folder.join(format!("{}-{name}", std::process::id())))
}

/// How long the logs of drivers, and scratch files of killed processes, are kept.
const KEEP: Duration = Duration::from_secs(7 * 86_400);

/// Removes old files, so that the state folder stays small. A failed removal is retried the next
/// time.
pub(crate) fn forget_old(folder: &Path) {
    forget_old_unless(folder, |_| false);
}

fn forget_old_unless(folder: &Path, in_use: impl Fn(&Path) -> bool) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let age = entry
            .metadata()
            .and_then(|found| found.modified())
            .ok()
            .and_then(|at| SystemTime::now().duration_since(at).ok());
        if age.is_some_and(|age| age > KEEP) && !in_use(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Between fork and exec, a process that another test starts holds the locks of this one.
    fn soon(holds: impl Fn() -> bool) -> bool {
        (0..1000).any(|_| {
            holds() || {
                std::thread::sleep(Duration::from_millis(10));
                false
            }
        })
    }

    #[test]
    fn one_daemon_a_job_root() {
        let state = tempfile::tempdir().unwrap();
        assert!(!daemon_runs(state.path(), "file:///a"));
        let lock = lock_daemon(state.path(), "file:///a").unwrap();
        assert!(lock.is_some() && daemon_runs(state.path(), "file:///a"));
        assert!(lock_daemon(state.path(), "file:///a").unwrap().is_none());
        assert!(!daemon_runs(state.path(), "file:///b"));
        drop(lock);
        assert!(soon(|| !daemon_runs(state.path(), "file:///a")));
    }

    #[test]
    fn newest_driver_of_an_owner_is_known_while_it_lives() {
        let state = tempfile::tempdir().unwrap();
        let lock = || lock_driving(state.path(), "file:///a", "x-222222").unwrap();
        let anew = |owner: &str, within: u64| {
            is_driven_anew(
                state.path(),
                "file:///a",
                "x-222222",
                owner,
                Duration::from_secs(within),
            )
        };
        let (mut first, attached) = (lock(), lock());
        assert!(!anew("me", 60), "an attached driver takes nothing over");
        first.take_over("me").unwrap();
        assert!(
            !first.is_taken()
                && !attached.is_taken()
                && anew("me", 60)
                && !anew("me", 0)
                && !anew("you", 60)
        );
        let mut second = lock();
        assert!(!first.is_taken(), "it may not have come to driving yet");
        second.take_over("me").unwrap();
        assert!(first.is_taken() && !second.is_taken() && !attached.is_taken());
        let mut stranger = lock();
        stranger.take_over("you").unwrap();
        assert!(!second.is_taken() && !stranger.is_taken(), "whose machines it leaves alone");
        let mut third = lock();
        third.take_over("me").unwrap();
        assert!(first.is_taken() && second.is_taken());
        drop(third);
        assert!(
            soon(|| !first.is_taken() && !second.is_taken() && !anew("me", 60)),
            "it has died, and they are all there is"
        );
    }

    #[test]
    fn job_with_held_lock_counts_as_driven() {
        let state = tempfile::tempdir().unwrap();
        let driven = || is_driven(state.path(), "file:///a", "x-222222");
        assert!(!driven());
        let (one, two) = (
            lock_driving(state.path(), "file:///a", "x-222222"),
            lock_driving(state.path(), "file:///a", "x-222222"),
        );
        assert!(one.is_some() && two.is_some() && driven(), "two drive it");
        let listed = |root: &str| super::driven(state.path(), root);
        assert_eq!(
            (listed("file:///a"), listed("file:///b")),
            (vec!["x-222222".to_owned()], Vec::new())
        );
        assert!(
            !is_driven(state.path(), "file:///b", "x-222222")
                && !is_driven(state.path(), "file:///a", "y-222222")
        );
        drop(one);
        assert!(driven());
        drop(two);
        assert!(soon(|| !driven() && listed("file:///a").is_empty()));
        // An old file that no process holds is removed. A held file stays.
        let path = |job: &str| driving_path(state.path(), "file:///a", job);
        let old = SystemTime::now() - KEEP - Duration::from_secs(60);
        let held = lock_driving(state.path(), "file:///a", "long-222222").unwrap();
        held.file.set_modified(old).unwrap();
        File::options().write(true).open(path("x-222222")).unwrap().set_modified(old).unwrap();
        let _other = lock_driving(state.path(), "file:///a", "z-222222");
        assert!(!path("x-222222").exists() && path("long-222222").exists());
        assert!(is_driven(state.path(), "file:///a", "long-222222"));
    }
}
