//! What follows from the files of a directory.

use std::collections::BTreeSet;

use jiff::Timestamp;
use lamplighter::job::Applied;
use lamplighter::policy::schedule::apply_diff::{
    ApplyWishes, ChangeKind, FileChange, FileFact, JobFact, changes,
};
use proptest::prelude::*;

fn file(name: &str, sha256: &str) -> FileFact {
    FileFact { file: name.into(), sha256: sha256.into(), is_scheduled: false, is_as_kept: false }
}

fn scheduled(name: &str, is_as_kept: bool) -> FileFact {
    FileFact { is_scheduled: true, is_as_kept, ..file(name, "s") }
}

fn job(number: i64, name: &str, sha256: &str, has_ended: bool) -> JobFact {
    let applied = Applied {
        set: "s".into(),
        file: name.into(),
        sha256: sha256.into(),
        owner: "me".into(),
        due: None,
    };
    JobFact {
        job: format!("j-{number}").parse().unwrap(),
        applied,
        created: Timestamp::from_second(number).unwrap(),
        has_ended,
        fell_short: false,
    }
}

/// Each change in a line.
fn says(
    files: &[FileFact],
    jobs: &[JobFact],
    schedules: &[&str],
    wishes: ApplyWishes,
) -> Vec<String> {
    let schedules: BTreeSet<String> = schedules.iter().map(|name| (*name).to_owned()).collect();
    let line = |change: &FileChange| {
        let names = |jobs: &[lamplighter::job::JobId]| {
            jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        let mut text =
            format!("{} {:?} {:?}", change.file, change.kind, change.change).to_lowercase();
        for (word, jobs) in [("stops", &change.stops), ("leaves", &change.leaves)] {
            if !jobs.is_empty() {
                text += &format!(", {word} {}", names(jobs));
            }
        }
        if change.unschedules { text + ", unschedules" } else { text }
    };
    changes(files, jobs, &schedules, wishes).iter().map(line).collect()
}

const NOTHING: ApplyWishes =
    ApplyWishes { replace: false, prune: false, again: false, whole: true };

#[test]
fn file_makes_a_job_once_and_other_words_make_another() {
    assert_eq!(says(&[file("a", "1")], &[], &[], NOTHING), ["a job create"]);
    assert_eq!(
        says(&[file("a", "1")], &[job(1, "a", "1", true)], &[], NOTHING),
        ["a job unchanged"],
        "it is not run again"
    );
    let old = [job(1, "a", "1", false)];
    assert_eq!(says(&[file("a", "2")], &old, &[], NOTHING), ["a job changed, leaves j-1"]);
    assert_eq!(
        says(&[file("a", "2")], &old, &[], ApplyWishes { replace: true, ..NOTHING }),
        ["a job changed, stops j-1"]
    );
    // Back to older words: those of the newest job count.
    let both = [job(1, "a", "1", true), job(2, "a", "2", false)];
    assert_eq!(says(&[file("a", "1")], &both, &[], NOTHING), ["a job changed, leaves j-2"]);
    assert_eq!(says(&[file("a", "2")], &both, &[], NOTHING), ["a job unchanged"]);
}

/// A call made the new job and left the old one: the next sees it still, and can stop it.
#[test]
fn old_job_of_a_file_that_changed_is_not_forgotten() {
    let replace = ApplyWishes { replace: true, ..NOTHING };
    let both = [job(1, "a", "1", false), job(2, "a", "2", false)];
    assert_eq!(says(&[file("a", "2")], &both, &[], NOTHING), ["a job unchanged, leaves j-1"]);
    assert_eq!(says(&[file("a", "2")], &both, &[], replace), ["a job unchanged, stops j-1"]);
    let back = [job(1, "a", "1", false), job(2, "a", "2", true), job(3, "a", "1", false)];
    assert_eq!(
        says(&[file("a", "1")], &back, &[], replace),
        ["a job unchanged, stops j-1"],
        "the same work is not done twice"
    );
    let over = [job(1, "a", "1", false), job(2, "a", "2", true)];
    assert_eq!(says(&[file("a", "2")], &over, &[], replace), ["a job unchanged, stops j-1"]);
    let ahead = [job(1, "a", "1", false), job(2, "a", "1", true)];
    assert_eq!(
        says(&[file("a", "1")], &ahead, &[], replace),
        ["a job unchanged"],
        "it does what the file says"
    );
    let short = [job(1, "a", "1", false), JobFact { fell_short: true, ..job(2, "a", "2", true) }];
    let again = ApplyWishes { again: true, ..NOTHING };
    assert_eq!(
        says(&[file("a", "2")], &short, &[], again),
        ["a job unchanged, leaves j-1"],
        "one at a time"
    );
    assert_eq!(
        says(&[file("a", "2")], &short, &[], ApplyWishes { again: true, ..replace }),
        ["a job again, stops j-1"]
    );
    // Runs of a schedule, several of which may be under way, are not each other's successors.
    let runs = [job(1, "a", "0", false), job(2, "a", "s", false), job(3, "a", "s", false)];
    assert_eq!(
        says(&[scheduled("a", true)], &runs, &["a"], replace),
        ["a schedule unchanged, stops j-1"]
    );
}

#[test]
fn what_fell_short_is_made_again_when_asked_for_and_once() {
    let again = ApplyWishes { again: true, ..NOTHING };
    let short =
        |number, has_ended| JobFact { fell_short: has_ended, ..job(number, "a", "1", has_ended) };
    assert_eq!(says(&[file("a", "1")], &[short(1, true)], &[], NOTHING), ["a job unchanged"]);
    assert_eq!(says(&[file("a", "1")], &[short(1, true)], &[], again), ["a job again"]);
    assert_eq!(
        says(&[file("a", "1")], &[job(1, "a", "1", true)], &[], again),
        ["a job unchanged"],
        "it has succeeded"
    );
    assert_eq!(
        says(&[file("a", "1")], &[short(1, true), short(2, false)], &[], again),
        ["a job unchanged"],
        "it is under way"
    );
    assert_eq!(
        says(&[file("a", "1")], &[short(1, false), short(2, true)], &[], again),
        ["a job unchanged"],
        "dated by a clock that was ahead"
    );
}

#[test]
fn job_of_a_missing_file_stops_only_on_prune_of_a_directory() {
    let jobs = [job(1, "a", "1", false), job(2, "b", "1", true)];
    assert_eq!(says(&[], &jobs, &["c"], NOTHING), ["a job gone, leaves j-1", "c schedule gone"]);
    let prune = ApplyWishes { prune: true, ..NOTHING };
    assert_eq!(
        says(&[], &jobs, &["c"], prune),
        ["a job gone, stops j-1", "c schedule gone, unschedules"]
    );
    assert_eq!(
        says(&[], &jobs, &["c"], ApplyWishes { whole: false, ..prune }),
        Vec::<String>::new(),
        "single files say nothing of others"
    );
}

#[test]
fn schedule_comes_and_goes_with_its_table() {
    assert_eq!(says(&[scheduled("a", false)], &[], &[], NOTHING), ["a schedule create"]);
    assert_eq!(says(&[scheduled("a", true)], &[], &["a"], NOTHING), ["a schedule unchanged"]);
    assert_eq!(
        says(&[scheduled("a", false)], &[job(1, "a", "0", false)], &["a"], NOTHING),
        ["a schedule changed, leaves j-1"]
    );
    assert_eq!(says(&[file("a", "1")], &[], &["a"], NOTHING), ["a job changed, unschedules"]);
    let mut run = job(1, "a", "1", true);
    run.applied.due = Some(Timestamp::UNIX_EPOCH);
    assert_eq!(
        says(&[file("a", "1")], &[run], &[], NOTHING),
        ["a job changed"],
        "what its schedule made is not this job"
    );
}

fn facts() -> impl Strategy<Value = (Vec<FileFact>, Vec<JobFact>)> {
    let name = || prop::sample::select(vec!["a", "b", "c"]);
    let sha = || prop::sample::select(vec!["1", "2"]);
    let files = prop::collection::btree_map(name(), sha(), 0..4)
        .prop_map(|files| files.into_iter().map(|(name, sha)| file(name, sha)).collect());
    let jobs = prop::collection::vec((name(), sha(), any::<bool>(), any::<bool>()), 0..6).prop_map(
        |jobs| {
            let fact = |(at, (name, sha, ended, short))| JobFact {
                fell_short: ended && short,
                ..job(at as i64, name, sha, ended)
            };
            jobs.into_iter().enumerate().map(fact).collect()
        },
    );
    (files, jobs)
}

proptest! {
    /// After it was done, there is nothing to do.
    #[test]
    fn twice_is_once((files, mut jobs) in facts(), replace in any::<bool>(), prune in any::<bool>(), again in any::<bool>()) {
        let wishes = ApplyWishes { replace, prune, again, whole: true };
        let done = changes(&files, &jobs, &BTreeSet::new(), wishes);
        for change in &done {
            for stopped in &change.stops {
                jobs.iter_mut().find(|job| job.job == *stopped).unwrap().has_ended = true;
            }
            if change.makes() {
                let made = files.iter().find(|file| file.file == change.file).unwrap();
                jobs.push(job(1000 + jobs.len() as i64, &made.file, &made.sha256, false));
            }
        }
        let again = changes(&files, &jobs, &BTreeSet::new(), wishes);
        prop_assert!(again.iter().all(FileChange::is_nothing), "{:?}", again);
        prop_assert!(again.iter().all(|change| change.change != ChangeKind::Create));
    }
}
