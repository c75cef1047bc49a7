//! A cache on disk for answers of AWS: offers change in weeks, a price list in days, a spot price
//! in minutes.
//!
//! `~/.cache/lamplighter/aws/<endpoint and key>/<region>/<question>.json`. A user may delete the
//! folder at any time, and an unreadable file counts as missing. Each session of a role or of
//! single sign-on has its own key, and so its own folder; a new folder removes old ones. Not here:
//! an answer that must be fresh, such as the list of running instances.

#![expect(
    clippy::disallowed_methods,
    reason = "keeps answers in a folder of its own, under the time they were given at"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::session::AwsSession;
use crate::market::Region;

/// The format of these files. A file with another number is ignored.
const FORMAT: u32 = 1;

/// A file from further in the future than this is ignored: the clock was wrong.
const FUTURE_MAX: Duration = Duration::from_secs(60);

/// Answers are valid for at most a day, so an older folder is useless. If this is shorter, answers
/// of another program may be removed.
const FOLDER_LIVES: Duration = Duration::from_secs(2 * 86_400);

pub struct Ec2Cache {
    folder: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
struct CachedAnswer<T> {
    format: u32,
    asked_at: Timestamp,
    answer: T,
}

impl Ec2Cache {
    /// The answers of a region for this user at this endpoint. Asking for the account would be
    /// another call, so the id of the key tells two accounts apart, even if the same profile now
    /// names another. The id is not written down: the folder's name is a hash.
    pub async fn of(session: &AwsSession, region: &Region) -> Self {
        let Some(root) = &session.settings.cache else { return Ec2Cache { folder: None } };
        let said = |name: &str| std::env::var(name).unwrap_or_default();
        let profile = session.settings.profile.clone().unwrap_or_else(|| said("AWS_PROFILE"));
        let key = match session.identity().await {
            Some(identity) => identity.key_id().await.unwrap_or_default(),
            None => String::new(),
        };
        let named = ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_ROLE_ARN"].map(said);
        let who: Vec<String> = [session.endpoint().await.unwrap_or_default(), profile, key]
            .into_iter()
            .chain(named)
            .collect();
        Ec2Cache { folder: Some(root.join("aws").join(question(&who)).join(region.as_str())) }
    }

    /// The answer, if it is not older than this.
    pub fn get<T: DeserializeOwned>(&self, what: &str, age_max: Duration) -> Option<T> {
        let kept: CachedAnswer<T> =
            serde_json::from_slice(&fs::read(self.path(what)?).ok()?).ok()?;
        let now = Timestamp::now();
        let is_young = kept.asked_at + age_max > now && kept.asked_at < now + FUTURE_MAX;
        (kept.format == FORMAT && is_young).then_some(kept.answer)
    }

    /// Keeps an answer. If the write fails, the next call asks AWS again.
    pub fn put<T: Serialize>(&self, what: &str, answer: &T) {
        let Some(path) = self.path(what) else { return };
        if let Some(whose) =
            self.folder.as_ref().and_then(|folder| folder.parent()).filter(|whose| !whose.exists())
        {
            forget_old(whose.parent().unwrap_or(whose));
        }
        if let Err(error) =
            write(&path, &CachedAnswer { format: FORMAT, asked_at: Timestamp::now(), answer })
        {
            tracing::debug!("cannot keep {}: {error}", path.display());
        }
    }

    fn path(&self, what: &str) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(format!("{what}.json")))
    }
}

/// Removes folders that are no longer written to. The next new folder tries again what failed.
fn forget_old(all: &Path) {
    let inside = |folder: &Path| {
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
    };
    let is_old = |region: &PathBuf| {
        let written = fs::metadata(region).and_then(|known| known.modified());
        written.is_ok_and(|written| written.elapsed().is_ok_and(|age| age > FOLDER_LIVES))
    };
    for whose in inside(all).filter(|whose| inside(whose).all(|region| is_old(&region))) {
        let _gone = fs::remove_dir_all(whose);
    }
}

/// Written whole, by a rename: another process may read it now.
fn write(path: &Path, kept: &impl Serialize) -> std::io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    let beside = path.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&beside, serde_json::to_vec(kept)?)?;
    fs::rename(&beside, path)
}

/// A short name for a question of many words.
pub fn question(words: &[String]) -> String {
    let mut sum = Sha256::new();
    for word in words {
        sum.update(word.as_bytes());
        sum.update([0]);
    }
    hex::encode(&sum.finalize()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_holds_for_a_while_and_a_broken_one_was_never_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Ec2Cache { folder: Some(folder.path().join("x")) };
        let hour = Duration::from_secs(3600);
        assert_eq!(cache.get::<Vec<u32>>("types", hour), None);
        cache.put("types", &vec![1, 2]);
        assert_eq!(cache.get("types", hour), Some(vec![1, 2]));
        assert_eq!(cache.get::<Vec<u32>>("types", Duration::ZERO), None, "too old");
        assert_eq!(cache.get::<String>("types", hour), None, "of another shape");
        fs::write(folder.path().join("x/types.json"), "{").expect("written");
        assert_eq!(cache.get::<Vec<u32>>("types", hour), None);
        Ec2Cache { folder: None }.put("types", &1);
    }

    #[test]
    fn cache_folder_unused_for_days_goes_when_a_new_one_is_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let of =
            |whose: &str| Ec2Cache { folder: Some(folder.path().join(whose).join("us-east-1")) };
        let there = |whose: &str| of(whose).get::<u32>("types", FOLDER_LIVES).is_some();
        ["old", "young"].iter().for_each(|whose| of(whose).put("types", &1));
        let ago = std::time::SystemTime::now() - FOLDER_LIVES - Duration::from_secs(60);
        fs::File::open(folder.path().join("old/us-east-1"))
            .and_then(|region| region.set_modified(ago))
            .expect("dated");
        of("young").put("zones", &1);
        assert!(there("old"), "nobody is new");
        of("new").put("types", &1);
        assert!(!there("old") && there("young") && there("new"));
    }
}
