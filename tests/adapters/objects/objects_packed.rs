//! Uploads of files that each try packs anew: nothing is there any more of the file whose parts
//! have arrived.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lamplighter::adapters::store::open::{self, S3Access};
use lamplighter::ports::{Arrival, Store};

use crate::objects::objects_given_up::{FalseBucket, PART};

/// A workstation and its bucket.
struct Packing {
    server: FalseBucket,
    folder: tempfile::TempDir,
}

impl Packing {
    fn new() -> Self {
        Packing { server: FalseBucket::start(), folder: tempfile::tempdir().unwrap() }
    }

    fn store(&self) -> Arc<dyn Store> {
        let access = S3Access {
            region: Some("us-east-1".into()),
            endpoint: Some(self.server.endpoint.clone()),
            credentials: Some(Arc::new(object_store::StaticCredentialProvider::new(
                object_store::aws::AwsCredential {
                    key_id: "test".into(),
                    secret_key: "test".into(),
                    token: None,
                },
            ))),
            ending: None,
            uploads: Some(self.folder.path().join("uploads")),
        };
        open::open_through("s3://jobs/root", false, access).unwrap()
    }

    /// Three parts of this byte, in a file that nobody else has.
    fn pack(&self, name: &str, byte: u8) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, vec![byte; PART * 2 + 5]).unwrap();
        path
    }

    /// Two of the three parts arrive, then everybody is gone, and the file too.
    async fn is_cut_off(&self, key: &str, name: &str, byte: u8) {
        self.server.bucket.lock().unwrap().broken_from = Some(3);
        let packed = self.pack(name, byte);
        // They go at once: what is refused may be heard of before what has arrived.
        for _ in 0..100 {
            self.store().put_file(key, &packed).await.unwrap_err();
            let lines = |record: &PathBuf| std::fs::read_to_string(record).unwrap().lines().count();
            if self.remembered().iter().map(lines).max() == Some(3) {
                break;
            }
        }
        std::fs::remove_file(packed).unwrap();
        let mut bucket = self.server.bucket.lock().unwrap();
        bucket.broken_from = None;
        bucket.parts_asked.clear();
    }

    async fn sends(&self, key: &str, name: &str, byte: u8) {
        assert_eq!(
            self.store().put_file(key, &self.pack(name, byte)).await.unwrap().0,
            PART as u64 * 2 + 5
        );
    }

    fn remembered(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.folder.path().join("uploads"))
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().path())
            .collect()
    }
}

#[tokio::test]
async fn what_is_packed_anew_goes_on_from_the_parts_that_arrived() {
    let this = Packing::new();
    this.is_cut_off("jobs/a-222222/code/one", "1-a", 7).await;
    this.sends("jobs/a-222222/code/one", "2-a", 7).await;
    let bucket = this.server.bucket.lock().unwrap();
    assert_eq!((bucket.begun, bucket.open.len(), bucket.objects), (1, 0, 1));
    assert_eq!(bucket.parts_asked, [3].into(), "the one that had not arrived");
    assert!(this.remembered().is_empty());
}

/// Nobody names two contents alike; and if somebody did, no part of the one would get into the
/// other.
#[tokio::test]
async fn no_part_of_another_content_is_left_out() {
    let this = Packing::new();
    this.is_cut_off("jobs/a-222222/code/one", "1-a", 7).await;
    this.sends("jobs/a-222222/code/one", "2-a", 8).await;
    let bucket = this.server.bucket.lock().unwrap();
    assert_eq!((&bucket.parts_asked, bucket.objects), (&[1, 2, 3].into(), 1));
}

#[tokio::test]
async fn upload_under_another_name_takes_back_the_one_cut_off() {
    let this = Packing::new();
    this.is_cut_off("jobs/a-222222/code/one", "1-a", 7).await;
    this.sends("jobs/b-222222/code/two", "1-b", 8).await;
    assert_eq!(this.server.bucket.lock().unwrap().open.len(), 1, "another job's is its own affair");
    this.sends("jobs/a-222222/code/two", "2-a", 8).await;
    assert_eq!(
        this.server.bucket.lock().unwrap().open.len(),
        0,
        "nobody sends the workdir as it was"
    );
    assert!(this.remembered().is_empty());
}

#[tokio::test]
async fn what_nobody_came_back_to_for_a_week_is_taken_back() {
    let this = Packing::new();
    this.is_cut_off("jobs/a-222222/code/one", "1-a", 7).await;
    let record = this.remembered().pop().expect("how far it is is remembered");
    let day = Duration::from_secs(86_400);
    for (age, left) in [(6 * day, 1), (8 * day, 0)] {
        std::fs::File::options()
            .append(true)
            .open(&record)
            .unwrap()
            .set_modified(SystemTime::now() - age)
            .unwrap();
        this.sends("jobs/b-222222/code/two", "1-b", 8).await;
        assert_eq!(
            (this.server.bucket.lock().unwrap().open.len(), this.remembered().len()),
            (left, left),
            "{age:?}"
        );
    }
}

/// Whoever waits sees what is there, not what this process has sent.
#[tokio::test]
async fn what_had_arrived_counts_as_sent() {
    let this = Packing::new();
    this.is_cut_off("jobs/a-222222/code/one", "1-a", 7).await;
    this.server.bucket.lock().unwrap().broken_from = Some(3);
    let (packed, sent) = (this.pack("2-a", 7), Arrival::default());
    this.store().put_file_counted("jobs/a-222222/code/one", &packed, &sent).await.unwrap_err();
    assert_eq!(sent.so_far(), (PART as u64 * 2, PART as u64 * 2));
    sent.begins();
    this.server.bucket.lock().unwrap().broken_from = None;
    this.store().put_file_counted("jobs/a-222222/code/one", &packed, &sent).await.unwrap();
    assert_eq!(
        sent.so_far(),
        (PART as u64 * 2 + 5, PART as u64 * 2),
        "what comes now is told from what was there"
    );
}

/// A store that has lost a part refuses to make one of them, with a 400, at each further try.
#[tokio::test]
async fn what_the_bucket_cannot_put_together_is_begun_anew() {
    let this = Packing::new();
    this.is_cut_off("jobs/a-222222/code/one", "1-a", 7).await;
    this.server.bucket.lock().unwrap().open[0].1.remove(&1);
    let packed = this.pack("2-a", 7);
    this.store().put_file("jobs/a-222222/code/one", &packed).await.unwrap_err();
    assert_eq!(
        (this.server.bucket.lock().unwrap().open.len(), this.remembered().len()),
        (0, 0),
        "nobody meets it once more"
    );
    this.server.bucket.lock().unwrap().parts_asked.clear();
    this.store().put_file("jobs/a-222222/code/one", &packed).await.unwrap();
    let bucket = this.server.bucket.lock().unwrap();
    assert_eq!((&bucket.parts_asked, bucket.objects), (&[1, 2, 3].into(), 1));
}
