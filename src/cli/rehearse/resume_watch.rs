//! Watches the second attempt of a rehearsal until it is known whether its script resumed.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::evidence::{Evidence, resumed_from};
use super::rehearsed_job::RehearsedJob;
use super::second_attempt::PAST_ITS_START_SECS;
use crate::job::{AttemptNo, AttemptPhase, ExitStatus, Manifest, checkpoint_step, counts_pieces};
use crate::jobdir::{Event, EventDetail, JobDirError};
use crate::wire::FileRead;

/// The longest wait for a sign of the second attempt: enough for slow imports. A script with steps
/// of minutes needs --to-end.
pub const FIRST_STEP_WITHIN: Duration = Duration::from_secs(10 * 60);

/// A script that can report its step has this long for the first one.
const TOLD_WITHIN_SECS: f64 = 120.0;

/// The checkpoint files as the script found them, by path; comparing shows whether one was read.
type FoundFiles = BTreeMap<String, FileRead>;

impl RehearsedJob<'_> {
    /// Waits until the second attempt has shown where it resumed, has ended, or has run long
    /// without a sign.
    pub(crate) async fn goes_on(
        &self,
        attempt: AttemptNo,
        evidence: &mut Evidence,
        within: Duration,
    ) -> Result<(), JobDirError> {
        let mut found = None;
        let until = self.context.clock.mono() + within;
        let running = self
            .runs(attempt, FIRST_STEP_WITHIN, async || {
                self.look_at_files(attempt, evidence, &mut found).await
            })
            .await?;
        loop {
            evidence.second = self.dir.events(attempt).await?;
            self.look_at_files(attempt, evidence, &mut found).await?;
            self.look_at_steps(attempt, evidence).await?;
            self.look_at_saves(attempt, evidence).await?;
            self.look_at_end(attempt, evidence).await?;
            let waited = self.context.clock.mono() >= until;
            if self.is_known(evidence) || !running || waited || self.over(attempt).await? {
                return Ok(());
            }
            self.pause().await;
        }
    }

    fn is_known(&self, evidence: &Evidence) -> bool {
        let again = &evidence.again;
        // A log line that counts from the start may count this attempt alone: then its first save
        // decides.
        let told = resumed_from(&evidence.second).and_then(|(checkpoint, _)| checkpoint.step);
        let is_told = again.is_told
            && again.step.is_some_and(|step| {
                again.is_reported || told.is_some_and(|told| step + 1.0 >= told)
            });
        let is_past =
            again.ran_secs >= if self.log_pattern { TOLD_WITHIN_SECS } else { PAST_ITS_START_SECS };
        let has_read = again.read.is_some_and(|(read, _)| read > 0);
        let by_names = again.row.is_some()
            || again.saved.as_ref().is_some_and(|(_, step)| step.is_some()) && again.from.is_some();
        let by_fate =
            again.saved.is_some() && again.read.is_some() && (is_past || !self.log_pattern);
        is_told
            || again.ended.is_some()
            || by_names
            || by_fate
            || has_read && is_past && again.step.is_none()
    }

    async fn look_at_steps(
        &self,
        attempt: AttemptNo,
        evidence: &mut Evidence,
    ) -> Result<(), JobDirError> {
        if let Some((first, _)) = self.steps(attempt).await? {
            let again = &mut evidence.again;
            (again.step, again.is_told, again.is_reported) = (Some(first), true, true);
        } else if evidence.again.step.is_none() {
            // Steps from the log are only in the heartbeat.
            let progress = self.dir.status(attempt).await?.and_then(|status| status.progress);
            evidence.again.step = progress.and_then(|progress| progress.step);
            evidence.again.is_told = self.log_pattern;
        }
        Ok(())
    }

    async fn look_at_saves(
        &self,
        attempt: AttemptNo,
        evidence: &mut Evidence,
    ) -> Result<(), JobDirError> {
        let Some((checkpoint, _)) = resumed_from(&evidence.second) else { return Ok(()) };
        let resumed = checkpoint.number;
        let own = evidence.second.iter().find_map(|event| match &event.what {
            EventDetail::Checkpoint { checkpoint, .. } if checkpoint.attempt == attempt => {
                Some(checkpoint.number)
            }
            _ => None,
        });
        if evidence.again.saved.is_some() {
            return Ok(());
        }
        let Some(before) = self.dir.manifest(resumed).await? else { return Ok(()) };
        evidence.again.from = step_of(&before, None);
        if let Some(number) = own {
            let own = self.dir.manifest(number).await?;
            evidence.again.saved =
                Some((number, own.as_ref().and_then(|own| step_of(own, Some(&before)))));
            evidence.again.row = own.and_then(|own| row(&before, &own));
        }
        Ok(())
    }

    async fn look_at_end(
        &self,
        attempt: AttemptNo,
        evidence: &mut Evidence,
    ) -> Result<(), JobDirError> {
        let Some((started, ended)) = script(&evidence.second) else { return Ok(()) };
        let now = ended.map_or_else(|| self.context.clock.now(), |(at, _)| at);
        evidence.again.ran_secs = now.duration_since(started).as_secs_f64();
        let is_over = ended.is_some() || self.over(attempt).await?;
        evidence.again.ended = is_over.then(|| {
            ended.map_or((false, "its machine is gone".into()), |(_, exit)| {
                (exit.is_in_order(), exit.to_string())
            })
        });
        Ok(())
    }

    /// Counts the restored files that the script has read. The agent's own reads do not move the
    /// access times, if the files are its own (`open_unnoted`).
    async fn look_at_files(
        &self,
        attempt: AttemptNo,
        evidence: &mut Evidence,
        found: &mut Option<FoundFiles>,
    ) -> Result<(), JobDirError> {
        if evidence.again.read.is_some_and(|(read, files)| read == files)
            || evidence.again.saved.is_some()
        {
            return Ok(());
        }
        let Some(spec) = evidence.checkpoint.as_ref() else { return Ok(()) };
        let Some(lease) = self.dir.lease(attempt).await? else { return Ok(()) };
        let Some(files) =
            self.workstation.reads(&lease.instance, &spec.path).filter(|files| !files.is_empty())
        else {
            return Ok(());
        };
        let Some(started) = before_start(&self.dir.events(attempt).await?) else {
            *found = Some(files.into_iter().map(|file| (file.path.clone(), file)).collect());
            return Ok(());
        };
        let before = found.get_or_insert_with(|| {
            files.iter().map(|file| (file.path.clone(), file.clone())).collect()
        });
        let known = evidence.again.read.map_or(0, |(read, _)| read);
        let read = files_read(&files, before, started).map(|read| read.max(known));
        evidence.again.read =
            read.or((known > 0).then_some(known)).map(|read| (read, before.len()));
        Ok(())
    }
}

