//! A file that a user wrote, as a tree of values and the line of every key.
//!
//! TOML and JSON become the same tree, so that everything after this asks only once. Not here: the
//! meaning of a key.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::job::Finding;

/// The job file in the current folder that a bare `lamp run` takes.
pub const JOB_FILE: &str = "lamp.toml";

/// The values, and where they stand. Lines count from 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Source {
    pub value: Value,
    lines: BTreeMap<String, usize>,
}

impl Source {
    /// # Errors
    /// The text is not TOML (or JSON, by the file's extension): one finding with its line.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Vec<Finding>> {
        // Windows ends lines with two characters, and a shell takes the first of them for a part of
        // the word before it.
        let text = &text.replace("\r\n", "\n");
        let is_json =
            path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        if is_json { Self::parse_json(text) } else { Self::parse_toml(text) }
    }

    fn parse_json(text: &str) -> Result<Self, Vec<Finding>> {
        let value =
            serde_json::from_str::<Unique>(text).map(|unique| unique.0).map_err(|error| {
                let message = error.to_string();
                let message = message.split(" at line ").next().unwrap_or(&message).to_owned();
                let is_before =
                    ["expected `,` or", "trailing comma", "EOF while", "control character"]
                        .iter()
                        .any(|begin| message.starts_with(begin));
                let line = if is_before {
                    last_said(text_before(text, error.line(), error.column()))
                } else {
                    error.line()
                };
                vec![Finding::error("", format!("not valid JSON: {message}")).at_line(Some(line))]
            })?;
        Ok(Source { value, lines: BTreeMap::new() })
    }

    fn parse_toml(text: &str) -> Result<Self, Vec<Finding>> {
        let document = toml_edit::Document::parse(text).map_err(|error| {
            let line = error.span().map(|span| line_of_mistake(text, span.start, error.message()));
            let message = error.message().lines().collect::<Vec<_>>().join(", ");
            // A forgotten bracket and a forgotten comma look the same until the next word.
            let or = match message.as_str() {
                _ if message.starts_with("missing comma between array") => " or `]`",
                _ if message.starts_with("missing comma between key") => " or `}`",
                _ => "",
            };
            vec![Finding::error("", format!("not valid TOML: {message}{or}")).at_line(line)]
        })?;
        let mut lines = BTreeMap::new();
        let value = table_value(document.as_table(), "", &Lines::of(text), &mut lines);
        Ok(Source { value, lines })
    }

    /// The SHA-256 of the values alone, lower-case hex.
    pub fn sha256(&self) -> String {
        // Keys in their order, whatever the order in the file.
        let sorted: BTreeMap<String, String> = leaves("", &self.value).into_iter().collect();
        hex::encode(Sha256::digest(serde_json::to_vec(&sorted).unwrap_or_default()))
    }

    /// A tree that came from no file.
    #[cfg(test)]
    pub fn from_value(value: Value) -> Self {
        Source { value, lines: BTreeMap::new() }
    }

    /// The line of this key, or of the closest key around it.
    pub fn line(&self, path: &str) -> Option<usize> {
        let mut path = path;
        loop {
            if let Some(line) = self.lines.get(path) {
                return Some(*line);
            }
            path = path.rsplit_once('.')?.0;
        }
    }
}

/// Where the lines of a text begin: a file of ten thousand keys is not counted through for each.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Lines(
            text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect(),
        )
    }

    fn at(&self, at: usize) -> usize {
        self.0.partition_point(|end| *end < at) + 1
    }
}

/// JSON with each key once. The last of two values would count, and the user would not hear of the
/// first.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Unique)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(truth.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Unique(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(key) = table.next_key::<String>()? {
            if values.contains_key(&key) {
                return Err(A::Error::custom(format_args!("duplicate key `{key}`")));
            }
            let Unique(value) = table.next_value()?;
            values.insert(key, value);
        }
        Ok(Value::Object(values))
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// The line that the user must correct. The parser notices a missing sign only at the next word,
/// which may be lines below. It notices a missing end only at the end of the file.
fn line_of_mistake(text: &str, at: usize, message: &str) -> usize {
    let before = text.get(..at).unwrap_or(text);
    let is_at_end = text[before.len()..].trim().is_empty();
    if message.starts_with("missing comma") || (message.starts_with("unclosed") && is_at_end) {
        return last_said(before);
    }
    if message.starts_with("invalid multi-line") && is_at_end {
        let quotes = if message.contains("literal") { "'''" } else { "\"\"\"" };
        return line_of(text, text.rfind(quotes).unwrap_or(at));
    }
    line_of(text, at)
}

