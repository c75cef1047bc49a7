//! One member of a gang: a job of its own, with its rank and the jobs of the others.
//!
//! docs/decisions.md says why a member is a job.

use serde::{Deserialize, Serialize};

use super::gang_role::GangRole;
use crate::job::JobId;
use crate::market::Span;

/// The suffix letter before a member's rank in its job id: `digits-r1-7f3k2q`.
const RANK_LETTER: &str = "r";

/// The longest name before the rank and the letters of an id.
const NAME_LEN_MAX: usize = 50;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangMember {
    /// The rank of this job.
    pub rank: u32,
    /// All members in the order of ranks. The first is the job that the user names.
    pub seats: Vec<GangSeat>,
    /// `retries` of the job file: they count for the gang, and not for each agent.
    pub retries_max: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retry_exit_codes: Vec<i32>,
    #[serde(default)]
    pub retry_delay: Span,
    /// The checkpoint folder of rank 0, which this rank reads and does not write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangSeat {
    pub job: JobId,
    pub role: GangRole,
}

impl GangMember {
    /// The job of rank 0. Its directory holds the epochs of the gang.
    pub fn leader(&self) -> &JobId {
        &self.seats[0].job
    }

    /// Whether a record can be right: there is a seat for its rank.
    pub fn is_sound(&self) -> bool {
        (self.rank as usize) < self.seats.len()
    }
}

/// The seats of a gang whose rank 0 is this job.
pub fn seats_of(leader: &JobId, roles: &[GangRole]) -> Vec<GangSeat> {
    let job = |rank: usize| member_job(leader, rank);
    roles.iter().enumerate().map(|(rank, role)| GangSeat { job: job(rank), role: *role }).collect()
}

/// The name of a member's job; rank 0 has the gang's own.
pub fn member_name(gang: &str, rank: u32) -> String {
    if rank == 0 { gang.to_owned() } else { format!("{gang}-{RANK_LETTER}{rank}") }
}

/// The ids of a gang share two things: the name, which may be cut, and the random letters.
pub type GangKey<'a> = (String, &'a str);

/// The key of the gang that this job leads, if it leads one.
pub fn leader_key(job: &str) -> Option<GangKey<'_>> {
    let (name, letters) = job.rsplit_once('-')?;
    Some((name.chars().take(NAME_LEN_MAX).collect(), letters))
}

/// The key and the rank of a job beside its leader. A user's own job may look like one, but no
/// leader has its letters then.
pub fn member_key(job: &str) -> Option<(GangKey<'_>, u32)> {
    let (name, letters) = job.rsplit_once('-')?;
    let (gang, rank) = name.rsplit_once('-')?;
    let rank = rank.strip_prefix(RANK_LETTER)?.parse().ok()?;
    Some(((gang.to_owned(), letters), rank))
}

/// The job of a rank; rank 0 is the leader itself.
pub fn member_job(leader: &JobId, rank: usize) -> JobId {
    if rank == 0 {
        return leader.clone();
    }
    let (name, letters) = leader.as_str().rsplit_once('-').unwrap_or((leader.as_str(), "gang"));
    let name: String = name.chars().take(NAME_LEN_MAX).collect();
    format!("{name}-{RANK_LETTER}{rank}-{letters}")
        .parse()
        .expect("a shorter name, a rank and the letters of an id are an id")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_have_ids_beside_their_leader() {
        let leader: JobId = "digits-222222".parse().unwrap();
        let seats = seats_of(&leader, &[GangRole::Worker; 3]);
        let ids: Vec<&str> = seats.iter().map(|seat| seat.job.as_str()).collect();
        assert_eq!(ids, ["digits-222222", "digits-r1-222222", "digits-r2-222222"]);
        let long = JobId::from_name(&"x".repeat(80), [0; 6]);
        let seats = seats_of(&long, &[GangRole::Worker; 64]);
        assert!(seats.iter().all(|seat| seat.job.as_str().len() <= 64));
        let last = seats[63].job.as_str();
        let (key, rank) = member_key(last).unwrap();
        assert_eq!((Some(key), rank), (leader_key(long.as_str()), 63), "a long name is cut");
        assert_eq!(member_key("digits-r2-222222").map(|(_, rank)| rank), Some(2));
        for other in ["digits-222222", "digits-rx-222222", "r2-222222"] {
            assert_eq!(member_key(other), None, "{other}");
        }
    }
}
