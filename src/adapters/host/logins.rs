//! Login sessions and their terminals, from systemd-logind's session files, utmp, and AWS Session
//! Manager.
//!
//! Session Manager's agent starts a shell at a new terminal, without PAM: logind and utmp have no
//! record. So every process with a terminal in its service's cgroup counts as a login.
//!
//! Debian 13 and later have no utmp. A record is stale if its process has ended, or if its terminal
//! is gone and the process number was reused. Not here: the activity of users.

#![expect(
    clippy::disallowed_methods,
    reason = "reads session records, which is what this adapter is for"
)]

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::process_tree;
use crate::instance::Reading;

/// A login session at a terminal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Login {
    /// Below `/dev`: `pts/3`, `tty1`.
    pub terminal: String,
}

/// 64-bit ARM has larger records: it needs no compatibility with 32 bits.
const UTMP_RECORD_BYTES: usize = if cfg!(target_arch = "x86_64") { 384 } else { 400 };

/// The shell of a login is among its first processes, which are the parents.
const PROCESSES_ASKED_MAX: usize = 64;

/// The cgroup of its service: as a package and as a snap (Ubuntu's images), cgroups v2 and v1.
const SESSION_MANAGER: [&str; 4] = [
    "sys/fs/cgroup/system.slice/amazon-ssm-agent.service/cgroup.procs",
    "sys/fs/cgroup/system.slice/snap.amazon-ssm-agent.amazon-ssm-agent.service/cgroup.procs",
    "sys/fs/cgroup/systemd/system.slice/amazon-ssm-agent.service/cgroup.procs",
    "sys/fs/cgroup/systemd/system.slice/snap.amazon-ssm-agent.amazon-ssm-agent.service/cgroup.procs",
];

