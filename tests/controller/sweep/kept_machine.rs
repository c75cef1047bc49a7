//! A machine that an ended job keeps: it is given up when somebody says so, and told of when nobody
//! does.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use lamplighter::account::Residue;
use lamplighter::controller::Controller;
use lamplighter::instance::{InstanceState, InstanceView, MachineRef};
use lamplighter::job::{AttemptNo, LeavingFate, Reaction, Receipt};
use lamplighter::jobdir::layout;
use lamplighter::market::{self, Region, Usd};
use lamplighter::ports::{Clock, Cloud, CloudError, Notification, Notifier, NotifierError};

use crate::World;
use crate::cloud::Life;
use crate::cloud_wrappers::before_the_cloud;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

const DAY: Duration = Duration::from_secs(86_400);

/// The false cloud as EC2 is: what it shows was changed by others, and a stopped machine has a
/// disk.
struct Shelf {
    inner: Arc<dyn Cloud>,
    change: fn(&mut InstanceView),
    ends: Mutex<Vec<String>>,
    cleared: Mutex<Vec<String>>,
}

before_the_cloud!(Shelf passes on [regions supply launch interrupt raise_kill_at release] {
    async fn describe(&self, owner: &str, region: &Region) -> Result<Vec<InstanceView>, CloudError> {
        let mut views = self.inner.describe(owner, region).await?;
        views.iter_mut().for_each(self.change);
        Ok(views)
    }
    async fn terminate(&self, machine: &MachineRef) -> Result<(), CloudError> {
        self.ends.lock().unwrap().push(machine.id.clone());
        self.inner.terminate(machine).await
    }
    async fn residue(&self, owner: &str, region: &Region) -> Result<Vec<Residue>, CloudError> {
        let views = self.describe(owner, region).await?;
        let disk = |view: &InstanceView| Residue {
            cloud: market::CloudKind::Aws,
            region: region.clone(),
            kind: "volume".into(),
            id: format!("vol-of-{}", view.id),
            detail: "100 GiB".into(),
            usd_per_month: Usd::from_micros(8_000_000),
            ours: true,
            // The disk of this cloud stays behind its machine: somebody has changed that by hand.
            kept: view.state == InstanceState::Stopped,
            job: Some(view.tags.job.clone()),
        };
        Ok(views.iter().map(disk).collect())
    }
    async fn clear(&self, residue: &Residue) -> Result<(), CloudError> {
        self.cleared.lock().unwrap().push(residue.id.clone());
        Ok(())
    }
});

/// A job that has failed, and whose machine was stopped and kept.
async fn stopped(
    clock: Arc<VirtualClock>,
    change: fn(&mut InstanceView),
) -> (World, Arc<Shelf>, Receipt) {
    let world = World::with(clock, &[Life::Stops { secs: 30, code: 3 }], |spec| {
        spec.on.failure = Reaction::Stop
    })
    .await;
    let shelf = Arc::new(Shelf {
        inner: world.port(),
        change: |_| {},
        ends: Mutex::default(),
        cleared: Mutex::default(),
    });
    let receipt = world.controller_on(world.store.clone(), shelf).drive(world.job()).await.unwrap();
    assert_eq!(
        receipt.left.iter().map(|left| left.fate).collect::<Vec<_>>(),
        [LeavingFate::Kept],
        "{receipt:?}"
    );
    let shelf = Arc::new(Shelf {
        inner: world.port(),
        change,
        ends: Mutex::default(),
        cleared: Mutex::default(),
    });
    (world, shelf, receipt)
}

fn controller(world: &World, shelf: &Arc<Shelf>) -> Controller {
    world.controller_on(world.store.clone(), shelf.clone())
}

#[test]
fn kept_machine_of_an_ended_job_is_given_up_once_with_its_disk() {
    simulate(async |clock| {
        let (world, shelf, receipt) = stopped(clock, |_| {}).await;
        let controller = controller(&world, &shelf);
        let view = controller.kept_machine(&world.dir).await.unwrap().expect("it is kept");
        assert_eq!(
            (Some(&view.id), view.state),
            (receipt.attempts[0].instance.as_ref(), InstanceState::Stopped)
        );
        let gave_up = controller.give_up(&world.dir, &view.machine()).await.unwrap();
        assert!(gave_up.is_gone, "{gave_up:?}");
        assert_eq!(
            *shelf.cleared.lock().unwrap(),
            [format!("vol-of-{}", view.id)],
            "the disk that stayed behind"
        );
        assert_eq!(
            world.dir.given_up().await.unwrap().and_then(|given_up| given_up.instance),
            Some(view.id.clone())
        );
        assert!(controller.kept_machine(&world.dir).await.unwrap().is_none());
        controller.give_up(&world.dir, &view.machine()).await.unwrap();
        assert_eq!(*shelf.ends.lock().unwrap(), [view.id], "ended once");
        assert_eq!(
            world.dir.receipt().await.unwrap(),
            Some(receipt),
            "what has ended stays as it was"
        );
    });
}

