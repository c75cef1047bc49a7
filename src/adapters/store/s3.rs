//! S3, and compatible stores, as a store of objects: `s3://bucket/prefix`.
//!
//! It reads the environment as AWS's tools do (`AWS_REGION`, `AWS_ENDPOINT_URL`,
//! `AWS_ACCESS_KEY_ID`, ... or the machine's role). Create-if-absent is `If-None-Match: *`. Large
//! files move in parts, a few at a time, so that memory is bounded and each request is short.
//! Profiles and single sign-on arrive as credentials (`aws::session`), because their
//! code is too large for the agent.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::TryStreamExt;
use jiff::Timestamp;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, AwsCredentialProvider};
use object_store::path::Path as Key;
use object_store::signer::Signer;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig};

use super::s3_download::{download, head, is_refused};
use super::s3_multipart::{Uploads, copy_in_parts};
use super::s3_upload_source::{UploadSource, generic};
use crate::adapters::host::system_clock::SystemClock;
use crate::adapters::workstation::hashed_file::Unreadable;
use crate::market::{Span, elapsed};
use crate::ports::{
    Arrival, Clock as _, Created, Lives, OBJECT_BYTES_MAX, ObjectMeta, SignedUrl, Store,
    StoreError, chain,
};

/// The most that S3 copies in one call.
const COPY_BYTES_MAX: u64 = 5 << 30;

/// The longest key of S3.
const KEY_BYTES_MAX: usize = 1024;

/// How long one call may repeat inside the client. The loops above repeat anyway and must learn of
/// a failure soon. If this is longer, a heartbeat waits behind a dead line. If it is shorter, one
/// slow answer looks like an outage.
const RETRY_TIME_MAX: Duration = Duration::from_secs(20);

/// The end of the credentials. A link that they signed expires with them, even if it says a later
/// time.
#[async_trait]
pub trait CredentialExpiry: Send + Sync {
    /// When the credentials expire. If they last for less than `needed`, new ones are fetched
    /// first. `None`: they never expire.
    async fn lasting(&self, needed: Duration) -> Result<Option<Timestamp>, Error>;
}

pub struct S3Store {
    s3: AmazonS3,
    /// The client for bodies of files. Signing each part would compute SHA-256 a second time, half
    /// of the CPU time of an upload. TLS protects the bodies, or they stay on this machine.
    files: AmazonS3,
    /// Builds a client of another endpoint.
    builder: AmazonS3Builder,
    uploads: Uploads,
    ending: Option<Arc<dyn CredentialExpiry>>,
    bucket: String,
    /// Empty, or a path without slashes at its ends.
    prefix: String,
}

/// Installs the only cryptography provider of this process, before the first client is made:
/// reqwest is built without one.
pub fn install_crypto() {
    static ONCE: Once = Once::new();
    // An error means that a provider is installed already.
    ONCE.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
}

