//! Parts of a receipt that several pages show.

use crate::job::{CheckpointSummary, is_absence};

pub fn loss_text(loss: &str) -> String {
    if is_absence(loss) { format!("  {loss}") } else { format!("  lost: {loss}") }
}

/// The mark of an upper bound.
pub fn at_most(is_estimated: bool) -> &'static str {
    if is_estimated { "<= " } else { "" }
}

/// For `explain`: the checkpoint, and why it is not a newer one.
pub fn resumed_text(checkpoint: &CheckpointSummary, went_back: Option<&str>) -> String {
    let why = went_back.map(|why| format!(", because {why}")).unwrap_or_default();
    format!("from checkpoint {}{why}", checkpoint.told())
}
