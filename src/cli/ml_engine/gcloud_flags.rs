//! The flags that gcloud takes with every command, and what they do here.

use std::fmt;

use clap::Args;

use crate::app::text::without_meaning;
use crate::cli::{Context, Format};

/// Flags of gcloud that stand before or after any command. Most have no meaning here.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Options of gcloud")]
pub struct GcloudFlags {
    /// How results are written: `json`, `yaml` or `value(FIELD,...)`
    #[arg(long, global = true, value_name = "FORMAT")]
    pub format: Option<GcloudFormat>,
    /// Accepted without effect: `-v` says more
    #[arg(long, global = true, value_name = "LEVEL")]
    pub verbosity: Option<String>,
    /// Accepted without effect: there are no projects
    #[arg(long, global = true, value_name = "PROJECT")]
    pub project: Option<String>,
    /// Accepted without effect: there are no accounts of Google
    #[arg(long, global = true, value_name = "ACCOUNT")]
    pub account: Option<String>,
    /// Accepted without effect: there are no configurations of gcloud
    #[arg(long, global = true, value_name = "NAME")]
    pub configuration: Option<String>,
}

/// The forms of `--format` that work here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GcloudFormat {
    Json,
    Yaml,
    /// Only these fields, separated by tabs.
    Value(Vec<String>),
    Table,
}

impl std::str::FromStr for GcloudFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fields = |inside: &str| {
            inside.split(',').map(|field| field.trim().to_owned()).collect::<Vec<_>>()
        };
        match text {
            "json" => Ok(GcloudFormat::Json),
            "yaml" => Ok(GcloudFormat::Yaml),
            "table" | "default" => Ok(GcloudFormat::Table),
            _ => text
                .strip_prefix("value(")
                .and_then(|rest| rest.strip_suffix(')'))
                .map(|inside| GcloudFormat::Value(fields(inside)))
                .ok_or_else(|| "write `json`, `yaml` or `value(FIELD,...)`".to_owned()),
        }
    }
}

impl fmt::Display for GcloudFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GcloudFormat::Json => f.write_str("json"),
            GcloudFormat::Yaml => f.write_str("yaml"),
            GcloudFormat::Value(fields) => write!(f, "value({})", fields.join(",")),
            GcloudFormat::Table => f.write_str("table"),
        }
    }
}

impl GcloudFlags {
    /// Says once which of the given flags mean nothing here.
    pub fn say_what_is_ignored(&self, context: &Context) {
        let given = [
            ("--verbosity", self.verbosity.is_some()),
            ("--project", self.project.is_some()),
            ("--account", self.account.is_some()),
            ("--configuration", self.configuration.is_some()),
        ];
        without_meaning(&given).into_iter().for_each(|told| context.printer.note(told));
    }

    /// The form that was asked for by `--format`, else by `-o`.
    pub fn form(&self, context: &Context) -> GcloudFormat {
        match (&self.format, context.printer.format()) {
            (Some(format), _) => format.clone(),
            (None, Format::Json | Format::Jsonl) => GcloudFormat::Json,
            (None, Format::Text) => GcloudFormat::Table,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_reads_the_three_forms_of_gcloud() {
        for text in ["json", "yaml", "table", "value(jobId,state)"] {
            assert_eq!(text.parse::<GcloudFormat>().unwrap().to_string(), text);
        }
        let fields = GcloudFormat::Value(vec!["jobId".into(), "state".into()]);
        assert_eq!("value(jobId, state)".parse(), Ok(fields));
        assert!("flattened".parse::<GcloudFormat>().is_err());
        assert!("value(jobId".parse::<GcloudFormat>().is_err());
    }
}