impl S3Store {
    /// `settings` and `credentials` override the environment.
    ///
    /// # Errors
    /// If settings in the environment are missing or contradict each other.
    pub fn open(
        bucket: &str,
        prefix: &str,
        settings: &[(AmazonS3ConfigKey, &str)],
        credentials: Option<AwsCredentialProvider>,
    ) -> Result<Self, Error> {
        install_crypto();
        let builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
        let builder = settings
            .iter()
            .fold(builder, |builder, (key, value)| builder.with_config(*key, *value));
        let builder = credentials.into_iter().fold(builder, AmazonS3Builder::with_credentials);
        let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint).unwrap_or_default();
        let plain_http = endpoint.starts_with("http://");
        // A part must get through a line of 1 Mbit/s; the default of 30 s is too short for that.
        let options = crate::adapters::aws::ca_bundle::options()
            .with_timeout(Duration::from_secs(120))
            .with_connect_timeout(Duration::from_secs(10));
        let retry =
            RetryConfig { max_retries: 5, retry_timeout: RETRY_TIME_MAX, ..RetryConfig::default() };
        // With single deletes, a forbidden one returns a 403. In a bulk delete it would be a line
        // in a successful answer.
        let builder = builder
            .with_client_options(options.with_allow_http(plain_http))
            .with_retry(retry)
            .with_disable_bulk_delete(true);
        let s3 = builder.clone().build()?;
        // All clients share these credentials. Otherwise each would ask the metadata service; the
        // first upload may be the last save, when that service does not answer.
        let builder = builder.with_credentials(Arc::clone(s3.credentials()));
        // On plain HTTP, only the signature protects a body against changes.
        let files =
            builder.clone().with_unsigned_payload(!plain_http || is_here(&endpoint)).build()?;
        Ok(S3Store {
            s3,
            files,
            builder,
            uploads: Uploads::default(),
            ending: None,
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        })
    }

    /// Records the progress of large uploads, so that they survive the end of this process.
    pub(crate) fn remembering(mut self, uploads: Uploads) -> Self {
        self.uploads = uploads;
        self
    }

    /// Tells the store when its credentials expire.
    #[must_use]
    pub fn ending(mut self, ending: Arc<dyn CredentialExpiry>) -> Self {
        self.ending = Some(ending);
        self
    }

    pub fn credentials(&self) -> AwsCredentialProvider {
        Arc::clone(self.s3.credentials())
    }

    fn key(&self, key: &str) -> Result<Key, Error> {
        let key = key.trim_end_matches('/');
        let full =
            if self.prefix.is_empty() { key.to_owned() } else { format!("{}/{key}", self.prefix) };
        let key = Key::parse(full.trim_end_matches('/'))?;
        if key.as_ref().len() > KEY_BYTES_MAX {
            let text = format!("its name in the bucket is longer than {KEY_BYTES_MAX} bytes");
            return Err(generic(io::Error::new(io::ErrorKind::InvalidFilename, text)));
        }
        Ok(key)
    }

    /// Our key for a key in the bucket.
    fn own(&self, key: &Key) -> Option<String> {
        let text = key.as_ref();
        if self.prefix.is_empty() {
            Some(text.to_owned())
        } else {
            Some(text.strip_prefix(&self.prefix)?.strip_prefix('/')?.to_owned())
        }
    }

    fn meta(&self, found: &object_store::ObjectMeta) -> Option<ObjectMeta> {
        let modified = Timestamp::from_millisecond(found.last_modified.timestamp_millis()).ok()?;
        Some(ObjectMeta { key: self.own(&found.location)?, bytes: found.size, modified })
    }

    /// Returns the size, and the hash if it is asked for.
    async fn upload(
        &self,
        key: &str,
        path: &Path,
        hashed: bool,
        sent: &Arrival,
    ) -> Result<(u64, Option<String>), Error> {
        let key = self.key(key)?;
        let (source, first) =
            UploadSource::open(path, hashed).map_err(generic)?.next(&self.uploads.buffers).await?;
        if source.at_end() || (first.len() as u64) < source.part_bytes {
            sent.bytes.fetch_add(
                self.files.put(&key, first.into()).await.map(|_| source.bytes)?,
                Ordering::Relaxed,
            );
            return Ok((source.bytes, source.so_far()));
        }
        self.uploads.send(&self.files, &key, path, source, first, sent).await
    }
}

#[async_trait]
impl Store for S3Store {
    fn url(&self) -> String {
        format!("s3://{}/{}", self.bucket, self.prefix).trim_end_matches('/').to_owned()
    }

    // The client calls one region, and S3 refuses calls to another one.
    fn region(&self) -> Option<String> {
        self.builder.get_config_value(&AmazonS3ConfigKey::Region)
    }

    async fn get(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        self.get_at_most(key, OBJECT_BYTES_MAX).await
    }

