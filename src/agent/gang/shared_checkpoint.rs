//! Brings the newest checkpoint of rank 0 to the other ranks before an epoch starts.
//!
//! With `saves = "each"`, only a rank without a checkpoint needs another one's. Not here: the
//! restore at the start of an attempt (`agent::checkpoint`).

use std::sync::Arc;
use std::time::Duration;

use super::rank_state::RankState;
use crate::job::{CheckpointNo, Formation, Manifest, ManifestEntry, Wish};
use crate::jobdir::{JobDir, layout};

/// How long a rank waits until its own folder is uploaded, before the others read it. The agent
/// waits 30 s for a folder whose writer was killed. A longer upload would hold all machines; after
/// a shorter wait, the others would begin at an older step than this rank. `hold` may be shorter.
pub(super) const UPLOADED_WITHIN: Duration = Duration::from_secs(300);

/// How long a rank asks again for a file of the shared checkpoint. The others wait for it in their
/// first collective, which fails after ten minutes.
const FETCHED_WITHIN: Duration = Duration::from_secs(300);

/// More files than this are not compared.
const FILES_MAX: usize = 10_000;

impl RankState {
    /// The checkpoint that this rank brings to the next epoch; `None`: it saves none.
    pub(super) async fn own_checkpoint(&self, epoch: u32) -> Option<CheckpointNo> {
        self.resolved.spec.checkpoint.as_ref()?;
        if epoch > 1 {
            self.upload_own().await;
        }
        let own = self.own_job();
        let newest = self.insist("the checkpoint", || own.newest_checkpoint()).await;
        newest.map(|manifest| manifest.number)
    }

    /// Brings the checkpoint that all begin from, as the formation names it. Returns it.
    pub(super) async fn share_checkpoint(&self, formation: &Formation) -> Option<Manifest> {
        let from = self.checkpoint_rank(formation);
        let (dir, number) = self.begins_from(formation, from).await?;
        let manifest = self.insist("the checkpoint", || dir.manifest(number)).await?;
        if from != self.rank() {
            for file in &manifest.files {
                self.bring(&dir, &manifest, file).await;
            }
        }
        Some(manifest)
    }

    /// The rank whose checkpoint this one begins from. If each saves its own, a rank that has none
    /// yet takes the part of another one: from nothing, it would be steps behind.
    fn checkpoint_rank(&self, formation: &Formation) -> u32 {
        if self.member.reads.is_some() {
            return 0;
        }
        let has_own =
            formation.member(self.rank()).is_some_and(|member| member.checkpoint.is_some());
        let other = formation.members.iter().find(|member| member.checkpoint.is_some());
        other.filter(|_| !has_own).map_or(self.rank(), |member| member.rank)
    }

    /// The newest checkpoint of a rank. A gang that goes on has one of an earlier job at first.
    async fn begins_from(
        &self,
        formation: &Formation,
        rank: u32,
    ) -> Option<(JobDir, CheckpointNo)> {
        let dir = self.job_of(rank);
        if let Some(number) = formation.member(rank)?.checkpoint {
            return Some((dir, number));
        }
        let spec = self.insist("the job of a rank", || dir.spec()).await?;
        let inherited = spec.inherited()?;
        let before = JobDir::new(Arc::clone(&self.ports.store), inherited.job.clone());
        Some((before, inherited.checkpoint.number))
    }

    /// Asks the own agent for a checkpoint if the folder is newer than the last one, and waits.
    async fn upload_own(&self) {
        let own = self.own_job();
        let newest = self.insist("the checkpoint", || own.newest_checkpoint()).await;
        let changed = self.newest_change();
        let uploaded = newest.as_ref().map_or(0, |manifest| manifest.created.as_nanosecond());
        if changed.is_none_or(|changed| i128::from(changed) <= uploaded) {
            return;
        }
        let before = newest.map(|manifest| manifest.number);
        self.ask(self.rank(), Wish::Checkpoint).await;
        let within = UPLOADED_WITHIN.min(self.gang.hold.duration());
        let mut until = self.ports.clock.mono() + within;
        while self.ports.clock.mono() < until {
            match own.newest_checkpoint().await {
                Ok(now) if now.as_ref().map(|manifest| manifest.number) > before => return,
                Ok(_) => {}
                // Every rank waits for the store. The agent uploads when it is back.
                Err(_) => until = self.ports.clock.mono() + within,
            }
            tokio::select! {
                biased;
                () = self.ports.host.told_to_end() => return,
                () = self.pause() => {}
            }
        }
        self.say("its checkpoint is not uploaded yet: the others begin from the one before");
    }

    /// When a file of the folder last changed, in nanoseconds since 1970.
    fn newest_change(&self) -> Option<i64> {
        let tree = self.ports.files.walk(&self.paths.checkpoints, FILES_MAX).ok()?;
        tree.files.iter().map(|file| file.stamp.modified_nanos).max()
    }

    async fn bring(&self, from: &JobDir, manifest: &Manifest, file: &ManifestEntry) {
        let path = self.paths.checkpoints.join(&file.path);
        let there = self.ports.files.stamp(&path).ok().flatten();
        let is_same = there.is_some_and(|stamp| {
            stamp.bytes == file.bytes && Some(stamp.modified_nanos) == file.modified
        });
        if is_same {
            return;
        }
        let key = layout::job(from.job()) + &file.key;
        let part = path.with_extension("lamp-part");
        // A rank that begins from an older file is steps behind the others.
        let until = self.ports.clock.mono() + FETCHED_WITHIN;
        while self.fetch(&key, &part).await.as_deref() != Some(file.sha256.as_str()) {
            if self.ports.clock.mono() >= until {
                self.say(format!("cannot read {} of checkpoint {}", file.path, manifest.number));
                let _gone = self.ports.files.remove(&part);
                return;
            }
            self.pause().await;
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
