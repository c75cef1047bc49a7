//! Answers of AWS that hold for a while, on disk: what is sold changes in weeks, a price list in days, a spot price in minutes.
//!
//! `~/.cache/lamplighter/aws/<who is asked, as whom>/<region>/<what>.json`. The folder may be deleted at any moment; what cannot
//! be read was never there. What must never live here: an answer that a decision needs fresh, such as what runs now.

#![expect(clippy::disallowed_methods, reason = "keeps answers in a folder of its own, under the time they were given at")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::aws_session::AwsSession;
use crate::market::Region;

/// Of the files here. Another number is read as nothing.
const FORMAT: u32 = 1;

/// An answer of a clock that was wrong: from further in the future than this it is not believed.
const FUTURE_MAX: Duration = Duration::from_secs(60);

pub struct Ec2Cache {
    folder: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
struct Kept<T> {
    format: u32,
    asked_at: Timestamp,
    answer: T,
}

impl Ec2Cache {
    /// The answers of a region, as this user of this endpoint is given them. Asks nobody: who the keys belong to would be a
    /// call of its own, and the names that they are chosen by are enough to tell two accounts apart.
    pub async fn of(session: &AwsSession, region: &Region) -> Self {
        let Some(root) = &session.settings.cache else { return Ec2Cache { folder: None } };
        let said = |name: &str| std::env::var(name).unwrap_or_default();
        let profile = session.settings.profile.clone().unwrap_or_else(|| said("AWS_PROFILE"));
        let who = [session.endpoint().await.unwrap_or_default(), profile, said("AWS_ACCESS_KEY_ID"), said("AWS_CONFIG_FILE"), said("AWS_ROLE_ARN")];
        Ec2Cache { folder: Some(root.join("aws").join(question(&who)).join(region.as_str())) }
    }

    /// What was answered not longer ago than this.
    pub fn get<T: DeserializeOwned>(&self, what: &str, age_max: Duration) -> Option<T> {
        let kept: Kept<T> = serde_json::from_slice(&fs::read(self.path(what)?).ok()?).ok()?;
        let now = Timestamp::now();
        let is_young = kept.asked_at + age_max > now && kept.asked_at < now + FUTURE_MAX;
        (kept.format == FORMAT && is_young).then_some(kept.answer)
    }

    /// Keeps an answer, or not: the next call asks again.
    pub fn put<T: Serialize>(&self, what: &str, answer: &T) {
        let Some(path) = self.path(what) else { return };
        if let Err(error) = write(&path, &Kept { format: FORMAT, asked_at: Timestamp::now(), answer }) {
            tracing::debug!("cannot keep {}: {error}", path.display());
        }
    }

    fn path(&self, what: &str) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(format!("{what}.json")))
    }
}

/// Whole or not at all: another process may read it now.
fn write(path: &Path, kept: &impl Serialize) -> std::io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    let beside = path.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&beside, serde_json::to_vec(kept)?)?;
    fs::rename(&beside, path)
}

/// A short name for a question with many words.
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
    fn an_answer_holds_for_a_while_and_a_broken_one_was_never_there() {
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
}
