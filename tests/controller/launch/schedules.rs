//! What is scheduled becomes jobs: once for each due time, whoever dies and however many look.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use lamplighter::controller::{Controller, ScheduleMemory};
use lamplighter::job::{
    Applied, CatchUp, CodeArchive, JobOutcome, Overlap, RECORD_FORMAT, Receipt, Schedule,
    ScheduleRun, ScheduleSpec,
};
use lamplighter::jobdir::{JobDir, ScheduleDir, layout};
use lamplighter::market::UsdPerHour;
use lamplighter::ports::{Clock, Store};

use crate::clocks::{Beside, controller};
use crate::cloud::Life;
use crate::dying_controller;
use crate::{OWNER, World, spec};
use lamp_test_support::counting_store::CountingStore;
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

const SHA: &str = "abc";
const MINUTE: Duration = Duration::from_secs(60);

fn hourly(since: Timestamp) -> Schedule {
    Schedule {
        format: RECORD_FORMAT,
        applied: Applied {
            set: "jobs".into(),
            file: "hourly.toml".into(),
            sha256: "f".into(),
            owner: OWNER.into(),
            due: None,
        },
        since,
        written_by: "test".into(),
        schedule: ScheduleSpec {
            cron: Some("0 * * * *".into()),
            timezone: "UTC".into(),
            only_between: None,
            only_while_spot_under: None,
            overlap: Overlap::Skip,
            catch_up: Default::default(),
        },
        spec: spec(since).spec,
        code: Some(CodeArchive {
            files: 1,
            bytes: 1,
            packed_bytes: 1,
            sha256: SHA.into(),
            tree: None,
            source: None,
        }),
        origins: Default::default(),
        here: None,
        removed: None,
    }
}

/// A world with one schedule.
pub(crate) struct Scheduled {
    pub(crate) world: World,
    pub(crate) dir: ScheduleDir,
}

impl Scheduled {
    pub(crate) async fn new(
        clock: Arc<VirtualClock>,
        life: Life,
        change: impl FnOnce(&mut Schedule),
    ) -> Scheduled {
        let world = World::new(clock.clone(), &[life]).await;
        let dir = ScheduleDir::new(world.store.clone(), "jobs", "hourly");
        let mut record = hourly(clock.now());
        change(&mut record);
        world.store.put(&dir.code_key(SHA), Bytes::from_static(b"code")).await.unwrap();
        dir.put_record(&record, &*clock).await.unwrap();
        Scheduled { world, dir }
    }

    /// Drives all jobs for so long.
    pub(crate) async fn daemon(&self, controller: Controller, minutes: u32) {
        tokio::select! {
            () = controller.drive_all(&[], |_| {}) => {}
            () = self.world.clock.sleep(MINUTE * minutes) => {}
        }
    }

    pub(crate) async fn runs(&self) -> Vec<ScheduleRun> {
        let mut runs = Vec::new();
        for due in self.dir.due_times().await.unwrap() {
            runs.push(self.dir.run(due).await.unwrap().unwrap());
        }
        runs
    }

    async fn receipt(&self, run: &ScheduleRun) -> Option<Receipt> {
        let spec = run.job.as_ref()?;
        JobDir::new(self.world.store.clone(), spec.job.clone()).receipt().await.unwrap()
    }

    /// Jobs of the schedule that are there; each is whole.
    async fn jobs(&self) -> usize {
        let mut jobs = 0;
        for job in lamplighter::jobdir::jobs(&*self.world.store).await.unwrap() {
            let dir = JobDir::new(self.world.store.clone(), job.clone());
            let Some(spec) = dir.spec().await.unwrap() else { continue };
            let Some(applied) = spec.applied else { continue };
            assert_eq!((applied.set.as_str(), applied.file.as_str()), ("jobs", "hourly.toml"));
            assert_eq!(
                self.world.store.object(&layout::code(&job, SHA)).as_deref(),
                Some(&b"code"[..]),
                "the code is there before the spec"
            );
            jobs += 1;
        }
        jobs
    }
}

pub(crate) fn at(runs: &[ScheduleRun]) -> Vec<String> {
    let shown = |run: &ScheduleRun| {
        format!(
            "{} {}",
            run.due.strftime("%H:%M"),
            if run.job.is_some() { "run" } else { "left out" }
        )
    };
    runs.iter().map(shown).collect()
}

pub(crate) const QUICK: Life = Life::Ends { secs: 60, code: 0 };
const LONG: Life = Life::Ends { secs: 15 * 60, code: 0 };