/// The last line that says anything.
fn last_said(before: &str) -> usize {
    let says = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    before.lines().enumerate().filter(|(_, line)| says(line)).last().map_or(1, |(at, _)| at + 1)
}

/// The text before a column of a line. Both count from 1; columns count bytes.
fn text_before(text: &str, line: usize, column: usize) -> &str {
    let above: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    text.get(..above + column.saturating_sub(1)).unwrap_or(text)
}

fn table_value(
    table: &dyn toml_edit::TableLike,
    prefix: &str,
    text: &Lines,
    lines: &mut BTreeMap<String, usize>,
) -> Value {
    let mut map = Map::new();
    for (name, item) in table.iter() {
        let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
        if let Some(span) = table.key(name).and_then(toml_edit::Key::span).or_else(|| item.span()) {
            lines.insert(path.clone(), text.at(span.start));
        }
        map.insert(name.to_owned(), item_value(item, &path, text, lines));
    }
    Value::Object(map)
}

fn item_value(
    item: &toml_edit::Item,
    path: &str,
    text: &Lines,
    lines: &mut BTreeMap<String, usize>,
) -> Value {
    if let Some(table) = item.as_table_like() {
        return table_value(table, path, text, lines);
    }
    if let Some(tables) = item.as_array_of_tables() {
        return tables.iter().map(|table| table_value(table, path, text, lines)).collect();
    }
    item.as_value().map_or(Value::Null, |value| plain_value(value, path, text, lines))
}

fn plain_value(
    value: &toml_edit::Value,
    path: &str,
    text: &Lines,
    lines: &mut BTreeMap<String, usize>,
) -> Value {
    match value {
        toml_edit::Value::String(string) => Value::String(string.value().clone()),
        toml_edit::Value::Integer(number) => Value::from(*number.value()),
        // TOML has `nan` and `inf`; JSON has not. As text they fail with the sentence of the key
        // that they stand at.
        toml_edit::Value::Float(number) => serde_json::Number::from_f64(*number.value())
            .map_or_else(|| Value::String(number.value().to_string()), Value::Number),
        toml_edit::Value::Boolean(truth) => Value::Bool(*truth.value()),
        toml_edit::Value::Datetime(moment) => Value::String(moment.value().to_string()),
        toml_edit::Value::Array(array) => {
            array.iter().map(|element| plain_value(element, path, text, lines)).collect()
        }
        toml_edit::Value::InlineTable(table) => table_value(table, path, text, lines),
    }
}

