//! The JSON schemas of the files that people write, and the list of their keys.

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

use super::job_file::{JobFile, UserFile};

/// The schema of the job file, for editors: `config/schema/job.json`.
pub fn job_schema() -> Value {
    sorted(schema_of::<JobFile>().to_value())
}

/// The schema of the user configuration: `config/schema/config.json`.
pub fn user_schema() -> Value {
    sorted(schema_of::<UserFile>().to_value())
}

/// Sorts the keys: a generated file must not depend on the features of `serde_json` that another
/// crate has switched on.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> =
                map.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            entries.sort_by(|(left, _), (right, _)| left.cmp(right));
            entries.into_iter().collect()
        }
        Value::Array(list) => list.into_iter().map(sorted).collect(),
        plain => plain,
    }
}

fn schema_of<T: JsonSchema>() -> Schema {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    transform_subschemas(&mut without_null, &mut schema);
    schema
}

/// A key that may be left out is an `Option` here; in the file there is no `null`.
fn without_null(schema: &mut Schema) {
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    for list in ["type", "enum"] {
        let Some(Value::Array(values)) = schema.get_mut(list) else { continue };
        values.retain(|value| *value != Value::Null && value != "null");
        if let ("type", [only]) = (list, values.as_slice()) {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    transform_subschemas(&mut without_null, schema);
}

/// Every dotted key of a file, tables before their keys.
pub fn key_paths<T: JsonSchema>() -> Vec<String> {
    let mut paths = Vec::new();
    collect(schema_of::<T>().as_value(), "", &mut paths);
    paths
}

fn collect(schema: &Value, prefix: &str, paths: &mut Vec<String>) {
    for (name, below) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if name.starts_with('$') {
            continue;
        }
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        paths.push(path.clone());
        collect(below, &path, paths);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_at_every_depth() {
        let paths = key_paths::<JobFile>();
        for path in ["command", "machine", "machine.gpus", "watch.idle", "interruptions.max"] {
            assert!(paths.iter().any(|known| known == path), "{path} in {paths:?}");
        }
    }
}
