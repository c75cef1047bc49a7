//! Only complete checkpoints count, whatever the workload, the store and the clock do.

use std::path::PathBuf;

use lamplighter::agent::activity_counters::ActivityCounters;
use lamplighter::agent::checkpoint::handle::Checkpoints;
use lamplighter::agent::checkpoint::restore::{RestoreError, restore};
use lamplighter::agent::checkpoint::save_request::Saved;
use lamplighter::agent::log::progress_tail::ProgressTail;
use lamplighter::agent::report::journal::Journal;
use lamplighter::agent::startup::fetch_status::Fetching;
use lamplighter::job::{AttemptNo, CheckpointNo, CheckpointSpec, ExitStatus, Manifest};
use lamplighter::jobdir::EventDetail;
use lamplighter::market::Span;
use lamplighter::ports::{Clock, Store};

use crate::{Rig, secs};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::{simulate, until};

pub const EXIT: ExitStatus = ExitStatus { code: Some(0), signal: None, oom: false };
pub const KILLED: ExitStatus = ExitStatus { code: None, signal: Some(9), oom: false };

pub struct Watched {
    pub rig: Rig,
    pub journal: Journal,
    pub board: ActivityCounters,
    pub checkpoints: Checkpoints,
}

impl Watched {
    pub fn new(rig: Rig) -> Self {
        Watched::of(rig, AttemptNo::FIRST)
    }

    /// By an agent that finds the process gone with an earlier life of the machine.
    pub fn after_a_reboot(rig: Rig) -> Self {
        Watched::with(rig, AttemptNo::FIRST, true)
    }

    /// By an agent that comes after another.
    pub fn again(rig: Rig) -> Self {
        Watched::of(rig, AttemptNo::FIRST)
    }

    fn of(rig: Rig, attempt: AttemptNo) -> Self {
        Watched::with(rig, attempt, false)
    }

    fn with(rig: Rig, attempt: AttemptNo, unseen_end: bool) -> Self {
        let (journal, board) =
            (Journal::start(rig.outbox_of(attempt)), ActivityCounters::default());
        let spec = CheckpointSpec {
            path: "ckpt".into(),
            interval: Span::from_secs(600),
            signal: Some("SIGUSR1".into()),
            grace: Span::from_secs(30),
        };
        let checkpoints = Checkpoints::start(
            rig.outbox_of(attempt),
            journal.clone(),
            board.clone(),
            &spec,
            rig.path("ckpt"),
            unseen_end,
        );
        Watched { rig, journal, board, checkpoints }
    }

    pub fn write(&self, name: &str, content: &str) {
        write(&self.rig, "ckpt", name, content);
    }

    /// Waits until a checkpoint with this number is complete.
    pub async fn complete(&self, number: u32) -> Manifest {
        let number = CheckpointNo::new(number);
        until(&self.rig.clock, &format!("checkpoint {number}"), secs(1300), || {
            self.checkpoints.last().is_some_and(|last| last.number == number)
        })
        .await;
        self.rig
            .dir()
            .manifest(number)
            .await
            .unwrap()
            .expect("the manifest of a complete checkpoint")
    }

    pub fn read(&self, manifest: &Manifest, path: &str) -> String {
        let file =
            manifest.files.iter().find(|file| file.path == path).expect("a file of the checkpoint");
        let body =
            self.rig.store.object(&format!("jobs/digits-222222/{}", file.key)).expect("its object");
        String::from_utf8(body.to_vec()).unwrap()
    }
}

