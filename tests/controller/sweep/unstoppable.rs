//! A machine whose disk is to stay, and that the cloud does not stop: it is ended where what it
//! holds is safe, and else somebody is told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::SignedDuration;
use lamplighter::controller::EndAnswer;
use lamplighter::instance::{InstanceView, MachineRef};
use lamplighter::job::{EndedBecause, JobOutcome, Reaction, Receipt, Wish};
use lamplighter::market::{self, Market, Region};
use lamplighter::ports::{Clock, Cloud, CloudError};

use crate::World;
use crate::cloud::Life;
use crate::cloud_wrappers::before_the_cloud;
use crate::sweep::visit::{ROOM, ids};
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

/// As EC2 answers for a machine that it never stops (`UnsupportedOperation`).
struct Restless {
    inner: Arc<dyn Cloud>,
    stops: Mutex<usize>,
}

before_the_cloud!(Restless passes on [regions supply launch terminate interrupt raise_kill_at release] {
    async fn describe(&self, owner: &str, region: &Region) -> Result<Vec<InstanceView>, CloudError> {
        let mut views = self.inner.describe(owner, region).await?;
        views.iter_mut().for_each(|view| (view.cloud, view.market) = (market::CloudKind::Aws, Market::OnDemand));
        Ok(views)
    }
    async fn stop(&self, machine: &MachineRef) -> Result<(), CloudError> {
        *self.stops.lock().unwrap() += 1;
        Err(CloudError::Unstoppable { what: format!("cannot stop {machine}: this machine cannot be stopped, only terminated") })
    }
});

/// A job whose disk is to stay, on a machine that neither goes out by itself nor can be stopped.
async fn world(clock: Arc<VirtualClock>, outputs: &[&str]) -> (World, Arc<Restless>) {
    let world = World::with(clock, &[Life::NeverDark], |spec| {
        spec.machine.cloud = market::CloudKind::Aws;
        spec.on.success = Reaction::Stop;
        spec.outputs = outputs.iter().map(|path| (*path).to_owned()).collect();
    });
    let world = world.await;
    *world.cloud.kind.lock().unwrap() = market::CloudKind::Aws;
    let cloud = Arc::new(Restless { inner: world.port(), stops: Mutex::default() });
    (world, cloud)
}

async fn has_ended(world: &World, receipt: &Receipt) {
    world.check(receipt).await;
    assert_eq!(
        (receipt.outcome, receipt.attempts[0].ended_because),
        (JobOutcome::Succeeded, EndedBecause::Succeeded),
        "{receipt:?}"
    );
    assert_eq!(
        world.dir.attention().await.unwrap().and_then(|attention| attention.text),
        None,
        "nothing stands in its way"
    );
}

#[test]
fn unstoppable_machine_with_saved_outputs_ends_with_its_disk() {
    simulate(async |clock: Arc<VirtualClock>| {
        let (world, cloud) = world(clock.clone(), &["model/*"]).await;
        let receipt = world
            .controller_on(world.store.clone(), cloud.clone())
            .drive(world.job())
            .await
            .unwrap();
        has_ended(&world, &receipt).await;
        assert_eq!(*cloud.stops.lock().unwrap(), 1, "it was to be stopped first");
        assert!(clock.mono() < Duration::from_secs(600), "{:?}", clock.mono());
    });
}

#[test]
fn unstoppable_machine_with_unsaved_disk_is_told_with_its_cost() {
    simulate(async |clock: Arc<VirtualClock>| {
        let (world, cloud) = world(clock.clone(), &[]).await;
        let controller = world.controller_on(world.store.clone(), cloud.clone());
        let (receipt, ()) = tokio::join!(controller.drive(world.job()), async {
            clock.sleep(Duration::from_secs(3600)).await;
            assert_eq!(
                world.cloud.running(),
                ["i-1"],
                "a person alone knows what that disk is worth"
            );
            let told = world
                .dir
                .attention()
                .await
                .unwrap()
                .and_then(|attention| attention.text)
                .expect("it stands in the job directory");
            assert!(
                told.starts_with("i-1 in local runs on and bills $")
                    && told.contains("/h: cannot stop i-1: this machine cannot be"),
                "{told}"
            );
            assert!(
                told.contains("nothing ends it unasked: `lamp cancel digits-222222` does"),
                "{told}"
            );
            world.wish(Wish::Cancel).await;
        });
        has_ended(&world, &receipt.unwrap()).await;
    });
}

/// Nobody drives its job, and its hard cap is long over.
#[test]
fn sweep_spares_an_unstoppable_machine_and_says_what_ends_it() {
    simulate(async |clock: Arc<VirtualClock>| {
        let (world, cloud) = world(clock.clone(), &[]).await;
        let controller = world.controller_on(world.store.clone(), cloud.clone());
        controller.look(world.job()).await.unwrap();
        clock.sleep(Duration::from_secs(3600)).await;
        world.cloud.state.lock().unwrap().machines[0].view.tags.kill_at =
            Some(clock.now() - SignedDuration::from_mins(30));
        let (places, _) = controller.everywhere().await;
        let mut said = Vec::new();
        for _ in 0..3 {
            let found = controller.look_for_orphans(&places).await;
            let asked = controller.end_orphan(&found.machines[0]).await.unwrap();
            let Some(EndAnswer::RunsOn(why)) = asked else { panic!("{asked:?}: {found:?}") };
            said.push(why);
            clock.sleep(Duration::from_secs(300)).await;
        }
        let visit = controller.visit("lamplighter-sweeper-me", "test", ROOM).await;
        assert!(visit.is_sick() && ids(&visit).is_empty(), "{visit:?}");
        assert_eq!(visit.trouble[0].what, "i-1 in local");
        said.push(visit.trouble[0].why.clone());
        let wanted = "runs on and bills: cannot stop i-1: this machine cannot be stopped, only terminated; its disk is to stay, and no sweep knows \
                      what is on it alone: `lamp cancel digits-222222` ends it for good, and its disk goes with it";
        assert_eq!(said, [wanted; 4]);
        assert_eq!(
            (world.cloud.running(), *cloud.stops.lock().unwrap()),
            (vec!["i-1".to_owned()], 4),
            "it is asked each time, and lives"
        );
        // And that word does.
        world.wish(Wish::Cancel).await;
        has_ended(&world, &controller.drive(world.job()).await.unwrap()).await;
        assert_eq!(*cloud.stops.lock().unwrap(), 4, "without another try to keep its disk");
    });
}
