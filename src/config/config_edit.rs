//! Small changes to the user configuration that leave everything else as it was written: comments,
//! order, blanks.
//!
//! The user's own lines are never overwritten; they are reported instead. Not here: reading or
//! writing a file.

use toml_edit::{DocumentMut, Item, Table, Value, value};

/// One line of the configuration: `job_root`, or `aws.regions`.
#[derive(Clone, Debug)]
pub struct Setting {
    pub table: Option<&'static str>,
    pub key: &'static str,
    pub value: Value,
    /// A list that the user has asked to be added to: what it holds already stays.
    pub adds: bool,
    /// The user has asked that it replaces what is there.
    pub replaces: bool,
}

impl Setting {
    pub fn new(table: Option<&'static str>, key: &'static str, value: impl Into<Value>) -> Self {
        Setting { table, key, value: value.into(), adds: false, replaces: false }
    }

    /// As it would be written, on a line of its own.
    pub fn line(&self) -> String {
        let path =
            self.table.map_or_else(|| self.key.to_owned(), |table| format!("{table}.{}", self.key));
        format!("{path} = {}", self.value)
    }

    /// Of a list: what is not in it yet is added to what is there.
    #[must_use]
    pub fn adding(self, adds: bool) -> Self {
        Setting { adds, ..self }
    }

    /// Whatever is there, it goes.
    #[must_use]
    pub fn replacing(self, replaces: bool) -> Self {
        Setting { replaces, ..self }
    }

    /// Adds the values that the list lacks. Returns whether it changed, and its line. `None`: it is
    /// not a list, or this setting does not add.
    fn add_to(&self, found: &mut Item) -> Option<(bool, String)> {
        let (true, Some(wanted), Some(list)) =
            (self.adds, self.value.as_array(), found.as_array_mut())
        else {
            return None;
        };
        let new: Vec<Value> = wanted
            .iter()
            .filter(|value| !list.iter().any(|known| plain(known) == plain(value)))
            .cloned()
            .collect();
        new.iter().for_each(|value| list.push(value.clone()));
        let bare = |value: &Value| {
            let mut value = value.clone();
            value.decor_mut().clear();
            value
        };
        let all: toml_edit::Array = list.iter().map(bare).collect();
        Some((!new.is_empty(), Setting { value: all.into(), ..self.clone() }.line()))
    }

    fn within<'a>(
        &self,
        document: &'a mut DocumentMut,
    ) -> Option<&'a mut dyn toml_edit::TableLike> {
        match self.table {
            None => Some(document.as_table_mut()),
            Some(table) => document
                .entry(table)
                .or_insert_with(|| Item::Table(Table::new()))
                .as_table_like_mut(),
        }
    }

    fn is(&self, item: &Item) -> bool {
        item.as_value().is_some_and(|found| plain(found) == plain(&self.value))
    }
}

/// The value without the blanks and comments around it.
fn plain(value: &Value) -> String {
    let mut value = value.clone();
    value.decor_mut().clear();
    value.to_string().split_whitespace().collect()
}

/// The result of the edits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    pub text: String,
    /// Lines that are new, or gone.
    pub changed: Vec<String>,
    /// Lines that the user has otherwise, and that stay.
    pub kept: Vec<String>,
}

/// Adds the settings that are not there.
///
/// # Errors
/// The text is not TOML.
pub fn add(text: &str, settings: &[Setting]) -> Result<Edited, toml_edit::TomlError> {
    let mut document: DocumentMut = text.parse()?;
    let (mut changed, mut kept) = (Vec::new(), Vec::new());
    for setting in settings {
        let Some(table) = setting.within(&mut document) else {
            kept.push(setting.line());
            continue;
        };
        match table.get_mut(setting.key) {
            Some(found) if setting.is(found) => {}
            Some(found) if setting.replaces => {
                let decor = found.as_value().map(|value| value.decor().clone()).unwrap_or_default();
                *found = value(setting.value.clone());
                found
                    .as_value_mut()
                    .into_iter()
                    .for_each(|value| *value.decor_mut() = decor.clone());
                changed.push(setting.line());
            }
            Some(found) => match setting.add_to(found) {
                Some((true, line)) => changed.push(line),
                Some((false, _)) => {}
                None => kept.push(setting.line()),
            },
            None => {
                table.insert(setting.key, value(setting.value.clone()));
                changed.push(setting.line());
            }
        }
    }
    let text = if changed.is_empty() { text.to_owned() } else { document.to_string() };
    Ok(Edited { text, changed, kept })
}

