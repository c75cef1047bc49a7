//! Brings the newest checkpoint of rank 0 to all ranks before an epoch starts.
//!
//! Its own folder may be newer, with a save that is on its disk alone. So rank 0 goes back to the
//! uploaded one too. With `saves = "each"`, only a rank without a
//! checkpoint needs another one's, and each folder stays as it is. Not here: the restore at the
//! start of an attempt (`agent::checkpoint`).

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::rank_state::RankState;
use crate::agent::checkpoint::completeness::file_names::is_log;
use crate::job::{CheckpointNo, Formation, GangSaves, Manifest, ManifestEntry, Wish};
use crate::jobdir::{JobDir, layout};

/// How long a rank waits until its own folder is uploaded, before the others read it. The agent
/// waits 30 s for a folder whose writer was killed. A longer upload would hold all machines; after
/// a shorter wait, the others would begin at an older step than this rank. `hold` may be shorter.
pub(super) const UPLOADED_WITHIN: Duration = Duration::from_secs(300);

/// Between two looks whether the agent doubts these files, which it does not upload then. Longer
/// holds all machines longer in vain; shorter costs calls.
const DOUBT_LOOKS: u32 = 5;

/// The agent reads within this time that an epoch begins. Files that change before would get the
/// step of the epoch before.
const READ_WITHIN: Duration = Duration::from_secs(2);

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
        let begun = match self.begins_from(formation, from).await {
            Some((dir, number)) => {
                let found = self.insist("the checkpoint", || dir.manifest(number)).await;
                found.map(|manifest| (dir, manifest))
            }
            None => None,
        };
        let is_own = from == self.rank();
        let is_shared = self.resolved.spec.checkpoint.is_some() || self.member.reads.is_some();
        // Before the first epoch, no engine has written here.
        let goes_back = is_shared && self.gang.saves == GangSaves::Rank0 && formation.epoch > 1;
        if goes_back {
            self.go_back(formation, begun.as_ref().map(|(_, manifest)| manifest)).await;
        }
        let (dir, manifest) = begun?;
        if !is_own || goes_back {
            for file in &manifest.files {
                // The own log has what is uploaded of it, or more.
                let path = self.paths.checkpoints.join(&file.path);
                let is_own_log = is_own && is_log(&file.path);
                if !(is_own_log && matches!(self.ports.files.stamp(&path), Ok(Some(_)))) {
                    self.bring(&dir, &manifest, file).await;
                }
            }
        }
        Some(manifest)
    }

    /// Removes what was saved after the checkpoint that all begin from, logs excluded. A script
    /// takes the newest save that it finds.
    async fn go_back(&self, formation: &Formation, manifest: Option<&Manifest>) {
        let Some(since) = self.saved_until(formation, manifest).await else { return };
        let folder = &self.paths.checkpoints;
        let tree = match self.ports.files.walk_aside(folder, usize::MAX - 1).await {
            Ok(tree) => tree,
            Err(error) => return self.say(format!("cannot read {}: {error}", folder.display())),
        };
        let entries: &[ManifestEntry] = manifest.map_or(&[], |manifest| &manifest.files);
        let of_checkpoint: BTreeSet<&str> = entries.iter().map(|file| &*file.path).collect();
        let (newer, rest): (Vec<_>, Vec<_>) = tree.files.iter().partition(|file| {
            file.stamp.modified_nanos > since
                && !of_checkpoint.contains(&*file.path)
                && !is_log(&file.path)
        });
        let rest: Vec<&str> = rest.into_iter().map(|file| &*file.path).collect();
        let gone: BTreeSet<&str> =
            newer.iter().map(|file| highest_without(&file.path, &rest)).collect();
        let is_changed = |file: &ManifestEntry| !is_log(&file.path) && !self.has(file);
        if self.rank() == 0 && (!gone.is_empty() || entries.iter().any(is_changed)) {
            self.say("its folder is newer than the checkpoint that all ranks begin from");
            self.ports.clock.sleep(READ_WITHIN).await;
        }
        for path in gone {
            self.say(format!("removes `{path}`, which is newer than the shared checkpoint"));
            if let Err(error) = self.ports.files.remove(&folder.join(path)) {
                self.say(format!("cannot remove `{path}`: {error}"));
            }
        }
    }

    /// The newest change that belongs to the checkpoint, nanoseconds since 1970. Without a
    /// checkpoint: when this rank was ready for its first epoch. `None`: it never was.
    async fn saved_until(&self, formation: &Formation, manifest: Option<&Manifest>) -> Option<i64> {
        if let Some(manifest) = manifest {
            let files = manifest.files.iter().filter(|file| !is_log(&file.path));
            let newest = files.filter_map(|file| file.modified).max();
            return newest.or_else(|| i64::try_from(manifest.created.as_nanosecond()).ok());
        }
        let earlier = self.insist("the epochs", || self.earlier(formation.epoch)).await;
        let first = earlier.iter().find_map(|epoch| epoch.formation.as_ref()?.member(self.rank()));
        first.and_then(|ready| i64::try_from(ready.at.as_nanosecond()).ok())
    }

    /// Whether a file of a checkpoint is in the folder, by its size and time.
    fn has(&self, file: &ManifestEntry) -> bool {
        let stamp = self.ports.files.stamp(&self.paths.checkpoints.join(&file.path)).ok().flatten();
        stamp.is_some_and(|stamp| {
            stamp.bytes == file.bytes && Some(stamp.modified_nanos) == file.modified
        })
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
        let mut looks = 0_u32;
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
            looks += 1;
            if looks.is_multiple_of(DOUBT_LOOKS) {
                let status = own.status(self.me.attempt).await.ok().flatten();
                if status.is_some_and(|status| status.doubts) {
                    break;
                }
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
        if self.has(file) {
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
    async fn fetch(&self, key: &str, into: &Path) -> Option<String> {
        let folder = into.parent()?;
        self.ports.files.create_folder(folder).ok()?;
        let _old = self.ports.files.remove(into);
        let found = self.ports.store.get_file(key, into).await.ok().flatten()?;
        Some(found.1)
    }
}

/// The highest folder of a file that has none of the others, or else the file. Empty folders go
/// too: a script may take the newest by its name.
fn highest_without<'a>(path: &'a str, others: &[&str]) -> &'a str {
    let folders = path.match_indices('/').map(|(at, _)| at);
    let is_free = |at: &usize| !others.iter().any(|other| other.starts_with(&path[..=*at]));
    folders.into_iter().find(is_free).map_or(path, |at| &path[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_goes_with_the_last_of_its_files() {
        let others = ["checkpoint-9/model.pt", "runs/1/model.pt"];
        let highest = |path| highest_without(path, &others);
        assert_eq!(highest("checkpoint-12/model.pt"), "checkpoint-12");
        assert_eq!(highest("checkpoint-9/optim.pt"), "checkpoint-9/optim.pt");
        assert_eq!(highest("runs/2/a/model.pt"), "runs/2");
        assert_eq!(highest("model.pt"), "model.pt");
    }
}
