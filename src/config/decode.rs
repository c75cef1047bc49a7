//! From a tree of values to a typed fragment, with every mistake found at once.
//!
//! Serde stops at the first mistake. So `decode` notes the mistake with its path and line, removes
//! that value from the tree, and tries again. Each round removes one value, so it ends.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;

use super::document::Source;
use super::key_suggest;
use super::schema::key_paths;
use crate::job::{Finding, FindingCause, KeySuggestion};

/// How many mistakes of one file are reported. Each costs one more read of the whole file.
const MISTAKES_MAX: usize = 100;

/// The values that could be read, and findings about the rest. `T::default()` if the whole is not a
/// table.
pub fn decode<T: DeserializeOwned + JsonSchema + Default>(source: &Source) -> (T, Vec<Finding>) {
    let mut value = source.value.clone();
    let mut found: Vec<Finding> = lists_of_tables::<T>(&mut value)
        .into_iter()
        .map(|finding| {
            let line = source.line(&finding.path);
            finding.at_line(line)
        })
        .collect();
    loop {
        let error = match serde_path_to_error::deserialize::<_, T>(&value) {
            Ok(fragment) => {
                found.sort_by_key(|finding: &Finding| finding.line);
                return (fragment, found);
            }
            Err(error) => error,
        };
        let mut path = keys(error.path());
        let message = error.inner().to_string();
        let unknown = unknown_field(&message);
        if let Some(name) = unknown
            && path.last().is_none_or(|last| last != name)
        {
            path.push(name.to_owned());
        }
        let finding = match unknown {
            Some(name) => unknown_key::<T>(&path, name),
            None => Finding::error(&path.join("."), plain(&message)),
        };
        let line = source.line(&finding.path);
        found.push(finding.at_line(line));
        if found.len() == MISTAKES_MAX {
            found.push(Finding::error(
                "",
                format!("has more than {MISTAKES_MAX} mistakes: the rest is not told"),
            ));
            return (T::default(), found);
        }
        if !remove(&mut value, &path) {
            return (T::default(), found);
        }
    }
}

/// `[[caps]]` for `[caps]`: Serde reads a list as a table's keys in their order, and its complaint
/// is of the first of them.
fn lists_of_tables<T: JsonSchema>(value: &mut Value) -> Vec<Finding> {
    let is_list = |value: &Value| {
        value.as_array().is_some_and(|list| list.first().is_none_or(Value::is_object))
    };
    let lists = value
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| is_list(value))
        .map(|(name, _)| name.clone());
    let lists: Vec<String> = lists.collect();
    if lists.is_empty() {
        return Vec::new();
    }
    let paths = key_paths::<T>();
    let is_table = |name: &String| {
        paths
            .iter()
            .any(|path| path.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('.')))
    };
    let wrong: Vec<String> = lists.into_iter().filter(is_table).collect();
    let taken = wrong.into_iter().filter(|name| remove(value, std::slice::from_ref(name)));
    taken
        .map(|name| {
            Finding::error(&name, "is a list of tables, expected one table")
                .hint(format!("write `[{name}]`, in single brackets"))
        })
        .collect()
}

/// Names of tables and keys. An element of a list is reported and removed with its list.
fn keys(path: &serde_path_to_error::Path) -> Vec<String> {
    path.iter()
        .map_while(|segment| match segment {
            Segment::Map { key } => Some(key.clone()),
            Segment::Seq { .. } | Segment::Enum { .. } | Segment::Unknown => None,
        })
        .collect()
}

fn unknown_field(message: &str) -> Option<&str> {
    message.strip_prefix("unknown field `")?.split('`').next()
}

fn unknown_key<T: JsonSchema>(path: &[String], name: &str) -> Finding {
    let table = path[..path.len().saturating_sub(1)].join(".");
    let place = if table.is_empty() { "this file".to_owned() } else { format!("`[{table}]`") };
    let meant = key_suggest::for_key(&table, name, &key_paths::<T>());
    let mut finding = Finding::error(&path.join("."), format!("is not a key of {place}"));
    finding.hint = meant.as_ref().map(KeySuggestion::to_string);
    finding.because(FindingCause::UnknownKey(meant))
}

/// Serde's sentence without its machinery: `invalid type: integer `15`, expected X` becomes
/// `is 15, expected X`.
fn plain(message: &str) -> String {
    let Some(rest) =
        message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "))
    else {
        return message.to_owned();
    };
    let (is, expected) = rest.split_once(", expected ").unwrap_or((rest, "something else"));
    let is = match is {
        "map" => "a table",
        "sequence" => "a list",
        // Serde's names of kinds of numbers; the number itself is what was typed.
        other => other
            .strip_prefix("integer ")
            .or_else(|| other.strip_prefix("floating point "))
            .unwrap_or(other),
    };
    let expected = match expected {
        "a sequence" => "a list",
        "u32" => "a whole number from 0 on",
        "i32" => "a whole number",
        "f64" => "a number",
        "a string" => "a text",
        table if table.starts_with("struct ") => "a table",
        other => other,
    };
    format!("is {is}, expected {expected}")
}