/// How many of the files as they were found have been read since `started`. `None`: nobody can say.
///
/// A file that was read after it was written anew may have been read before too: its access time
/// then says nothing of the first read.
fn files_read(files: &[FileRead], found: &FoundFiles, started: Timestamp) -> Option<usize> {
    let is_same =
        |file: &&FileRead| found.get(&file.path).is_some_and(|known| known.inode == file.inode);
    let read: Vec<_> =
        files.iter().filter(is_same).filter(|file| file.read_at >= started).collect();
    let is_told = |file: &&&FileRead| file.written_at < started || file.read_at <= file.written_at;
    let told = read.iter().filter(is_told).count();
    (told > 0 || read.is_empty()).then_some(told)
}

/// When the script started last, and how it ended. The setup ran before the phase `running`.
fn script(events: &[Event]) -> Option<(Timestamp, Option<(Timestamp, ExitStatus)>)> {
    let running = events.iter().position(|event| {
        matches!(event.what, EventDetail::Phase { phase: AttemptPhase::Running })
    })?;
    let starts = events.iter().enumerate().filter_map(|(at, event)| match &event.what {
        EventDetail::WorkloadStarted { start, .. } => Some((at, *start, event.at)),
        _ => None,
    });
    let (before, after): (Vec<_>, Vec<_>) = starts.partition(|(at, ..)| *at < running);
    let (_, number, started) = after.last().or(before.last()).copied()?;
    let ended = events.iter().find_map(|event| match &event.what {
        EventDetail::WorkloadEnded { start, exit, .. } if *start == number => {
            Some((event.at, *exit))
        }
        _ => None,
    });
    Some((started, ended))
}

/// The last event before the script's last start, which is itself written down after the start. On
/// a busy machine a script reads its files before that. All files were restored by then.
fn before_start(events: &[Event]) -> Option<Timestamp> {
    let (started, _) = script(events)?;
    let is_start = |event: &Event| {
        matches!(event.what, EventDetail::WorkloadStarted { .. }) && event.at == started
    };
    let place = events.iter().rposition(is_start)?;
    Some(events[place.saturating_sub(1)].at)
}