/// Takes away the settings that are exactly so; a table that is empty then goes too.
///
/// # Errors
/// The text is not TOML.
pub fn take_away(text: &str, settings: &[Setting]) -> Result<Edited, toml_edit::TomlError> {
    let mut document: DocumentMut = text.parse()?;
    let mut changed = Vec::new();
    for setting in settings {
        let table = match setting.table {
            None => Some(document.as_item_mut()),
            Some(table) => document.get_mut(table),
        };
        let Some(table) = table.and_then(Item::as_table_like_mut) else { continue };
        if table.get(setting.key).is_some_and(|found| setting.is(found)) {
            table.remove(setting.key);
            changed.push(setting.line());
        }
    }
    for table in settings.iter().filter_map(|setting| setting.table) {
        let is_empty = document
            .get(table)
            .and_then(Item::as_table_like)
            .is_some_and(toml_edit::TableLike::is_empty);
        if is_empty && !changed.is_empty() {
            document.remove(table);
        }
    }
    let text = if changed.is_empty() { text.to_owned() } else { document.to_string() };
    Ok(Edited { text, changed, kept: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Vec<Setting> {
        let regions: toml_edit::Array = ["us-east-2", "us-west-2"].into_iter().collect();
        vec![
            Setting::new(None, "job_root", "s3://b"),
            Setting::new(Some("aws"), "regions", regions),
            Setting::new(Some("aws"), "instance_profile", "lamplighter-box"),
        ]
    }

    #[test]
    fn region_that_was_asked_for_is_added_to_those_that_are_there() {
        let regions = |regions: &[&str]| {
            Setting::new(
                Some("aws"),
                "regions",
                regions.iter().copied().collect::<toml_edit::Array>(),
            )
            .adding(true)
        };
        let text = "[aws]\nregions = [\"us-east-1\"] # home\n";
        let edited = add(text, &[regions(&["us-west-2"])]).unwrap();
        assert_eq!(edited.text, "[aws]\nregions = [\"us-east-1\", \"us-west-2\"] # home\n");
        assert_eq!(
            (edited.changed, edited.kept),
            (vec!["aws.regions = [\"us-east-1\", \"us-west-2\"]".to_owned()], vec![])
        );
        let again = add(&edited.text, &[regions(&["us-west-2"])]).unwrap();
        assert_eq!(
            (again.text, again.changed, again.kept),
            (edited.text, vec![], vec![]),
            "twice is once"
        );
    }

    #[test]
    fn what_the_user_asks_for_instead_replaces_and_comments_stay() {
        let text = "job_root = \"s3://old\" # ours\n[aws]\nregions = [\"us-east-1\"]\n";
        let edited =
            add(text, &[Setting::new(None, "job_root", "s3://new").replacing(true)]).unwrap();
        assert_eq!(edited.text, text.replace("s3://old", "s3://new"));
        assert_eq!(
            (edited.changed, edited.kept),
            (vec!["job_root = \"s3://new\"".to_owned()], vec![])
        );
    }

    #[test]
    fn comments_stay_and_what_was_said_is_not_overwritten() {
        let text = "# mine\nowner = \"alice\" # me\n\n[aws]\n# one only\nregions = [\"eu-north-1\"]\n\n[watch]\nidle = \"5m\"\n";
        let edited = add(text, &settings()).unwrap();
        for line in text.lines() {
            assert!(edited.text.contains(line), "{line} in\n{}", edited.text);
        }
        assert_eq!(
            edited.changed,
            ["job_root = \"s3://b\"", "aws.instance_profile = \"lamplighter-box\""]
        );
        assert_eq!(edited.kept, ["aws.regions = [\"us-east-2\", \"us-west-2\"]"]);
        // A line at the top must not fall into the last table.
        let read: toml_edit::DocumentMut = edited.text.parse().unwrap();
        assert_eq!(read["job_root"].as_str(), Some("s3://b"), "{}", edited.text);
        let again = add(&edited.text, &settings()).unwrap();
        assert!(again.changed.is_empty() && again.text == edited.text);
    }

    #[test]
    fn what_was_added_goes_again_and_nothing_else() {
        let edited = add("", &settings()).unwrap();
        assert_eq!(edited.changed.len(), 3);
        let gone = take_away(&edited.text, &settings()).unwrap();
        assert_eq!(gone.text, "");
        let mine = edited.text.replace("s3://b", "s3://mine") + "key_name = \"k\"\n";
        let gone = take_away(&mine, &settings()).unwrap();
        assert_eq!(gone.text, "job_root = \"s3://mine\"\n\n[aws]\nkey_name = \"k\"\n");
        assert!(add("= x", &settings()).is_err());
    }
}