/// Whether something was there to take out.
fn remove(value: &mut Value, path: &[String]) -> bool {
    let Some((last, above)) = path.split_last() else { return false };
    let table = above.iter().try_fold(value, |value, key| value.get_mut(key));
    table.and_then(Value::as_object_mut).is_some_and(|table| table.remove(last).is_some())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::config::job_file::JobFile;

    fn read(text: &str) -> (JobFile, Vec<String>) {
        let source = Source::parse(Path::new("job.toml"), text).unwrap();
        let (file, found) = decode(&source);
        let lines = found
            .iter()
            .map(|f| format!("{}: {f} / {}", f.line.unwrap_or(0), f.hint.as_deref().unwrap_or("-")))
            .collect();
        (file, lines)
    }

    #[test]
    fn all_mistakes_are_found_at_once_and_the_rest_is_read() {
        let (file, found) = read(
            "name = 'x'\ncomand = 'a'\nbudget = 5\n[machine]\ngpus = 'A10G:x'\nusd_per_hour = [1]\n[watch]\nidle = 15\nstall = '1h'\nidel = 1\n",
        );
        assert_eq!(
            found,
            [
                "2: `comand`: is not a key of this file / did you mean `command`?",
                "3: `budget`: is not a key of this file / did you mean `budget` in `[limits]` or `[tune]`?",
                "5: `machine.gpus`: `A10G:x` is not a GPU requirement, write \"A10G:1\", \"H100:8\", \"at least 24GiB\", \"2 x 24GiB\" or \"none\" / -",
                "6: `machine.usd_per_hour`: is a list, expected dollars per hour, like 0.25 or \"$0.25\" / -",
                "8: `watch.idle`: `15` has no unit, write `15s` for seconds or `15m` for minutes / -",
                "10: `watch.idel`: is not a key of `[watch]` / did you mean `idle`?",
            ]
        );
        assert_eq!(file.name.as_deref(), Some("x"));
        assert!(file.watch.unwrap().stall.is_some());
    }

    #[test]
    fn table_for_a_value_and_value_for_a_table_are_reported() {
        let (_, found) = read("machine = 'aws'\noutputs = ['a', 3]\n[name]\nx = 1\n");
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("`machine`: is string \"aws\", expected a table"), "{found:?}");
    }

    /// Values of every shape, as a tired person might write them.
    fn anything() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a-z0-9% :.]{0,12}".prop_map(Value::from),
            prop::sample::select(vec![
                "15m", "off", "spot", "A10G:1", "100GiB", "keep 2h", "auto", "all"
            ])
            .prop_map(Value::from),
        ];
        leaf.prop_recursive(2, 8, 3, |inner| {
            let key = prop::sample::select(vec!["gpus", "idle", "budget", "path", "max", "idel"]);
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::vec((key, inner), 0..3).prop_map(|pairs| pairs
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value))
                    .collect()),
            ]
        })
    }

    /// Puts it at a path like `gang.ps.gpus`, unless a value is there instead of a table.
    fn put(file: &mut Value, path: &str, entry: Value) {
        let (tables, key) = path.rsplit_once('.').unwrap_or(("", path));
        let mut at = file;
        for table in tables.split('.').filter(|table| !table.is_empty()) {
            at = &mut at[table];
            if !at.is_null() && !at.is_object() {
                return;
            }
        }
        at[key] = entry;
    }

    proptest! {
        /// For every file, reading ends, and each mistake is reported once. The rest is correct.
        #[test]
        fn every_file_is_read_to_its_end(
            entries in prop::collection::btree_map(prop::sample::select(key_paths::<JobFile>()), anything(), 0..8),
        ) {
            let mut value = Value::Object(serde_json::Map::new());
            for (path, entry) in entries {
                put(&mut value, &path, entry);
            }
            let (_, found) = decode::<JobFile>(&Source::from_value(value));
            let mut paths: Vec<_> = found.iter().map(|finding| &finding.path).collect();
            paths.sort();
            let told = paths.len();
            paths.dedup();
            prop_assert_eq!(paths.len(), told, "{:?}", found);
            prop_assert!(found.iter().all(|finding| !finding.path.is_empty() && !finding.message.is_empty()), "{:?}", found);
        }
    }
}