/// The step in the names of a checkpoint's files; files that `less` has unchanged do not count.
fn step_of(manifest: &Manifest, less: Option<&Manifest>) -> Option<f64> {
    checkpoint_step(new_files(manifest, less), &[])
}

fn new_files<'a>(
    manifest: &'a Manifest,
    less: Option<&'a Manifest>,
) -> impl Iterator<Item = &'a str> {
    let is_old = move |path: &str, sha256: &str| {
        less.is_some_and(|less| {
            less.files.iter().any(|file| file.path == path && file.sha256 == sha256)
        })
    };
    manifest
        .files
        .iter()
        .filter(move |file| !is_old(&file.path, &file.sha256))
        .map(|file| file.path.as_str())
}

/// Names that number the runs: each attempt has a new one.
const RUNS: [&str; 6] = ["version", "run", "exp", "train", "trial", "events"];

/// The numbered names in a path, such as `model_40.ubj`: with the number replaced, the number, and
/// the name. A name with two numbers may count anything.
fn places(path: &str) -> impl Iterator<Item = (String, u64, &str)> {
    path.split('/').filter_map(|name| {
        let begin = name.find(|letter: char| letter.is_ascii_digit())?;
        let digits = name[begin..].bytes().take_while(u8::is_ascii_digit).count();
        let rest = &name[begin + digits..];
        let is_one = !rest.contains(|letter: char| letter.is_ascii_digit())
            && !RUNS.iter().any(|run| name.starts_with(run))
            && !counts_pieces(name);
        let number = name[begin..begin + digits].parse().ok().filter(|_| is_one && digits <= 12)?;
        Some((format!("{}#{rest}", &name[..begin]), number, name))
    })
}

