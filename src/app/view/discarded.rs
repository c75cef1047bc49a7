//! The discarded data of a job, for commands that look for it.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::app::exit_code::ExitCode;
use crate::app::fault::Fault;
use crate::app::record_errors;
use crate::app::text::local_time;
use crate::job::{Discarded, StoredKind};
use crate::jobdir::JobDir;
use crate::policy::lifecycle::discardable::is_gone_on_from;

/// The record that the data was discarded, maybe in part, with a sentence about it. `None`: it was
/// not, or that is unknown.
pub async fn told(dir: &JobDir, kind: StoredKind) -> Option<(Discarded, String)> {
    let gone = dir.discarded_of(kind).await.ok().flatten()?;
    let said = format!("{}: {}", dir.job(), sentence(&gone, kind));
    Some((gone, said))
}

/// The same for programs.
pub fn for_programs(gone: Option<&Discarded>) -> Value {
    gone.map_or(Value::Null, |gone| json!({ "at": gone.at, "by": gone.by }))
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct DiscardedShown {
    at: Timestamp,
    by: String,
    kinds: BTreeSet<StoredKind>,
}

impl DiscardedShown {
    /// `None`: nothing, or unknown.
    pub async fn read(dir: &JobDir) -> Option<Self> {
        dir.discarded().await.ok().flatten().map(Self::from)
    }

    pub fn text(&self) -> String {
        let kinds: Vec<&str> = self.kinds.iter().map(|kind| kind.word()).collect();
        format!("at {} by {}: {}", local_time(self.at), self.by, kinds.join(", "))
    }
}

impl From<Discarded> for DiscardedShown {
    fn from(Discarded { at, by, kinds, .. }: Discarded) -> Self {
        DiscardedShown { at, by, kinds }
    }
}

fn sentence(gone: &Discarded, kind: StoredKind) -> String {
    let were = if kind == StoredKind::Code { "was" } else { "were" };
    format!("its {} {were} discarded at {} by {}", kind.word(), local_time(gone.at), gone.by)
}

/// `from`: the job whose checkpoint it would continue from. `kind`: that, or the code.
///
/// # Errors
/// Fails when the data that the job needs was discarded.
pub async fn refuse_start(
    dir: &JobDir,
    from: Option<&JobDir>,
    kind: StoredKind,
) -> Result<(), Fault> {
    for source in
        [Some(dir), from.filter(|_| kind == StoredKind::Checkpoints)].into_iter().flatten()
    {
        let gone =
            source.discarded_of(kind).await.map_err(|error| record_errors::record_fault(&error))?;
        let Some(gone) = gone else { continue };
        let whose = if source.job() == dir.job() {
            String::new()
        } else {
            format!("it goes on from `{}`, and ", source.job())
        };
        return Err(Fault::new(
            ExitCode::REFUSED,
            format!("job `{}` cannot go on: {whose}{}", dir.job(), sentence(&gone, kind)),
        )
        .meaning("nothing was started or billed")
        .hint(FROM_ITS_START));
    }
    Ok(())
}

pub const FROM_ITS_START: &str = "`lamp run FILE` runs the job from its start";

/// Whether `lamp start` would refuse it, as far as known.
pub async fn is_stranded(dir: &JobDir) -> bool {
    dir.discarded().await.is_ok_and(|gone| gone.is_some_and(|gone| is_gone_on_from(&gone.kinds)))
}
