//! The S3 store against moto, a server that is right about conditional puts.
//!
//! Skipped, in words, where `moto_server` is not installed (`pip install 'moto[server]'`).

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use lamplighter::adapters::store::open;
use lamplighter::ports::{Created, Lives, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use lamp_test_support::imds::{FalseImds, Reply};
use lamp_test_support::moto::{Moto, moto};

#[tokio::test]
async fn bucket_is_a_job_root() {
    let Some(moto) = moto() else { return };
    moto.bucket("jobs").await;
    let store = moto.open("s3://jobs/my/root/");
    assert_eq!(store.url(), "s3://jobs/my/root");

    assert_eq!(store.get("a/b").await.unwrap(), None);
    assert_eq!(store.list("a/").await.unwrap(), []);
    store.put("a/b", Bytes::from_static(b"one")).await.unwrap();
    store.put("a/b", Bytes::from_static(b"second")).await.unwrap();
    store.put("a/c/d", Bytes::from_static(b"x")).await.unwrap();
    store.put("ab/c", Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(store.get("a/b").await.unwrap().as_deref(), Some(&b"second"[..]));
    let listed: Vec<(String, u64)> =
        store.list("a/").await.unwrap().into_iter().map(|meta| (meta.key, meta.bytes)).collect();
    assert_eq!(listed, [("a/b".into(), 6), ("a/c/d".into(), 1)]);
    assert_eq!(store.children("a/").await.unwrap(), ["b", "c"]);
    assert_eq!(store.head("a/b").await.unwrap().unwrap().bytes, 6);
    assert_eq!(store.head("a/x").await.unwrap(), None);
    store.delete("a/b").await.unwrap();
    assert_eq!(store.get("a/b").await.unwrap(), None);

    one_of_sixteen_creators_wins(&store).await;
    files_go_there_and_back(&store).await;

    let nowhere = moto.open("s3://no-such-bucket/x");
    assert!(nowhere.put("k", Bytes::new()).await.is_err());
}

#[tokio::test]
async fn object_is_given_by_url_to_whoever_holds_it() {
    let Some(moto) = moto() else { return };
    moto.bucket("jobs").await;
    let store = moto.open("s3://jobs/root");
    let agent = Bytes::from(vec![7; 100_000]);
    store.put("agents/a b/lamp-agent", agent.clone()).await.unwrap();
    let lives = Lives { least: Duration::from_secs(1), most: Duration::from_secs(600) };
    let url = store
        .presign_get("agents/a b/lamp-agent", lives, None)
        .await
        .unwrap()
        .expect("S3 signs")
        .url;
    assert!(url.contains("X-Amz-Expires=600") && url.contains("X-Amz-Signature="), "{url}");
    let got = reqwest::get(&url).await.unwrap();
    assert_eq!((got.status().as_u16(), got.bytes().await.unwrap()), (200, agent));

    // For a machine that knows the store by another name: the host is part of what is signed.
    let other = store
        .presign_get("agents/a b/lamp-agent", lives, Some("http://10.0.0.7:9000"))
        .await
        .unwrap()
        .unwrap()
        .url;
    assert!(
        other.starts_with("http://10.0.0.7:9000/jobs/root/agents/a%20b/lamp-agent?"),
        "{other}"
    );

    let folder = tempfile::tempdir().unwrap();
    let folder = open::open(folder.path().to_str().unwrap()).unwrap();
    assert_eq!(folder.presign_get("a", lives, None).await.unwrap(), None);
}

/// The first file that a machine uploads may be its last save: what it knows of itself by then is
/// enough.
#[tokio::test]
async fn upload_with_known_credentials_needs_no_metadata_service() {
    let Some(moto) = moto() else { return };
    moto.bucket("jobs").await;
    let imds = FalseImds::default();
    imds.role("lamplighter-job");
    let settings = [
        ("aws_endpoint_url", &*moto.endpoint),
        ("aws_region", "us-east-1"),
        ("aws_metadata_endpoint", &imds.listen()),
    ];
    let store = open::open_with("s3://jobs/root", &settings).unwrap();
    store.put("attempt", Bytes::from_static(b"one")).await.unwrap();
    imds.storm(Some(Reply::Text(401, String::new())));
    let folder = tempfile::tempdir().unwrap();
    let weights = folder.path().join("weights");
    std::fs::write(&weights, "of a week").unwrap();
    store.put_file("checkpoint", &weights).await.unwrap();
    assert_eq!(store.get("checkpoint").await.unwrap().as_deref(), Some(&b"of a week"[..]));
    let lives = Lives { least: Duration::from_secs(1), most: Duration::from_secs(600) };
    let url = store
        .presign_get("checkpoint", lives, Some("http://10.0.0.7:9000"))
        .await
        .unwrap()
        .expect("S3 signs")
        .url;
    assert!(url.contains("ASIAMACHINE"), "{url}");
}

/// Stands before the server, sees which parts of files come by, and keeps one of them back for
/// ever.
struct Watch {
    endpoint: String,
    parts: Arc<Mutex<BTreeSet<usize>>>,
    held: Arc<AtomicUsize>,
}

impl Watch {
    async fn before(moto: &Moto, hold: usize) -> Watch {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let watch = Watch {
            endpoint: format!("http://{}", listener.local_addr().unwrap()),
            parts: Arc::default(),
            held: Arc::new(AtomicUsize::new(hold)),
        };
        let (to, parts, held) = (
            moto.endpoint.trim_start_matches("http://").to_owned(),
            watch.parts.clone(),
            watch.held.clone(),
        );
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass_on(client, to.clone(), parts.clone(), held.clone()));
            }
        });
        watch
    }

    fn open(&self, uploads: &Path) -> Arc<dyn Store> {
        let settings = [
            ("aws_endpoint_url", &*self.endpoint),
            ("aws_region", "us-east-1"),
            ("aws_access_key_id", "test"),
            ("aws_secret_access_key", "test"),
        ];
        open::open_with_credentials("s3://jobs/root", &settings, uploads).unwrap().0
    }

    fn seen(&self) -> BTreeSet<usize> {
        std::mem::take(&mut *self.parts.lock().unwrap())
    }
}