#[test]
fn two_daemons_run_each_due_time_once_and_see_it_to_its_end() {
    simulate(async |clock: Arc<VirtualClock>| {
        let scheduled = Scheduled::new(clock.clone(), QUICK, |_| {}).await;
        let world = &scheduled.world;
        tokio::join!(
            scheduled.daemon(world.controller(), 190),
            scheduled.daemon(world.controller(), 190)
        );
        let runs = scheduled.runs().await;
        assert_eq!(at(&runs), ["01:00 run", "02:00 run", "03:00 run"]);
        for run in &runs {
            assert_eq!(scheduled.receipt(run).await.unwrap().outcome, JobOutcome::Succeeded);
            let late = run.decided.duration_since(run.due);
            assert!(
                late <= Duration::from_secs(16).try_into().unwrap(),
                "a daemon looks every quarter of a minute: {late}"
            );
        }
        assert_eq!(scheduled.jobs().await, 3);
        assert_eq!(world.cloud.complaints(), Vec::<String>::new());
    });
}

#[test]
fn run_that_still_runs_is_passed_over_or_waited_for() {
    for (overlap, expected) in [
        (Overlap::Skip, ["00:10 run", "00:20 left out", "00:30 run"]),
        (Overlap::Queue, ["00:10 run", "00:20 run", "00:40 run"]),
    ] {
        simulate(async |clock: Arc<VirtualClock>| {
            let scheduled = Scheduled::new(clock.clone(), LONG, |record| {
                record.schedule.cron = Some("*/10 * * * *".into());
                record.schedule.overlap = overlap;
            })
            .await;
            let minutes = if overlap == Overlap::Skip { 35 } else { 45 };
            let daemon = scheduled.daemon(scheduled.world.controller(), minutes);
            let waits = async {
                clock.sleep(MINUTE * 22).await;
                scheduled.dir.waiting().await.unwrap()
            };
            let ((), waiting) = tokio::join!(daemon, waits);
            let runs = scheduled.runs().await;
            assert_eq!(at(&runs), expected);
            let first = &runs[0].job.as_ref().unwrap().job;
            if overlap == Overlap::Skip {
                assert_eq!(runs[1].running.as_ref(), Some(first));
                assert_eq!(waiting, None);
            } else {
                // It began when the first had ended, and of what was due while it ran the latest is
                // left.
                let began = runs[1]
                    .decided
                    .duration_since(scheduled.receipt(&runs[0]).await.unwrap().ended);
                assert!(began <= Duration::from_secs(35).try_into().unwrap(), "{began}");
                assert_eq!(waiting.unwrap().why, format!("its last run, {first}, has not ended"));
            }
        });
    }
}

/// One that would rather be left out than be late.
fn punctual(record: &mut Schedule) {
    record.schedule.overlap = Overlap::Queue;
    record.schedule.catch_up = CatchUp::None;
}

const HOUR_AND_A_HALF: Life = Life::Ends { secs: 90 * 60, code: 0 };

/// The run of 01:00 takes until half past two, and what was due at two waits for it.
#[test]
fn what_waits_is_not_missed_by_a_daemon_that_comes_later() {
    for case in ["started anew", "a second one", "applied again"] {
        simulate(async |clock: Arc<VirtualClock>| {
            let scheduled = Scheduled::new(clock.clone(), HOUR_AND_A_HALF, punctual).await;
            let world = &scheduled.world;
            let quarter_past = async {
                clock.sleep(MINUTE * 135).await;
                match case {
                    "a second one" => scheduled.daemon(world.controller(), 40).await,
                    "applied again" => {
                        let mut record = scheduled.dir.record().await.unwrap().unwrap();
                        record.code.as_mut().unwrap().sha256 = "def".into();
                        world
                            .store
                            .put(&scheduled.dir.code_key("def"), Bytes::from_static(b"code"))
                            .await
                            .unwrap();
                        scheduled.dir.put_record(&record, &*clock).await.unwrap();
                    }
                    _ => {}
                }
            };
            let minutes = if case == "started anew" { 135 } else { 175 };
            tokio::join!(scheduled.daemon(world.controller(), minutes), quarter_past);
            if case == "started anew" {
                assert_eq!(at(&scheduled.runs().await), ["01:00 run"]);
                scheduled.daemon(world.controller(), 40).await;
            }
            let runs = scheduled.runs().await;
            assert_eq!(at(&runs), ["01:00 run", "02:00 run"], "{case}");
            assert!(runs[1].decided >= scheduled.receipt(&runs[0]).await.unwrap().ended, "{case}");
        });
    }
}

