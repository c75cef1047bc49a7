//! Prints a document in the form that `--format` asks for.

use saphyr::{LoadableYamlNode as _, Yaml, YamlEmitter};
use serde_json::Value;

use super::gcloud_flags::{GcloudFlags, GcloudFormat};
use crate::cli::{Context, Printer};

/// Prints a document, or a list of them. Returns false if a table was asked for: the caller has it.
pub fn print(printer: &Printer, form: &GcloudFormat, document: &Value) -> bool {
    match form {
        GcloudFormat::Table => return false,
        GcloudFormat::Json => printer.json(document),
        GcloudFormat::Yaml => printer.line(yaml(document)),
        GcloudFormat::Value(fields) => {
            rows(document).iter().for_each(|row| printer.line(values(row, fields)));
        }
    }
    true
}

/// Prints one document. People get it as YAML, as in gcloud.
pub fn show(context: &Context, gcloud: &GcloudFlags, document: &Value) {
    let form = match gcloud.form(context) {
        GcloudFormat::Table => GcloudFormat::Yaml,
        form => form,
    };
    print(&context.printer, &form, document);
}

fn rows(document: &Value) -> Vec<&Value> {
    document.as_array().map_or_else(|| vec![document], |rows| rows.iter().collect())
}

/// The fields, separated by tabs. A field may be a path: `trainingInput.region`.
fn values(row: &Value, fields: &[String]) -> String {
    let text = |field: &String| {
        let found = field.split('.').try_fold(row, |value, key| value.get(key));
        match found {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    };
    fields.iter().map(text).collect::<Vec<_>>().join("\t")
}

/// The document as YAML, without the line of dashes before it.
pub fn yaml(document: &Value) -> String {
    // Each JSON document is a YAML document.
    let text = document.to_string();
    let mut written = String::new();
    let nodes = Yaml::load_from_str(&text).unwrap_or_default();
    for node in &nodes {
        if YamlEmitter::new(&mut written).dump(node).is_err() {
            return text;
        }
    }
    written.strip_prefix("---\n").map(str::to_owned).unwrap_or(written)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_has_a_line_for_each_key() {
        let document =
            json!({ "jobId": "a", "args": ["--x", "1"], "version": "3.5", "input": { "n": 2 } });
        let written = yaml(&document);
        let read = parsed(&written);
        assert_eq!(read, document, "{written}");
        assert!(written.contains("jobId: a\n"), "{written}");
    }

    /// Read back by the same crate.
    pub fn parsed(text: &str) -> Value {
        fn value(node: &Yaml<'_>) -> Value {
            if let Some(pairs) = node.as_mapping() {
                let pair = |(key, inner): (&Yaml<'_>, &Yaml<'_>)| {
                    (key.as_str().unwrap().to_owned(), value(inner))
                };
                return Value::Object(pairs.iter().map(pair).collect());
            }
            if let Some(items) = node.as_sequence() {
                return Value::Array(items.iter().map(value).collect());
            }
            match (node.as_integer(), node.as_str()) {
                (Some(number), _) => json!(number),
                (_, Some(text)) => json!(text),
                _ => Value::Null,
            }
        }
        value(&Yaml::load_from_str(text).unwrap()[0])
    }

    #[test]
    fn value_prints_fields_between_tabs() {
        let row = json!({ "jobId": "a", "state": "QUEUED", "trainingInput": { "region": "x" } });
        let fields = ["jobId", "trainingInput.region", "missing"].map(str::to_owned);
        assert_eq!(values(&row, &fields), "a\tx\t");
    }
}