/// Every value with its dotted path; an empty table is one too.
fn leaves(path: &str, value: &Value) -> Vec<(String, String)> {
    match value {
        Value::Object(map) if !map.is_empty() => map
            .iter()
            .flat_map(|(key, value)| {
                leaves(&format!("{path}.{}", Value::from(key.as_str())), value)
            })
            .collect(),
        other => vec![(path.to_owned(), other.to_string())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_knows_its_line() {
        let text = "name = 'x'\n\n[machine]\ngpus = 'A10G:1'\nextra = { a = 1,\n b = 2 }\n";
        let source = Source::parse(Path::new("job.toml"), text).unwrap();
        assert_eq!(source.line("name"), Some(1));
        assert_eq!(source.line("machine"), Some(3));
        assert_eq!(source.line("machine.gpus"), Some(4));
        assert_eq!(source.line("machine.extra.b"), Some(6));
        assert_eq!(source.line("machine.gpus.0"), Some(4));
        assert_eq!(source.line("watch.idle"), None);
        assert_eq!(source.value["machine"]["extra"]["b"], 2);
    }

    /// nightingale#1713: the carriage returns went into the shell.
    #[test]
    fn carriage_returns_of_the_file_stay_out_of_its_values() {
        let text = "setup = \"\"\"\r\ntest -f x\r\nmake\r\n\"\"\"\r\n[env]\r\nA = \"a\\rb\"\r\n";
        let source = Source::parse(Path::new("job.toml"), text).unwrap();
        assert_eq!(source.value["setup"], "test -f x\nmake\n");
        assert_eq!(source.value["env"]["A"], "a\rb", "one that is written as such stays");
        assert_eq!(source.line("env.A"), Some(6));
    }

    /// The larger of two budgets must not win unseen. TOML refuses it by itself.
    #[test]
    fn key_that_stands_twice_in_json_is_refused() {
        let text = "{\n\"command\": [\"true\"],\n\"limits\": {\"budget\": 1,\n\"budget\": 99}}";
        let [finding] = &Source::parse(Path::new("job.json"), text).unwrap_err()[..] else {
            panic!("one finding")
        };
        assert_eq!(
            (finding.line, finding.message.as_str()),
            (Some(4), "not valid JSON: duplicate key `budget`")
        );
        let good = "{\"a\": [1, -2, 2.5, true, null, \"x\", {\"b\": {}}]}";
        let source = Source::parse(Path::new("job.json"), good).unwrap();
        assert_eq!(source.value, serde_json::from_str::<Value>(good).unwrap());
    }

    /// Each was counted from the beginning of the file: 60,000 variables took minutes.
    #[test]
    fn many_keys_are_read_in_linear_time() {
        let text: String = (0..60_000).map(|n| format!("A{n} = 'x'\n")).collect();
        let source = Source::parse(Path::new("job.toml"), &text).unwrap();
        assert_eq!(source.line("A59999"), Some(60_000));
    }

    #[test]
    fn broken_syntax_is_one_finding_with_its_line() {
        let [finding] =
            &Source::parse(Path::new("job.toml"), "name = 'x'\ncommand = [\n").unwrap_err()[..]
        else {
            panic!("one finding")
        };
        assert_eq!(finding.line, Some(2), "{finding:?}");
        let found = Source::parse(Path::new("job.json"), "{\n\"name\": }").unwrap_err();
        assert_eq!(found[0].line, Some(2));
    }

    #[test]
    fn what_is_missing_is_told_of_the_line_that_lacks_it() {
        for (text, line, said) in [
            ("command = ['a', 'b'\n\n[machine]\ngpus = 'none'\n", 1, "expected `,` or `]`"),
            ("name = 'x'\noutputs = [\n  'a' # one\n  # two\n  'b',\n]\n", 3, "missing comma"),
            ("machine = { cloud = 'local'\n gpus = 'none' }\n", 1, "expected `,` or `}`"),
            ("name = 'x'\ncommand = ['a',\n\n", 2, "unclosed array"),
            ("setup = \"\"\"make\nname = 'x'\n", 1, "multi-line"),
            ("setup = '''make\nname = 'x'\n", 1, "multi-line"),
            // These mistakes are on the line that the parser names.
            ("name = 'x'\n[machine\ngpus = 'none'\n", 2, "unclosed table"),
            ("name = 'x'\nname = 'y'\n", 2, "duplicate key"),
            ("name =\nworkdir = '.'\n", 1, "not valid TOML"),
        ] {
            let [finding] = &Source::parse(Path::new("job.toml"), text).unwrap_err()[..] else {
                panic!("one finding: {text}")
            };
            assert!(
                finding.line == Some(line) && finding.message.contains(said),
                "{text}: {finding:?}"
            );
        }
        for (text, line) in [
            ("{\n\"name\": \"x\"\n\n\"command\": \"a\"}", 2),
            ("{\"outputs\": [\"x\"\n\"b\"]}", 1),
            ("{\n\"name\": \"x\",\n}", 2),
            ("{\n\"name\": \"x\"\n\n", 2),
            ("{\n\"name\": \"x\n\"}", 2),
            ("{\n\"name\" \"x\"}", 2),
        ] {
            let found = Source::parse(Path::new("job.json"), text).unwrap_err();
            assert_eq!(found[0].line, Some(line), "{text}: {found:?}");
        }
    }
}
