//! What is known of the workload beside its checkpoint folder: its marks, its steps, its ends.
//!
//! What must never live here: what follows from it for a checkpoint (that is [`super::checkpoint_watch`]).

use std::time::Duration;

use crate::job::ExitStatus;

/// What the workload last said and did, beside the folder.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signs {
    /// Explicit marks so far, and the step at the newest.
    pub marks: u64,
    pub marked_step: Option<f64>,
    /// The newest step that its process has told.
    pub step: Option<f64>,
    /// The newest mark was made by this time of the file system, nanoseconds since 1970.
    pub marked_by: Option<i64>,
    /// Whether it has ever marked one, however long ago.
    pub has_marked: bool,
    pub ended: Option<(ExitStatus, Duration)>,
    /// When the newest of those that were killed ended; another may have been started since.
    pub killed: Option<Duration>,
}

/// What an agent knows of the time before it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Before {
    /// Whether the workload marks its checkpoints; `None` until it has made one.
    pub marks: Option<bool>,
    /// A process of it is gone, and nobody has seen how it ended.
    pub unseen_end: bool,
}
