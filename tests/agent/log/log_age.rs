//! How old a line is when `lamp logs -f` shows it: a whole agent that ships its log to a bucket,
//! and whoever follows it there.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use lamplighter::cli::Attached;
use lamplighter::job::AttemptNo;
use lamplighter::jobdir::{JobDir, layout};
use lamplighter::ports::{Clock as _, Created, ObjectMeta, Store, StoreError};

use crate::Rig;
use crate::world::Played;
use lamp_test_support::faulty_store::FaultyStore;
use lamp_test_support::job_context;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

/// How long a bucket takes for each answer.
const ANSWER: Duration = Duration::from_millis(120);

/// Two minutes, a byte each tenth of a second: ten of them in all.
const GOES_ON: usize = 2 * 600;

/// After so long a workload has long been busy.
const BUSY: Duration = Duration::from_secs(11 * 60);

/// What `lamp logs -f` promises.
const AGE_MAX: Duration = Duration::from_secs(5);

/// A bucket that takes its time, and notes what was read of the log: whoever follows prints it in
/// the same breath.
struct Bucket {
    store: Arc<FaultyStore>,
    clock: Arc<VirtualClock>,
    /// When, and how many bytes.
    read: Mutex<Vec<(Duration, usize)>>,
}

impl Bucket {
    async fn answer(&self) {
        self.clock.sleep(ANSWER).await;
    }
}

#[async_trait]
impl Store for Bucket {
    fn url(&self) -> String {
        "s3://bucket/root".into()
    }
    async fn get(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        self.answer().await;
        let body = self.store.get(key).await?;
        if let Some(piece) = body.as_ref().filter(|_| key.contains("/log/")) {
            let bytes = zstd::decode_all(&piece[..]).expect("a piece of the log").len();
            self.read.lock().expect("nobody panics with it").push((self.clock.mono(), bytes));
        }
        Ok(body)
    }
    async fn put(&self, key: &str, body: Bytes) -> Result<(), StoreError> {
        self.answer().await;
        self.store.put(key, body).await
    }
    async fn create(&self, key: &str, body: Bytes) -> Result<Created, StoreError> {
        self.answer().await;
        self.store.create(key, body).await
    }
    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>, StoreError> {
        self.answer().await;
        self.store.head(key).await
    }
    async fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        self.answer().await;
        self.store.list(prefix).await
    }
    async fn children(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.answer().await;
        self.store.children(prefix).await
    }
    async fn put_file(&self, key: &str, path: &Path) -> Result<(u64, String), StoreError> {
        self.answer().await;
        self.store.put_file(key, path).await
    }
    async fn get_file(&self, key: &str, path: &Path) -> Result<Option<(u64, String)>, StoreError> {
        self.answer().await;
        self.store.get_file(key, path).await
    }
    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.answer().await;
        self.store.delete(key).await
    }
}

/// The job under way, as whoever follows finds it.
async fn under_way(rig: &Rig) {
    let record = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/v1").join(name);
        std::fs::read_to_string(path).expect("a record").replace("digits-7f3k2q", "digits-222222")
    };
    let (dir, no) = (rig.dir(), AttemptNo::FIRST);
    rig.store.put(&layout::spec(dir.job()), record("spec.json").into()).await.expect("written");
    rig.store
        .put(
            &layout::plan(dir.job(), no),
            record("plan.json").replace("\"attempt\": 2", "\"attempt\": 1").into(),
        )
        .await
        .expect("written");
    rig.store
        .put(&layout::lease(dir.job(), no), record("lease.json").into())
        .await
        .expect("written");
}

/// What the workload has printed: when each byte of it.
#[derive(Default)]
struct Printed(Vec<Duration>);

/// So many bytes make a line where the test is shown.
const LINE: usize = 120;

impl Printed {
    /// One byte more, as the holder writes it: to whoever ships and shows it a line is nothing
    /// else.
    fn print(&mut self, rig: &Rig, played: &Played) {
        let log = rig.path("state/starts/0001/log");
        std::fs::create_dir_all(&log).expect("a folder");
        let mut segment = OpenOptions::new()
            .append(true)
            .create(true)
            .open(log.join("00000001.log"))
            .expect("the folder is there");
        self.0.push(rig.clock.mono());
        segment
            .write_all(if self.0.len().is_multiple_of(LINE) { b"\n" } else { b"." })
            .expect("the folder is there");
        played.printed.fetch_add(1, Ordering::Relaxed);
    }
}

/// How old each byte was when it was shown.
fn ages(printed: &Printed, shown: &[(Duration, usize)]) -> Vec<Duration> {
    let each = shown.iter().flat_map(|(at, bytes)| std::iter::repeat_n(*at, *bytes));
    each.zip(&printed.0).map(|(at, printed)| at - *printed).collect()
}

/// A job whose log is followed from so much later on, in ages: while output goes on, and after a
/// silence. Beside a workload that has long been busy the agent looks less often, so half of it is
/// then.
fn lives(late: Duration) -> [Vec<Duration>; 2] {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        under_way(&rig).await;
        let bucket = Arc::new(Bucket {
            store: rig.store.clone(),
            clock: clock.clone(),
            read: Mutex::default(),
        });
        let played = Played::new(&rig);
        let dir = JobDir::new(bucket.clone(), rig.dir().job().clone());
        let context = job_context::context(bucket.url(), clock.clone());
        let mut attached = Attached::new(&context, &dir);
        let follow = async {
            clock.sleep(late).await;
            attached.follow().await
        };
        let mut printed = Printed::default();
        let mut is_silent = Vec::new();
        let story = async {
            for until in [BUSY, BUSY * 2] {
                clock.sleep(Duration::from_secs(5)).await;
                for _ in 0..GOES_ON {
                    printed.print(&rig, &played);
                    is_silent.push(false);
                    clock.sleep(Duration::from_millis(100)).await;
                }
                // Each a tenth of a second later beside whoever looks at whole seconds.
                while clock.mono() < until {
                    clock.sleep(Duration::from_millis(9100)).await;
                    printed.print(&rig, &played);
                    is_silent.push(true);
                }
            }
            clock.sleep(AGE_MAX).await;
        };
        tokio::select! {
            biased;
            () = story => {}
            _ = follow => panic!("it has no receipt"),
            finish = played.agent_with(&rig, bucket.clone(), "{}").run() => panic!("nothing ends it: {finish:?}"),
        }
        let ages = ages(&printed, &bucket.read.lock().expect("nobody panics with it"));
        assert_eq!(ages.len(), is_silent.len(), "each byte is shown, and once");
        let of = |silent: bool| {
            ages.iter()
                .zip(&is_silent)
                .filter(|(_, is)| **is == silent)
                .map(|(age, _)| *age)
                .collect()
        };
        [of(false), of(true)]
    })
}

#[test]
fn logs_f_shows_a_line_within_5_s_in_a_flow_and_after_a_silence() {
    let mut all: [Vec<Duration>; 2] = Default::default();
    // Where whoever follows stands between two ticks of the agent is chance.
    for late in [0, 300, 600, 900, 1200].map(Duration::from_millis) {
        all.iter_mut().zip(lives(late)).for_each(|(all, ages)| all.extend(ages));
    }
    for (what, ages) in ["output that goes on", "output after a silence"].into_iter().zip(all) {
        let oldest = ages.iter().max().expect("there are some");
        println!(
            "\n{what}: {oldest:?} old at most, {:?} on the mean",
            ages.iter().sum::<Duration>() / ages.len() as u32
        );
        assert!(*oldest <= AGE_MAX, "{what}: {oldest:?} old");
    }
}
