//! A cloud that takes no more calls: each job asks more and more rarely, and who does not want it
//! any more waits until no other daemon's machine can come.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use lamplighter::instance::MachineRef;
use lamplighter::job::{EndedBecause, JobOutcome, Plan, Wish};
use lamplighter::market::{self, Span, Usd};
use lamplighter::ports::{Clock, Cloud, CloudError};

use crate::World;
use crate::cloud::{CloudFault, FakeCloud, Life};
use crate::cloud_wrappers::before_the_cloud;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

async fn throttled(clock: Arc<VirtualClock>, times: usize) -> World {
    let world = World::with(clock, &[Life::Ends { secs: 120, code: 0 }], |spec| {
        spec.machine.cloud = market::CloudKind::Aws
    })
    .await;
    *world.cloud.kind.lock().unwrap() = market::CloudKind::Aws;
    world.cloud.fail_launches(&vec![CloudFault::Throttled; times]);
    world
}

/// One loop drives all jobs, and looks at each every few seconds.
#[test]
fn daemon_asks_ever_more_rarely_and_the_machine_comes() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = throttled(clock.clone(), 9).await;
        world.controller().drive_all(&[world.job().clone()], |_| {}).await;
        let receipt = world.dir.receipt().await.unwrap().unwrap();
        world.check(&receipt).await;
        assert_eq!(
            (receipt.outcome, receipt.attempts.len()),
            (JobOutcome::Succeeded, 1),
            "the same plan, again and again"
        );
        let asked = world.cloud.market.lock().unwrap().asked.clone();
        let pauses: Vec<u64> = asked.windows(2).map(|two| (two[1] - two[0]).as_secs()).collect();
        assert_eq!(pauses.len(), 9);
        assert!(pauses[6..].iter().all(|pause| *pause >= 30), "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= 90), "{pauses:?}");
        let waiting = world.dir.waiting().await.unwrap().unwrap().why;
        assert_eq!(waiting, "the first word of its machine, which was launched");
    });
}

#[test]
fn stop_of_a_never_launched_job_waits_as_if_it_were_launched() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = throttled(clock.clone(), 10_000).await;
        let stop = async {
            clock.sleep(Duration::from_secs(120)).await;
            assert!(
                world
                    .dir
                    .waiting()
                    .await
                    .unwrap()
                    .unwrap()
                    .why
                    .starts_with("the cloud, which takes no more calls")
            );
            world.wish(Wish::Stop).await;
            clock.mono()
        };
        let (receipt, stopped) = tokio::join!(world.drive(), stop);
        world.check(&receipt).await;
        assert_eq!(
            (receipt.outcome, receipt.total_usd, world.cloud.launches()),
            (JobOutcome::Stopped, Usd::ZERO, 0)
        );
        let took = clock.mono() - stopped;
        assert!((300..=500).contains(&took.as_secs()), "{took:?}");
        let waiting = world.dir.waiting().await.unwrap().unwrap();
        assert!(
            waiting.why.starts_with("certainty that no machine was launched: ")
                && waiting.until.is_some(),
            "{waiting:?}"
        );
    });
}

/// Another process made the plan, and may have launched it: whether each of its launches was
/// answered nobody knows here.
#[test]
fn stop_of_a_plan_of_another_process_says_what_it_waits_for() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = throttled(clock.clone(), 10_000).await;
        let planner = world.controller();
        let _ticked = planner.look(world.job()).await.unwrap();
        world.wish(Wish::Stop).await;
        let began = clock.mono();
        let receipt = world.drive().await;
        world.check(&receipt).await;
        assert_eq!(
            receipt.attempts.iter().map(|attempt| attempt.ended_because).collect::<Vec<_>>(),
            [EndedBecause::UserStopped]
        );
        assert!(clock.mono() - began > Duration::from_secs(240), "{:?}", clock.mono() - began);
        let waiting = world.dir.waiting().await.unwrap().unwrap();
        assert!(waiting.why.starts_with("certainty that no machine was launched: "), "{waiting:?}");
        let left = waiting.until.unwrap().duration_since(world.spec.created).as_secs();
        assert!((300..=480).contains(&left), "{left} s after the job was made");
    });
}

/// What the second daemon asks for is given to it.
struct Unthrottled {
    inner: Arc<dyn Cloud>,
    cloud: Arc<FakeCloud>,
}

before_the_cloud!(Unthrottled passes on [regions supply describe terminate interrupt raise_kill_at release] {
    async fn launch(&self, plan: &Plan) -> Result<String, CloudError> {
        Ok(self.cloud.buy(plan))
    }
});

