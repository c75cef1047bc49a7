//! A YAML document as texts, lists and maps, each key with its line.

use saphyr::{LoadableYamlNode as _, MarkedYamlOwned, ScalarOwned, YamlDataOwned};

#[derive(Clone, Debug, PartialEq)]
pub struct YamlNode {
    /// In the file, from 1.
    pub line: usize,
    pub value: YamlValue,
}

#[derive(Clone, Debug, PartialEq)]
pub enum YamlValue {
    Null,
    /// Any scalar, as text.
    Text(String),
    List(Vec<YamlNode>),
    /// In the order of the file. The line of a value is the line of its key.
    Map(Vec<(String, YamlNode)>),
}

/// The documents of a file, without empty ones.
///
/// # Errors
/// Fails when the text is no YAML.
pub fn documents(text: &str) -> Result<Vec<YamlNode>, saphyr::ScanError> {
    let documents = MarkedYamlOwned::load_from_str(text).or_else(|error| {
        MarkedYamlOwned::load_from_str(&with_brackets_indented(text)).map_err(|_| error)
    })?;
    let nodes = documents.iter().map(|node| node_of(node, node.span.start.line()));
    Ok(nodes.filter(|node| node.value != YamlValue::Null).collect())
}

/// Python's parser takes a closing bracket at the indentation of its key, and YAML 1.2 does not.
/// The lines keep their numbers.
fn with_brackets_indented(text: &str) -> String {
    let lines = text.lines().map(|line| match line.trim() {
        "]" | "]," => format!("{:40}{line}\n", ""),
        _ => format!("{line}\n"),
    });
    lines.collect()
}

fn node_of(node: &MarkedYamlOwned, line: usize) -> YamlNode {
    let value = match &node.data {
        YamlDataOwned::Value(scalar) => match scalar {
            ScalarOwned::Null => YamlValue::Null,
            ScalarOwned::Boolean(value) => YamlValue::Text(value.to_string()),
            ScalarOwned::Integer(value) => YamlValue::Text(value.to_string()),
            ScalarOwned::FloatingPoint(value) => YamlValue::Text(value.to_string()),
            ScalarOwned::String(value) => YamlValue::Text(value.clone()),
        },
        YamlDataOwned::Representation(text, ..) => YamlValue::Text(text.clone()),
        YamlDataOwned::Sequence(items) => YamlValue::List(
            items.iter().map(|item| node_of(item, item.span.start.line())).collect(),
        ),
        YamlDataOwned::Mapping(pairs) => YamlValue::Map(
            pairs
                .iter()
                .map(|(key, value)| (key_text(key), node_of(value, key.span.start.line())))
                .collect(),
        ),
        YamlDataOwned::Tagged(_, inner) => return node_of(inner, line),
        YamlDataOwned::Alias(_) | YamlDataOwned::BadValue => YamlValue::Null,
    };
    YamlNode { line, value }
}

fn key_text(key: &MarkedYamlOwned) -> String {
    node_of(key, 0).text().unwrap_or_default().to_owned()
}

impl YamlNode {
    pub fn get(&self, key: &str) -> Option<&YamlNode> {
        self.pairs().iter().find(|(name, _)| name == key).map(|(_, node)| node)
    }

    /// The value of a key, if it is a scalar.
    pub fn text_of(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(YamlNode::text)
    }

    pub fn text(&self) -> Option<&str> {
        match &self.value {
            YamlValue::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn pairs(&self) -> &[(String, YamlNode)] {
        match &self.value {
            YamlValue::Map(pairs) => pairs,
            _ => &[],
        }
    }

    pub fn items(&self) -> &[YamlNode] {
        match &self.value {
            YamlValue::List(items) => items,
            _ => &[],
        }
    }

    /// The texts of a list, or of a single scalar.
    pub fn texts(&self) -> Vec<String> {
        match &self.value {
            YamlValue::Text(text) => vec![text.clone()],
            _ => self.items().iter().filter_map(|item| item.text().map(str::to_owned)).collect(),
        }
    }

    pub fn is_true(&self) -> bool {
        self.text().is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_know_their_lines_and_scalars_are_texts() {
        let read =
            documents("# a\nname: x\nenvs:\n  A: 1\n  B: 'yes'\n  C:\nlist:\n- 2.5\n").unwrap();
        let root = &read[0];
        assert_eq!(root.get("name").map(|node| node.line), Some(2));
        let envs = root.get("envs").unwrap();
        assert_eq!((envs.line, envs.text_of("A"), envs.text_of("B")), (3, Some("1"), Some("yes")));
        assert_eq!(envs.get("C").map(|node| (node.line, &node.value)), Some((6, &YamlValue::Null)));
        assert_eq!(root.get("list").unwrap().texts(), ["2.5"]);
        assert!(documents("a: [1").is_err());
        let python = documents("a:\n- b: [\n    1\n  ]\n  c: 2\n").unwrap();
        let item = &python[0].get("a").unwrap().items()[0];
        assert_eq!((item.text_of("c"), item.get("c").unwrap().line), (Some("2"), 5));
        assert_eq!(documents("---\na: 1\n---\nb: 2\n").unwrap().len(), 2);
    }
}