pub fn write(rig: &Rig, folder: &str, name: &str, content: &str) {
    let path = rig.path(folder).join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

fn read(rig: &Rig, folder: &str, name: &str) -> Option<String> {
    std::fs::read_to_string(rig.path(folder).join(name)).ok()
}

#[test]
fn quiet_folder_is_uploaded_each_interval_changed_files_only() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        watched.write("base.bin", "base");
        watched.write("step.txt", "100");
        watched.write("model.tmp", "half");
        let first = watched.complete(1).await;
        assert_eq!(
            first.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(),
            ["base.bin", "step.txt"]
        );
        let begun = clock.mono();
        std::fs::remove_file(watched.rig.path("ckpt/step.txt")).unwrap();
        watched.write("step-200.txt", "200");
        let second = watched.complete(2).await;
        assert!(clock.mono() - begun > secs(590), "not before the interval");
        assert_eq!(watched.read(&second, "step-200.txt"), "200");
        assert_eq!(second.files[0].key, first.files[0].key);
        assert_eq!(watched.rig.store.writes("base.bin").len(), 1);
        assert_eq!((watched.checkpoints.count(), watched.board.marks().checkpoints), (2, 2));
        assert!(watched.checkpoints.secs_p95().unwrap() >= 2.0);
    });
}

#[test]
fn mark_needs_no_quiet_time_and_a_symlink_counts_as_its_file() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        let rig = &watched.rig;
        let progress = rig.path("progress.jsonl");
        let tail = ProgressTail::new(
            rig.files.clone(),
            clock.clone(),
            watched.board.clone(),
            watched.journal.clone(),
            progress.clone(),
            None,
        );
        tail.poll();
        watched.write("step-3.pt", "three");
        std::os::unix::fs::symlink("step-3.pt", rig.path("ckpt/latest")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", rig.path("ckpt/outside")).unwrap();
        std::fs::write(&progress, "{\"step\": 3}\n{\"checkpoint\": \"step-3\"}\n{\"step\": 4}\n")
            .unwrap();
        tail.poll();
        until(&clock, "complete at once", secs(2), || watched.checkpoints.last().is_some()).await;
        let manifest = watched.complete(1).await;
        assert_eq!(manifest.step, Some(3.0));
        assert_eq!(watched.read(&manifest, "latest"), "three");
        assert_eq!(rig.store.keys("/files/").len(), 1, "one content, one object");
        watched.journal.flush(secs(5)).await;
        assert!(
            rig.attention()
                .await
                .iter()
                .any(|text| text.contains("outside: a link that leads outside"))
        );
    });
}

/// `latest -> step-4`, as many trainers make it: the next attempt begins from where the link leads.
#[test]
fn link_to_the_newest_checkpoint_folder_comes_back_as_a_link() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        watched.write("step-3/model.pt", "three");
        watched.write("step-4/model.pt", "four");
        std::os::unix::fs::symlink("step-4", watched.rig.path("ckpt/latest")).unwrap();
        let manifest = watched.complete(1).await;
        assert_eq!(
            manifest
                .links
                .iter()
                .map(|link| (link.path.as_str(), link.target.as_str()))
                .collect::<Vec<_>>(),
            [("latest", "step-4")]
        );
        let (restored, folder) = restored(&watched.rig).await;
        assert!(restored.expect("whole").is_some());
        assert_eq!(
            std::fs::read_link(folder.join("latest")).expect("a link"),
            PathBuf::from("step-4")
        );
        assert_eq!(std::fs::read_to_string(folder.join("latest/model.pt")).expect("there"), "four");
    });
}

#[test]
fn save_waits_for_what_is_written_after_the_asking() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        watched.write("a.pt", "before");
        watched.complete(1).await;
        let ask = watched.checkpoints.ask().await;
        let save = watched.checkpoints.save(ask, "interruption notice", secs(90));
        let workload = async {
            clock.sleep(secs(5)).await;
            watched.write("a.pt", "after!!");
            clock.sleep(secs(1)).await;
            watched.write("b.pt", "more");
        };
        let (saved, ()) = tokio::join!(save, workload);
        let Saved::Complete(summary) = saved else { panic!("{saved:?}") };
        assert_eq!(summary.number, CheckpointNo::new(2));
        let manifest = watched.complete(2).await;
        assert_eq!(
            (watched.read(&manifest, "a.pt").as_str(), watched.read(&manifest, "b.pt").as_str()),
            ("after!!", "more")
        );
        assert_eq!(manifest.asked_by.as_deref(), Some("interruption notice"));
        assert!((5.0..8.0).contains(&manifest.save_secs), "{}", manifest.save_secs);
        watched.journal.flush(secs(5)).await;
        let asked = |what: &EventDetail| matches!(what, EventDetail::Checkpoint { asked_by: Some(by), .. } if by == "interruption notice");
        assert!(watched.rig.events().await.iter().any(|event| asked(&event.what)));
    });
}