#[test]
fn what_carries_another_name_now_is_not_this_jobs_to_give_up() {
    let changes: [fn(&mut InstanceView); 2] = [
        |view| view.tags.owner = "you".into(),
        |view| view.tags.job = "other-333333".parse().unwrap(),
    ];
    for change in changes {
        simulate(async |clock| {
            let (world, shelf, receipt) = stopped(clock, change).await;
            let controller = controller(&world, &shelf);
            assert!(controller.kept_machine(&world.dir).await.unwrap().is_none());
            let instance = receipt.attempts[0].instance.clone().unwrap();
            let machine = MachineRef {
                cloud: market::CloudKind::Local,
                region: Region::new("local"),
                id: instance,
            };
            controller.give_up(&world.dir, &machine).await.unwrap();
            assert!(shelf.ends.lock().unwrap().is_empty(), "nobody else's machine is ended");
            assert_eq!(world.dir.given_up().await.unwrap(), None, "nobody has seen it gone");
        });
    }
}

#[derive(Default)]
struct Ear(Mutex<Vec<String>>);

#[async_trait]
impl Notifier for Ear {
    async fn tell(&self, notification: &Notification) -> Result<(), NotifierError> {
        self.0.lock().unwrap().push(format!("{} {}", notification.kind, notification.text));
        Ok(())
    }
}

/// A daemon for so long that it sweeps twice.
async fn daemon(world: &World, shelf: &Arc<Shelf>, ear: &Arc<Ear>) -> Vec<String> {
    let daemon = controller(world, shelf).notifying(ear.clone());
    tokio::select! {
        () = daemon.drive_all(&[], |_| {}) => {}
        () = world.clock.sleep(Duration::from_secs(600)) => {}
    }
    daemon.finish_telling().await;
    std::mem::take(&mut *ear.0.lock().unwrap())
}

const ON_EC2: fn(&mut InstanceView) = |view| view.cloud = market::CloudKind::Aws;

#[test]
fn disk_that_stands_unused_for_a_week_is_told_of_once_a_week() {
    simulate(async |clock| {
        let (world, shelf, _) = stopped(clock.clone(), ON_EC2).await;
        let ear = Arc::new(Ear::default());
        clock.sleep(6 * DAY).await;
        assert_eq!(
            daemon(&world, &shelf, &ear).await,
            Vec::<String>::new(),
            "six days are no week"
        );
        clock.sleep(DAY).await;
        let told = daemon(&world, &shelf, &ear).await;
        let [one] = &told[..] else { panic!("{told:?}") };
        assert!(
            one.starts_with("attention i-")
                && one.contains("has been stopped for 7 days, and its disk costs $8.00 a month"),
            "{one}"
        );
        assert!(one.contains(&format!("`lamp cancel {}` gives it up", world.job())), "{one}");
        assert_eq!(
            daemon(&world, &shelf, &ear).await,
            Vec::<String>::new(),
            "another daemon of the same week"
        );
        clock.sleep(7 * DAY).await;
        assert_eq!(daemon(&world, &shelf, &ear).await.len(), 1, "a week later it is news again");
        assert!(shelf.ends.lock().unwrap().is_empty(), "to tell is all");
    });
}

/// EC2 dates no stop that came from within the machine: there the last heartbeat counts, or the
/// launch where none ever came.
#[test]
fn machine_that_powered_itself_off_is_told_without_a_stop_time() {
    const UNDATED: fn(&mut InstanceView) =
        |view| (view.cloud, view.ended) = (market::CloudKind::Aws, None);
    simulate(async |clock| {
        let (world, shelf, _) = stopped(clock.clone(), UNDATED).await;
        let (ear, room) = (Arc::new(Ear::default()), Duration::from_secs(60));
        clock.sleep(6 * DAY).await;
        assert_eq!(
            daemon(&world, &shelf, &ear).await,
            Vec::<String>::new(),
            "six days are no week"
        );
        clock.sleep(2 * DAY).await;
        let told = daemon(&world, &shelf, &ear).await;
        assert!(told.len() == 1 && told[0].contains("has been stopped for 8 days"), "{told:?}");
        let visit = controller(&world, &shelf).visit("lamplighter-sweeper-me", "test", room).await;
        let [kept] = &visit.kept[..] else { panic!("{visit:?}") };
        assert!(
            (7..=9).contains(&(clock.now().duration_since(kept.since).as_hours() / 24)),
            "{kept:?}"
        );
        // Its heartbeat is of yesterday, whoever wrote it: it does not stand for a week.
        world
            .dir
            .store()
            .put(&layout::status(world.job(), AttemptNo::FIRST), Bytes::from_static(b"{}"))
            .await
            .unwrap();
        clock.sleep(DAY).await;
        assert!(
            controller(&world, &shelf)
                .visit("lamplighter-sweeper-me", "test", room)
                .await
                .kept
                .is_empty()
        );
    });
}

