//! The time since a user last typed at a terminal of this machine.
//!
//! The terminals of login sessions come from `/run/systemd/sessions` and utmp. The atime of each
//! `/dev/pts/N` is the time of its newest input.
//!
//! Input moves a terminal's atime; output moves its mtime. So a program that prints all night is
//! not a user. Only terminals of login sessions count: terminals of tmux, containers and `script`
//! stay when the user leaves. Not here: how recent is recent enough.

#![expect(
    clippy::disallowed_methods,
    reason = "reads session records and the wall clock, which terminals are stamped with"
)]

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::logins::{Login, logins};
use crate::instance::Reading;

/// Time between two looks. The kernel updates the atime at most every 8 seconds, and idleness is in
/// minutes.
const LOOK_EVERY: Duration = Duration::from_secs(5);

pub(crate) struct Typing {
    root: PathBuf,
    looked: Option<(Duration, Reading<Option<Duration>>)>,
    seen: HashMap<PathBuf, Input>,
}

/// The newest input of one terminal.
#[derive(Clone, Copy, Debug)]
struct Input {
    stamp: (i64, i64),
    /// On the monotonic clock; at its zero if the input is older than the boot.
    at: Duration,
    /// How long before that zero.
    earlier: Duration,
    looked: Duration,
}

impl Typing {
    /// `root` is `/`, except in tests.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Typing { root: root.into(), looked: None, seen: HashMap::new() }
    }

    pub fn read(&mut self, now: Duration) -> Reading<Option<Duration>> {
        if let Some((at, reading)) = &self.looked
            && now.saturating_sub(*at) < LOOK_EVERY
        {
            return reading.clone().map(|since| since.map(|since| since + now.saturating_sub(*at)));
        }
        let reading = self.look(now);
        self.looked = Some((now, reading.clone()));
        reading
    }

    fn look(&mut self, now: Duration) -> Reading<Option<Duration>> {
        let logins = match logins(&self.root) {
            Reading::Known(logins) => logins,
            Reading::Absent => return Reading::Absent,
            Reading::Unknown(why) => return Reading::Unknown(why),
        };
        let mut newest: Option<Duration> = None;
        for login in &logins {
            match self.since_input(login, now) {
                Ok(since) => newest = Some(newest.map_or(since, |newest| newest.min(since))),
                Err(why) => return Reading::Unknown(why),
            }
        }
        self.seen.retain(|_, input| input.looked == now);
        Reading::Known(newest)
    }

    fn since_input(&mut self, login: &Login, now: Duration) -> Result<Duration, String> {
        let path = self.root.join("dev").join(&login.terminal);
        let meta = fs::metadata(&path)
            .map_err(|error| format!("the terminal of a login, {}: {error}", path.display()))?;
        let stamp = (meta.atime(), meta.atime_nsec());
        let before = self.seen.get(&path).copied();
        let input = match before {
            Some(input) if input.stamp == stamp => Input { looked: now, ..input },
            _ => {
                let since = meta
                    .accessed()
                    .ok()
                    .and_then(|at| SystemTime::now().duration_since(at).ok())
                    .unwrap_or_default();
                // The stamp moved after the last look, even if the wall clock stepped.
                let since =
                    before.map_or(since, |before| since.min(now.saturating_sub(before.looked)));
                Input {
                    stamp,
                    at: now.saturating_sub(since),
                    earlier: since.saturating_sub(now),
                    looked: now,
                }
            }
        };
        self.seen.insert(path, input);
        Ok(now.saturating_sub(input.at) + input.earlier)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A root with one login, at a terminal with input this long ago.
    fn machine(since: Duration) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder can be made");
        for dir in ["run/systemd/sessions", "dev/pts", "proc/77"] {
            fs::create_dir_all(root.path().join(dir)).expect("it can be made");
        }
        fs::write(
            root.path().join("run/systemd/sessions/1"),
            "CLASS=user\nSTATE=active\nTTY=pts/3\nLEADER=77\n",
        )
        .expect("it can be written");
        let terminal = root.path().join("dev/pts/3");
        fs::write(&terminal, "").expect("it can be written");
        typed(root.path(), since);
        root
    }

    fn typed(root: &Path, since: Duration) {
        let file =
            fs::File::options().write(true).open(root.join("dev/pts/3")).expect("it is there");
        let now = SystemTime::now();
        file.set_times(fs::FileTimes::new().set_accessed(now - since).set_modified(now))
            .expect("our own file");
    }

    fn seconds(reading: &Reading<Option<Duration>>) -> f64 {
        reading.known().copied().flatten().expect("somebody is logged in").as_secs_f64()
    }

    #[test]
    fn input_counts_and_output_does_not() {
        let root = machine(Duration::from_secs(1000));
        let since = seconds(&Typing::new(root.path()).read(Duration::from_secs(5000)));
        assert!((1000.0..1030.0).contains(&since), "{since}");
    }

    #[test]
    fn time_goes_on_between_looks_and_new_input_is_seen() {
        let root = machine(Duration::from_secs(1000));
        let mut typing = Typing::new(root.path());
        let at = |seconds: u64| Duration::from_secs(5000 + seconds);
        let first = seconds(&typing.read(at(0)));
        for later in [3, 60] {
            let passed = seconds(&typing.read(at(later))) - first;
            assert!((passed - later as f64).abs() < 1e-6, "{passed}");
        }
        typed(root.path(), Duration::ZERO);
        assert!(seconds(&typing.read(at(70))) <= 10.0);
    }

    #[test]
    fn step_of_the_wall_clock_does_not_age_fresh_input() {
        let root = machine(Duration::from_secs(1000));
        let mut typing = Typing::new(root.path());
        let at = |seconds: u64| Duration::from_secs(5000 + seconds);
        typing.read(at(0));
        typed(root.path(), Duration::from_secs(86_400));
        assert!(
            seconds(&typing.read(at(10))) <= 10.0,
            "the stamp moved within the last ten seconds"
        );
    }

    #[test]
    fn absent_present_and_hidden_terminal_differ() {
        let root = machine(Duration::ZERO);
        let at = Duration::from_secs(1);
        fs::remove_file(root.path().join("dev/pts/3")).expect("it is there");
        assert!(
            Typing::new(root.path()).read(at).is_unknown(),
            "a live login whose terminal cannot be seen may be typing"
        );
        fs::remove_dir(root.path().join("proc/77")).expect("it is there");
        assert_eq!(Typing::new(root.path()).read(at), Reading::Known(None), "the login is over");
        fs::remove_dir_all(root.path().join("run")).expect("it is there");
        assert_eq!(
            Typing::new(root.path()).read(at),
            Reading::Absent,
            "this machine records no logins"
        );
    }
}
