//! Each event of a job is told once, with the command that helps.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lamplighter::account::ForeignMachine;
use lamplighter::instance::Status;
use lamplighter::job::{AttemptNo, EventKind, Reason, Wish};
use lamplighter::jobdir::{JobDir, jobs};
use lamplighter::market::{Market, Region, Span, UsdPerHour};
use lamplighter::policy::purchase::spending_cap::Caps;
use lamplighter::ports::{Clock, Notification, Notifier, NotifierError, Store};

use crate::cloud::Life;
use crate::{World, spec, submit};
use lamp_test_support::virtual_clock::simulate;

/// Wants messages of every kind.
#[derive(Default)]
struct Inbox(Mutex<Vec<Notification>>);

#[async_trait]
impl Notifier for Inbox {
    fn wants(&self, _kind: EventKind) -> bool {
        true
    }

    async fn tell(&self, notification: &Notification) -> Result<(), NotifierError> {
        self.0.lock().unwrap().push(notification.clone());
        Ok(())
    }
}

impl Inbox {
    fn kinds(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().iter().map(|told| told.kind).collect()
    }

    fn of(&self, kind: &str) -> Vec<Notification> {
        self.0.lock().unwrap().iter().filter(|told| told.kind == kind).cloned().collect()
    }
}

#[test]
fn job_events_are_told_once_when_two_controllers_drive() {
    simulate(async |clock| {
        let lives = [Life::Taken { secs: 1200 }, Life::Ends { secs: 120, code: 0 }];
        let world = World::new(clock, &lives).await;
        let inbox = Arc::new(Inbox::default());
        let one = world.controller().notifying(inbox.clone());
        let two = world.controller().notifying(inbox.clone());
        let (first, second) = tokio::join!(one.drive(world.job()), two.drive(world.job()));
        assert_eq!(first.unwrap(), second.unwrap());
        assert_eq!(inbox.kinds(), ["started", "interrupted", "resumed", "ended"]);
        let interrupted = &inbox.of("interrupted")[0];
        assert!(interrupted.text.contains("the cloud took its machine"), "{interrupted:?}");
        assert!(interrupted.text.contains("it has saved no checkpoint"), "{interrupted:?}");
        let usd = interrupted.usd.expect("it is known").dollars();
        assert!((0.4..0.5).contains(&usd), "an hour costs $1.23: {usd}");
        assert!(inbox.of("resumed")[0].text.contains("attempt 2"));
        let ended = &inbox.of("ended")[0];
        assert_eq!(ended.usd, ended.receipt.as_ref().map(|receipt| receipt.total_usd));
    });
}

/// A heartbeat of a machine that was quiet for this long.
async fn quiet(world: &World, secs: f64, sequence: u64) {
    let now = world.clock.now();
    let numbers = [("quiet_secs", secs), ("window_secs", 600.0), ("worked_secs", 100.0)];
    let reason = Reason::new(now, "idle", "busy", format!("quiet for {secs} s"));
    let reason =
        numbers.into_iter().fold(reason, |reason, (name, number)| reason.with(name, number));
    let status =
        Status { reason: Some(reason), ..world.cloud.status("i-1", world.clock.now(), sequence) };
    world.dir.put_status(AttemptNo::FIRST, &status, false).await.unwrap();
    world.clock.sleep(Duration::from_secs(30)).await;
}

#[test]
fn idle_end_is_told_ahead_with_extend_command_for_each_pause() {
    simulate(async |clock| {
        let world = World::new(clock.clone(), &[Life::FallsSilent]).await;
        let inbox = Arc::new(Inbox::default());
        let controller = world.controller().notifying(inbox.clone());
        let heard = async {
            clock.sleep(Duration::from_secs(30)).await;
            quiet(&world, 300.0, 10).await;
            assert_eq!(inbox.of("idle"), [], "half of the window is left");
            for (sequence, secs) in [(11, 450.0), (12, 480.0), (13, 600.0)] {
                quiet(&world, secs, sequence).await;
            }
            let told = inbox.of("idle");
            assert_eq!(told.len(), 1, "{told:?}");
            assert_eq!(
                told[0].text,
                "nothing used the machine for 7m 30s; it ends as idle in about 2m 30s"
            );
            assert_eq!(told[0].command, Some(format!("lamp extend {} 1h", world.job())));
            let time = Some(Span::from_secs(3600));
            world.wish(Wish::Extend { time, budget: None, fallback_cost: None }).await;
            quiet(&world, 450.0, 14).await;
            assert_eq!(inbox.of("idle").len(), 2, "it is a new pause");
            world.wish(Wish::Keep { time: Span::from_secs(300) }).await;
            quiet(&world, 630.0, 15).await;
            assert_eq!(inbox.of("idle").len(), 2, "it is kept for 5 minutes");
            clock.sleep(Duration::from_secs(120)).await;
            quiet(&world, 780.0, 16).await;
            let told = inbox.of("idle");
            assert_eq!(told.len(), 3, "the keep ends soon: {told:?}");
            assert!(told[2].text.contains("for 13m; it ends as idle in about 2m"), "{told:?}");
        };
        tokio::select! {
            receipt = controller.drive(world.job()) => panic!("{receipt:?}"),
            () = heard => {}
        }
    });
}

