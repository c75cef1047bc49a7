//! The folder for the work of a local job: one path for all of its attempts.
//!
//! Trainers keep absolute paths in their state, such as the path of the best checkpoint. On cloud
//! machines these are the same in each attempt. On this workstation each attempt has its own
//! machine folder.
//!
//! ```text
//!   <state>/local/work/
//!     <name>          the work; <name> is the id of the job's first machine on this workstation
//!     <name>.owner    the machine whose work it is
//!     <job>.at        the name, for a job that goes on from another on its kept machine
//!   <state>/local/<instance>/work ──link──> ../work/<name>
//! ```
//! A machine takes over the folder after the machine before it has ended for good. While another
//! machine runs, or is stopped with its work, the machine has a separate folder. Not here: clearing
//! the folder for an attempt (`agent::startup::prepare`).

#![expect(
    clippy::disallowed_methods,
    reason = "makes folders of the local cloud, which is what this adapter is for"
)]

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};

use super::machine_folder::{At, InstanceRecord, LocalFolder, RELEASED};
use crate::adapters::host::remove_tree::remove_tree;
use crate::adapters::workstation::private_files;
use crate::instance::Tags;

const WORK: &str = "work";
const LOCK: &str = ".lock";

/// The folder for the work of this machine. A repeated call returns the same folder.
///
/// # Errors
/// If the file system refuses.
pub fn claim(folder: &LocalFolder, record: &InstanceRecord) -> io::Result<PathBuf> {
    let own = folder.path(WORK);
    let (Some(machines), Ok(tags)) = (folder.dir().parent(), Tags::from_map(&record.tags)) else {
        return Ok(own);
    };
    let shelf = WorkFolders::open(machines)?;
    let job = tags.job.as_str();
    match fs::read_link(&own) {
        Ok(work) => {
            // The job may have changed since the link was made: the machine was stopped and
            // continued for another job.
            if let Some(name) = work.file_name().filter(|name| *name != job) {
                private_files::write(&shelf.path(&format!("{job}.at")), name.as_encoded_bytes())?;
            }
            return Ok(work);
        }
        // A machine that an older version started.
        Err(error) if error.kind() != ErrorKind::NotFound => return Ok(own),
        Err(_) => {}
    }
    let name = shelf.read(&format!("{job}.at")).unwrap_or_else(|| job.to_owned());
    if !shelf.is_free(machines, &name, &record.instance) {
        return Ok(own);
    }
    private_files::write(&shelf.path(&format!("{name}.owner")), &record.instance)?;
    let work = shelf.path(&name);
    symlink(&work, &own)?;
    Ok(work)
}

