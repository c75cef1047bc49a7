//! Death of the controller at any call, over every act it has: plan, launch, settle and receipt;
//! resume after an interruption; a rehearsed notice; a machine that must be ended; a hard cap that
//! is raised; a wish to stop.

use std::sync::Arc;
use std::time::Duration;

use lamplighter::job::{AttemptNo, CheckpointNo, EndedBecause, Receipt, Spec, Wish};
use lamplighter::market::Span;
use lamplighter::ports::{Clock, Cloud, Store};
use lamplighter::sim::SimProcess;

use crate::World;
use crate::cloud::Life;
use crate::dying_controller;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

struct Story {
    lives: &'static [Life],
    spec: fn(&mut Spec),
    /// Left in the job directory two seconds after the first launch could have been.
    wish: Option<Wish>,
    /// Between two calls at which it dies: the long stories are mostly the same look again and
    /// again.
    apart: usize,
    becauses: &'static [EndedBecause],
}

const ENDS: Life = Life::Ends { secs: 2, code: 0 };

const WISH_AT: Duration = Duration::from_secs(3);

impl Story {
    async fn world(&self, clock: Arc<VirtualClock>) -> World {
        World::with(clock, self.lives, self.spec).await
    }

    /// Plays it with a controller that dies at a call, and another that comes after it; whether the
    /// first died.
    async fn play(&self, world: &World, life: &Arc<SimProcess>) -> (bool, Receipt) {
        let store: Arc<dyn Store> = dying_controller::store(life, world.store.clone());
        let cloud: Arc<dyn Cloud> = dying_controller::cloud(life, world.port());
        let first = world.controller_on(store, cloud);
        let driven = async {
            let died = tokio::select! {
                biased;
                () = life.died() => true,
                receipt = first.drive(world.job()) => receipt.is_err(),
            };
            (died, world.drive().await)
        };
        let wished = async {
            if let Some(wish) = self.wish {
                world.clock.sleep(WISH_AT).await;
                world.wish(wish).await;
            }
        };
        tokio::join!(driven, wished).0
    }

    /// Every death that it has, before and after the effect of the call; gives how many.
    fn die_everywhere(&self, check: impl AsyncFn(&World, &str)) -> usize {
        let mut deaths = 0;
        for after in [false, true] {
            for calls in (0..).step_by(self.apart) {
                let died = simulate(async |clock| {
                    let world = self.world(clock).await;
                    let (died, receipt) =
                        self.play(&world, &dying_controller::dying(calls, after)).await;
                    let what = format!("died at call {calls}, after its effect: {after}");
                    world.check(&receipt).await;
                    let becauses: Vec<EndedBecause> =
                        receipt.attempts.iter().map(|attempt| attempt.ended_because).collect();
                    assert_eq!(becauses, self.becauses, "{what}");
                    check(&world, &what).await;
                    died
                });
                if !died {
                    break;
                }
                deaths += 1;
            }
        }
        deaths
    }
}

#[test]
fn interrupted_job_resumes_from_its_checkpoint() {
    let story = Story {
        lives: &[Life::Taken { secs: 3 }, ENDS],
        spec: |_| {},
        wish: None,
        apart: 1,
        becauses: &[EndedBecause::Interrupted, EndedBecause::Succeeded],
    };
    let deaths = story.die_everywhere(async |world, what| {
        let second = world.dir.plan(AttemptNo::new(2)).await.unwrap().unwrap();
        assert_eq!(second.resume_from, Some(CheckpointNo::FIRST), "{what}");
    });
    assert!(deaths > 100, "{deaths}");
}

#[test]
fn rehearsed_interruption_is_served_to_the_intended_attempt() {
    let story = Story {
        lives: &[Life::Endless, ENDS],
        spec: |_| {},
        wish: Some(Wish::Interrupt { notice: Span::from_secs(2) }),
        apart: 1,
        becauses: &[EndedBecause::Interrupted, EndedBecause::Succeeded],
    };
    assert!(story.die_everywhere(async |_, _| {}) > 100);
}

#[test]
fn machine_that_stays_lit_is_ended() {
    let story = Story {
        lives: &[Life::NeverDark],
        spec: |_| {},
        wish: None,
        apart: 17,
        becauses: &[EndedBecause::Succeeded],
    };
    assert!(story.die_everywhere(async |_, _| {}) > 10);
}

#[test]
fn stop_is_never_lost() {
    let story = Story {
        lives: &[Life::Endless],
        spec: |_| {},
        wish: Some(Wish::Stop),
        apart: 11,
        becauses: &[EndedBecause::UserStopped],
    };
    assert!(story.die_everywhere(async |_, _| {}) > 10);
}

#[test]
fn cancel_is_never_lost() {
    let story = Story {
        lives: &[Life::Endless],
        spec: |_| {},
        wish: Some(Wish::Cancel),
        apart: 3,
        becauses: &[EndedBecause::UserCancelled],
    };
    assert!(story.die_everywhere(async |_, _| {}) > 30);
}

#[test]
fn raised_cap_is_raised_once_and_stays() {
    let story = Story {
        lives: &[Life::Ends { secs: 20, code: 0 }],
        spec: |spec| spec.limits.max_runtime = Some(Span::from_secs(3600)),
        wish: Some(Wish::Extend {
            time: Some(Span::from_secs(7200)),
            budget: None,
            fallback_cost: None,
        }),
        apart: 1,
        becauses: &[EndedBecause::Succeeded],
    };
    let deaths = story.die_everywhere(async |world, what| {
        let planned = world.dir.plan(AttemptNo::FIRST).await.unwrap().unwrap().kill_at.unwrap();
        assert_eq!(world.cloud.kill_at(), Some(planned + Duration::from_secs(7200)), "{what}");
    });
    assert!(deaths > 100, "{deaths}");
}

/// Also when it dies between recording why it ends the machine, ending it, and settling what it
/// was.
#[test]
fn what_we_end_is_never_taken_for_the_users_stop() {
    let story = Story {
        lives: &[Life::NeverSpeaks, ENDS],
        spec: |_| {},
        wish: None,
        apart: 61,
        becauses: &[EndedBecause::Lost, EndedBecause::Succeeded],
    };
    assert!(story.die_everywhere(async |_, _| {}) > 10);
}
