//! Uploads that the bucket ended by its own rule, before they were whole: further parts are
//! answered with `NoSuchUpload`.
//!
//! Against a false bucket, because moto answers 500 where S3 says 404 and the name of the error.

use std::collections::BTreeSet;
use std::io::BufReader;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use lamplighter::adapters::store::open;
use lamplighter::ports::{Store, StoreError};

use lamp_test_support::ec2::http::{Answer, Request};

pub(crate) const PART: usize = 8 * 1024 * 1024;

/// Uploads that are open, with the numbers of their parts that arrived; and how often something was
/// asked.
#[derive(Default)]
pub(crate) struct Bucket {
    pub(crate) begun: usize,
    pub(crate) open: Vec<(String, BTreeSet<usize>)>,
    /// From this part on, nothing arrives, and nothing becomes whole.
    pub(crate) broken_from: Option<usize>,
    pub(crate) parts_asked: BTreeSet<usize>,
    pub(crate) objects: usize,
}

/// A bucket that knows nothing but uploads in parts.
pub(crate) struct FalseBucket {
    pub(crate) endpoint: String,
    pub(crate) bucket: Arc<Mutex<Bucket>>,
}

impl FalseBucket {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let this = FalseBucket {
            endpoint: format!("http://{}", listener.local_addr().unwrap()),
            bucket: Arc::default(),
        };
        let bucket = Arc::clone(&this.bucket);
        // Ends with the test's process: it waits for a connection that never comes.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let bucket = Arc::clone(&bucket);
                std::thread::spawn(move || serve(stream, &bucket));
            }
        });
        this
    }

    fn store(&self, uploads: &Path) -> Arc<dyn Store> {
        let settings = [
            ("aws_endpoint_url", &*self.endpoint),
            ("aws_region", "us-east-1"),
            ("aws_access_key_id", "test"),
            ("aws_secret_access_key", "test"),
        ];
        open::open_with_credentials("s3://jobs/root", &settings, uploads).unwrap().0
    }
}

fn serve(stream: TcpStream, bucket: &Mutex<Bucket>) {
    let mut stream = BufReader::new(stream);
    while let Ok(Some(request)) = Request::read(&mut stream) {
        let answer = bucket.lock().unwrap().answer(&request);
        if answer.write(stream.get_mut(), false, "Sat, 21 Nov 2026 12:00:00 GMT").is_err() {
            return;
        }
    }
}

impl Bucket {
    fn answer(&mut self, request: &Request) -> Answer {
        let asked = |name: &str| {
            let query = request.target.split_once('?').map_or("", |(_, query)| query);
            query
                .split('&')
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
                .map(str::to_owned)
        };
        let id = asked("uploadId").unwrap_or_default();
        let Some(at) = self.open.iter().position(|(open, _)| *open == id) else {
            if id.is_empty() && request.method == "POST" {
                self.begun += 1;
                let id = format!("upload-{}", self.begun);
                self.open.push((id.clone(), BTreeSet::new()));
                return xml(
                    200,
                    &format!(
                        "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
                    ),
                );
            }
            self.parts_asked
                .extend(asked("partNumber").and_then(|number| number.parse::<usize>().ok()));
            let why = "The specified multipart upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed.";
            return xml(
                404,
                &format!(
                    "<Error><Code>NoSuchUpload</Code><Message>{why}</Message><UploadId>{id}</UploadId></Error>"
                ),
            );
        };
        match (
            &*request.method,
            asked("partNumber").and_then(|number| number.parse::<usize>().ok()),
        ) {
            ("PUT", Some(number)) => {
                self.parts_asked.insert(number);
                if self.broken_from.is_some_and(|first| number >= first) {
                    return denied();
                }
                self.open[at].1.insert(number);
                let mut answer = Answer::new(200, "text/plain", "");
                answer
                    .headers
                    .push(("ETag".into(), format!("\"part-{number}-{}\"", request.body.len())));
                answer
            }
            ("POST", None) if self.broken_from.is_some() => denied(),
            ("POST", None)
                if !(1..=self.open[at].1.len()).all(|number| self.open[at].1.contains(&number)) =>
            {
                let why = "One or more of the specified parts could not be found. The part might not have been uploaded.";
                xml(
                    400,
                    &format!("<Error><Code>InvalidPart</Code><Message>{why}</Message></Error>"),
                )
            }
            ("POST", None) => {
                self.open.remove(at);
                self.objects += 1;
                xml(
                    200,
                    "<CompleteMultipartUploadResult><ETag>\"whole-1\"</ETag></CompleteMultipartUploadResult>",
                )
            }
            _ => {
                self.open.remove(at);
                Answer::new(204, "text/plain", "")
            }
        }
    }
}

