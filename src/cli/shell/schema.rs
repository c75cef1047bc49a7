//! `lamp schema` (hidden): the JSON schemas of job files and configurations, for `config/schema`
//! and editors, and of what `-o json` prints, for programs.

use clap::{Args as ClapArgs, ValueEnum};
use serde_json::{Value, json};

use crate::cli::{Context, ExitCode, Fault};
use crate::config;

/// Print the JSON schema of a file, or of what a command prints with `-o json`
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// What it describes [default: a list]
    #[arg(value_enum)]
    pub file: Option<SchemaName>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchemaName {
    /// The job file
    Job,
    /// The user configuration
    Config,
    /// What `lamp status -o json` prints
    #[cfg(feature = "web")]
    Status,
    /// What `lamp top --once -o json` prints
    #[cfg(feature = "web")]
    Top,
    /// What `lamp costs -o json` prints
    #[cfg(feature = "web")]
    Costs,
    /// What `lamp plan -o json` prints
    #[cfg(feature = "web")]
    Plan,
    /// What `lamp explain -o json` prints
    #[cfg(feature = "web")]
    Explain,
    /// What `lamp receipt -o json` prints of a job with a machine
    #[cfg(feature = "web")]
    Receipt,
}

/// # Errors
/// None.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let printer = &context.printer;
    match args.file {
        Some(SchemaName::Job) => printer.json(&config::job_schema()),
        Some(SchemaName::Config) => printer.json(&config::user_schema()),
        #[cfg(feature = "web")]
        Some(output) => printer.json(&output_schemas::of(output)),
        None if context.is_machine_output() => printer.json(&json!({ "schemas": list() })),
        None => list().iter().for_each(|one| {
            let text = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
            printer.line(format!("{:<9} {}", text("name"), text("of")));
        }),
    }
    Ok(ExitCode::SUCCESS)
}

fn list() -> Vec<Value> {
    let values = SchemaName::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    values
        .map(|value| {
            let of = value.get_help().map(ToString::to_string);
            json!({ "name": value.get_name(), "of": of })
        })
        .collect()
}

/// The types that the commands print describe themselves, as for the HTTP API.
#[cfg(feature = "web")]
mod output_schemas {
    use serde_json::{Map, Value, json};
    use utoipa::ToSchema;

    use super::SchemaName;
    use crate::app::overview::overview::Overview;
    use crate::app::view::timeline::Explained;
    use crate::cli::plan::plan_document::PlanDocument;
    use crate::cli::status::costs::CostDocument;
    use crate::cli::status::status::Listing;
    use crate::job::Receipt;

    pub fn of(output: SchemaName) -> Value {
        match output {
            SchemaName::Job | SchemaName::Config => Value::Null,
            SchemaName::Status => document::<Listing>("lamp status -o json"),
            SchemaName::Top => document::<Overview>("lamp top --once -o json"),
            SchemaName::Costs => document::<CostDocument<'_>>("lamp costs -o json"),
            SchemaName::Plan => document::<PlanDocument<'_>>("lamp plan -o json"),
            SchemaName::Explain => document::<Explained>("lamp explain -o json"),
            SchemaName::Receipt => document::<Receipt>("lamp receipt -o json"),
        }
    }

    /// A reference names a part as in an OpenAPI document, so the parts are in the same place.
    fn document<T: ToSchema>(title: &str) -> Value {
        let mut found = Vec::new();
        T::schemas(&mut found);
        let value = |schema| serde_json::to_value(schema).expect("a schema holds only JSON");
        let parts: Map<String, Value> =
            found.into_iter().map(|(name, schema)| (name, value(schema))).collect();
        let mut document = value(T::schema());
        document["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
        document["title"] = json!(title);
        document["components"] = json!({ "schemas": parts });
        document
    }
}