#[test]
fn workload_that_ignores_a_save_request_keeps_its_earlier_files() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        watched.write("a.pt", "1");
        watched.complete(1).await;
        watched.write("a.pt", "two");
        clock.sleep(secs(5)).await;
        let ask = watched.checkpoints.ask().await;
        let begun = clock.mono();
        let saved = watched.checkpoints.save(ask, "notice", secs(60)).await;
        let Saved::NoChange(Some(last)) = saved else { panic!("{saved:?}") };
        assert_eq!((last.number, clock.mono() - begun), (CheckpointNo::new(2), secs(60)));
        let ask = watched.checkpoints.ask().await;
        let ended = async {
            clock.sleep(secs(3)).await;
            watched.checkpoints.workload_ended(EXIT);
        };
        let begun = clock.mono();
        let (saved, ()) = tokio::join!(watched.checkpoints.save(ask, "notice", secs(60)), ended);
        assert!(matches!(saved, Saved::NoChange(Some(_))), "{saved:?}");
        assert!(clock.mono() - begun < secs(5), "an end is not waited out");
    });
}

#[test]
fn exit_completes_what_was_written_and_a_killing_does_not() {
    for (exit, complete) in [(EXIT, true), (KILLED, false)] {
        simulate(async |clock| {
            let watched = Watched::new(Rig::new(clock.clone()));
            watched.write("a.pt", "1");
            watched.complete(1).await;
            let ask = watched.checkpoints.ask().await;
            watched.write("a.pt", "at the end");
            watched.checkpoints.workload_ended(exit);
            let saved = watched.checkpoints.save(ask, "notice", secs(60)).await;
            match saved {
                Saved::Complete(summary) => {
                    assert!(complete && summary.number == CheckpointNo::new(2))
                }
                Saved::Failed(why) => {
                    assert!(!complete);
                    assert_eq!(
                        why,
                        "the workload ended, and its last write there may be half of a checkpoint"
                    );
                    assert!(watched.rig.store.keys("checkpoints/0002/manifest").is_empty());
                }
                other => panic!("{other:?}"),
            }
        });
    }
}

#[test]
fn as_is_keeps_what_is_there_or_says_that_nothing_changed() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        write(&rig, "ckpt", "pretrained.pt", "not ours");
        let watched = Watched::new(rig);
        watched.checkpoints.workload_ended(EXIT);
        assert_eq!(
            watched.checkpoints.save(watched.checkpoints.as_is(), "the end", secs(60)).await,
            Saved::NoChange(None)
        );
        watched.write("final.pt", "done");
        let saved =
            watched.checkpoints.save(watched.checkpoints.as_is(), "the end", secs(60)).await;
        assert!(matches!(saved, Saved::Complete(_)), "{saved:?}");
        assert_eq!(watched.complete(1).await.files.len(), 2);
    });
}

#[test]
fn torn_folder_is_uploaded_again_and_its_number_is_not_reused() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        watched.rig.store.fault("/files/", Fault::Slow(secs(20)), None);
        watched.write("big.pt", "one");
        until(&clock, "the upload began", secs(10), || watched.rig.store.calls() > 1).await;
        watched.write("big.pt", "changed");
        let manifest = watched.complete(2).await;
        assert_eq!(watched.read(&manifest, "big.pt"), "changed");
        assert!(watched.rig.store.keys("checkpoints/0001/manifest").is_empty());
    });
}