fn denied() -> Answer {
    xml(403, "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")
}

fn xml(status: u16, body: &str) -> Answer {
    Answer::new(
        status,
        "application/xml",
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>{body}"),
    )
}

fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

/// `arrived` of its three parts are there when it ends the first time, and then the bucket gives it
/// up.
async fn given_up_after(arrived: usize) {
    let server = FalseBucket::start();
    let folder = tempfile::tempdir().unwrap();
    let (source, uploads) = (folder.path().join("model.pt"), folder.path().join("uploads"));
    std::fs::write(&source, vec![7; PART * 2 + 5]).unwrap();
    let store = server.store(&uploads);

    server.bucket.lock().unwrap().broken_from = Some(arrived + 1);
    store.put_file("model.pt", &source).await.unwrap_err();
    assert_eq!(std::fs::read_dir(&uploads).unwrap().count(), 1, "how far it is is remembered");
    {
        let mut bucket = server.bucket.lock().unwrap();
        assert_eq!(bucket.open.len(), 1);
        bucket.open.clear();
        (bucket.broken_from, bucket.parts_asked) = (None, BTreeSet::new());
    }

    let refused = store.put_file("model.pt", &source).await.unwrap_err();
    assert!(
        matches!(refused, StoreError::Unavailable { .. }),
        "a try that may be made again: {refused:?}"
    );
    assert!(chain(&refused).contains("NoSuchUpload"), "{}", chain(&refused));
    assert_eq!(
        std::fs::read_dir(&uploads).unwrap().count(),
        0,
        "it is forgotten, or each further try would meet the same"
    );

    server.bucket.lock().unwrap().parts_asked.clear();
    assert_eq!(store.put_file("model.pt", &source).await.unwrap().0, PART as u64 * 2 + 5);
    let bucket = server.bucket.lock().unwrap();
    assert_eq!(bucket.parts_asked, [1, 2, 3].into(), "none of the parts is there any more");
    assert_eq!((bucket.begun, bucket.open.len(), bucket.objects), (2, 0, 1));
    assert_eq!(std::fs::read_dir(&uploads).unwrap().count(), 0);
}

#[tokio::test]
async fn upload_that_the_bucket_gave_up_is_begun_anew() {
    given_up_after(1).await;
}

/// Only the last call meets it.
#[tokio::test]
async fn one_whose_parts_had_all_arrived_is_begun_anew() {
    given_up_after(3).await;
}

/// A file whose upload died after the first of its parts, and where it is remembered how far it
/// came.
async fn begun(server: &FalseBucket, folder: &tempfile::TempDir, name: &str) -> (PathBuf, PathBuf) {
    let (source, uploads) = (folder.path().join(name), folder.path().join("uploads"));
    std::fs::write(&source, vec![7; PART * 2 + 5]).unwrap();
    server.bucket.lock().unwrap().broken_from = Some(2);
    server.store(&uploads).put_file(name, &source).await.unwrap_err();
    server.bucket.lock().unwrap().broken_from = None;
    (source, uploads)
}

/// Two that send one file at once, each in its own process: the second remembers nothing, and does
/// not end the first one's upload.
#[tokio::test]
async fn upload_that_another_process_is_at_is_left_to_it() {
    let server = FalseBucket::start();
    let folder = tempfile::tempdir().unwrap();
    let (source, uploads) = begun(&server, &folder, "lamp-agent").await;

    let record = std::fs::read_dir(&uploads)
        .unwrap()
        .next()
        .expect("how far it is is remembered")
        .unwrap()
        .path();
    let first = std::fs::OpenOptions::new().append(true).open(&record).unwrap();
    first.try_lock().unwrap();
    assert_eq!(
        server.store(&uploads).put_file("lamp-agent", &source).await.unwrap().0,
        PART as u64 * 2 + 5
    );
    {
        let bucket = server.bucket.lock().unwrap();
        assert_eq!(
            (bucket.begun, bucket.open.len(), bucket.objects),
            (2, 1, 1),
            "one of its own, and the other's is open still"
        );
    }
    drop(first);
    assert_eq!(
        server.store(&uploads).put_file("lamp-agent", &source).await.unwrap().0,
        PART as u64 * 2 + 5
    );
    let bucket = server.bucket.lock().unwrap();
    assert_eq!(
        (bucket.begun, bucket.open.len(), bucket.objects),
        (2, 0, 2),
        "it goes on where it was"
    );
}

