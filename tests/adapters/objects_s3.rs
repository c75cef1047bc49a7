//! The S3 store against moto, a server that is right about conditional puts.
//!
//! Skipped, in words, where `moto_server` is not installed (`pip install 'moto[server]'`).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lamplighter::adapters::objects;
use lamplighter::ports::{Created, Store};

use crate::moto::{Moto, moto};

impl Moto {
    pub fn open(&self, url: &str) -> Arc<dyn Store> {
        let settings =
            [("aws_endpoint_url", &*self.endpoint), ("aws_region", "us-east-1"), ("aws_access_key_id", "test"), ("aws_secret_access_key", "test")];
        objects::open_with(url, &settings).unwrap()
    }

    /// Creates the bucket, which needs no more than a PUT.
    pub async fn bucket(&self, name: &str) {
        objects::install_crypto();
        let made = reqwest::Client::new().put(format!("{}/{name}", self.endpoint)).send().await.unwrap();
        assert!(made.status().is_success());
    }
}

#[tokio::test]
async fn a_bucket_is_a_job_root() {
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
    let listed: Vec<(String, u64)> = store.list("a/").await.unwrap().into_iter().map(|meta| (meta.key, meta.bytes)).collect();
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
async fn an_object_is_given_by_url_to_whoever_holds_it() {
    let Some(moto) = moto() else { return };
    moto.bucket("jobs").await;
    let store = moto.open("s3://jobs/root");
    let agent = Bytes::from(vec![7; 100_000]);
    store.put("agents/a b/lamp-agent", agent.clone()).await.unwrap();
    let url = store.presign_get("agents/a b/lamp-agent", Duration::from_secs(600), None).await.unwrap().expect("S3 signs");
    assert!(url.contains("X-Amz-Expires=600") && url.contains("X-Amz-Signature="), "{url}");
    let got = reqwest::get(&url).await.unwrap();
    assert_eq!((got.status().as_u16(), got.bytes().await.unwrap()), (200, agent));

    // For a machine that knows the store by another name: the host is part of what is signed.
    let other = store.presign_get("agents/a b/lamp-agent", Duration::from_secs(600), Some("http://10.0.0.7:9000")).await.unwrap().unwrap();
    assert!(other.starts_with("http://10.0.0.7:9000/jobs/root/agents/a%20b/lamp-agent?"), "{other}");

    let folder = tempfile::tempdir().unwrap();
    let folder = objects::open(folder.path().to_str().unwrap()).unwrap();
    assert_eq!(folder.presign_get("a", Duration::from_secs(1), None).await.unwrap(), None);
}

async fn one_of_sixteen_creators_wins(store: &Arc<dyn Store>) {
    let attempts = (0..16).map(|n| {
        let store = Arc::clone(store);
        tokio::spawn(async move { store.create("plan.json", Bytes::from(vec![n; 100])).await.unwrap() })
    });
    let created = futures::future::join_all(attempts).await;
    assert_eq!(created.into_iter().filter(|created| *created.as_ref().unwrap() == Created::New).count(), 1);
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
