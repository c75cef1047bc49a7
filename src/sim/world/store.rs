//! The simulated object store. It fails, loses replies after the effect, and lists late. Each party
//! has its own line to it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::active_faults::WorldFault;
use super::disk::MemoryDisk;
use super::world::{Deed, World};
use crate::ports::{Created, Files, ObjectMeta, Store, StoreError};
use crate::sim::faults::planted_bugs::{self, Bug};

/// How long a new object may be missing in a listing while listings are stale.
const LISTED_AFTER: Duration = Duration::from_secs(30);

/// How long a call waits for an answer.
const TIMES_OUT: Duration = Duration::from_secs(90);

/// How long after it was sent an unanswered write may still take effect. S3 does not order
/// concurrent writes, and a request on its way continues after its sender gave up.
const LANDS_WITHIN: Duration = Duration::from_secs(180);

/// The writer of a late write, in the trace.
pub const LATE: &str = "nobody, late";

#[derive(Default)]
pub struct Objects(Mutex<BTreeMap<String, Object>>);

struct Object {
    body: Bytes,
    modified: Timestamp,
    born: Duration,
}

impl Objects {
    pub fn body(&self, key: &str) -> Option<Bytes> {
        self.lock().get(key).map(|object| object.body.clone())
    }

    /// When an object was last written.
    pub fn born(&self, key: &str) -> Option<Duration> {
        self.lock().get(key).map(|object| object.born)
    }

    pub fn clear(&self) {
        self.lock().clear();
    }

    /// When the first object with this end of its key was written after a moment.
    pub fn born_after(&self, end: &str, moment: Duration) -> Option<Duration> {
        self.lock()
            .iter()
            .filter(|(key, _)| key.ends_with(end))
            .map(|(_, object)| object.born)
            .filter(|born| *born > moment)
            .min()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Object>> {
        self.0.lock().expect("the lock is not poisoned")
    }
}

/// One party's line to the store.
pub struct Line {
    pub world: Arc<World>,
    pub who: String,
    /// The trouble that cuts this line alone.
    pub cut_by: WorldFault,
    /// The disk of this party.
    pub disk: Option<Arc<MemoryDisk>>,
}

impl Line {
    /// Applies the active faults; `Ok(true)`: the call takes effect, and its reply is lost or too
    /// late.
    async fn meet(&self, act: &'static str, key: &str) -> Result<bool, StoreError> {
        self.meet_with(act, key, None).await
    }

    /// The same for a write of this body, which replaces an object or only creates it.
    async fn meet_with(
        &self,
        act: &'static str,
        key: &str,
        writes: Option<(&Bytes, bool)>,
    ) -> Result<bool, StoreError> {
        let (dice, weather) = (&self.world.dice.store, &self.world.weather);
        self.world
            .timeline
            .sleep(dice.between(Duration::from_millis(5), Duration::from_millis(60)))
            .await;
        let slow = self.world.gang().and_then(|gang| gang.store_takes(self.world.timeline.now()));
        if let Some(slow) = slow {
            self.world.timeline.sleep(slow).await;
        }
        if let Some(cause) = self.is_denied() {
            return Err(StoreError::Denied { act, key: key.to_owned(), cause: cause.into() });
        }
        let lost = |cause: &str| StoreError::Unavailable {
            act,
            key: key.to_owned(),
            cause: cause.to_owned().into(),
        };
        if weather.is(self.cut_by)
            || weather.is(WorldFault::StoreDown)
            || self.world.is_cut_alone(&self.who, self.world.timeline.now())
        {
            self.world.timeline.sleep(Duration::from_secs(dice.pick(&[0, 1, 5, 40]))).await;
            return Err(lost("the line is down"));
        }
        if !weather.is(WorldFault::StoreLossy) {
            return Ok(false);
        }
        match dice.roll(100) {
            0..25 => Err(lost("503 slow down")),
            25..50 => Ok(true),
            50..55 => {
                // Before the sleep, because the caller gives up during it.
                writes.into_iter().for_each(|(body, over)| self.may_land(key, body, over));
                self.world.timeline.sleep(TIMES_OUT).await;
                Err(lost("timed out"))
            }
            _ => Ok(false),
        }
    }

