//! The tags that mark a machine as ours and tell every controller its purpose.
//!
//! The launch call sets them, so each of our machines always has them.

use std::collections::BTreeMap;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::{AttemptNo, BOOT, JobId, member_job};
use crate::market::Span;

/// Prefix of all our tag keys.
pub const TAG_PREFIX: &str = "lamplighter:";

/// Full key of the tag that names the owner.
pub const OWNER_TAG: &str = "lamplighter:owner";

/// Full key of the tag that names the job.
const JOB_TAG: &str = "lamplighter:job";

/// Full key of the tag of machines that one call launched for all ranks of a gang: their number.
pub const RANKS_TAG: &str = "lamplighter:ranks";

/// The tags of a machine by its place in its launch. EC2 gives all machines of one call the same
/// tags, with the job of rank 0. The place of a machine is its rank.
pub fn tags_of_rank(
    mut map: BTreeMap<String, String>,
    launch_index: u32,
) -> BTreeMap<String, String> {
    if map.contains_key(RANKS_TAG)
        && let Some(leader) = map.get(JOB_TAG).and_then(|job| job.parse::<JobId>().ok())
    {
        map.insert(JOB_TAG.to_owned(), member_job(&leader, launch_index as usize).to_string());
    }
    map
}

/// The reverse of [`tags_of_rank`]: the tags of the launch, from the tags of one rank.
pub fn tags_of_launch(
    mut map: BTreeMap<String, String>,
    leader: &JobId,
    ranks: u32,
) -> BTreeMap<String, String> {
    map.insert(JOB_TAG.to_owned(), leader.to_string());
    map.insert(RANKS_TAG.to_owned(), ranks.to_string());
    map
}

/// The tags of one of our machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tags {
    /// The owner. A controller stops and terminates only machines with its own owner.
    pub owner: String,
    pub job: JobId,
    pub attempt: AttemptNo,
    pub lease: Span,
    /// How long it may run before the agent's first heartbeat.
    pub boot: Span,
    pub kill_at: Option<Timestamp>,
}

/// Why the tags do not make a machine ours. We never touch such a machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TagsError {
    #[error("tag `{TAG_PREFIX}{key}` is missing")]
    Missing { key: &'static str },
    #[error("tag `{TAG_PREFIX}{key}` has a value that we never write: `{value}`")]
    Foreign { key: &'static str, value: String },
    #[error("tag `{OWNER_TAG}` says `{owner}`")]
    Owner { owner: String },
}

impl Tags {
    pub fn to_map(&self) -> BTreeMap<String, String> {
        let mut map = BTreeMap::from([
            (OWNER_TAG.to_owned(), self.owner.clone()),
            (JOB_TAG.to_owned(), self.job.to_string()),
            (format!("{TAG_PREFIX}attempt"), self.attempt.to_string()),
            (format!("{TAG_PREFIX}lease-s"), self.lease.duration().as_secs().to_string()),
            (format!("{TAG_PREFIX}boot-s"), self.boot.duration().as_secs().to_string()),
        ]);
        if let Some(kill_at) = self.kill_at {
            map.insert(format!("{TAG_PREFIX}kill-at"), kill_at.to_string());
        }
        map
    }

    /// # Errors
    /// When a tag is missing or malformed: the machine is then not ours.
    pub fn from_map(map: &BTreeMap<String, String>) -> Result<Self, TagsError> {
        let mut name = TAG_PREFIX.to_owned();
        let mut text = |key: &'static str| {
            name.truncate(TAG_PREFIX.len());
            name.push_str(key);
            map.get(&name).ok_or(TagsError::Missing { key })
        };
        Ok(Tags {
            owner: text("owner")?.clone(),
            job: parsed("job", text("job")?)?,
            attempt: parsed("attempt", text("attempt")?)?,
            lease: Span::from_secs(parsed("lease-s", text("lease-s")?)?),
            // Machines of earlier versions lack this tag.
            boot: text("boot-s")
                .ok()
                .map(|value| parsed("boot-s", value))
                .transpose()?
                .map_or(BOOT, Span::from_secs),
            kill_at: text("kill-at").ok().map(|value| parsed("kill-at", value)).transpose()?,
        })
    }
}

/// The check before every action on a machine: all our tags are there and name this owner. The
/// comparison is exact; `me` is not `Me`.
///
/// # Errors
/// When the machine is not ours.
pub fn owned_by(map: &BTreeMap<String, String>, owner: &str) -> Result<Tags, TagsError> {
    let tags = Tags::from_map(map)?;
    if tags.owner == owner { Ok(tags) } else { Err(TagsError::Owner { owner: tags.owner }) }
}

fn parsed<T: FromStr>(key: &'static str, value: &str) -> Result<T, TagsError> {
    value.parse().map_err(|_| TagsError::Foreign { key, value: value.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_read_back_and_look_alikes_are_not_ours() {
        let tags = Tags {
            owner: "me".into(),
            job: "digits-222222".parse().unwrap(),
            attempt: AttemptNo::FIRST,
            lease: Span::from_secs(1800),
            boot: Span::from_secs(600),
            kill_at: Some("2026-01-01T00:00:00Z".parse().unwrap()),
        };
        let map = tags.to_map();
        assert_eq!(Tags::from_map(&map), Ok(tags.clone()));
        assert_eq!(owned_by(&map, "me"), Ok(tags));
        for other in ["Me", "me ", "m", "m*", ""] {
            assert_eq!(
                owned_by(&map, other),
                Err(TagsError::Owner { owner: "me".into() }),
                "{other}"
            );
        }
        let mut foreign = map.clone();
        foreign.remove("lamplighter:owner");
        assert_eq!(Tags::from_map(&foreign), Err(TagsError::Missing { key: "owner" }));
        let mut older = map.clone();
        older.remove("lamplighter:boot-s");
        assert_eq!(
            Tags::from_map(&older).map(|tags| tags.boot),
            Ok(BOOT),
            "an earlier version did not write it"
        );
        assert_eq!(tags_of_rank(map.clone(), 3), map, "a machine of its own");
        let mut garbled = map;
        garbled.insert("lamplighter:kill-at".into(), "soon".into());
        assert!(Tags::from_map(&garbled).is_err());
    }

    #[test]
    fn machines_of_one_launch_have_the_jobs_of_their_ranks() {
        let map = BTreeMap::from([
            (JOB_TAG.to_owned(), "digits-222222".to_owned()),
            (RANKS_TAG.to_owned(), "3".to_owned()),
        ]);
        let job = |index| tags_of_rank(map.clone(), index)[JOB_TAG].clone();
        assert_eq!([job(0), job(2)], ["digits-222222", "digits-r2-222222"]);
    }
}