/// The second daemon launches the plan of the first just before somebody stops the job, and dies;
/// EC2 shows the machine five minutes later. To settle meanwhile was to write a receipt of $0
/// beside a machine that bills.
#[test]
fn stop_settles_nothing_while_another_daemon_may_have_launched() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = throttled(clock.clone(), 10_000).await;
        world.cloud.live_on(Life::NeverSpeaks);
        world.cloud.invisible_for(Duration::from_secs(299));
        let other = async {
            clock.sleep(Duration::from_secs(600)).await;
            let second = world.controller_on(
                world.store.clone(),
                Arc::new(Unthrottled { inner: world.port(), cloud: world.cloud.clone() }),
            );
            let launched = async {
                while world.cloud.launches() == 0 {
                    clock.sleep(Duration::from_millis(100)).await;
                }
            };
            tokio::select! {
                receipt = second.drive(world.job()) => panic!("{receipt:?}"),
                () = launched => {}
            }
            assert_eq!(world.cloud.launches(), 1, "by the second daemon");
            clock.sleep(Duration::from_secs(1)).await;
            world.wish(Wish::Stop).await;
        };
        let (receipt, ()) = tokio::join!(world.drive(), other);
        world.check(&receipt).await;
        assert_eq!((receipt.outcome, receipt.attempts.len()), (JobOutcome::Stopped, 1));
        assert!(receipt.attempts[0].billed_seconds > 290.0, "{receipt:?}");
    });
}

/// Before the false cloud: takes no call that changes a machine until so many were refused, and
/// keeps when it was asked.
struct Strict {
    inner: Arc<dyn Cloud>,
    clock: Arc<VirtualClock>,
    refusals: usize,
    asked: Mutex<Vec<(&'static str, u64)>>,
}

impl Strict {
    fn takes(&self, call: &'static str) -> Result<(), CloudError> {
        let mut asked = self.asked.lock().unwrap();
        asked.push((call, self.clock.mono().as_secs()));
        if asked.len() > self.refusals { Ok(()) } else { Err(CloudError::Throttled) }
    }
}

before_the_cloud!(Strict passes on [regions supply launch describe release] {
    async fn terminate(&self, machine: &MachineRef) -> Result<(), CloudError> {
        self.takes("terminate")?;
        self.inner.terminate(machine).await
    }

    async fn interrupt(&self, machine: &MachineRef, notice: Span) -> Result<(), CloudError> {
        self.takes("interrupt")?;
        self.inner.interrupt(machine, notice).await
    }

    async fn raise_kill_at(&self, machine: &MachineRef, kill_at: Timestamp) -> Result<(), CloudError> {
        self.takes("raise")?;
        self.inner.raise_kill_at(machine, kill_at).await
    }
});

/// An end, a longer life and a rehearsed notice are asked for until they came.
#[test]
fn machine_change_is_asked_for_ever_more_rarely_until_done() {
    let notice = Wish::Interrupt { notice: Span::from_secs(2) };
    let longer =
        Wish::Extend { time: Some(Span::from_secs(7200)), budget: None, fallback_cost: None };
    let cases = [
        ("terminate", Wish::Cancel, vec![Life::FallsSilent], JobOutcome::Cancelled),
        ("raise", longer, vec![Life::Ends { secs: 1200, code: 0 }], JobOutcome::Succeeded),
        (
            "interrupt",
            notice,
            vec![Life::Endless, Life::Ends { secs: 60, code: 0 }],
            JobOutcome::Succeeded,
        ),
    ];
    for (call, wish, lives, outcome) in cases {
        simulate(async |clock: Arc<VirtualClock>| {
            let world = World::with(clock.clone(), &lives, |spec| {
                spec.limits.max_runtime = Some(Span::from_secs(3600))
            })
            .await;
            let strict = Arc::new(Strict {
                inner: world.port(),
                clock: clock.clone(),
                refusals: 8,
                asked: Mutex::default(),
            });
            let controller = world.controller_on(world.store.clone(), strict.clone());
            let (receipt, ()) = tokio::join!(controller.drive(world.job()), async {
                clock.sleep(Duration::from_secs(60)).await;
                world.wish(wish).await;
            });
            let receipt = receipt.unwrap();
            world.check(&receipt).await;
            assert_eq!(receipt.outcome, outcome, "{call}");
            let asked = strict.asked.lock().unwrap().clone();
            assert!(asked.iter().all(|(what, _)| *what == call) && asked.len() >= 9, "{asked:?}");
            let pauses: Vec<u64> = asked[..9].windows(2).map(|two| two[1].1 - two[0].1).collect();
            assert!(
                pauses[5..].iter().all(|pause| *pause >= 30)
                    && pauses.iter().all(|pause| *pause <= 75),
                "{call}: {pauses:?}"
            );
        });
    }
}