    /// Why the store denies every call of this line.
    fn is_denied(&self) -> Option<&'static str> {
        let weather = &self.world.weather;
        match self.cut_by {
            WorldFault::LaptopOffline if weather.is(WorldFault::SignedOut) => Some("ExpiredToken"),
            WorldFault::MachineOffline if weather.is(WorldFault::RoleGone) => Some("AccessDenied"),
            _ => None,
        }
    }

    async fn reply<T>(
        &self,
        lost: bool,
        act: &'static str,
        key: &str,
        value: T,
    ) -> Result<T, StoreError> {
        if !lost {
            return Ok(value);
        }
        let late = self.world.dice.late.percent(15);
        if late {
            self.world.timeline.sleep(TIMES_OUT).await;
        }
        let cause = if late { "timed out" } else { "the reply was lost" };
        Err(StoreError::Unavailable { act, key: key.into(), cause: cause.into() })
    }

    /// An unanswered write may take effect later, after other writes of its sender. A create then
    /// finds an existing object.
    fn may_land(&self, key: &str, body: &Bytes, over: bool) {
        if !self.world.roughly.writes_land_late || !self.world.dice.landing.percent(50) {
            return;
        }
        let after = self.world.dice.landing.between(Duration::from_secs(1), LANDS_WITHIN);
        let late = Line {
            world: Arc::clone(&self.world),
            who: LATE.into(),
            cut_by: self.cut_by,
            disk: None,
        };
        let (key, body) = (key.to_owned(), body.clone());
        tokio::spawn(async move {
            late.world.timeline.sleep(after).await;
            if over || !late.world.objects.lock().contains_key(&key) {
                late.write(&key, body);
            }
        });
    }

    fn write(&self, key: &str, body: Bytes) {
        for (key, body) in planted_bugs::written(&self.world, key, body) {
            self.write_down(&key, body);
        }
    }

    fn write_down(&self, key: &str, body: Bytes) {
        let object = Object {
            body: body.clone(),
            modified: self.world.timeline.wall(),
            born: self.world.timeline.now(),
        };
        let new = self.world.objects.lock().insert(key.to_owned(), object).is_none();
        self.world.happened(&Deed::Wrote { key, body: &body, by: &self.who, new });
    }

    /// The first part of each key below a prefix, once. It skips all keys below a name.
    fn names_below(&self, prefix: &str) -> Vec<String> {
        let objects = self.world.objects.lock();
        let (mut names, mut from) = (Vec::new(), prefix.to_owned());
        while let Some((key, object)) =
            objects.range::<str, _>((Bound::Included(&*from), Bound::Unbounded)).next()
        {
            let Some(rest) = key.strip_prefix(prefix) else { break };
            let name = rest.split('/').next().unwrap_or(rest);
            let is_folder = name.len() < rest.len();
            // The character after the slash ends what is in the folder.
            from.truncate(prefix.len());
            from.extend([name, if is_folder { "0" } else { "\0" }]);
            let within = (Bound::Included(key.as_str()), Bound::Excluded(&*from));
            let shown = self.shown(object)
                || (is_folder
                    && objects.range::<str, _>(within).any(|(_, object)| self.shown(object)));
            names.extend(shown.then(|| name.to_owned()));
        }
        names
    }

    fn shown(&self, object: &Object) -> bool {
        !self.world.weather.is(WorldFault::StoreStale)
            || self.world.timeline.now().saturating_sub(object.born) > LISTED_AFTER
    }
}

#[async_trait]
impl Store for Line {
    fn url(&self) -> String {
        "s3://false/root".into()
    }