/// A run that waited through two due times waits for the later one, with the same message.
#[test]
fn run_that_waits_through_two_due_times_records_the_later_one() {
    simulate(async |clock: Arc<VirtualClock>| {
        let dear = |record: &mut Schedule| {
            punctual(record);
            record.schedule.only_while_spot_under = Some(UsdPerHour::new("1".parse().unwrap()));
        };
        let scheduled = Scheduled::new(clock.clone(), QUICK, dear).await;
        scheduled.daemon(scheduled.world.controller(), 140).await;
        let waiting = scheduled.dir.waiting().await.unwrap().unwrap();
        let shown = |at: Option<Timestamp>| at.unwrap().strftime("%H:%M").to_string();
        assert_eq!((shown(waiting.due), shown(waiting.seen)), ("02:00".into(), "02:00".into()));
    });
}

#[test]
fn run_seen_too_late_or_by_a_wrong_clock_is_missed() {
    // Nobody drove; somebody drove from twenty past two on, and his words were other ones then;
    // half an hour behind.
    for (from, off) in [(150, 0), (140, 0), (120, -1800)] {
        simulate(async |clock: Arc<VirtualClock>| {
            let latest = |record: &mut Schedule| {
                punctual(record);
                record.schedule.catch_up = CatchUp::Latest;
                record.schedule.cron =
                    Some(if off == 0 { "0 2 * * *" } else { "30 1 * * *" }.into());
                record.schedule.only_while_spot_under = Some(UsdPerHour::new("1".parse().unwrap()));
            };
            let scheduled = Scheduled::new(clock.clone(), QUICK, latest).await;
            clock.sleep(MINUTE * from).await;
            let beside = Arc::new(Beside(clock.clone(), AtomicI64::new(off)));
            if from < 150 {
                scheduled.daemon(controller(&scheduled.world, &beside), 150 - from).await;
            }
            let mut record = scheduled.dir.record().await.unwrap().unwrap();
            record.schedule.catch_up = CatchUp::None;
            scheduled.dir.put_record(&record, &*clock).await.unwrap();
            assert_eq!(scheduled.dir.waiting().await.unwrap().is_some(), from != 150, "{from}");
            scheduled.daemon(scheduled.world.controller(), 5).await;
            let runs = scheduled.runs().await;
            let due = if off == 0 { "02:00" } else { "01:30" };
            assert_eq!(at(&runs), [format!("{due} left out")], "{from} {off}");
        });
    }
}

#[test]
fn price_that_is_too_high_is_waited_for_and_said() {
    simulate(async |clock: Arc<VirtualClock>| {
        let cheap = |record: &mut Schedule| {
            record.schedule.only_while_spot_under = Some(UsdPerHour::new("1".parse().unwrap()))
        };
        let scheduled = Scheduled::new(clock.clone(), QUICK, cheap).await;
        scheduled.daemon(scheduled.world.controller(), 90).await;
        assert_eq!(at(&scheduled.runs().await), Vec::<String>::new());
        let why = scheduled.dir.waiting().await.unwrap().unwrap().why;
        assert_eq!(why, "spot costs $1.23/h, and it waits for less than $1.00/h");
        // Somebody changes his mind; the daemon takes up the new words.
        let mut record = scheduled.dir.record().await.unwrap().unwrap();
        record.schedule.only_while_spot_under = Some(UsdPerHour::new("2".parse().unwrap()));
        scheduled.dir.put_record(&record, &*clock).await.unwrap();
        scheduled.daemon(scheduled.world.controller(), 40).await;
        assert_eq!(
            at(&scheduled.runs().await),
            ["01:00 run", "02:00 run"],
            "what has waited, and the next"
        );
    });
}

#[test]
fn what_is_removed_or_anothers_is_not_run() {
    let cases: [fn(&mut Schedule); 3] = [
        |record| record.removed = Some(record.since),
        |record| record.applied.owner = "somebody else".into(),
        |record| record.here = Some("another-workstation".into()),
    ];
    for change in cases {
        simulate(async |clock: Arc<VirtualClock>| {
            let scheduled = Scheduled::new(clock.clone(), QUICK, change).await;
            scheduled.daemon(scheduled.world.controller(), 130).await;
            assert_eq!(at(&scheduled.runs().await), Vec::<String>::new());
        });
    }
}

/// One look of a daemon that has seen nothing before.
async fn look(controller: &Controller) {
    controller.run_schedules(&mut ScheduleMemory::default()).await;
}

