//! The log of calls: action, time and result. Also how many calls had to wait for each other.

use std::time::Duration;

use super::query::Params;

#[derive(Clone, Debug)]
pub struct Call {
    pub service: String,
    pub region: String,
    /// `RunInstances`; for S3 and the like the method and the path: `PUT /bucket/key`.
    pub action: String,
    pub params: Params,
    /// 0: the connection was cut.
    pub status: u16,
    /// EC2's code, if it was refused.
    pub code: String,
    /// Since the false EC2 was started.
    pub began: Duration,
    pub ended: Duration,
    /// The id of the access key.
    pub key: String,
    pub agent: String,
}

/// The number of round trips in turn: the longest chain of calls that each began after the one
/// before ended.
pub fn rounds<'a>(calls: impl IntoIterator<Item = &'a Call>) -> usize {
    let mut spans: Vec<(Duration, Duration)> =
        calls.into_iter().map(|call| (call.ended, call.began)).collect();
    spans.sort();
    let (mut chain, mut free) = (0, Duration::ZERO);
    for (ended, began) in spans {
        if began >= free {
            (chain, free) = (chain + 1, ended);
        }
    }
    chain
}
