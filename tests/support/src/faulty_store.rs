//! A store in memory that fails as a real one does: down, hanging, denying, full, slow, and losing
//! replies.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use lamplighter::ports::{Clock, Created, ObjectMeta, Store, StoreError};
use sha2::{Digest, Sha256};

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// The call fails without effect.
    Down,
    /// The call takes effect, but returns an error.
    LostReply,
    /// It never answers.
    Hang,
    Denied,
    Full,
    /// This one object fails for ever.
    Unfit,
    /// A create answers that the object exists, but it does not. A 409 of S3, which asks for a
    /// retry, is read so.
    Conflict,
    /// It works, after this time.
    Slow(Duration),
    /// The call fails without effect after this time.
    TimedOut(Duration),
}

const CONFLICT: &str = "a conditional request is in progress";

struct Rule {
    /// Part of the key.
    part: String,
    fault: Fault,
    left: Option<u32>,
}

#[derive(Default)]
struct Inner {
    objects: BTreeMap<String, Bytes>,
    modified: BTreeMap<String, Timestamp>,
    rules: Vec<Rule>,
    torn: Vec<(String, &'static [u8])>,
    hidden: Vec<String>,
    /// Files that a power cut removes.
    unsettled: Vec<String>,
    /// Every write that took effect, in order.
    writes: Vec<(String, Bytes)>,
    calls: u32,
}

pub struct FaultyStore {
    inner: Mutex<Inner>,
    clock: Arc<dyn Clock>,
}

impl FaultyStore {
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(FaultyStore { inner: Mutex::default(), clock })
    }

    /// The next `times` calls (all, without a number) whose key contains `part` meet this fault.
    pub fn fault(&self, part: &str, fault: Fault, times: impl Into<Option<u32>>) {
        self.inner.lock().unwrap().rules.push(Rule {
            part: part.into(),
            fault,
            left: times.into(),
        });
    }

    pub fn mend(&self) {
        self.inner.lock().unwrap().rules.clear();
    }

    pub fn calls(&self) -> u32 {
        self.inner.lock().unwrap().calls
    }

    pub fn keys(&self, part: &str) -> Vec<String> {
        self.inner
            .lock()
            .unwrap()
            .objects
            .keys()
            .filter(|key| key.contains(part))
            .cloned()
            .collect()
    }

    pub fn object(&self, key: &str) -> Option<Bytes> {
        self.inner.lock().unwrap().objects.get(key).cloned()
    }

    /// Damages an object without a call.
    pub fn set(&self, key: &str, body: Option<&'static [u8]>) {
        let mut inner = self.inner.lock().unwrap();
        match body {
            Some(body) => inner.objects.insert(key.into(), Bytes::from_static(body)),
            None => inner.objects.remove(key),
        };
    }

    /// From now on, writes to keys containing `part` store this body.
    pub fn tear(&self, part: &str, body: &'static [u8]) {
        self.inner.lock().unwrap().torn.push((part.into(), body));
    }

    /// The power fails: files that were not made durable are lost.
    pub fn cut_power(&self) {
        let mut inner = self.inner.lock().unwrap();
        for key in std::mem::take(&mut inner.unsettled) {
            inner.objects.remove(&key);
        }
    }

    /// Listings omit keys that contain this.
    pub fn hide(&self, part: &str) {
        self.inner.lock().unwrap().hidden.push(part.into());
    }

    /// The bodies that were ever written to keys containing `part`, in order.
    pub fn writes(&self, part: &str) -> Vec<(String, Bytes)> {
        self.inner
            .lock()
            .unwrap()
            .writes
            .iter()
            .filter(|(key, _)| key.contains(part))
            .cloned()
            .collect()
    }

    /// Meets the faults; `Ok(true)`: do it and lose the reply.
    async fn meet(&self, act: &'static str, key: &str) -> Result<bool, StoreError> {
        let fault = {
            let mut inner = self.inner.lock().unwrap();
            inner.calls += 1;
            let rule = inner
                .rules
                .iter_mut()
                .find(|rule| key.contains(&rule.part) && rule.left != Some(0));
            rule.map(|rule| {
                rule.left = rule.left.map(|left| left - 1);
                rule.fault
            })
        };
        let (key, cause) = (key.to_owned(), "injected");
        match fault {
            None => Ok(false),
            Some(Fault::Down) => Err(StoreError::Unavailable { act, key, cause: cause.into() }),
            Some(Fault::Denied) => Err(StoreError::Denied { act, key, cause: cause.into() }),
            Some(Fault::Full) => Err(StoreError::Full { act, key, cause: cause.into() }),
            Some(Fault::Unfit) => Err(StoreError::Unfit { act, key, cause: cause.into() }),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::LostReply) => Ok(true),
            // `create` knows it; of any other call it is a failure.
            Some(Fault::Conflict) => {
                Err(StoreError::Unavailable { act, key, cause: CONFLICT.into() })
            }
            Some(Fault::Slow(time)) => {
                self.clock.sleep(time).await;
                Ok(false)
            }
            Some(Fault::TimedOut(time)) => {
                self.clock.sleep(time).await;
                Err(StoreError::Unavailable { act, key, cause: "the time was up".into() })
            }
        }
    }

    fn reply<T>(lost: bool, act: &'static str, key: &str, value: T) -> Result<T, StoreError> {
        if lost {
            Err(StoreError::Unavailable {
                act,
                key: key.into(),
                cause: "the reply was lost".into(),
            })
        } else {
            Ok(value)
        }
    }

    fn write(&self, key: &str, body: Bytes) {
        let mut inner = self.inner.lock().unwrap();
        let torn = inner
            .torn
            .iter()
            .find(|(part, _)| key.contains(part))
            .map(|(_, body)| Bytes::from_static(body));
        let body = torn.unwrap_or(body);
        inner.objects.insert(key.into(), body.clone());
        inner.modified.insert(key.into(), self.clock.now());
        inner.writes.push((key.into(), body));
    }
}