#[test]
fn death_at_any_call_leaves_one_whole_job() {
    let (mut deaths, mut ended) = (0, false);
    for after in [false, true] {
        for calls in 0.. {
            let reached = simulate(async |clock: Arc<VirtualClock>| {
                let scheduled = Scheduled::new(clock.clone(), QUICK, |_| {}).await;
                let world = &scheduled.world;
                clock.sleep(MINUTE * 61).await;
                let life = dying_controller::dying(calls, after);
                let store: Arc<dyn Store> = dying_controller::store(&life, world.store.clone());
                let first = world.controller_on(store, world.port());
                tokio::select! {
                    biased;
                    () = life.died() => {}
                    () = look(&first) => {}
                }
                look(&world.controller()).await;
                let what = format!("died at call {calls}, after its effect: {after}");
                assert_eq!(at(&scheduled.runs().await), ["01:00 run"], "{what}");
                assert_eq!(scheduled.jobs().await, 1, "{what}");
                // And it stays so.
                look(&world.controller()).await;
                assert_eq!(scheduled.jobs().await, 1, "{what}");
                life.was_reached()
            });
            if !reached {
                ended = true;
                break;
            }
            deaths += 1;
        }
    }
    assert!(ended && deaths > 12, "only {deaths} deaths were tried");
}

#[test]
fn daemon_that_sleeps_during_a_decision_makes_no_second_job() {
    for after in [false, true] {
        for calls in 0..16 {
            simulate(async |clock: Arc<VirtualClock>| {
                let scheduled = Scheduled::new(clock.clone(), QUICK, |_| {}).await;
                let world = &scheduled.world;
                clock.sleep(MINUTE * 61).await;
                let life = dying_controller::pausing(calls, after, &clock, Duration::from_secs(5));
                let store: Arc<dyn Store> = dying_controller::store(&life, world.store.clone());
                let sleeper = world.controller_on(store, world.port());
                let other = async {
                    clock.sleep(Duration::from_secs(1)).await;
                    look(&world.controller()).await;
                };
                tokio::join!(look(&sleeper), other);
                assert_eq!(at(&scheduled.runs().await), ["01:00 run"], "{calls} {after}");
                assert_eq!(scheduled.jobs().await, 1, "{calls} {after}");
            });
        }
    }
}

#[test]
fn lost_reply_and_a_store_that_is_away_make_nothing_twice() {
    for (part, fault) in [
        ("runs/", Fault::LostReply),
        ("spec.json", Fault::Down),
        ("code/", Fault::Down),
        ("schedules/", Fault::Down),
    ] {
        simulate(async |clock: Arc<VirtualClock>| {
            let scheduled = Scheduled::new(clock.clone(), QUICK, |_| {}).await;
            clock.sleep(MINUTE * 61).await;
            scheduled.world.store.fault(part, fault, 3);
            scheduled.daemon(scheduled.world.controller(), 20).await;
            let runs = scheduled.runs().await;
            assert_eq!(at(&runs), ["01:00 run"], "{part}");
            assert_eq!(scheduled.jobs().await, 1, "{part}");
            assert!(scheduled.receipt(&runs[0]).await.is_some(), "{part}");
        });
    }
}

/// Twelve hours ahead, a daemon would decide the run of noon at midnight, and at noon nothing would
/// run.
#[test]
fn schedule_decides_nothing_by_a_wrong_or_unchecked_clock() {
    for (off, part, right_after) in
        [(12 * 3600, "none", 30), (12 * 3600, "clock", 30), (0, "clock", 90)]
    {
        simulate(async |clock: Arc<VirtualClock>| {
            let scheduled = Scheduled::new(clock.clone(), QUICK, |_| {}).await;
            scheduled.world.store.fault(part, Fault::Down, None);
            let beside = Arc::new(Beside(clock.clone(), AtomicI64::new(off)));
            let daemon = controller(&scheduled.world, &beside);
            let mended = async {
                clock.sleep(MINUTE * right_after).await;
                assert_eq!(at(&scheduled.runs().await), Vec::<String>::new(), "{off} {part}");
                beside.1.store(0, Ordering::Relaxed);
                scheduled.world.store.mend();
            };
            tokio::join!(scheduled.daemon(daemon, 100), mended);
            assert_eq!(at(&scheduled.runs().await), ["01:00 run"], "{off} {part}");
        });
    }
}

/// Two daemons of one job root give a run one id; the same schedule kept in another job root gives
/// another.
#[test]
fn run_has_an_id_of_its_own_in_each_job_root() {
    let run = |away: bool| {
        simulate(async |clock: Arc<VirtualClock>| {
            let scheduled =
                Scheduled::new(clock.clone(), Life::Ends { secs: 60, code: 0 }, |_| {}).await;
            let world = &scheduled.world;
            let near = world.controller();
            let controller = if away {
                world.controller_on(CountingStore::new(world.store.clone()), world.port())
            } else {
                near
            };
            scheduled.daemon(controller, 70).await;
            scheduled.runs().await[0].job.as_ref().unwrap().job.clone()
        })
    };
    assert_eq!(run(false), run(false));
    assert_ne!(run(false), run(true));
}