    async fn get_at_most(&self, key: &str, bytes_max: u64) -> Result<Option<Bytes>, StoreError> {
        let read = async {
            let found = self.s3.get(&self.key(key)?).await?;
            // The length arrives before the body.
            if found.meta.size > bytes_max { Ok(None) } else { found.bytes().await.map(Some) }
        };
        match absent_is_none(read.await).map_err(|error| failed("read", key, error))? {
            Some(None) => Err(StoreError::too_large(key, bytes_max)),
            found => Ok(found.flatten()),
        }
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<(), StoreError> {
        let write = async { self.s3.put(&self.key(key)?, body.into()).await };
        write.await.map(|_| ()).map_err(|error| failed("write", key, error))
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created, StoreError> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let write = async { self.s3.put_opts(&self.key(key)?, body.into(), options).await };
        match write.await {
            Ok(_) => Ok(Created::New),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(Created::Exists),
            Err(error) => Err(failed("create", key, error)),
        }
    }

    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>, StoreError> {
        let read = async { head(&self.s3, &self.key(key)?).await };
        let found = absent_is_none(read.await).map_err(|error| failed("look at", key, error))?;
        Ok(found.and_then(|found| self.meta(&found)))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        let read = async { self.s3.list(Some(&self.key(prefix)?)).try_collect::<Vec<_>>().await };
        let found = read.await.map_err(|error| failed("list", prefix, error))?;
        let mut found: Vec<ObjectMeta> = found.iter().filter_map(|meta| self.meta(meta)).collect();
        found.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        Ok(found)
    }

    async fn children(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let read = async { self.s3.list_with_delimiter(Some(&self.key(prefix)?)).await };
        let found = read.await.map_err(|error| failed("list", prefix, error))?;
        let keys =
            found.common_prefixes.iter().chain(found.objects.iter().map(|meta| &meta.location));
        let mut names: Vec<String> =
            keys.filter_map(|key| key.filename().map(str::to_owned)).collect();
        names.sort_unstable();
        Ok(names)
    }

    async fn children_after(&self, prefix: &str, after: &str) -> Result<Vec<String>, StoreError> {
        if after.is_empty() {
            return self.children(prefix).await;
        }
        let read = async {
            let (folder, offset) = (self.key(prefix)?, self.key(&format!("{prefix}{after}"))?);
            self.s3.list_with_offset(Some(&folder), &offset).try_collect::<Vec<_>>().await
        };
        let found = read.await.map_err(|error| failed("list", prefix, error))?;
        let own = found.iter().filter_map(|meta| self.own(&meta.location));
        let mut names: Vec<String> = own
            .filter_map(|key| Some(key.strip_prefix(prefix)?.to_owned()))
            .filter(|name| !name.contains('/'))
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    async fn put_file(&self, key: &str, path: &Path) -> Result<(u64, String), StoreError> {
        self.put_file_counted(key, path, &Arrival::default()).await
    }

    async fn put_file_counted(
        &self,
        key: &str,
        path: &Path,
        sent: &Arrival,
    ) -> Result<(u64, String), StoreError> {
        let (bytes, sha256) = self
            .upload(key, path, true, sent)
            .await
            .map_err(|error| failed("upload", key, error))?;
        Ok((bytes, sha256.expect("it was asked for")))
    }

    async fn put_file_unhashed(&self, key: &str, path: &Path) -> Result<u64, StoreError> {
        self.upload(key, path, false, &Arrival::default())
            .await
            .map(|(bytes, _)| bytes)
            .map_err(|error| failed("upload", key, error))
    }

    async fn get_file(&self, key: &str, path: &Path) -> Result<Option<(u64, String)>, StoreError> {
        self.get_file_counted(key, path, &Arc::default()).await
    }

    async fn get_file_counted(
        &self,
        key: &str,
        path: &Path,
        come: &Arc<AtomicU64>,
    ) -> Result<Option<(u64, String)>, StoreError> {
        async { download(&self.s3, &self.key(key)?, path, come).await }
            .await
            .map_err(|error| failed("download", key, error))
    }

    async fn presign_get(
        &self,
        key: &str,
        lives: Lives,
        endpoint: Option<&str>,
    ) -> Result<Option<SignedUrl>, StoreError> {
        let act = "sign a URL for";
        let ends = match &self.ending {
            Some(ending) => {
                ending.lasting(lives.least).await.map_err(|error| failed(act, key, error))?
            }
            None => None,
        };
        let now = SystemClock.now();
        let left = ends.map_or(lives.most, |ends| elapsed(now, ends));
        if left < lives.least {
            return Err(StoreError::ShortLived {
                left: Span::from_secs(left.as_secs()),
                needed: Span::from_duration(lives.least),
            });
        }
        let valid = Duration::from_secs(left.min(lives.most).as_secs());
        let sign = async {
            // The host is part of the signature.
            let elsewhere = endpoint
                .map(|endpoint| self.builder.clone().with_endpoint(endpoint).build())
                .transpose()?;
            elsewhere
                .as_ref()
                .unwrap_or(&self.s3)
                .signed_url(reqwest::Method::GET, &self.key(key)?, valid)
                .await
        };
        let url = sign.await.map_err(|error| failed(act, key, error))?;
        let region = self.builder.get_config_value(&AmazonS3ConfigKey::Region);
        Ok(Some(SignedUrl {
            url: url.into(),
            until: now.saturating_add(valid).unwrap_or(Timestamp::MAX),
            region,
        }))
    }

    async fn copy(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let copied = async {
            let (from, to) = (self.key(from)?, self.key(to)?);
            let size = head(&self.s3, &from).await?.size;
            if size > COPY_BYTES_MAX {
                copy_in_parts(&self.s3, &from, &to, size).await
            } else {
                self.s3.copy(&from, &to).await
            }
        };
        copied.await.map_err(|error| failed("copy", from, error))
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let remove = async { self.s3.delete(&self.key(key)?).await };
        absent_is_none(remove.await).map(|_| ()).map_err(|error| failed("delete", key, error))
    }
}

/// Whether a plain HTTP server is on this machine.
fn is_here(endpoint: &str) -> bool {
    let host = endpoint.trim_start_matches("http://").split('/').next().unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name == "localhost"
        || name
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

fn absent_is_none<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// S3 refuses a request whose time is 15 minutes off, with a 403 as for a missing permission
/// (RequestTimeTooSkewed). The permission is there, and the clock will be set.
const TOO_SKEWED: &str = "RequestTimeTooSkewed";

fn failed(act: &'static str, key: &str, error: Error) -> StoreError {
    let key = key.to_owned();
    if matches!(error, Error::InvalidPath { .. }) {
        return StoreError::Unfit { act, key, cause: error.into() };
    }
    if is_refused(&error) && !chain(&error).contains(TOO_SKEWED) {
        return StoreError::Denied { act, key, cause: error.into() };
    }
    let io = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<io::Error>());
    match io.map(io::Error::kind) {
        _ if io.is_some_and(Unreadable::is) => StoreError::Unfit { act, key, cause: error.into() },
        Some(io::ErrorKind::InvalidFilename) => StoreError::Unfit { act, key, cause: error.into() },
        Some(io::ErrorKind::StorageFull) => StoreError::Full { act, key, cause: error.into() },
        // A local file or folder, which the store cannot repair.
        Some(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
            StoreError::Denied { act, key, cause: error.into() }
        }
        _ => StoreError::Unavailable { act, key, cause: error.into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FixedExpiry(Option<Timestamp>);

    #[async_trait]
    impl CredentialExpiry for FixedExpiry {
        async fn lasting(&self, _needed: Duration) -> Result<Option<Timestamp>, Error> {
            Ok(self.0)
        }
    }

    /// A link expires with the credentials that signed it. If that is too soon, signing fails.
    #[tokio::test]
    async fn signed_url_ends_with_the_credentials() {
        let settings = [
            (AmazonS3ConfigKey::AccessKeyId, "a"),
            (AmazonS3ConfigKey::SecretAccessKey, "b"),
            (AmazonS3ConfigKey::Region, "us-east-1"),
        ];
        let store = |left: Option<u64>| {
            let ends = left.map(|left| SystemClock.now() + Duration::from_secs(left));
            S3Store::open("bucket", "", &settings, None)
                .unwrap()
                .ending(Arc::new(FixedExpiry(ends)))
        };
        let lives = Lives { least: Duration::from_secs(1000), most: Duration::from_secs(86_400) };
        let signed = async |left| store(left).presign_get("a", lives, None).await;
        let forever = signed(None).await.unwrap().unwrap();
        assert!(forever.url.contains("X-Amz-Expires=86400&"), "{}", forever.url);
        let hour = signed(Some(3600)).await.unwrap().unwrap();
        let left = elapsed(SystemClock.now(), hour.until).as_secs();
        assert!(
            (3500..=3600).contains(&left) && !hour.url.contains("X-Amz-Expires=86400"),
            "{left} s: {}",
            hour.url
        );
        let short = signed(Some(40)).await.unwrap_err();
        assert!(
            matches!(short, StoreError::ShortLived { needed, .. } if needed == Span::from_secs(1000)),
            "{short}"
        );
    }

    /// Calls a bucket that refuses every request with this code, and returns the result and the
    /// request.
    async fn forbidden<T>(code: &'static str, ask: impl AsyncFnOnce(S3Store) -> T) -> (T, String) {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", server.local_addr().unwrap());
        let settings = [
            (AmazonS3ConfigKey::AccessKeyId, "a"),
            (AmazonS3ConfigKey::SecretAccessKey, "b"),
            (AmazonS3ConfigKey::Region, "us-east-1"),
            (AmazonS3ConfigKey::Endpoint, endpoint.as_str()),
        ];
        let store = S3Store::open("bucket", "jobs", &settings, None).unwrap();
        let (tell, mut told) = tokio::sync::mpsc::channel(8);
        let answers = tokio::spawn(async move {
            while let Ok((mut line, _)) = server.accept().await {
                let mut asked = vec![0; 4096];
                let read = tokio::io::AsyncReadExt::read(&mut line, &mut asked).await.unwrap();
                let asked = String::from_utf8_lossy(&asked[..read]).into_owned();
                let body = format!("<Error><Code>{code}</Code><Message>no</Message></Error>");
                // As S3 answers a HEAD.
                let body = if asked.starts_with("HEAD") { String::new() } else { body };
                let text = format!(
                    "HTTP/1.1 403 Forbidden\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                tell.send(asked).await.unwrap();
                tokio::io::AsyncWriteExt::write_all(&mut line, text.as_bytes()).await.unwrap();
            }
        });
        let came = ask(store).await;
        answers.abort();
        (came, told.recv().await.unwrap())
    }

    /// In a bulk delete, S3 says it in the body of a 200.
    #[tokio::test]
    async fn delete_that_is_forbidden_is_denied() {
        let (deleted, asked) =
            forbidden("AccessDenied", async |store| store.delete("news/a").await).await;
        assert!(asked.starts_with("DELETE /bucket/jobs/news/a "), "{asked}");
        assert!(matches!(deleted, Err(StoreError::Denied { .. })), "{deleted:?}");
    }

    /// An agent gives a machine up that may not read its job, after ten minutes; a clock that is an
    /// hour off is set right before long.
    #[tokio::test]
    async fn request_that_is_dated_too_far_off_lacks_no_permission() {
        for (code, denied) in [("AccessDenied", true), (TOO_SKEWED, false)] {
            let (read, _) = forbidden(code, async |store| store.get("a").await.map(drop)).await;
            let (written, _) =
                forbidden(code, async |store| store.put("a", Bytes::from_static(b"1")).await).await;
            let (seen, _) = forbidden(code, async |store| store.head("a").await.map(drop)).await;
            let folder = tempfile::tempdir().unwrap();
            let (fetched, _) = forbidden(code, async |store| {
                store.get_file("a", &folder.path().join("a")).await.map(drop)
            })
            .await;
            let (listed, _) = forbidden(code, async |store| store.list("").await.map(drop)).await;
            let (copied, _) = forbidden(code, async |store| store.copy("a", "b").await).await;
            for told in [read, written, seen, fetched, listed, copied] {
                assert_eq!(
                    matches!(told, Err(StoreError::Denied { .. })),
                    denied,
                    "{code}: {told:?}"
                );
                assert_eq!(
                    matches!(told, Err(StoreError::Unavailable { .. })),
                    !denied,
                    "{code}: {told:?}"
                );
            }
        }
    }

    #[tokio::test]
    async fn name_that_no_bucket_takes_is_unfit() {
        let settings = [
            (AmazonS3ConfigKey::AccessKeyId, "a"),
            (AmazonS3ConfigKey::SecretAccessKey, "b"),
            (AmazonS3ConfigKey::Region, "us-east-1"),
        ];
        let store = S3Store::open("bucket", "jobs", &settings, None).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        for key in ["a\nb".to_owned(), "a/\u{7f}".to_owned(), "n/".repeat(600)] {
            let sent = store.put_file(&key, file.path()).await;
            assert!(matches!(sent, Err(StoreError::Unfit { .. })), "{key:?}: {sent:?}");
        }
    }

    #[test]
    fn plain_http_payload_is_unsigned_only_on_this_machine() {
        for here in
            ["http://127.0.0.1:5000", "http://localhost/", "http://[::1]:9000", "http://127.1.2.3"]
        {
            assert!(is_here(here), "{here}");
        }
        for elsewhere in [
            "http://192.168.1.2:9000",
            "http://minio.local:9000",
            "http://localhost.example:80",
            "http://[fd00::1]:9000",
            "",
        ] {
            assert!(!is_here(elsewhere), "{elsewhere}");
        }
    }
}