#[test]
fn lost_reply_sends_the_file_again_in_the_same_try() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        watched.write("a.pt", "one");
        watched.write("keep.pt", "kept");
        // The reply is lost once: it is sent again under the same key, in the same try.
        watched.rig.store.fault("a.pt", Fault::LostReply, 1);
        watched.rig.store.fault("manifest.json", Fault::LostReply, 1);
        let manifest = watched.complete(1).await;
        assert_eq!(manifest.files.len(), 2);
        assert_eq!(watched.rig.store.writes("a.pt").len(), 2);
    });
}

#[test]
fn a_store_that_is_down_for_twenty_minutes_costs_no_checkpoint() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        watched.rig.store.fault("", Fault::Down, None);
        watched.write("a.pt", "one");
        clock.sleep(secs(1200)).await;
        assert_eq!(watched.checkpoints.last(), None);
        watched.rig.store.mend();
        let manifest = watched.complete(1).await;
        assert_eq!(watched.read(&manifest, "a.pt"), "one");
    });
}

#[test]
fn tries_that_keep_failing_are_told_to_a_person_once() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        watched.rig.store.fault("/files/", Fault::Denied, None);
        watched.write("a.pt", "one");
        clock.sleep(secs(600)).await;
        watched.journal.flush(secs(5)).await;
        let told = watched.rig.attention().await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("`a.pt` of a checkpoint is not uploaded after 3 tries, which go on: not allowed to upload"), "{told:?}");
        watched.complete(1).await;
    });
}

/// A file of another user, a name that a bucket does not take: no later try is another.
#[test]
fn file_that_cannot_be_sent_is_left_out_at_once() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        watched.rig.store.fault("/files/optimizer.pt", Fault::Unfit, None);
        watched.write("model.pt", "one");
        watched.write("optimizer.pt", "one");
        let begun = clock.mono();
        let manifest = watched.complete(1).await;
        assert!(clock.mono() - begun < secs(20), "{:?}", clock.mono() - begun);
        assert_eq!(
            manifest.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(),
            ["model.pt"]
        );
        assert_eq!(
            watched.checkpoints.left_out(),
            ["`optimizer.pt` of the checkpoints is not kept: injected"]
        );
        assert_eq!(
            watched.checkpoints.troubles(),
            ["`optimizer.pt` of the checkpoints is not kept, for it cannot be sent: injected"]
        );
        watched.journal.flush(secs(5)).await;
        assert_eq!(watched.rig.attention().await.len(), 1, "{:?}", watched.rig.attention().await);

        watched.rig.store.mend();
        watched.write("optimizer.pt", "two, which can be read");
        watched.complete(2).await;
        clock.sleep(secs(2)).await;
        assert!(
            watched.checkpoints.left_out().is_empty() && watched.checkpoints.troubles().is_empty(),
            "it is taken back"
        );
    });
}

#[test]
fn save_of_which_no_file_can_be_sent_is_answered_at_once() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        watched.rig.store.fault("/files/", Fault::Unfit, None);
        watched.write("model.pt", "one");
        clock.sleep(secs(1)).await;
        watched.checkpoints.workload_ended(EXIT);
        let begun = clock.mono();
        let saved = watched.checkpoints.save(watched.checkpoints.as_is(), "test", secs(1800)).await;
        assert!(!matches!(saved, Saved::Complete(_)), "{saved:?}");
        assert!(clock.mono() - begun < secs(10), "{:?}", clock.mono() - begun);
        assert_eq!(watched.checkpoints.left_out().len(), 1);
        assert!(
            watched.rig.store.keys("manifest.json").is_empty(),
            "a checkpoint without a file is none"
        );
    });
}

