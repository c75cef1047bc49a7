//! The answer of a model server as the table that gcloud prints.

use serde_json::Value;

#[derive(Debug, PartialEq, Eq)]
pub enum PredictionTable {
    /// Objects: a column for each key, in order.
    Columns { keys: Vec<String>, rows: Vec<Vec<String>> },
    /// Plain values: one line without a heading.
    Line(String),
}

/// The predictions of an answer, one an instance. A server may answer a SavedModel with one list
/// for each output, which become rows.
pub fn predictions(answer: &Value, instances: usize) -> Option<Vec<Value>> {
    match answer.get("predictions")? {
        Value::Array(rows) => Some(rows.clone()),
        Value::Object(outputs) if !outputs.is_empty() => {
            let row = |at: usize| {
                let cell = |(key, values): (&String, &Value)| {
                    let values = values.as_array().filter(|values| values.len() == instances)?;
                    Some((key.clone(), values[at].clone()))
                };
                outputs.iter().map(cell).collect::<Option<serde_json::Map<_, _>>>()
            };
            (0..instances).map(|at| row(at).map(Value::Object)).collect()
        }
        _ => None,
    }
}

/// gcloud takes the columns from the first prediction.
pub fn table(predictions: &[Value]) -> PredictionTable {
    let Some(Value::Object(first)) = predictions.first() else {
        return PredictionTable::Line(cell(&Value::Array(predictions.to_vec())));
    };
    let mut keys: Vec<String> = first.keys().cloned().collect();
    keys.sort_unstable();
    let row = |prediction: &Value| {
        keys.iter()
            .map(|key| match prediction.get(key) {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(value) => cell(value),
            })
            .collect()
    };
    let rows = predictions.iter().map(row).collect();
    PredictionTable::Columns { keys, rows }
}

/// JSON with a blank after each comma and colon, as Python and gcloud write it.
fn cell(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            format!("[{}]", items.iter().map(cell).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| {
                format!("{}: {}", Value::from(key.as_str()), cell(value))
            };
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        plain => plain.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_columns_with_sorted_keys() {
        let answer = json!({ "predictions": [
            { "probabilities": [0.9, 0.1], "class": 0 },
            { "probabilities": [0.2, 0.8], "class": 1 },
        ]});
        let rows = predictions(&answer, 2).unwrap();
        let PredictionTable::Columns { keys, rows } = table(&rows) else { panic!("a table") };
        assert_eq!(keys, ["class", "probabilities"]);
        assert_eq!(rows, [["0", "[0.9, 0.1]"], ["1", "[0.2, 0.8]"]]);
    }

    #[test]
    fn plain_values_are_one_line() {
        let rows = predictions(&json!({ "predictions": [true, false] }), 2).unwrap();
        assert_eq!(table(&rows), PredictionTable::Line("[true, false]".to_owned()));
    }

    #[test]
    fn list_for_each_output_becomes_rows() {
        let answer = json!({ "predictions": { "class": [3, 4], "scores": [[1.0], [2.0]] } });
        let rows = predictions(&answer, 2).unwrap();
        assert_eq!(rows[1], json!({ "class": 4, "scores": [2.0] }));
        assert_eq!(predictions(&answer, 3), None, "lists of another length are no rows");
        assert_eq!(predictions(&json!({ "error": "no" }), 1), None);
    }
}
