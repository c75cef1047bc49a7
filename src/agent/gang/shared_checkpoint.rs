//! Brings the newest checkpoint of rank 0 to the other ranks before an epoch starts.
//!
//! Only with `saves = "rank0"`. Not here: the restore at the start of an attempt
//! (`agent::checkpoint`).

use std::time::Duration;

use super::rank_state::RankState;
use crate::job::{CheckpointFile, Manifest, Wish};
use crate::jobdir::layout;

/// How long rank 0 waits until its own folder is uploaded, before the others read it. A longer
/// upload would hold all machines; a shorter wait gives the others an older step.
const UPLOADED_WITHIN: Duration = Duration::from_secs(30);

/// More files than this are not compared.
const FILES_MAX: usize = 10_000;

impl RankState {
    /// Rank 0 uploads what it has; the others read it. Returns the checkpoint that all begin from.
    pub(super) async fn share_checkpoint(&self, epoch: u32) -> Option<Manifest> {
        let saves = self.resolved.spec.checkpoint.is_some();
        if !saves && self.member.reads.is_none() {
            return None;
        }
        if self.member.is_leader() && saves && epoch > 1 {
            self.upload_own().await;
        }
        let leader = self.leader();
        let newest = self.insist("the checkpoint", || leader.newest_checkpoint()).await?;
        if self.member.reads.is_some() {
            for file in &newest.files {
                self.bring(&newest, file).await;
            }
        }
        Some(newest)
    }

    /// Asks the own agent for a checkpoint if the folder is newer than the last one, and waits.
    async fn upload_own(&self) {
        let own = self.own_job();
        let newest = own.newest_checkpoint().await.ok().flatten();
        let changed = self.newest_change();
        let uploaded = newest.as_ref().map_or(0, |manifest| manifest.created.as_nanosecond());
        if changed.is_none_or(|changed| i128::from(changed) <= uploaded) {
            return;
        }
        let before = newest.map(|manifest| manifest.number);
        self.ask(self.rank(), Wish::Checkpoint).await;
        let until = self.ports.clock.mono() + UPLOADED_WITHIN;
        while self.ports.clock.mono() < until {
            let now = own.newest_checkpoint().await.ok().flatten();
            if now.map(|manifest| manifest.number) > before {
                return;
            }
            self.pause().await;
        }
        self.say("its checkpoint is not uploaded yet: the others begin from the one before");
    }

    /// When a file of the folder last changed, in nanoseconds since 1970.
    fn newest_change(&self) -> Option<i64> {
        let tree = self.ports.files.walk(&self.paths.checkpoints, FILES_MAX).ok()?;
        tree.files.iter().map(|file| file.stamp.modified_nanos).max()
    }

    async fn bring(&self, manifest: &Manifest, file: &CheckpointFile) {
        let path = self.paths.checkpoints.join(&file.path);
        let there = self.ports.files.stamp(&path).ok().flatten();
        let is_same = there.is_some_and(|stamp| {
            stamp.bytes == file.bytes && Some(stamp.modified_nanos) == file.modified
        });
        if is_same {
            return;
        }
        let key = layout::job(self.member.leader()) + &file.key;
        let part = path.with_extension("lamp-part");
        let found = self.fetch(&key, &part).await;
        if found.as_deref() != Some(file.sha256.as_str()) {
            self.say(format!("cannot read {} of checkpoint {}", file.path, manifest.number));
            let _gone = self.ports.files.remove(&part);
            return;
        }
        if let Err(error) = self.ports.files.place(&part, &path, file.mode) {
            self.say(format!("cannot write {}: {error}", path.display()));
            return;
        }
        if let Some(nanos) = file.modified {
            let _kept = self.ports.files.set_modified(&path, nanos);
        }
    }

    /// The sum of what was read; `None`: it was not read.
    async fn fetch(&self, key: &str, into: &std::path::Path) -> Option<String> {
        let folder = into.parent()?;
        self.ports.files.create_folder(folder).ok()?;
        let _old = self.ports.files.remove(into);
        let found = self.ports.store.get_file(key, into).await.ok().flatten()?;
        Some(found.1)
    }
}
