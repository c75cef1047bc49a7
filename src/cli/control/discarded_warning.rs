//! Warns that what a command looks for was discarded.

use crate::app::view::discarded;
use crate::cli::Context;
use crate::job::{Discarded, StoredKind};
use crate::jobdir::JobDir;

/// Warns that the data was discarded, maybe in part. `None`: it was not, or that is unknown.
pub async fn warn(context: &Context, dir: &JobDir, kind: StoredKind) -> Option<Discarded> {
    let (gone, said) = discarded::told(dir, kind).await?;
    context.printer.warn(said);
    Some(gone)
}