#[async_trait]
impl Store for FaultyStore {
    fn url(&self) -> String {
        "memory:///".into()
    }

    async fn get(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        let lost = self.meet("read", key).await?;
        Self::reply(lost, "read", key, self.object(key))
    }

    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>, StoreError> {
        self.meet("look at", key).await?;
        let inner = self.inner.lock().unwrap();
        let modified = inner.modified.get(key).copied().unwrap_or_default();
        Ok(inner.objects.get(key).map(|body| ObjectMeta {
            key: key.into(),
            bytes: body.len() as u64,
            modified,
        }))
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<(), StoreError> {
        let lost = self.meet("write", key).await?;
        self.write(key, body);
        Self::reply(lost, "write", key, ())
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created, StoreError> {
        let lost = match self.meet("create", key).await {
            Err(StoreError::Unavailable { cause, .. }) if cause.to_string() == CONFLICT => {
                return Ok(Created::Exists);
            }
            met => met?,
        };
        let created = if self.object(key).is_some() {
            Created::Exists
        } else {
            self.write(key, body);
            Created::New
        };
        Self::reply(lost, "create", key, created)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        self.meet("list", prefix).await?;
        let inner = self.inner.lock().unwrap();
        let under = inner.objects.iter().filter(|(key, _)| key.starts_with(prefix));
        let modified = |key| inner.modified.get(key).copied().unwrap_or_default();
        Ok(under
            .map(|(key, body)| ObjectMeta {
                key: key.clone(),
                bytes: body.len() as u64,
                modified: modified(key),
            })
            .collect())
    }

    async fn children(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.meet("list", prefix).await?;
        let inner = self.inner.lock().unwrap();
        let shown =
            inner.objects.keys().filter(|key| !inner.hidden.iter().any(|part| key.contains(part)));
        let mut names: Vec<String> = shown
            .filter_map(|key| Some(key.strip_prefix(prefix)?.split('/').next()?.to_owned()))
            .collect();
        names.dedup();
        Ok(names)
    }

    async fn put_file(&self, key: &str, path: &Path) -> Result<(u64, String), StoreError> {
        let unavailable = |cause: std::io::Error| StoreError::Unavailable {
            act: "upload",
            key: key.into(),
            cause: cause.into(),
        };
        let lost = self.meet("upload", key).await?;
        let body = std::fs::read(path).map_err(unavailable)?;
        let told = (body.len() as u64, sha256(&body));
        self.write(key, Bytes::from(body));
        Self::reply(lost, "upload", key, told)
    }

    async fn put_file_of_set(&self, key: &str, path: &Path) -> Result<(u64, String), StoreError> {
        let sent = self.put_file(key, path).await?;
        self.inner.lock().unwrap().unsettled.push(key.into());
        Ok(sent)
    }

    /// It meets the faults of the key `PREFIX` with `durable`. A failure loses the files, as a
    /// disk does.
    async fn make_durable(&self, prefix: &str) -> Result<(), StoreError> {
        self.meet("sync", &format!("{prefix}durable")).await.inspect_err(|_| self.cut_power())?;
        self.inner.lock().unwrap().unsettled.retain(|key| !key.starts_with(prefix));
        Ok(())
    }

    async fn get_file(&self, key: &str, path: &Path) -> Result<Option<(u64, String)>, StoreError> {
        let lost = self.meet("download", key).await?;
        let Some(body) = self.object(key) else { return Ok(None) };
        std::fs::write(path, &body).map_err(|cause| StoreError::Unavailable {
            act: "download",
            key: key.into(),
            cause: cause.into(),
        })?;
        Self::reply(lost, "download", key, Some((body.len() as u64, sha256(&body))))
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.meet("delete", key).await?;
        self.inner.lock().unwrap().objects.remove(key);
        Ok(())
    }
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