async fn another(world: &World) -> JobDir {
    let mut spec = spec(world.clock.now());
    spec.job = "later-222222".parse().unwrap();
    submit(&(world.store.clone() as Arc<dyn Store>), &spec, None).await.unwrap()
}

#[test]
fn cap_that_holds_a_launch_back_is_told_once() {
    simulate(async |clock| {
        let world = World::new(clock.clone(), &[Life::Ends { secs: 1800, code: 0 }]).await;
        let _later = another(&world).await;
        let inbox = Arc::new(Inbox::default());
        let per_hour = Some(UsdPerHour::new("2".parse().unwrap()));
        let caps = Caps { usd_per_hour: per_hour, usd_per_day: None };
        let daemon = world.controller().capped(caps).notifying(inbox.clone());
        tokio::select! {
            () = daemon.drive_all(&[], |_| {}) => {}
            () = clock.sleep(Duration::from_secs(1200)) => {}
        }
        let told = inbox.of("cap");
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].text.contains("the cap of $2.00 an hour"), "{told:?}");
    });
}

#[test]
fn orphan_is_told_once_before_the_daemon_ends_it() {
    simulate(async |clock| {
        let world = World::new(clock.clone(), &[Life::Ends { secs: 5, code: 0 }]).await;
        world.drive().await;
        let late = world.cloud.add_late(world.job());
        let inbox = Arc::new(Inbox::default());
        let daemon = world.controller().notifying(inbox.clone());
        tokio::select! {
            () = daemon.drive_all(&[], |_| {}) => {}
            () = clock.sleep(Duration::from_secs(12 * 60)) => {}
        }
        assert!(!world.cloud.running().contains(&late));
        let told = inbox.of("orphan");
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].text.starts_with(&format!("{late} in ")), "{told:?}");
        assert_eq!(told[0].command.as_deref(), Some("lamp sweep"));
    });
}

#[test]
fn foreign_machines_are_told_once_by_all_daemons() {
    simulate(async |clock| {
        let world = World::new(clock.clone(), &[Life::Ends { secs: 5, code: 0 }]).await;
        world.drive().await;
        let machine = |id: &str| ForeignMachine {
            region: Region::new("local"),
            id: id.to_owned(),
            name: None,
            instance_type: "p4d.24xlarge".to_owned(),
            market: Market::OnDemand,
            launched: clock.now(),
            usd_per_hour: Some(UsdPerHour::new("32".parse().unwrap())),
            cpu_percent: None,
            gpu_percent: None,
            odd: None,
        };
        *world.cloud.foreign.lock().unwrap() = vec![machine("i-one"), machine("i-two")];
        let inbox = Arc::new(Inbox::default());
        let one = world.controller().notifying(inbox.clone());
        let two = world.controller().notifying(inbox.clone());
        tokio::select! {
            () = one.drive_all(&[], |_| {}) => {}
            () = two.drive_all(&[], |_| {}) => {}
            () = async {
                clock.sleep(Duration::from_secs(3 * 3600)).await;
                world.cloud.foreign.lock().unwrap().push(machine("i-three"));
                clock.sleep(Duration::from_secs(3 * 3600)).await;
            } => {}
        }
        let told = inbox.of("foreign");
        let times = |id: &str| told.iter().filter(|one| one.text.contains(id)).count();
        assert_eq!((times("i-one"), times("i-two"), times("i-three")), (1, 1, 1), "{told:?}");
        assert!(told.iter().all(|one| one.command.as_deref() == Some("lamp sweep --foreign")));
        assert!(told[0].text.contains("p4d.24xlarge in local"), "{told:?}");
        let listed = jobs(world.dir.store().as_ref()).await.unwrap();
        assert_eq!(listed.len(), 1, "no record looks like a job: {listed:?}");
    });
}