/// Makes room on a full disk for the last records of a machine, whose work goes with it.
///
/// # Errors
/// If the file system refuses.
pub fn empty(folder: &LocalFolder) -> io::Result<()> {
    let own = folder.path(WORK);
    let work = fs::read_link(&own).unwrap_or(own);
    for entry in fs::read_dir(work)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Takes the work and the agent's files of a machine away, and records that its attempt is settled.
/// The caller removes the returned folder: a work of 60,000 files takes a minute, and no record
/// waits for that.
///
/// # Errors
/// If the file system refuses.
pub fn release(folder: &LocalFolder) -> io::Result<PathBuf> {
    let gone = folder.gone()?;
    give_up(folder, &gone)?;
    folder.clear(&gone)?;
    folder.create(RELEASED, &At { at: Timestamp::now() })?;
    Ok(gone)
}

/// Moves the work of an ended machine into `gone`, unless another machine has taken over the
/// folder.
///
/// # Errors
/// If the file system refuses.
fn give_up(folder: &LocalFolder, gone: &Path) -> io::Result<()> {
    let (Ok(work), Some(machines), Some(instance)) =
        (fs::read_link(folder.path(WORK)), folder.dir().parent(), folder.dir().file_name())
    else {
        return Ok(());
    };
    let shelf = WorkFolders::open(machines)?;
    let owner = work.file_name().map(|name| format!("{}.owner", name.to_string_lossy()));
    let Some(owner) =
        owner.filter(|owner| shelf.read(owner).is_some_and(|owner| instance == owner.as_str()))
    else {
        return Ok(());
    };
    // A folder without write permission cannot be moved by its owner.
    let moved = fs::rename(&work, gone.join("shared-work")).or_else(|_| remove_tree(&work));
    match moved {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => fs::remove_file(shelf.path(&owner)),
    }
}

/// The folder of all works, locked by one process at a time.
struct WorkFolders {
    dir: PathBuf,
    _lock: fs::File,
}

impl WorkFolders {
    fn open(machines: &Path) -> io::Result<WorkFolders> {
        let dir = machines.join(WORK);
        private_files::folder(&dir)?;
        let lock = private_files::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join(LOCK))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        Ok(WorkFolders { dir, _lock: lock })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path(name))
            .ok()
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty() && !text.contains('/'))
    }

    /// Whether no other machine, running or stopped, has its work there. An unreadable record may
    /// be one.
    fn is_free(&self, machines: &Path, name: &str, instance: &str) -> bool {
        let Some(owner) = self.read(&format!("{name}.owner")).filter(|owner| owner != instance)
        else {
            return true;
        };
        let owner = LocalFolder::new(machines.join(owner));
        !owner.dir().exists() || matches!(owner.ended(), Ok(Some(ended)) if !ended.stopped)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::machine_folder::EndedRecord;
    use super::*;

    fn machine(machines: &Path, instance: &str, job: &str) -> (LocalFolder, InstanceRecord) {
        let folder = LocalFolder::new(machines.join(instance));
        fs::create_dir_all(folder.dir()).expect("a folder");
        let tags = [("owner", "ada"), ("job", job), ("attempt", "1"), ("lease-s", "1800")];
        let tags: serde_json::Map<String, serde_json::Value> = tags
            .iter()
            .map(|(key, value)| (format!("{}{key}", crate::instance::TAG_PREFIX), (*value).into()))
            .collect();
        let record = serde_json::json!({
            "instance": instance, "tags": tags, "launched": "2026-06-01T00:00:00Z", "client_token": instance, "job_root": "file:///x",
            "boot_id": "b", "usd_per_hour": 0.0, "agent": ["lamp"],
        });
        (folder, serde_json::from_value(record).expect("a record"))
    }

    fn ends(folder: &LocalFolder, stopped: bool) {
        folder
            .write(
                "ended.json",
                &EndedRecord { at: Timestamp::UNIX_EPOCH, state_reason: "x".into(), stopped },
            )
            .expect("written");
    }

    #[test]
    fn each_attempt_has_the_same_path_once_the_one_before_has_ended() {
        let home = tempfile::tempdir().expect("a folder");
        let (first, record) = machine(home.path(), "i-local-1", "digits-222222");
        let work = claim(&first, &record).expect("made");
        assert_eq!(
            (claim(&first, &record).expect("made"), work.file_name()),
            (work.clone(), Some("digits-222222".as_ref()))
        );
        fs::create_dir(&work).expect("the agent makes it");

        let (second, record) = machine(home.path(), "i-local-2", "digits-222222");
        assert_eq!(
            claim(&second, &record).expect("made"),
            second.path(WORK),
            "the first one lives"
        );
        ends(&first, false);
        assert_eq!(claim(&second, &record).expect("made"), work);
        give_up(&first, &first.gone().expect("made")).expect("done");
        assert!(work.exists(), "it is the second one's by now");
        give_up(&second, &second.gone().expect("made")).expect("done");
        assert!(!work.exists());
    }

    #[test]
    fn stopped_machine_keeps_its_work_for_its_continuation() {
        let home = tempfile::tempdir().expect("a folder");
        let (kept, record) = machine(home.path(), "i-local-1", "digits-222222");
        let work = claim(&kept, &record).expect("made");
        ends(&kept, true);
        let (other, elsewhere) = machine(home.path(), "i-local-2", "digits-222222");
        assert_eq!(
            claim(&other, &elsewhere).expect("made"),
            other.path(WORK),
            "what is kept is not touched"
        );
        let (_, record) = machine(home.path(), "i-local-1", "digits-333333");
        assert_eq!(
            claim(&kept, &record).expect("made"),
            work,
            "its continuation finds it where it was"
        );
        ends(&kept, false);
        let (next, record) = machine(home.path(), "i-local-3", "digits-333333");
        assert_eq!(
            claim(&next, &record).expect("made"),
            work,
            "and so do the later attempts of that"
        );
    }

    /// checkout#1720: Go's module cache and conda leave folders that their owner cannot empty.
    #[test]
    fn read_only_folders_of_the_work_go_with_it() {
        let home = tempfile::tempdir().expect("a folder");
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
        let machines = home.path().join("machines");
        let as_a_user = move || {
            // For this thread alone; nothing is refused to root.
            if rustix::process::geteuid().is_root() {
                let nobody = rustix::process::Uid::from_raw(65534);
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may");
            }
            fs::create_dir(&machines).expect("a folder");
            let (folder, record) = machine(&machines, "i-local-1", "digits-222222");
            let work = claim(&folder, &record).expect("made");
            fs::create_dir_all(work.join("m/p")).expect("made");
            fs::write(work.join("m/p/a"), "x").expect("written");
            for path in ["m/p", "m"] {
                fs::set_permissions(work.join(path), fs::Permissions::from_mode(0o555))
                    .expect("it is ours");
            }
            let gone = release(&folder).expect("done");
            remove_tree(&gone).expect("its owner may");
            assert!(!work.exists() && !gone.exists());
        };
        std::thread::spawn(as_a_user).join().expect("it goes");
    }
}
