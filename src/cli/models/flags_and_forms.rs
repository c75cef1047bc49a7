//! Flags of gcloud, and the form of a document, for all verbs of models.

use serde_json::Value;

use crate::app::models::registry::Maker;
use crate::cli::Context;
use crate::cli::ml_engine::document;
use crate::cli::ml_engine::gcloud_flags::{GcloudFlags, GcloudFormat};

/// Names, once, the given flags that mean nothing here.
pub fn say_ignored(context: &Context, flags: &[(&str, bool)]) {
    let given: Vec<&str> =
        flags.iter().filter(|(_, is_given)| *is_given).map(|(name, _)| *name).collect();
    if !given.is_empty() {
        let verb = if given.len() == 1 { "has" } else { "have" };
        let names = given.join(", ");
        context
            .printer
            .note(format!("{names} {verb} no meaning here: the model stays in the job root"));
    }
}

/// Reads KEY=VALUE.
pub fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

pub fn maker(context: &Context) -> Maker<'_> {
    Maker { owner: &context.user.owner, now: context.clock.now() }
}

/// A document in the form that was asked for; for people it is YAML, as in gcloud.
pub fn show(context: &Context, gcloud: &GcloudFlags, document: &Value) {
    let form = match gcloud.form(context) {
        GcloudFormat::Table => GcloudFormat::Yaml,
        form => form,
    };
    document::print(&context.printer, &form, document);
}