async fn pass_on(
    client: tokio::net::TcpStream,
    to: String,
    parts: Arc<Mutex<BTreeSet<usize>>>,
    held: Arc<AtomicUsize>,
) {
    let server = tokio::net::TcpStream::connect(to).await.unwrap();
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    let (mut buffer, mut seen) = (vec![0; 1 << 16], Vec::new());
    while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
        // A request line may come in two reads.
        seen.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&seen).into_owned();
        for found in text.split("partNumber=").skip(1) {
            let digits: String = found.chars().take_while(char::is_ascii_digit).collect();
            let Ok(number) = digits.parse() else { continue };
            parts.lock().unwrap().insert(number);
            if number == held.load(Ordering::Relaxed) {
                return std::future::pending().await;
            }
        }
        let kept = seen.len().saturating_sub(40);
        seen.drain(..kept);
        if to_server.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// How many parts are remembered of the one upload in this folder.
fn arrived(uploads: &Path) -> usize {
    let record = std::fs::read_dir(uploads).into_iter().flatten().flatten().next();
    let text = record
        .map(|record| std::fs::read_to_string(record.path()).unwrap_or_default())
        .unwrap_or_default();
    text.lines().count().saturating_sub(1)
}

async fn dies_in_the_middle(
    watch: &Watch,
    uploads: &Path,
    source: &Path,
    parts: usize,
    hashed: bool,
) {
    let (store, source) = (watch.open(uploads), source.to_owned());
    let upload = tokio::spawn(async move {
        let sent = if hashed {
            store.put_file("big", &source).await.map(|(bytes, _)| bytes)
        } else {
            store.put_file_unhashed("big", &source).await
        };
        sent.unwrap()
    });
    let until = std::time::Instant::now() + crate::workload::workload::LONG;
    while arrived(uploads) < parts {
        assert!(
            !upload.is_finished() && std::time::Instant::now() < until,
            "{} parts arrived",
            arrived(uploads)
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    upload.abort();
    // It is gone when nobody awaits it any more.
    assert!(upload.await.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn upload_that_dies_midway_resumes_from_the_parts_that_arrived() {
    let Some(moto) = moto() else { return };
    moto.bucket("jobs").await;
    let folder = tempfile::tempdir().unwrap();
    let (source, target, uploads) =
        (folder.path().join("source"), folder.path().join("target"), folder.path().join("uploads"));
    // Four parts, the last of them short.
    let mut body: Vec<u8> = (0..25 * 1024 * 1024_u32 + 5).map(|n| (n / 7) as u8).collect();
    std::fs::write(&source, &body).unwrap();
    let watch = Watch::before(&moto, 2).await;
    dies_in_the_middle(&watch, &uploads, &source, 3, true).await;
    watch.seen();

    // Another process: what has arrived is not sent again.
    watch.held.store(0, Ordering::Relaxed);
    let store = watch.open(&uploads);
    let sent = store.put_file("big", &source).await.unwrap();
    assert_eq!(watch.seen(), [2].into(), "the one that did not arrive");
    assert_eq!(store.get_file("big", &target).await.unwrap(), Some(sent));
    assert!(std::fs::read(&target).unwrap() == body);
    assert_eq!(
        std::fs::read_dir(&uploads).unwrap().count(),
        0,
        "nothing is remembered of what is whole"
    );

    // The file is another one by the time: what was begun is taken back, and nothing of it gets
    // into the new one.
    watch.held.store(2, Ordering::Relaxed);
    dies_in_the_middle(&watch, &uploads, &source, 3, true).await;
    watch.seen();
    watch.held.store(0, Ordering::Relaxed);
    body[0] ^= 1;
    std::fs::write(&source, &body).unwrap();
    let sent = watch.open(&uploads).put_file("big", &source).await.unwrap();
    assert_eq!(watch.seen(), [1, 2, 3, 4].into());
    assert_eq!(store.get_file("big", &target).await.unwrap(), Some(sent));
    assert!(std::fs::read(&target).unwrap() == body);
    let open = reqwest::get(format!("{}/jobs?uploads", moto.endpoint))
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(
        open.contains("ListMultipartUploadsResult") && !open.contains("<UploadId>"),
        "nothing is left behind: {open}"
    );
}

/// The file of outputs: its hash is kept nowhere, so it is not taken either.
#[tokio::test]
async fn upload_without_a_hash_resumes_unless_the_file_changed() {
    let Some(moto) = moto() else { return };
    moto.bucket("jobs").await;
    let folder = tempfile::tempdir().unwrap();
    let (source, target, uploads) =
        (folder.path().join("source"), folder.path().join("target"), folder.path().join("uploads"));
    let mut body: Vec<u8> = (0..25 * 1024 * 1024_u32 + 5).map(|n| (n / 7) as u8).collect();
    std::fs::write(&source, &body).unwrap();
    let watch = Watch::before(&moto, 3).await;
    for changed in [false, true] {
        watch.held.store(3, Ordering::Relaxed);
        dies_in_the_middle(&watch, &uploads, &source, 3, false).await;
        watch.seen();
        watch.held.store(0, Ordering::Relaxed);
        if changed {
            body[9_000_000] ^= 1;
            std::fs::write(&source, &body).unwrap();
        }
        let store = watch.open(&uploads);
        assert_eq!(store.put_file_unhashed("big", &source).await.unwrap(), body.len() as u64);
        assert_eq!(watch.seen(), if changed { [1, 2, 3, 4].into() } else { [3].into() });
        store.get_file("big", &target).await.unwrap().unwrap();
        assert!(std::fs::read(&target).unwrap() == body);
        assert_eq!(
            std::fs::read_dir(&uploads).unwrap().count(),
            0,
            "nothing is remembered of what is whole"
        );
    }
}

async fn one_of_sixteen_creators_wins(store: &Arc<dyn Store>) {
    let attempts = (0..16).map(|n| {
        let store = Arc::clone(store);
        tokio::spawn(
            async move { store.create("plan.json", Bytes::from(vec![n; 100])).await.unwrap() },
        )
    });
    let created = futures::future::join_all(attempts).await;
    assert_eq!(
        created.into_iter().filter(|created| *created.as_ref().unwrap() == Created::New).count(),
        1
    );
}

async fn files_go_there_and_back(store: &Arc<dyn Store>) {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("source"), folder.path().join("target"));
    // Three parts, the last one short; and a small file that goes up in one piece.
    for bytes in [17 * 1024 * 1024 + 5, 10] {
        let body: Vec<u8> = (0..bytes as u32).map(|n| (n / 7) as u8).collect();
        std::fs::write(&source, &body).unwrap();
        let sent = store.put_file("big", &source).await.unwrap();
        assert_eq!(sent.0, bytes as u64);
        assert_eq!(store.get_file("big", &target).await.unwrap(), Some(sent));
        assert_eq!(std::fs::read(&target).unwrap(), body);
    }
    assert_eq!(store.get_file("absent", &target).await.unwrap(), None);
}
