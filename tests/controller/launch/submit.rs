//! Jobs that are submitted: by one, and by two at once.

use std::sync::Arc;
use std::time::Duration;

use lamplighter::controller::{Archive, SubmitError, applied_id, submit, upload_code};
use lamplighter::job::{
    Applied, CodeArchive, GangSpec, NodeCount, ResolvedSpec, other_members, seat_leader,
};
use lamplighter::jobdir::{JobDir, TuningDir, layout};
use lamplighter::ports::{Clock, Store};
use sha2::{Digest, Sha256};

use crate::spec;
use lamp_test_support::faulty_store::{Fault, FaultyStore};
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

/// The same job, with a packed workdir that holds this.
fn with_code(
    place: &tempfile::TempDir,
    clock: &VirtualClock,
    held: &str,
) -> (ResolvedSpec, std::path::PathBuf) {
    let archive = place.path().join(held);
    std::fs::write(&archive, held).unwrap();
    let code = CodeArchive {
        files: 1,
        bytes: 1,
        packed_bytes: held.len() as u64,
        sha256: hex::encode(Sha256::digest(held)),
        tree: None,
        source: None,
    };
    (ResolvedSpec { code: Some(code), ..spec(clock.now()) }, archive)
}

/// Two folders are applied at once and make one job: it runs what its spec names, whoever uploads
/// last.
#[test]
fn two_that_submit_one_job_do_not_overwrite_each_others_code() {
    simulate(async |clock: Arc<VirtualClock>| {
        let place = tempfile::tempdir().unwrap();
        let (ours, our_archive) = with_code(&place, &clock, "ours");
        let (theirs, their_archive) = with_code(&place, &clock, "theirs");
        let store: Arc<dyn Store> = FaultyStore::new(clock.clone());
        let dir = submit(&store, &ours, Some(&our_archive)).await.unwrap();
        let second = submit(&store, &theirs, Some(&their_archive)).await;
        assert!(matches!(second, Err(SubmitError::Exists(_))), "the first has it");

        let code = dir.spec().await.unwrap().unwrap().code.unwrap();
        let fetched = place.path().join("fetched");
        store
            .get_file(&layout::code(dir.job(), &code.sha256), &fetched)
            .await
            .unwrap()
            .expect("the code is there");
        assert_eq!(std::fs::read_to_string(&fetched).unwrap(), "ours");
    });
}

#[test]
fn archive_that_is_not_the_one_that_was_packed_makes_no_job() {
    simulate(async |clock: Arc<VirtualClock>| {
        let place = tempfile::tempdir().unwrap();
        let (packed, archive) = with_code(&place, &clock, "packed");
        std::fs::write(&archive, "changed meanwhile").unwrap();
        let store: Arc<dyn Store> = FaultyStore::new(clock.clone());
        assert!(matches!(
            upload_code(&store, &*clock, &packed, &archive.as_path().into()).await,
            Err(SubmitError::Changed)
        ));
        assert!(matches!(submit(&store, &packed, Some(&archive)).await, Err(SubmitError::Changed)));
        assert!(JobDir::new(store, packed.job.clone()).spec().await.unwrap().is_none());
    });
}

/// A home line that is gone for two minutes; and one that stays away. Of a small archive nothing is
/// waited for.
#[test]
fn large_archive_waits_for_a_line_that_broke_and_not_for_ever() {
    // The last carries nothing whole in its time: that flows, and arrives never.
    let flows = Fault::TimedOut(Duration::from_secs(140));
    for (bytes, fault, times, arrives, most) in [
        (9 << 20, Fault::Down, 12, true, 130),
        (9 << 20, Fault::Down, 1000, false, 310),
        (5, Fault::Down, 1, false, 0),
        (9 << 20, flows, 9, true, 1500),
        (9 << 20, flows, 1000, false, 2000),
    ] {
        simulate(async |clock: Arc<VirtualClock>| {
            let place = tempfile::tempdir().unwrap();
            let (packed, archive) = with_code(&place, &clock, "large");
            std::fs::write(&archive, vec![7; bytes]).unwrap();
            let sha256 = hex::encode(Sha256::digest(vec![7; bytes]));
            let code =
                CodeArchive { packed_bytes: bytes as u64, sha256, ..packed.code.clone().unwrap() };
            let (packed, faulty) =
                (ResolvedSpec { code: Some(code), ..packed }, FaultyStore::new(clock.clone()));
            faulty.fault("code", fault, times);
            let (store, began): (Arc<dyn Store>, _) = (faulty, clock.mono());
            let archive = Archive::from(archive.as_path());
            let came = upload_code(&store, &*clock, &packed, &archive).await;
            assert_eq!(
                archive.sent.so_far().0,
                if arrives { bytes as u64 } else { 0 },
                "each byte is counted once, whatever was tried"
            );
            let took = clock.mono() - began;
            assert_eq!(came.is_ok(), arrives, "{bytes} bytes, {times} times {fault:?}: {came:?}");
            assert!(took <= Duration::from_secs(most), "{took:?} of {most} s");
        });
    }
}

/// The same files applied to two job roots: under one id each would end the machine of the other.
#[test]
fn what_is_applied_has_an_id_of_its_own_in_each_job_root() {
    let applied = Applied {
        set: "jobs".into(),
        file: "one.toml".into(),
        sha256: "f".into(),
        owner: "me".into(),
        due: None,
    };
    let id = |root: &str| applied_id(root, "one", &applied, "f\n0");
    assert_ne!(id("s3://bucket/a"), id("s3://bucket/b"));
    assert_eq!(id("file:///home/me/jobs"), id("file:///home/me/jobs/"), "however it is written");
}

/// A driver that is killed half-way leaves ranks that buy nothing. The next one makes the rest.
#[test]
fn rank_0_of_a_trial_is_made_last() {
    simulate(async |clock: Arc<VirtualClock>| {
        let store = FaultyStore::new(clock.clone());
        let shared: Arc<dyn Store> = store.clone();
        let mut leader = spec(clock.now());
        let nodes = NodeCount::exactly(3);
        leader.spec.gang = Some(Box::new(GangSpec { nodes, ..GangSpec::default() }));
        seat_leader(&mut leader);
        let others = other_members(&leader);
        assert_eq!(others.len(), 2);
        let is_made = async |job: &ResolvedSpec| {
            JobDir::new(shared.clone(), job.job.clone()).spec().await.unwrap().is_some()
        };
        let dir = TuningDir::new(shared.clone(), "walks");
        store.fault(others[1].job.as_str(), Fault::Down, None);
        assert!(dir.make_jobs(&leader).await.is_err());
        assert!(is_made(&others[0]).await && !is_made(&leader).await);
        store.mend();
        dir.make_jobs(&leader).await.unwrap();
        assert!(is_made(&others[1]).await && is_made(&leader).await);
        // A driver that comes later does the same again.
        dir.make_jobs(&leader).await.unwrap();
    });
}
