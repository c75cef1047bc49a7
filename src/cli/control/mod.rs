//! Commands that act on a job: `stop`, `cancel`, `extend`, `discard`, `logs`, `outputs`, `ssh`,
//! `daemon`.

pub(crate) mod daemon;
pub(crate) mod discard;
pub(crate) mod discard_selection;
pub(crate) mod discarded_warning;
pub(crate) mod download;
pub(crate) mod extend;
pub(crate) mod log_tail;
pub(crate) mod logs;
pub(crate) mod outputs;
pub(crate) mod release_kept;
pub(crate) mod ssh;
pub(crate) mod stop;
pub(crate) mod stop_missing_spec;
pub(crate) mod stop_one;
