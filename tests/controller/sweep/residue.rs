//! What a job left in the cloud is asked for once, at its end, and only what is its own is removed.

use std::sync::{Arc, Mutex};

use lamplighter::account::Residue;
use lamplighter::job::{JobId, JobOutcome, LeavingFate};
use lamplighter::market::{self, Region, Usd};
use lamplighter::ports::{Cloud, CloudError};

use crate::World;
use crate::cloud::Life;
use crate::cloud_wrappers::before_the_cloud;
use crate::launch::continuation;
use lamp_test_support::virtual_clock::simulate;

/// Before the false cloud: something is left in its region.
struct Attic {
    inner: Arc<dyn Cloud>,
    left: Vec<Residue>,
    deaf: bool,
    asked: Mutex<u32>,
    cleared: Mutex<Vec<String>>,
}

before_the_cloud!(Attic passes on [regions supply launch describe terminate interrupt raise_kill_at release] {
    async fn residue(&self, _owner: &str, _region: &Region) -> Result<Vec<Residue>, CloudError> {
        *self.asked.lock().unwrap() += 1;
        if self.deaf { Err(CloudError::Throttled) } else { Ok(self.left.clone()) }
    }
    async fn clear(&self, residue: &Residue) -> Result<(), CloudError> {
        self.cleared.lock().unwrap().push(residue.id.clone());
        Ok(())
    }
});

fn left(id: &str, job: Option<&JobId>) -> Residue {
    Residue {
        cloud: market::CloudKind::Local,
        region: Region::new("here"),
        kind: "volume".into(),
        id: id.into(),
        detail: "100 GiB, in use by nothing".into(),
        usd_per_month: Usd::from_micros(8_000_000),
        ours: true,
        kept: false,
        job: job.cloned(),
    }
}

#[test]
fn leavings_are_asked_for_once_and_only_own_ones_are_removed() {
    for deaf in [false, true] {
        simulate(async |clock| {
            let world =
                World::new(clock, &[Life::Taken { secs: 300 }, Life::Ends { secs: 600, code: 0 }])
                    .await;
            let (job, other) = (world.job().clone(), "other-222222".parse().unwrap());
            let kept = Residue { kept: true, ..left("vol-kept", Some(&job)) };
            let foreign = Residue { ours: false, ..left("vol-foreign", Some(&job)) };
            let all = vec![
                left("vol-mine", Some(&job)),
                left("vol-other", Some(&other)),
                left("vol-nobodys", None),
                kept,
                foreign,
            ];
            let attic = Arc::new(Attic {
                inner: world.port(),
                left: all,
                deaf,
                asked: Mutex::default(),
                cleared: Mutex::default(),
            });
            let receipt = world
                .controller_on(world.store.clone(), attic.clone())
                .drive(world.job())
                .await
                .unwrap();
            assert_eq!(
                (receipt.outcome, receipt.attempts.len()),
                (JobOutcome::Succeeded, 2),
                "also where nobody answers"
            );
            assert_eq!(*attic.asked.lock().unwrap(), 1, "once, not at every tick");
            let cleared = attic.cleared.lock().unwrap().clone();
            assert_eq!(cleared, if deaf { vec![] } else { vec!["vol-mine".to_owned()] });
            // And the receipt says it: what is gone, what is kept on purpose, what is still there;
            // or that nobody answered.
            let fates: Vec<(&str, LeavingFate)> =
                receipt.left.iter().map(|left| (left.id.as_str(), left.fate)).collect();
            let told = [
                ("vol-mine", LeavingFate::Removed),
                ("vol-kept", LeavingFate::Kept),
                ("vol-foreign", LeavingFate::Left),
            ];
            assert_eq!(fates, if deaf { &[][..] } else { &told });
            assert_eq!(
                receipt.left_unasked,
                if deaf { vec![Region::new("local")] } else { vec![] }
            );
            assert_eq!(world.dir.receipt().await.unwrap(), Some(receipt));
        });
    }
}

/// Its start was refused for good, and it carries the job's name: no machine of the job ever ran
/// there.
#[test]
fn kept_disk_that_could_not_be_started_is_named() {
    simulate(async |clock| {
        let (world, _) = continuation::stopped(clock, Life::Stops { secs: 30, code: 3 }).await;
        let kept = continuation::kept(&world).await;
        let (next, _) = continuation::go_on(&world, &kept).await;
        let disk = Residue { kept: true, ..left("vol-kept", Some(next.job())) };
        let attic = Arc::new(Attic {
            inner: world.port(),
            left: vec![disk],
            deaf: false,
            asked: Mutex::default(),
            cleared: Mutex::default(),
        });
        let receipt = world
            .controller_on(world.store.clone(), attic.clone())
            .drive(next.job())
            .await
            .unwrap();
        assert_eq!(
            (receipt.outcome, receipt.attempts[0].instance.as_ref()),
            (JobOutcome::Failed, None),
            "{receipt:?}"
        );
        let fates: Vec<(&str, LeavingFate)> =
            receipt.left.iter().map(|left| (left.id.as_str(), left.fate)).collect();
        assert_eq!(fates, [("vol-kept", LeavingFate::Kept)]);
    });
}
