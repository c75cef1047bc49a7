//! Silence is not "no notice".

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use jiff::Timestamp;
use lamplighter::agent::report::notice_watch::{NoticeAnswers, NoticeWatch};
use lamplighter::instance::{Notice, NoticeKind, Tags};
use lamplighter::job::AttemptNo;
use lamplighter::market::Span;
use lamplighter::ports::{Clock, Identity, Metadata, MetadataError};

use crate::world::Played;
use crate::{Rig, secs};
use lamp_test_support::virtual_clock::{VirtualClock, simulate, until};

#[derive(Clone)]
enum Service {
    Says(Vec<Notice>),
    Fails,
    Hangs,
}

struct Machine(Mutex<(Service, u32)>, Mutex<Option<Timestamp>>);

impl Machine {
    fn set(&self, service: Service) {
        self.0.lock().unwrap().0 = service;
    }
}

#[async_trait]
impl Metadata for Machine {
    async fn identity(&self) -> Result<Identity, MetadataError> {
        let (kill_at, job) = (self.1.lock().unwrap().to_owned(), "digits-222222".parse().unwrap());
        let tags = Tags {
            owner: "me".into(),
            job,
            attempt: AttemptNo::FIRST,
            lease: Span::from_secs(1800),
            boot: lamplighter::job::BOOT,
            kill_at,
        };
        Ok(Identity {
            instance: "i-1".into(),
            tags: tags.to_map(),
            launched: Timestamp::UNIX_EPOCH,
        })
    }

    async fn notices(&self) -> Result<Vec<Notice>, MetadataError> {
        let service = {
            let mut state = self.0.lock().unwrap();
            state.1 += 1;
            state.0.clone()
        };
        match service {
            Service::Says(notices) => Ok(notices),
            Service::Fails => {
                Err(MetadataError::Unavailable { what: "notices".into(), cause: "503".into() })
            }
            Service::Hangs => std::future::pending().await,
        }
    }
}

fn machine() -> Arc<Machine> {
    Arc::new(Machine(Mutex::new((Service::Says(Vec::new()), 0)), Mutex::default()))
}

fn notice() -> Notice {
    Notice {
        kind: NoticeKind::Interruption,
        at: "2026-01-01T00:02:00Z".parse().unwrap(),
        detail: "terminate".into(),
    }
}

async fn facts(
    clock: &VirtualClock,
    watch: &NoticeWatch,
    what: &str,
    wanted: impl Fn(&NoticeAnswers) -> bool,
) -> NoticeAnswers {
    let facts = watch.subscribe();
    until(clock, what, secs(31), || wanted(&facts.borrow())).await;
    facts.borrow().clone()
}

#[test]
fn notice_is_known_within_a_second_and_wakes_the_loop_once() {
    simulate(async |clock| {
        let machine = machine();
        let watch = NoticeWatch::start(machine.clone(), clock.clone());
        let mut news = watch.subscribe();
        clock.sleep(secs(60)).await;
        let polls = machine.0.lock().unwrap().1;
        assert!((60..=61).contains(&polls), "{polls} polls in a minute");
        assert!(!news.has_changed().unwrap(), "a loop is not woken to hear that nothing happened");
        machine.set(Service::Says(vec![notice()]));
        let before = clock.mono();
        news.changed().await.unwrap();
        assert!(clock.mono() - before <= secs(1));
        assert_eq!(news.borrow_and_update().notices, [notice()]);
        clock.sleep(secs(10)).await;
        assert!(!news.has_changed().unwrap());
        assert!(
            news.borrow().answered.unwrap() >= clock.mono() - secs(1),
            "the newest answer is told all the same"
        );
    });
}

#[test]
fn known_notice_stays_without_answer() {
    simulate(async |clock| {
        let machine = machine();
        let watch = NoticeWatch::start(machine.clone(), clock.clone());
        machine.set(Service::Says(vec![notice()]));
        let known = facts(&clock, &watch, "the notice", |facts| !facts.notices.is_empty()).await;
        for silence in [Service::Fails, Service::Hangs] {
            machine.set(silence);
            let still = facts(&clock, &watch, "failures", |facts| facts.failures >= 2).await;
            assert_eq!(still.notices, [notice()]);
            assert!(
                still.answered.unwrap() < clock.mono() - secs(1)
                    && still.answered >= known.answered
            );
            machine.set(Service::Says(vec![notice()]));
            facts(&clock, &watch, "an answer", |facts| facts.failures == 0).await;
        }
        machine.set(Service::Says(Vec::new()));
        facts(&clock, &watch, "the notice is taken back", |facts| facts.notices.is_empty()).await;
        drop(watch);
        let polls = machine.0.lock().unwrap().1;
        clock.sleep(secs(60)).await;
        assert_eq!(machine.0.lock().unwrap().1, polls, "it ends with its handle");
    });
}

#[test]
fn raised_hard_cap_is_seen_in_the_tags() {
    simulate(async |clock| {
        let machine = machine();
        let watch = NoticeWatch::start(machine.clone(), clock.clone());
        clock.sleep(secs(1)).await;
        assert_eq!(watch.subscribe().borrow().kill_at, None);
        *machine.1.lock().unwrap() = Some("2026-01-01T05:00:00Z".parse().unwrap());
        let seen = facts(&clock, &watch, "the new cap", |facts| facts.kill_at.is_some()).await;
        assert_eq!(seen.kill_at, *machine.1.lock().unwrap());
    });
}

/// Through a whole agent: nobody is told of a blip, somebody of a minute of it, once, and it is
/// taken back.
#[test]
fn metadata_service_out_for_a_minute_is_told_once_and_withdrawn() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        let deaf = |deaf: bool| machine.deaf.store(deaf, Ordering::Relaxed);
        let told = async || {
            rig.status()
                .await
                .attention
                .into_iter()
                .filter(|line| line.contains("the metadata service does not answer"))
                .count()
        };
        let world = async {
            clock.sleep(secs(60)).await;
            for (silent, expected) in [(30, 0), (60, 1), (600, 1)] {
                deaf(true);
                clock.sleep(secs(silent)).await;
                // It is in the next heartbeat.
                clock.sleep(secs(if expected == 0 { 0 } else { 15 })).await;
                assert_eq!(told().await, expected, "after {silent} s");
                deaf(false);
                clock.sleep(secs(30)).await;
                assert_eq!(told().await, 0, "it answers again");
            }
            assert!(!machine.has_ended(), "nothing is ended for it");
        };
        tokio::select! {
            finish = machine.agent(&rig, "{}").run() => panic!("its work goes on: {finish:?}"),
            () = world => {}
        }
        let events = rig.attention().await;
        assert_eq!(
            events.iter().filter(|text| text.contains("the metadata service")).count(),
            2,
            "once for each time: {events:?}"
        );
    });
}
