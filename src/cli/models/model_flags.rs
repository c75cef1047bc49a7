//! Flags for all verbs of models, and who makes a record.

use crate::app::models::registry::Maker;
use crate::app::text::without_meaning;
use crate::cli::Context;

/// Names, once, the given flags that mean nothing here.
pub fn say_ignored(context: &Context, flags: &[(&str, bool)]) {
    if let Some(told) = without_meaning(flags) {
        context.printer.note(format!("{told}: the model stays in the job root"));
    }
}

/// Reads KEY=VALUE.
pub fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

pub fn maker(context: &Context) -> Maker<'_> {
    Maker { owner: &context.config.user.owner, now: context.clock.now() }
}