/// The status says it within a minute, and says when it is over.
#[test]
fn job_root_that_takes_nothing_stands_in_status_until_it_does() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        watched.rig.store.fault("/checkpoints/", Fault::Down, None);
        watched.write("a.pt", "one");
        clock.sleep(secs(60)).await;
        let troubles = watched.checkpoints.troubles();
        assert!(
            troubles.len() == 1
                && troubles[0].starts_with("nothing is saved, and it is tried again: "),
            "{troubles:?}"
        );
        watched.rig.store.mend();
        watched.complete(1).await;
        clock.sleep(secs(2)).await;
        assert_eq!(watched.checkpoints.troubles(), Vec::<String>::new());
    });
}

/// The restore accepts all that the agent kept: odd names, and links that leave the folder by their
/// words and come back.
#[test]
fn checkpoint_with_odd_names_and_links_comes_back() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        for name in ["layer\\0.pt", "a\nb.pt", "step-4/model.pt"] {
            watched.write(name, "x");
        }
        for (link, target) in [("latest", "../ckpt/step-4"), ("self", "."), ("up", "step-4/..")] {
            std::os::unix::fs::symlink(target, watched.rig.path("ckpt").join(link)).unwrap();
        }
        let manifest = watched.complete(1).await;
        assert_eq!((manifest.files.len(), manifest.links.len()), (3, 1), "{:?}", manifest.links);
        let (restored, folder) = restored(&watched.rig).await;
        assert!(restored.expect("nothing is damaged").is_some());
        assert_eq!(std::fs::read_to_string(folder.join("layer\\0.pt")).expect("restored"), "x");
        assert_eq!(std::fs::read_to_string(folder.join("latest/model.pt")).expect("restored"), "x");
    });
}

#[test]
fn restarted_agent_uploads_what_its_predecessor_did_not() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        watched.write("a.pt", "one");
        watched.complete(1).await;
        let Watched { rig, checkpoints, .. } = watched;
        drop(checkpoints);
        write(&rig, "ckpt", "b.pt", "two");
        let watched = Watched::new(rig);
        assert_eq!(watched.checkpoints.count(), 1);
        let manifest = watched.complete(2).await;
        assert_eq!(manifest.files.len(), 2);
        assert_eq!(watched.rig.store.writes("a.pt").len(), 1, "sent by the predecessor");
    });
}

/// A finished first attempt with two checkpoints; then another machine.
pub async fn two_checkpoints(rig: Rig) -> Rig {
    let watched = Watched::new(rig);
    watched.write("a.pt", "one");
    watched.write("sub/b.pt", "same");
    watched.complete(1).await;
    watched.write("a.pt", "two!");
    watched.complete(2).await;
    watched.rig
}

/// Within five minutes, or it panics.
pub async fn restored(rig: &Rig) -> (Result<Option<Manifest>, RestoreError>, PathBuf) {
    let (manifest, folder) = restored_within(rig, 300).await;
    (manifest.expect("an answer"), folder)
}

pub(crate) async fn restored_within(
    rig: &Rig,
    limit: u64,
) -> (Option<Result<Option<Manifest>, RestoreError>>, PathBuf) {
    let folder = rig.path("second/ckpt");
    let outbox = rig.outbox_of(AttemptNo::new(2));
    let journal = Journal::start(outbox.clone());
    let fetching = Fetching::new(rig.clock.clone());
    let manifest = tokio::select! {
        manifest = restore(&outbox, None, &journal, (&folder, false), &fetching) => Some(manifest),
        () = rig.clock.sleep(secs(limit)) => None,
    };
    journal.flush(secs(5)).await;
    (manifest, folder)
}

/// Of the next attempt.
pub fn second(rig: &Rig, folder: PathBuf) -> Checkpoints {
    let outbox = || rig.outbox_of(AttemptNo::new(2));
    let spec = CheckpointSpec {
        path: "ckpt".into(),
        interval: Span::from_secs(600),
        signal: None,
        grace: Span::from_secs(30),
    };
    Checkpoints::start(
        outbox(),
        Journal::start(outbox()),
        ActivityCounters::default(),
        &spec,
        folder,
        false,
    )
}

