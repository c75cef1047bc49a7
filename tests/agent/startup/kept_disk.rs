//! A disk that was kept, and what a checkpoint may not do to it.

use std::sync::Arc;

use lamplighter::agent::checkpoint::restore::restore;
use lamplighter::agent::report::journal::Journal;
use lamplighter::agent::report::retry_sender::Outbox;
use lamplighter::agent::startup::fetch_status::Fetching;
use lamplighter::job::{AttemptNo, CheckpointNo, Discarded, RECORD_FORMAT, StoredKind};
use lamplighter::jobdir::JobDir;

use crate::Rig;
use crate::checkpoint::checkpoints::two_checkpoints;
use lamp_test_support::virtual_clock::simulate;

/// Uploads lagged when the machine was stopped, or failed for hours: what a kept disk has is newer
/// than what the job directory has, and why somebody kept it.
#[test]
fn what_is_newer_on_a_kept_disk_is_not_written_over() {
    simulate(async |clock| {
        let rig = two_checkpoints(Rig::new(clock.clone())).await;
        let (folder, theirs) = (rig.path("kept/ckpt"), "digits-222222".parse().unwrap());
        std::fs::create_dir_all(folder.join("sub")).unwrap();
        let saved = rig.dir().manifest(CheckpointNo::new(2)).await.unwrap().unwrap();
        let dated = |name: &str, text: &str, after_secs: i64| {
            std::fs::write(folder.join(name), text).unwrap();
            let at =
                saved.created.saturating_add(jiff::SignedDuration::from_secs(after_secs)).unwrap();
            std::fs::File::options()
                .write(true)
                .open(folder.join(name))
                .unwrap()
                .set_modified(at.into())
                .unwrap();
        };
        let outbox = Outbox {
            dir: JobDir::new(Arc::clone(rig.dir().store()), "next-333333".parse().unwrap()),
            ..rig.outbox_of(AttemptNo::new(1))
        };
        let journal = Journal::start(outbox.clone());
        dated("a.pt", "three", 60);
        dated("sub/b.pt", "same", -60);
        let go_on = async || {
            restore(
                &outbox,
                Some(&theirs),
                &journal,
                (&folder, true),
                &Fetching::new(clock.clone()),
            )
            .await
            .unwrap()
            .expect("there is one")
        };
        let found = go_on().await;
        assert_eq!(
            (found.number, found.step),
            (CheckpointNo::new(2), None),
            "nobody knows its step"
        );
        assert_eq!(std::fs::read_to_string(folder.join("a.pt")).unwrap(), "three");
        // As old as the checkpoint, or older: what is stored is checked, and comes back.
        dated("a.pt", "torn", -60);
        go_on().await;
        assert_eq!(std::fs::read_to_string(folder.join("a.pt")).unwrap(), "two!");
    });
}

/// To begin from nothing would be paid for, and is not what `lamp start` was asked for.
#[test]
fn what_was_discarded_is_not_taken_for_a_beginning() {
    simulate(async |clock| {
        let rig = two_checkpoints(Rig::new(clock.clone())).await;
        let folder = rig.path("next/ckpt");
        let theirs = rig.dir();
        let outbox = Outbox {
            dir: JobDir::new(Arc::clone(theirs.store()), "next-333333".parse().unwrap()),
            ..rig.outbox_of(AttemptNo::new(1))
        };
        let journal = Journal::start(outbox.clone());
        let go_on = async |is_kept| {
            restore(
                &outbox,
                Some(theirs.job()),
                &journal,
                (&folder, is_kept),
                &Fetching::new(clock.clone()),
            )
            .await
        };
        let record = |kinds: &[StoredKind]| Discarded {
            format: RECORD_FORMAT,
            at: jiff::Timestamp::UNIX_EPOCH,
            by: "me".into(),
            kinds: kinds.iter().copied().collect(),
        };
        theirs.put_discarded(&record(&[StoredKind::Checkpoints])).await.unwrap();
        assert!(go_on(false).await.unwrap().is_some(), "what is there yet is whole");
        let checkpoints: Vec<_> = theirs
            .stored()
            .await
            .unwrap()
            .into_iter()
            .filter(|(kind, _)| *kind == StoredKind::Checkpoints)
            .collect();
        theirs.delete_stored(&checkpoints, &std::sync::atomic::AtomicU64::new(0)).await.unwrap();
        let refused = go_on(false).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!("the job goes on from `{}`, whose checkpoints were discarded", theirs.job())
        );
        assert_eq!(go_on(true).await.unwrap(), None, "its own disk has what it goes on from");
        theirs.put_discarded(&record(&[])).await.unwrap();
        assert_eq!(go_on(false).await.unwrap(), None, "of what nobody discarded nothing is said");
    });
}