/// `Absent`: this machine keeps no login records.
pub(crate) fn logins(root: &Path) -> Reading<BTreeSet<Login>> {
    let mut found = BTreeSet::new();
    let mut recorded = false;
    for path in ["run/utmp", "var/run/utmp"] {
        match fs::read(root.join(path)) {
            Ok(bytes) => {
                recorded = true;
                let living = utmp(&bytes).filter(|(pid, _)| alive(root, *pid));
                found.extend(living.filter_map(|(pid, line)| {
                    login(&line).filter(|login| !is_left_behind(root, pid, login))
                }));
                break;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Reading::Unknown(format!("/{path}: {error}")),
        }
    }
    match fs::read_dir(root.join("run/systemd/sessions")) {
        Ok(entries) => {
            recorded = true;
            for entry in
                entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
            {
                // The session may end while it is read.
                let text = fs::read_to_string(entry.path()).unwrap_or_default();
                found.extend(session(&text, root));
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Reading::Unknown(format!("/run/systemd/sessions: {error}")),
    }
    for group in SESSION_MANAGER {
        let Ok(processes) = fs::read_to_string(root.join(group)) else { continue };
        recorded = true;
        let terminals = processes.lines().filter_map(|pid| terminal_of(root, pid.parse().ok()?));
        found.extend(terminals.filter_map(|terminal| login(&terminal)));
    }
    if recorded { Reading::Known(found) } else { Reading::Absent }
}

/// The terminals in one of logind's session files.
fn session(text: &str, root: &Path) -> Vec<Login> {
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
            .filter(|value| !value.is_empty())
    };
    let leader = field("LEADER").and_then(|pid| pid.parse().ok()).unwrap_or(0);
    let of_a_person = field("CLASS").is_some_and(|class| class.starts_with("user"))
        && field("STATE") != Some("closing");
    if !of_a_person || !alive(root, leader) {
        return Vec::new();
    }
    match field("TTY") {
        Some(terminal) => login(terminal).into_iter().collect(),
        // sshd makes the terminal after the session. Without utmp, logind never learns of it, so
        // the processes are asked.
        None => process_tree::tree(leader)
            .into_iter()
            .take(PROCESSES_ASKED_MAX)
            .filter_map(|pid| terminal_of(Path::new("/"), pid))
            .map(|terminal| Login { terminal })
            .collect(),
    }
}

/// Whether the terminal of a utmp record is gone. A killed sshd leaves its record, and its process
/// number may be reused. Without this check, a login without a visible terminal would never be
/// idle. If a process still uses the terminal, it exists elsewhere.
fn is_left_behind(root: &Path, pid: u32, login: &Login) -> bool {
    let is_gone = |path: &Path| {
        fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    // If the process itself is unreadable, so are the processes at the terminal.
    is_gone(&root.join("dev").join(&login.terminal))
        && fs::read(root.join(format!("proc/{pid}/stat"))).is_ok()
        && terminals_in_use(root).is_some_and(|used| !used.contains(&login.terminal))
}

/// The terminals that any process uses; `None`: unknown.
fn terminals_in_use(root: &Path) -> Option<BTreeSet<String>> {
    let processes = fs::read_dir(root.join("proc"))
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // A process that ends meanwhile has no terminal.
    Some(processes.filter_map(|pid| terminal_of(root, pid)).collect())
}

/// Process and terminal of each user record.
fn utmp(bytes: &[u8]) -> impl Iterator<Item = (u32, String)> {
    const USER_PROCESS: i16 = 7;
    bytes.chunks_exact(UTMP_RECORD_BYTES).filter_map(|record| {
        let kind = i16::from_ne_bytes(record[0..2].try_into().ok()?);
        let pid = i32::from_ne_bytes(record[4..8].try_into().ok()?);
        let line = record[8..40].split(|byte| *byte == 0).next()?;
        (kind == USER_PROCESS)
            .then_some((u32::try_from(pid).ok()?, String::from_utf8_lossy(line).into_owned()))
    })
}

/// A graphical session (`:0`) has no terminal.
fn login(terminal: &str) -> Option<Login> {
    let terminal = terminal.strip_prefix("/dev/").unwrap_or(terminal);
    let known = terminal.starts_with("pts/") || terminal.starts_with("tty");
    (known && !terminal.contains("..")).then(|| Login { terminal: terminal.into() })
}

fn terminal_of(root: &Path, pid: u32) -> Option<String> {
    // A process name need not be UTF-8.
    let line = fs::read(root.join(format!("proc/{pid}/stat"))).ok()?;
    let line = String::from_utf8_lossy(&line);
    let number = line[line.rfind(')')? + 1..].split_ascii_whitespace().nth(4)?.parse().ok()?;
    terminal_name(number)
}

/// The name of a terminal from the kernel's packed device number in `/proc/<pid>/stat`.
fn terminal_name(number: i64) -> Option<String> {
    let (major, minor) = ((number >> 8) & 0xfff, (number & 0xff) | ((number >> 12) & 0xfff00));
    match major {
        136..=143 => Some(format!("pts/{}", (major - 136) * 256 + minor)),
        4 if minor < 64 => Some(format!("tty{minor}")),
        4 => Some(format!("ttyS{}", minor - 64)),
        _ => None,
    }
}

/// Whether a process with this number exists under this root.
fn alive(root: &Path, pid: u32) -> bool {
    root.join("proc").join(pid.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: i16, pid: i32, line: &str) -> Vec<u8> {
        let mut record = vec![0; UTMP_RECORD_BYTES];
        record[0..2].copy_from_slice(&kind.to_ne_bytes());
        record[4..8].copy_from_slice(&pid.to_ne_bytes());
        record[8..8 + line.len()].copy_from_slice(line.as_bytes());
        record
    }

    fn at(terminal: &str) -> Login {
        Login { terminal: terminal.into() }
    }

    #[test]
    fn only_user_records_of_utmp_are_logins() {
        let bytes = [
            record(2, 0, "~"),
            record(7, 100, "pts/0"),
            record(8, 101, "pts/1"),
            record(7, 102, ":0"),
            vec![1, 2, 3],
        ]
        .concat();
        assert_eq!(utmp(&bytes).collect::<Vec<_>>(), [(100, "pts/0".into()), (102, ":0".into())]);
        assert_eq!(login(":0"), None);
        assert_eq!(login("/dev/tty1"), Some(at("tty1")));
    }

    #[test]
    fn both_records_are_read_and_the_dead_left_out() {
        let root = tempfile::tempdir().expect("a folder can be made");
        for dir in ["run/systemd/sessions", "proc/100", "proc/200"] {
            fs::create_dir_all(root.path().join(dir)).expect("it can be made");
        }
        let write = |path: &str, bytes: &[u8]| {
            fs::write(root.path().join(path), bytes).expect("it can be written")
        };
        write("run/utmp", &[record(7, 100, "pts/0"), record(7, 101, "pts/1")].concat());
        write("run/systemd/sessions/4", b"CLASS=user\nSTATE=active\nTTY=pts/2\nLEADER=200\n");
        write("run/systemd/sessions/5", b"CLASS=user\nSTATE=closing\nTTY=pts/3\nLEADER=200\n");
        write("run/systemd/sessions/6", b"CLASS=manager\nSTATE=active\nTTY=pts/4\nLEADER=200\n");
        write("run/systemd/sessions/7", b"CLASS=user\nSTATE=active\nTTY=pts/5\nLEADER=201\n");
        assert_eq!(logins(root.path()), Reading::Known(BTreeSet::from([at("pts/0"), at("pts/2")])));
    }

    /// The service has no terminal; the shell that it started has one.
    #[test]
    fn session_manager_user_is_logged_in_without_a_record() {
        let root = tempfile::tempdir().expect("a folder can be made");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("it is below the root"))
                .expect("it can be made");
            fs::write(path, text).expect("it can be written");
        };
        for (pid, terminal) in
            [(10, 0), (11, 0), (12, 136 << 8 | 4), (13, 136 << 8 | 4), (20, 136 << 8 | 9)]
        {
            write(
                &format!("proc/{pid}/stat"),
                &format!("{pid} (sh) S 1 {pid} {pid} {terminal} -1"),
            );
        }
        assert_eq!(logins(root.path()), Reading::Absent);
        write(
            "sys/fs/cgroup/system.slice/snap.amazon-ssm-agent.amazon-ssm-agent.service/cgroup.procs",
            "10\n11\n12\n13\n99\n",
        );
        assert_eq!(logins(root.path()), Reading::Known(BTreeSet::from([at("pts/4")])));
    }

    /// The second record belongs to a killed login, and its number to another process.
    #[test]
    fn login_record_with_a_reused_pid_and_no_terminal_is_no_login() {
        let root = tempfile::tempdir().expect("a folder can be made");
        let stat = |pid: u32, terminal: i64| {
            fs::create_dir_all(root.path().join(format!("proc/{pid}"))).expect("it can be made");
            fs::write(
                root.path().join(format!("proc/{pid}/stat")),
                format!("{pid} (a \u{e9}) S 1 {pid} {pid} {terminal} -1"),
            )
            .expect("it can be written");
        };
        fs::create_dir_all(root.path().join("run")).expect("it can be made");
        fs::write(
            root.path().join("run/utmp"),
            [record(7, 100, "pts/0"), record(7, 101, "pts/1")].concat(),
        )
        .expect("it can be written");
        // 100 is a daemon now. 101 is the sshd of a login whose shell has a terminal outside our
        // /dev.
        stat(100, 0);
        stat(101, 0);
        stat(102, 136 << 8 | 1);
        assert_eq!(logins(root.path()), Reading::Known(BTreeSet::from([at("pts/1")])));
        fs::remove_file(root.path().join("proc/100/stat")).expect("it is there");
        assert_eq!(
            logins(root.path()),
            Reading::Known(BTreeSet::from([at("pts/0"), at("pts/1")])),
            "what cannot be read may be a login"
        );
        stat(100, 0);
        fs::create_dir_all(root.path().join("dev/pts")).expect("it can be made");
        fs::write(root.path().join("dev/pts/0"), "").expect("it can be written");
        assert_eq!(
            logins(root.path()),
            Reading::Known(BTreeSet::from([at("pts/0"), at("pts/1")])),
            "a user may type at a terminal"
        );
    }

    #[test]
    fn numbers_of_terminals_have_names() {
        assert_eq!(terminal_name(136 << 8 | 3).as_deref(), Some("pts/3"));
        assert_eq!(terminal_name(137 << 8).as_deref(), Some("pts/256"));
        assert_eq!(terminal_name(4 << 8 | 1).as_deref(), Some("tty1"));
        assert_eq!(terminal_name(4 << 8 | 64).as_deref(), Some("ttyS0"));
        assert_eq!(terminal_name(0), None);
    }
}