    async fn get(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        let lost = self.meet("read", key).await?;
        let body = self
            .world
            .objects
            .body(key)
            .and_then(|body| planted_bugs::read(&self.world, key, body));
        self.reply(lost, "read", key, body).await
    }

    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>, StoreError> {
        let lost = self.meet("look at", key).await?;
        let meta = |object: &Object| ObjectMeta {
            key: key.into(),
            bytes: object.body.len() as u64,
            modified: object.modified,
        };
        let found = self.world.objects.lock().get(key).map(meta);
        self.reply(lost, "look at", key, found).await
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<(), StoreError> {
        let lost = self.meet_with("write", key, Some((&body, true))).await?;
        self.write(key, body);
        self.reply(lost, "write", key, ()).await
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created, StoreError> {
        let lost = self.meet_with("create", key, Some((&body, false))).await?;
        let over =
            self.world.planted() == Some(Bug::OverwritesPlans) && key.ends_with("/plan.json");
        let there = !over && self.world.objects.lock().contains_key(key);
        if !there {
            self.write(key, body);
        }
        self.reply(lost, "create", key, if there { Created::Exists } else { Created::New }).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        let lost = self.meet("list", prefix).await?;
        let meta = |(key, object): (&String, &Object)| ObjectMeta {
            key: key.clone(),
            bytes: object.body.len() as u64,
            modified: object.modified,
        };
        let found: Vec<ObjectMeta> = {
            let objects = self.world.objects.lock();
            let under =
                objects.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
            under
                .filter(|(_, object)| self.shown(object))
                .map(meta)
                .filter(|meta| planted_bugs::sees(&self.world, &self.who, &meta.key))
                .collect()
        };
        self.reply(lost, "list", prefix, found).await
    }

    async fn children(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let lost = self.meet("list", prefix).await?;
        let names = if planted_bugs::sees(&self.world, &self.who, prefix) {
            self.names_below(prefix)
        } else {
            Vec::new()
        };
        self.reply(lost, "list", prefix, names).await
    }

    async fn put_file(&self, key: &str, path: &Path) -> Result<(u64, String), StoreError> {
        let lost = self.meet("upload", key).await?;
        let unavailable = |cause: &str| StoreError::Unavailable {
            act: "upload",
            key: key.into(),
            cause: cause.to_owned().into(),
        };
        let disk = self.disk.as_ref().ok_or_else(|| unavailable("this party has no disk"))?;
        let body = disk.read(path).ok().flatten().ok_or_else(|| unavailable("no such file"))?;
        let told = (body.len() as u64, sha256(&body));
        if self.world.planted() != Some(Bug::FilesNotSent) || !key.contains("/checkpoints/") {
            self.write(key, Bytes::from(body));
        }
        self.reply(lost, "upload", key, told).await
    }

    async fn get_file(&self, key: &str, path: &Path) -> Result<Option<(u64, String)>, StoreError> {
        let lost = self.meet("download", key).await?;
        let Some(body) = self.world.objects.body(key) else {
            return self.reply(lost, "download", key, None).await;
        };
        let written = self.disk.as_ref().map(|disk| disk.write(path, &body));
        if !matches!(written, Some(Ok(()))) {
            return Err(StoreError::Unavailable {
                act: "download",
                key: key.into(),
                cause: "the disk does not take it".into(),
            });
        }
        self.reply(lost, "download", key, Some((body.len() as u64, sha256(&body)))).await
    }

    async fn copy(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let lost = self.meet("copy", from).await?;
        let missing = || StoreError::Unavailable {
            act: "copy",
            key: from.to_owned(),
            cause: "it is not there".into(),
        };
        let body = self.world.objects.body(from).ok_or_else(missing)?;
        self.write(to, body);
        self.reply(lost, "copy", from, ()).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let lost = self.meet("delete", key).await?;
        self.world.objects.lock().remove(key);
        self.reply(lost, "delete", key, ()).await
    }
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}