/// The last name in the starting checkpoint, one of the attempt's own save, and whether it comes
/// later.
fn row(before: &Manifest, own: &Manifest) -> Option<(String, String, bool)> {
    let mut last: BTreeMap<String, (u64, &str)> = BTreeMap::new();
    for (shape, number, name) in before.files.iter().flat_map(|file| places(&file.path)) {
        let known = last.entry(shape).or_insert((number, name));
        *known = (*known).max((number, name));
    }
    let others =
        new_files(own, Some(before)).flat_map(places).filter_map(|(shape, number, name)| {
            let (known, before) = last.get(&shape)?;
            (number != *known).then(|| ((*before).to_owned(), name.to_owned(), number > *known))
        });
    // A row that continues at its end did not begin again, even if an older name was written again.
    others.max_by_key(|(_, _, later)| *later)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{CheckpointNo, ManifestEntry, RECORD_FORMAT};

    fn manifest(files: &[(&str, &str)]) -> Manifest {
        Manifest {
            format: RECORD_FORMAT,
            number: CheckpointNo::FIRST,
            attempt: AttemptNo::FIRST,
            created: "2026-01-01T00:00:00Z".parse().unwrap(),
            step: None,
            links: Vec::new(),
            files: files
                .iter()
                .map(|(path, sha256)| ManifestEntry {
                    path: (*path).into(),
                    bytes: 1,
                    sha256: (*sha256).into(),
                    key: "k".into(),
                    mode: None,
                    modified: None,
                })
                .collect(),
            save_secs: 0.0,
            upload_secs: 0.0,
            marks: None,
            silent_secs: None,
            asked_by: None,
        }
    }

    #[test]
    fn read_before_the_start_was_written_down_counts() {
        let at = |secs: i64| Timestamp::from_second(1_000 + secs).unwrap();
        let event = |seq: u64, secs: i64, what: EventDetail| Event { seq, at: at(secs), what };
        let started = EventDetail::WorkloadStarted { start: 1, pid: 7, command: "train".into() };
        let events = [
            event(1, 0, EventDetail::Phase { phase: AttemptPhase::Running }),
            event(2, 3, started),
        ];
        let since = before_start(&events).unwrap();
        let file = |read: i64, written: i64| FileRead {
            path: "state.txt".into(),
            inode: 1,
            read_at: at(read),
            written_at: at(written),
        };
        let found: FoundFiles = [("state.txt".into(), file(-5, -5))].into();
        assert_eq!(files_read(&[file(2, -5)], &found, since), Some(1));
        assert_eq!(files_read(&[file(-5, -5)], &found, since), Some(0));
    }

    #[test]
    fn row_of_names_says_whether_a_script_went_on() {
        let goes_on = |before: &[(&str, &str)], own: &[(&str, &str)]| {
            row(&manifest(before), &manifest(own)).map(|(_, _, goes_on)| goes_on)
        };
        let models = [("model_10.ubj", "a"), ("model_20.ubj", "b")];
        assert_eq!(goes_on(&models, &[models[0], models[1], ("model_30.ubj", "c")]), Some(true));
        assert_eq!(goes_on(&models, &[("model_10.ubj", "d"), models[1]]), Some(false));
        let saves =
            [("checkpoint_2/random_states_0.pkl", "a"), ("checkpoint_2/model.safetensors", "b")];
        assert_eq!(
            goes_on(&saves, &[saves[0], saves[1], ("checkpoint_3/random_states_0.pkl", "c")]),
            Some(true)
        );
        assert_eq!(
            goes_on(&saves, &[saves[0], saves[1], ("checkpoint_0/random_states_0.pkl", "c")]),
            Some(false)
        );
        assert_eq!(
            goes_on(
                &[("version_0/last.ckpt", "a")],
                &[("version_0/last.ckpt", "a"), ("version_1/last.ckpt", "b")]
            ),
            None
        );
        assert_eq!(goes_on(&[("checkpoint.pt", "a")], &[("checkpoint.pt", "b")]), None);
        // Each rank has a file, and all are written again.
        let ranks = [("rank_0.pt", "a"), ("rank_1.pt", "b")];
        assert_eq!(goes_on(&ranks, &[("rank_0.pt", "c"), ("rank_1.pt", "d")]), None);
    }

    #[test]
    fn setup_is_no_script_and_its_end_is_none() {
        let event = |secs: i64, what| Event {
            seq: 1,
            at: Timestamp::from_second(1_700_000_000 + secs).unwrap(),
            what,
        };
        let begun = |start| EventDetail::WorkloadStarted { start, pid: 1, command: "x".into() };
        let over = |start| EventDetail::WorkloadEnded {
            start,
            exit: ExitStatus { code: Some(0), ..ExitStatus::default() },
            orphans: 0,
        };
        let running = EventDetail::Phase { phase: AttemptPhase::Running };
        let mut events = vec![event(1, begun(1)), event(2, over(1)), event(3, begun(2))];
        assert_eq!(script(&events), None, "it is being set up");
        events.push(event(3, running));
        let at = |secs: i64| Timestamp::from_second(1_700_000_000 + secs).unwrap();
        assert_eq!(script(&events), Some((at(3), None)));
        events.extend([event(5, over(2)), event(6, begun(3))]);
        assert_eq!(script(&events), Some((at(6), None)), "it was started again");
    }

    /// A file was read at its start, written anew and read for its upload between two looks.
    #[test]
    fn read_that_a_later_one_hides_is_unknown() {
        let at = |secs: i64| Timestamp::from_second(1_700_000_000 + secs).unwrap();
        let file = |inode, read, written| FileRead {
            path: "state.txt".into(),
            inode,
            read_at: at(read),
            written_at: at(written),
        };
        let found = FoundFiles::from([("state.txt".to_owned(), file(7, 1, 1))]);
        let read = |file: FileRead| files_read(&[file], &found, at(10));
        assert_eq!(read(file(7, 1, 1)), Some(0), "it is as it was found");
        assert_eq!(read(file(7, 11, 1)), Some(1), "it was read");
        assert_eq!(read(file(7, 11, 12)), Some(1), "it was read and then written");
        assert_eq!(read(file(7, 1, 12)), Some(0), "it was written and not read");
        assert_eq!(read(file(7, 13, 12)), None, "the last read hides an earlier one");
        assert_eq!(read(file(8, 13, 12)), Some(0), "another file has its name");
    }

    #[test]
    fn step_of_a_save_is_that_of_its_new_files() {
        let first = manifest(&[
            ("checkpoint-100/trainer_state.json", "a"),
            ("checkpoint-150/trainer_state.json", "b"),
        ]);
        let second = manifest(&[
            ("checkpoint-150/trainer_state.json", "b"),
            ("checkpoint-50/trainer_state.json", "c"),
        ]);
        assert_eq!(
            (step_of(&first, None), step_of(&second, Some(&first))),
            (Some(150.0), Some(50.0))
        );
    }
}