#[test]
fn newest_complete_checkpoint_comes_back_and_numbers_go_on() {
    simulate(async |clock| {
        let rig = two_checkpoints(Rig::new(clock.clone())).await;
        // A third was begun and never finished.
        rig.store
            .put("jobs/digits-222222/checkpoints/0007/files/a.pt", "torn".into())
            .await
            .unwrap();
        let (manifest, folder) = restored(&rig).await;
        assert_eq!(manifest.unwrap().unwrap().number, CheckpointNo::new(2));
        assert_eq!(read(&rig, "second/ckpt", "a.pt").as_deref(), Some("two!"));
        assert_eq!(read(&rig, "second/ckpt", "sub/b.pt").as_deref(), Some("same"));
        assert_eq!(
            std::fs::read_dir(folder.parent().unwrap()).unwrap().count(),
            1,
            "nothing is left beside it"
        );

        let checkpoints = second(&rig, folder);
        assert_eq!(checkpoints.last().unwrap().number, CheckpointNo::new(2));
        assert_eq!(checkpoints.count(), 0);
        write(&rig, "second/ckpt", "a.pt", "three");
        until(&clock, "the next number", secs(10), || {
            checkpoints.last().unwrap().number == CheckpointNo::new(8)
        })
        .await;
        let manifest = rig.dir().manifest(CheckpointNo::new(8)).await.unwrap().unwrap();
        assert_eq!(rig.store.writes("sub/b.pt").len(), 1, "what was restored is not sent again");
        assert_eq!(manifest.attempt, AttemptNo::new(2));
    });
}

#[test]
fn damage_falls_back_to_the_older_one_and_says_so() {
    let key = "jobs/digits-222222/checkpoints/0002/files/a.pt";
    let manifest_key = "jobs/digits-222222/checkpoints/0002/manifest.json";
    let traversal: &[u8] = br#"{"format": 1, "number": 2, "attempt": 1, "created": "2026-01-01T00:00:00Z", "save_secs": 0, "upload_secs": 0,
        "files": [{"path": "../../evil", "bytes": 1, "sha256": "00", "key": "checkpoints/0002/files/a.pt"}]}"#;
    let cases: [(&str, Option<&'static [u8]>, &str); 5] = [
        (key, Some(b"twx!"), "`a.pt` is not what was saved"),
        (key, None, "`a.pt` is missing in the job directory"),
        (manifest_key, Some(b"{\"format\": 1, \"fil"), "its manifest cannot be read"),
        (manifest_key, Some(b"{\"format\": 99}"), "has format 99"),
        (manifest_key, Some(traversal), "leads out of the checkpoint folder"),
    ];
    for (key, body, said) in cases {
        simulate(async |clock| {
            let rig = two_checkpoints(Rig::new(clock)).await;
            rig.store.set(key, body);
            let (manifest, _) = restored(&rig).await;
            assert_eq!(manifest.unwrap().unwrap().number, CheckpointNo::FIRST, "{said}");
            assert_eq!(read(&rig, "second/ckpt", "a.pt").as_deref(), Some("one"));
            assert!(!rig.path("evil").exists());
            let events = rig.dir().events(AttemptNo::new(2)).await.unwrap();
            assert!(
                events.iter().any(
                    |event| matches!(&event.what, EventDetail::Attention { text } if text.contains(said))
                ),
                "{events:?}"
            );
        });
    }
}

#[test]
fn a_store_that_does_not_answer_is_not_an_empty_one() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        assert!(matches!(restored(&rig).await.0, Ok(None)));
        let rig = two_checkpoints(rig).await;
        for fault in [Fault::Down, Fault::Denied, Fault::Full] {
            rig.store.fault("checkpoints", fault, None);
            assert!(restored_within(&rig, 300).await.0.is_none(), "{fault:?}: nobody knows");
            rig.store.mend();
            rig.store.fault("checkpoints", fault, 3);
            assert_eq!(
                restored(&rig).await.0.unwrap().unwrap().number,
                CheckpointNo::new(2),
                "{fault:?}"
            );
        }
    });
}
