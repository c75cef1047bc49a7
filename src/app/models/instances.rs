//! The instances of a prediction, from the three forms that gcloud takes.

use serde_json::Value;

/// `lamp predict` sends at most so many, as gcloud did. More are a batch job.
pub const INSTANCES_MAX: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceForm {
    /// One JSON value a line.
    JsonLines,
    /// One text a line.
    TextLines,
    /// `{"instances": [...]}`.
    Request,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstancesError {
    #[error("it is not UTF-8 text")]
    NotText,
    #[error("line {0} is empty")]
    EmptyLine(usize),
    #[error("line {line} is not JSON: {what}")]
    NotJson { line: usize, what: String },
    #[error("it is no JSON request: {0}")]
    NotRequest(String),
    #[error("it has no instance")]
    Nothing,
    #[error("it has {found} instances, and one call takes {INSTANCES_MAX}")]
    TooMany { found: usize },
}

/// # Errors
/// When the text is not in that form, or has more instances than `max`.
pub fn instances(
    bytes: &[u8],
    form: InstanceForm,
    max: Option<usize>,
) -> Result<Vec<Value>, InstancesError> {
    let text = std::str::from_utf8(bytes).map_err(|_| InstancesError::NotText)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let found = match form {
        InstanceForm::Request => of_request(text)?,
        InstanceForm::JsonLines => of_lines(text, json_line)?,
        InstanceForm::TextLines => of_lines(text, |line, _| Ok(Value::from(line)))?,
    };
    match found.len() {
        0 => Err(InstancesError::Nothing),
        many if max.is_some_and(|max| many > max) => Err(InstancesError::TooMany { found: many }),
        _ => Ok(found),
    }
}

fn of_lines(
    text: &str,
    read: impl Fn(&str, usize) -> Result<Value, InstancesError>,
) -> Result<Vec<Value>, InstancesError> {
    let line = |(at, line): (usize, &str)| {
        if line.is_empty() { Err(InstancesError::EmptyLine(at + 1)) } else { read(line, at + 1) }
    };
    text.lines().enumerate().map(line).collect()
}

fn json_line(line: &str, number: usize) -> Result<Value, InstancesError> {
    serde_json::from_str(line)
        .map_err(|error| InstancesError::NotJson { line: number, what: without_place(&error) })
}

/// The reader of a line counts it as line 1 of its own text.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let column = error.column();
    let what = text.split(" at line ").next().unwrap_or(&text);
    format!("{what} at column {column}")
}

fn of_request(text: &str) -> Result<Vec<Value>, InstancesError> {
    let request: Value = serde_json::from_str(text)
        .map_err(|error| InstancesError::NotRequest(error.to_string()))?;
    match request.get("instances") {
        Some(Value::Array(instances)) => Ok(instances.clone()),
        Some(_) => Err(InstancesError::NotRequest("`instances` is no list".to_owned())),
        None => Err(InstancesError::NotRequest("`instances` is missing".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn instances_are_one_a_line_and_a_wrong_line_is_named() {
        let read = |text: &str| instances(text.as_bytes(), InstanceForm::JsonLines, Some(3));
        assert_eq!(read("[1, 2]\r\n{\"a\": 3}\n"), Ok(vec![json!([1, 2]), json!({"a": 3})]));
        assert_eq!(read("1\n\n2\n"), Err(InstancesError::EmptyLine(2)));
        let wrong = read("[1]\n[2,\n").unwrap_err().to_string();
        assert!(wrong.starts_with("line 2 is not JSON: EOF while parsing"), "{wrong}");
        assert_eq!(read(""), Err(InstancesError::Nothing));
        assert_eq!(read("1\n2\n3\n4\n"), Err(InstancesError::TooMany { found: 4 }));
        assert_eq!(instances(&[0xff], InstanceForm::JsonLines, None), Err(InstancesError::NotText));
    }

    #[test]
    fn text_and_request_are_read_too() {
        let text = instances(b"a b\n\"c\"\n", InstanceForm::TextLines, None);
        assert_eq!(text, Ok(vec![json!("a b"), json!("\"c\"")]));
        let request = |text: &str| instances(text.as_bytes(), InstanceForm::Request, None);
        assert_eq!(request("{\"instances\": [[1]]}"), Ok(vec![json!([1])]));
        for wrong in ["[1]", "{}", "{\"instances\": 3}", "{"] {
            assert!(matches!(request(wrong), Err(InstancesError::NotRequest(_))), "{wrong}");
        }
    }
}
