//! A job root that falls silent, and a wall clock that jumps, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use axum::http::Uri;
use futures::StreamExt as _;
use jiff::SignedDuration;
use lamp_test_support::faulty_store::{Fault, FaultyStore};
use lamp_test_support::virtual_clock::{VirtualClock, simulate};
use lamplighter::app::overview::usage_trend::UsageTrends;
use lamplighter::app::view::timeline;
use lamplighter::job::{AttemptNo, JobId, NotifySpec};
use lamplighter::jobdir::{JobDir, layout};
use lamplighter::ports::{Clock as _, Store as _};
use lamplighter::web::Site;
use lamplighter::web::live::{LivePiece, pieces};
use lamplighter::wire::{AwsSettings, ClockHandle, StoreHandle, Workstation};
use serde_json::json;

const MINUTE: Duration = Duration::from_secs(60);

fn site(folder: &tempfile::TempDir, store: &Arc<FaultyStore>, clock: &Arc<VirtualClock>) -> Site {
    let (notify, aws) = (NotifySpec::default(), AwsSettings::default());
    let state = folder.path().to_owned();
    let workstation = Workstation::new(state, "memory:///", "me", None, &notify, aws);
    Site::new(store.clone(), workstation, clock.clone(), false).expect("a site")
}

#[test]
fn silent_job_root_leaves_the_last_overview_with_its_age() {
    let folder = tempfile::tempdir().expect("a folder");
    simulate(|clock| async move {
        let store = FaultyStore::new(clock.clone());
        let site = Arc::new(site(&folder, &store, &clock));
        let first = site.overview().await;
        assert!(first.fault.is_none() && first.overview.is_some());
        store.fault("", Fault::Hang, None);
        clock.sleep(MINUTE).await;
        let asked = clock.mono();
        let stale = site.overview().await;
        assert!(clock.mono() - asked < Duration::from_secs(3), "a page is not held up");
        assert!(stale.overview.is_some() && stale.fault.is_none());
        assert!(stale.age >= MINUTE, "{:?}", stale.age);
        clock.sleep(MINUTE / 4).await;
        let silent = site.overview().await;
        let fault = silent.fault.expect("the silence is said");
        assert!(fault.sentence().contains("has not answered for"), "{}", fault.sentence());
        assert!(silent.overview.is_some(), "the last one stays");
        let calls = store.calls();
        for _ in 0..20 {
            site.overview().await;
        }
        assert!(store.calls() <= calls + 1, "pages share one look");
        assert!(site.overview_for_program().await.fault.is_some(), "no old values for a program");
        // It answers again: the look that hangs is given up.
        store.mend();
        clock.sleep(MINUTE * 2).await;
        site.overview().await;
        let fresh = site.overview().await;
        assert!(fresh.fault.is_none() && fresh.age < MINUTE, "{:?}", fresh.age);
    });
}

#[test]
fn job_root_that_never_answered_is_not_shown_as_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    simulate(|clock| async move {
        let store = FaultyStore::new(clock.clone());
        store.fault("", Fault::Hang, None);
        let site = Arc::new(site(&folder, &store, &clock));
        let unknown = site.overview().await;
        assert!(unknown.overview.is_none() && unknown.fault.is_some());
        assert!(clock.mono() < MINUTE / 2, "{:?}", clock.mono());
    });
}

#[test]
fn open_page_says_for_how_long_the_job_root_is_silent() {
    let folder = tempfile::tempdir().expect("a folder");
    simulate(|clock| async move {
        let store = FaultyStore::new(clock.clone());
        let site = Arc::new(site(&folder, &store, &clock));
        let draw = |site: Arc<Site>| async move {
            site.store
                .children("jobs/")
                .await
                .map_or_else(|error| error.to_string(), |_| "all".to_owned())
        };
        let address: Uri = "/job/a-222222/live".parse().expect("an address");
        let mut open = std::pin::pin!(pieces(site, address, draw));
        let all = Some(LivePiece::Part("all".into()));
        assert_eq!(open.next().await, all);
        store.fault("", Fault::Hang, None);
        let asked = clock.mono();
        let Some(LivePiece::Silent(text)) = open.next().await else { panic!("nothing is said") };
        assert!(clock.mono() - asked < MINUTE, "{:?}", clock.mono() - asked);
        assert!(text.contains("The job root has not answered for"), "{text}");
        assert!(matches!(open.next().await, Some(LivePiece::Silent(later)) if later != text));
        store.mend();
        assert_eq!(open.next().await, all, "the same part ends the silence");
    });
}

#[test]
fn usage_trend_of_a_silent_root_is_the_old_one() {
    simulate(|clock| async move {
        let store = FaultyStore::new(clock.clone());
        let job: JobId = "a-222222".parse().expect("an id");
        let sample = json!({ "at": clock.now(), "t_secs": 10.0, "interval_secs": 10.0, "cpu_percent": 90.0 });
        let packed = zstd::encode_all(sample.to_string().as_bytes(), 3).expect("packed");
        let batch = layout::sample_batch(&job, AttemptNo::FIRST, 1);
        store.put(&batch, packed.into()).await.expect("a batch");
        let trends = UsageTrends::default();
        let (root, time): (StoreHandle, ClockHandle) = (store.clone(), clock.clone());
        let read = || trends.of_attempt(job.as_str(), AttemptNo::FIRST, &root, &time);
        let first = read().await.expect("a trend");
        assert_eq!(first.last(), Some(90.0));
        store.fault("", Fault::Hang, None);
        clock.sleep(MINUTE * 2).await;
        let asked = clock.mono();
        assert_eq!(read().await.as_deref(), Some(&*first));
        assert!(clock.mono() - asked < Duration::from_secs(3), "a page is not held up");
    });
}

#[test]
fn timeline_of_many_attempts_reads_them_side_by_side() {
    simulate(|clock| async move {
        let store = FaultyStore::new(clock.clone());
        let job: JobId = "a-222222".parse().expect("an id");
        for number in 1..=32 {
            let plan = include_bytes!("../data/v1/plan.json").to_vec();
            let key = layout::plan(&job, AttemptNo::new(number));
            store.put(&key, plan.into()).await.expect("a plan");
        }
        store.fault("", Fault::Slow(Duration::from_secs(1)), None);
        let dir = JobDir::new(store, job);
        let asked = clock.mono();
        let explained = timeline::of(&dir, None).await.expect("its records");
        let numbers: Vec<u32> = explained.attempts.iter().map(|one| one.attempt.number()).collect();
        assert_eq!(numbers, (1..=32).collect::<Vec<u32>>(), "in order");
        assert!(clock.mono() - asked < MINUTE / 2, "{:?}", clock.mono() - asked);
    });
}

#[test]
fn wall_clock_that_is_set_back_holds_nothing_up() {
    let folder = tempfile::tempdir().expect("a folder");
    simulate(|clock| async move {
        let store = FaultyStore::new(clock.clone());
        let site = Arc::new(site(&folder, &store, &clock));
        let before = site.overview().await.overview.expect("an overview").at;
        clock.set(SignedDuration::from_hours(-5));
        clock.sleep(MINUTE).await;
        let set_back = site.overview().await;
        assert!(set_back.overview.expect("an overview").at < before, "it was read anew");
        assert!(set_back.age < MINUTE / 10, "{:?}", set_back.age);
        clock.set(SignedDuration::from_hours(50));
        assert!(site.overview().await.age < MINUTE / 10);
    });
}