#[test]
fn sweeper_visit_tells_of_an_unused_machine_and_leaves_it() {
    simulate(async |clock| {
        let (world, shelf, receipt) = stopped(clock.clone(), ON_EC2).await;
        let room = Duration::from_secs(60);
        assert!(
            controller(&world, &shelf)
                .visit("lamplighter-sweeper-me", "test", room)
                .await
                .kept
                .is_empty()
        );
        clock.sleep(8 * DAY).await;
        let visit = controller(&world, &shelf).visit("lamplighter-sweeper-me", "test", room).await;
        let ids: Vec<_> = visit.kept.iter().map(|kept| Some(kept.machine.id.clone())).collect();
        assert!(
            !ids.is_empty() && ids.iter().all(|id| *id == receipt.attempts[0].instance),
            "{visit:?}"
        );
        assert_eq!(
            (visit.machines, visit.is_sick(), visit.ended.len(), visit.kept[0].job.clone()),
            (0, false, 0, world.job().clone())
        );
        assert!(shelf.ends.lock().unwrap().is_empty());
    });
}

/// The shelf as it is, with machines that shut down for so many looks before they are gone.
fn going(inner: Arc<dyn Cloud>) -> Arc<Shelf> {
    static LOOKS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    fn shutting_down(view: &mut InstanceView) {
        let looks = LOOKS.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        view.state =
            if looks < 3 { InstanceState::ShuttingDown } else { InstanceState::Terminated };
    }
    Arc::new(Shelf {
        inner,
        change: shutting_down,
        ends: Mutex::default(),
        cleared: Mutex::default(),
    })
}

/// Somebody's earlier `lamp cancel` was not waited for: its machine still holds its disk, and is
/// asked for no second end.
#[test]
fn machine_that_shuts_down_is_waited_for_and_then_given_up() {
    simulate(async |clock| {
        let (world, _, receipt) = stopped(clock, |_| {}).await;
        let shelf = going(world.port());
        let instance = receipt.attempts[0].instance.clone().unwrap();
        let machine = MachineRef {
            cloud: market::CloudKind::Local,
            region: Region::new("local"),
            id: instance.clone(),
        };
        let gave_up = controller(&world, &shelf).give_up(&world.dir, &machine).await.unwrap();
        assert!(gave_up.is_gone && shelf.ends.lock().unwrap().is_empty(), "{gave_up:?}");
        assert_eq!(*shelf.cleared.lock().unwrap(), [format!("vol-of-{instance}")]);
        assert_eq!(
            world.dir.given_up().await.unwrap().and_then(|given_up| given_up.instance),
            Some(instance)
        );
    });
}

/// A person ends it in the console: who swept next finds that it is gone, and nobody names it for
/// ever.
#[test]
fn machine_ended_elsewhere_is_recorded_by_daemon_not_stranger() {
    simulate(async |clock| {
        let (world, shelf, receipt) = stopped(clock.clone(), ON_EC2).await;
        clock.sleep(Duration::from_secs(3600)).await;
        daemon(&world, &shelf, &Arc::default()).await;
        assert_eq!(world.dir.given_up().await.unwrap(), None, "it stands");
        let instance = receipt.attempts[0].instance.clone().unwrap();
        world
            .port()
            .terminate(&MachineRef {
                cloud: market::CloudKind::Local,
                region: Region::new("local"),
                id: instance,
            })
            .await
            .unwrap();
        // Its disk stayed behind: that bills.
        daemon(&world, &shelf, &Arc::default()).await;
        assert_eq!(world.dir.given_up().await.unwrap(), None, "its disk stands");
        world.cloud.forget_after(Duration::ZERO);
        // Whose account this is not sees nothing, and that says nothing.
        let stranger = world.controller_of("you", world.store.clone(), shelf.clone());
        assert!(
            !stranger.see_gone(&world.dir, &receipt).await.unwrap_or_default()
                && world.dir.given_up().await.unwrap().is_none()
        );
        // Nor does a machine that is there by its token alone.
        world.cloud.unreadable(true);
        daemon(
            &world,
            &Arc::new(Shelf {
                inner: world.port(),
                change: ON_EC2,
                ends: Mutex::default(),
                cleared: Mutex::default(),
            }),
            &Arc::default(),
        )
        .await;
        world.cloud.unreadable(false);
        daemon(&world, &shelf, &Arc::default()).await;
        let given_up = world.dir.given_up().await.unwrap().expect("it is recorded");
        assert_eq!(
            (given_up.instance, shelf.ends.lock().unwrap().len()),
            (None, 0),
            "nobody of ours ended it"
        );
    });
}