/// A process that is being started holds for a moment all that was open here, also the lock of an
/// upload that has just failed.
#[tokio::test]
async fn lock_released_within_moments_does_not_stop_the_upload() {
    let server = FalseBucket::start();
    let folder = tempfile::tempdir().unwrap();
    let (source, uploads) = begun(&server, &folder, "model.pt").await;
    let record = std::fs::read_dir(&uploads)
        .unwrap()
        .next()
        .expect("how far it is is remembered")
        .unwrap()
        .path();
    let held = std::fs::OpenOptions::new().append(true).open(&record).unwrap();
    held.try_lock().unwrap();
    let child = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(held);
    });
    assert_eq!(
        server.store(&uploads).put_file("model.pt", &source).await.unwrap().0,
        PART as u64 * 2 + 5
    );
    child.join().unwrap();
    let bucket = server.bucket.lock().unwrap();
    assert_eq!(
        (bucket.begun, bucket.open.len(), bucket.objects),
        (1, 0, 1),
        "it goes on where it was"
    );
}

/// A bucket with one file, whose second piece nobody gets for a while.
struct Breaking {
    /// How often each piece was asked for, by its first byte.
    asked: Mutex<Vec<usize>>,
    silent: usize,
}

impl Breaking {
    const BYTES: usize = PART * 2 + 5;

    fn start(silent: usize) -> (Arc<Breaking>, Arc<dyn Store>, tempfile::TempDir) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let this = Arc::new(Breaking { asked: Mutex::default(), silent });
        let bucket = Arc::clone(&this);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let bucket = Arc::clone(&bucket);
                std::thread::spawn(move || {
                    let mut stream = BufReader::new(stream);
                    while let Ok(Some(request)) = Request::read(&mut stream) {
                        let (is_head, answer) = (request.method == "HEAD", bucket.answer(&request));
                        if answer
                            .write(stream.get_mut(), is_head, "Sat, 21 Nov 2026 12:00:00 GMT")
                            .is_err()
                        {
                            return;
                        }
                    }
                });
            }
        });
        let settings = [
            ("aws_endpoint_url", &*endpoint),
            ("aws_region", "us-east-1"),
            ("aws_access_key_id", "test"),
            ("aws_secret_access_key", "test"),
        ];
        let folder = tempfile::tempdir().unwrap();
        let store = open::open_with_credentials(
            "s3://jobs/root",
            &settings,
            &folder.path().join("uploads"),
        )
        .unwrap()
        .0;
        (this, store, folder)
    }

    fn answer(&self, request: &Request) -> Answer {
        let range =
            request.header("range").strip_prefix("bytes=").and_then(|range| range.split_once('-'));
        let range = range
            .map(|(first, last)| (first.parse::<usize>().unwrap(), last.parse::<usize>().unwrap()));
        let (first, last) = range.unwrap_or((0, Breaking::BYTES - 1));
        if range.is_some() {
            let mut asked = self.asked.lock().unwrap();
            asked.push(first);
            if first == PART && asked.iter().filter(|from| **from == PART).count() <= self.silent {
                return xml(
                    503,
                    "<Error><Code>ServiceUnavailable</Code><Message>Reduce your request rate.</Message></Error>",
                );
            }
        }
        let mut answer = Answer::new(
            if range.is_some() { 206 } else { 200 },
            "text/plain",
            vec![7; last + 1 - first],
        );
        let bytes = (last + 1 - first).to_string();
        let headers = [
            ("ETag", "\"one\"".to_owned()),
            ("Last-Modified", "Sat, 21 Nov 2026 12:00:00 GMT".to_owned()),
            ("Content-Length", bytes),
        ];
        answer.headers.extend(headers.map(|(name, value)| (name.to_owned(), value)));
        answer.headers.extend(range.map(|_| {
            ("Content-Range".to_owned(), format!("bytes {first}-{last}/{}", Breaking::BYTES))
        }));
        answer
    }
}

/// The client's own tries are six.
#[tokio::test]
async fn download_that_breaks_goes_on_from_what_has_come() {
    let (bucket, store, folder) = Breaking::start(9);
    let to = folder.path().join("model.pt");
    let (bytes, _) = store.get_file("model.pt", &to).await.unwrap().expect("it is there");
    assert_eq!(
        (bytes, std::fs::metadata(&to).unwrap().len()),
        (Breaking::BYTES as u64, Breaking::BYTES as u64)
    );
    let asked = bucket.asked.lock().unwrap();
    let times = |first: usize| asked.iter().filter(|from| **from == first).count();
    assert_eq!((times(0), times(PART), times(2 * PART)), (1, 10, 1), "{asked:?}");
}
