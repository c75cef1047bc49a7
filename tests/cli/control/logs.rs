//! What following a job costs where each look is paid for.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lamplighter::cli::{Attached, LogTail};
use lamplighter::job::AttemptNo;
use lamplighter::jobdir::{JobDir, layout};
use lamplighter::ports::{Clock as _, Store};

use crate::sandbox::repository;
use lamp_test_support::counting_store::{CountingStore, sum};
use lamp_test_support::faulty_store::FaultyStore;
use lamp_test_support::job_context;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

const JOB: &str = "digits-7f3k2q";

fn record(name: &str) -> Bytes {
    std::fs::read(repository().join("tests/data/v1").join(name)).expect("a record").into()
}

/// A job under way whose agent has said a word, and its store, counted.
async fn job(clock: &Arc<VirtualClock>) -> (Arc<FaultyStore>, Arc<CountingStore>, JobDir) {
    let store = FaultyStore::new(clock.clone());
    let (job, no) = (JOB.parse().expect("an id"), AttemptNo::FIRST);
    store.put(&layout::spec(&job), record("spec.json")).await.expect("written");
    let plan = String::from_utf8(record("plan.json").to_vec())
        .expect("text")
        .replace("\"attempt\": 2", "\"attempt\": 1");
    store.put(&layout::plan(&job, no), plan.into()).await.expect("written");
    store.put(&layout::lease(&job, no), record("lease.json")).await.expect("written");
    let counting = CountingStore::new(store.clone());
    let dir = JobDir::new(counting.clone(), job);
    (store, counting, dir)
}

async fn piece(store: &FaultyStore, dir: &JobDir, number: u64, text: &str) {
    let packed = zstd::encode_all(text.as_bytes(), 1).expect("packed in memory");
    store
        .put(&layout::log_piece(dir.job(), AttemptNo::FIRST, number), packed.into())
        .await
        .expect("written");
}

#[test]
fn log_of_a_thousand_pieces_is_listed_twice() {
    simulate(async |clock| {
        let (store, counting, dir) = job(&clock).await;
        for number in 1..=1000 {
            piece(&store, &dir, number, &format!("{number}\n")).await;
        }
        let mut tail = LogTail::new(AttemptNo::FIRST);
        for number in 1..=1000 {
            assert_eq!(
                tail.next(&dir).await.expect("an answer"),
                format!("{number}\n").into_bytes()
            );
        }
        assert!(tail.next(&dir).await.expect("an answer").is_empty());
        let calls = counting.take();
        assert_eq!((sum(&calls, "list"), sum(&calls, "get")), (2, 1000), "{calls:?}");
        // What comes later is found, and what was there is not read again.
        piece(&store, &dir, 1001, "new\n").await;
        assert_eq!(tail.next(&dir).await.expect("an answer"), b"new\n");
        let calls = counting.take();
        assert_eq!((sum(&calls, "list"), sum(&calls, "get")), (1, 1), "{calls:?}");
    });
}

/// Two cents and a half of listings and a half of reads.
#[test]
fn attached_hour_on_a_bucket_costs_three_cents() {
    simulate(async |clock| {
        let (store, counting, dir) = job(&clock).await;
        piece(&store, &dir, 1, "step 1\n").await;
        let context = job_context::context(counting.url(), clock.clone());
        let mut attached = Attached::new(&context, &dir);
        let hour = clock.sleep(Duration::from_secs(3600));
        tokio::select! {
            _ = attached.follow() => panic!("it has no receipt"),
            () = hour => {}
        }
        let calls = counting.take();
        let (lists, reads) = (sum(&calls, "list"), sum(&calls, "get"));
        println!(
            "{lists} listings, {reads} reads: ${:.4}",
            f64::from(lists) * 5e-6 + f64::from(reads) * 4e-7
        );
        // 2400 looks: the names of the attempts and of the log, and the job's small records; and
        // twice a minute what was asked of it.
        assert!(
            (4919..=4924).contains(&lists) && reads <= 2401 * 8 + 1 && sum(&calls, "put") == 0,
            "{calls:?}"
        );
    });
}
