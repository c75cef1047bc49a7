//! One rank in one epoch, as its engine needs to know it.

use std::collections::BTreeMap;

use crate::job::Formation;

/// One rank in one epoch.
#[derive(Clone, Copy, Debug)]
pub struct RankPlace<'a> {
    pub formation: &'a Formation,
    pub rank: u32,
    /// Processes on each machine.
    pub processes: u32,
}

impl RankPlace<'_> {
    /// The number among those that work, from 0.
    pub fn node(&self) -> u32 {
        self.formation.node_of(self.rank).unwrap_or_default()
    }

    pub fn world(&self) -> u32 {
        u32::try_from(self.formation.members.len()).unwrap_or(u32::MAX)
    }

    pub fn host(&self) -> &str {
        self.formation.member(self.rank).map_or("127.0.0.1", |member| &member.host)
    }
}

/// The Python that an engine runs in: the one of the command, else `python3`.
pub fn interpreter(command: &[String]) -> &str {
    command.first().filter(|program| is_python(program)).map_or("python3", String::as_str)
}

pub fn is_python(program: &str) -> bool {
    program.rsplit('/').next().is_some_and(|name| name.starts_with("python"))
}

/// Variables by name.
pub fn variables<const N: usize>(pairs: [(&str, String); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::job::{AttemptNo, GangReady, RECORD_FORMAT};

    pub fn formation(ranks: &[u32]) -> Formation {
        let member = |rank: &u32| GangReady {
            format: RECORD_FORMAT,
            rank: *rank,
            job: format!("digits-r{rank}-222222").parse().unwrap(),
            attempt: AttemptNo::FIRST,
            instance: format!("i-{rank}"),
            start: "s".into(),
            host: format!("10.0.0.{}", rank + 1),
            interface: Some("ens5".into()),
            port: 40_000 + u16::try_from(*rank).unwrap(),
            gpus: None,
            checkpoint: None,
            at: jiff::Timestamp::UNIX_EPOCH,
        };
        Formation {
            format: RECORD_FORMAT,
            epoch: 2,
            at: jiff::Timestamp::UNIX_EPOCH,
            by: ranks[0],
            rendezvous: "abc".into(),
            members: ranks.iter().map(member).collect(),
        }
    }
}
