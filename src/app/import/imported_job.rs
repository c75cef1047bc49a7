//! The parts of a foreign job file in our words, and the parts that we do not carry.

use super::yaml_node::YamlNode;
use crate::job::NODES_MAX;

#[derive(Debug, Default)]
pub struct ImportedJob {
    pub name: Option<String>,
    pub workdir: Option<String>,
    /// Machines, if there are several.
    pub nodes: Option<u32>,
    pub setup: Option<String>,
    /// A script for bash, or nothing that runs.
    pub script: Option<String>,
    /// Words that are executed as they are.
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Variables that get their value at the start, by hand.
    pub empty_env: Vec<String>,
    /// Secret variables, by name only.
    pub secrets: Vec<String>,
    pub gpus: Option<String>,
    pub gpu_count: u32,
    pub instance_types: Vec<String>,
    pub regions: Vec<String>,
    pub image: Option<String>,
    pub disk_gib: Option<u64>,
    pub market: Option<&'static str>,
    pub max_price: Option<String>,
    pub idle: Option<String>,
    pub idle_gpu_percent: Option<String>,
    pub grace: Option<String>,
    pub max_runtime: Option<String>,
    pub retries: Option<String>,
    pub cron: Option<String>,
    pub notes: Vec<ImportNote>,
}

/// A line of the foreign file that needs a look.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ImportNote {
    /// `None`: of the whole file.
    pub line: Option<usize>,
    pub key: String,
    pub text: String,
    /// A person must choose a value. Otherwise the key is not carried, or changed.
    pub decide: bool,
}

/// Why a key is not carried.
pub type NotCarried = (&'static str, &'static str);

impl ImportedJob {
    pub fn note(&mut self, line: usize, key: &str, text: impl Into<String>) {
        let note =
            ImportNote { line: Some(line), key: key.into(), text: text.into(), decide: false };
        self.notes.push(note);
    }

    pub fn decide(&mut self, line: Option<usize>, key: &str, text: impl Into<String>) {
        self.notes.push(ImportNote { line, key: key.into(), text: text.into(), decide: true });
    }

    /// Notes each key of a map that is not among the carried ones.
    pub fn note_rest(
        &mut self,
        map: &YamlNode,
        prefix: &str,
        carried: &[&str],
        reasons: &[NotCarried],
    ) {
        for (key, node) in map.pairs() {
            if carried.contains(&key.as_str()) {
                continue;
            }
            let known = reasons.iter().find(|(name, _)| name == key);
            let text = known.map_or("there is no such setting here", |(_, text)| text);
            self.note(node.line, &format!("{prefix}{key}"), text);
        }
    }

    /// A variable with a value, without one, or a secret. No value of a secret is copied.
    pub fn take_env(&mut self, name: &str, value: Option<&str>, line: usize) {
        if is_secret_name(name) || value.is_some_and(|value| value.contains("${{")) {
            self.secrets.push(name.to_owned());
            self.decide(Some(line), name, "looks like a secret: say under [secrets] where it is");
        } else if name.to_ascii_uppercase().starts_with("LAMP_") {
            self.note(line, name, "`LAMP_` names are reserved here");
        } else {
            match value {
                Some(value) => self.env.push((name.to_owned(), value.to_owned())),
                None => {
                    self.empty_env.push(name.to_owned());
                    self.decide(Some(line), name, "has no value: give one under [env]");
                }
            }
        }
    }

    /// The number of machines. Each runs the script, with the variables of its rank.
    pub fn take_nodes(&mut self, key: &str, node: &YamlNode) {
        match node.text().and_then(|text| text.parse().ok()) {
            Some(1) => {}
            Some(nodes @ 2..=NODES_MAX) => self.nodes = Some(nodes),
            _ => self.note(node.line, key, "is not understood: `nodes` says how many machines"),
        }
    }

    /// Variables of the other tool that the scripts read, with the values of one machine.
    pub fn supply_env(&mut self, variables: &[(&str, String)]) {
        let scripts = [self.setup.as_deref(), self.script.as_deref()];
        let is_read = |name: &str| scripts.iter().flatten().any(|text| text.contains(name));
        let read: Vec<(String, String)> = variables
            .iter()
            .filter(|(name, _)| is_read(name) && !self.env.iter().any(|(known, _)| known == name))
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        self.env.extend(read);
    }
}

/// The names that people give to secrets.
fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let words = ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY", "APIKEY"];
    words.iter().any(|word| name.contains(word)) || name.ends_with("_KEY")
}

/// A size like `150GB`, `1TB` or a lower bound like `100GB..` in GiB.
pub fn gib(text: &str) -> Option<u64> {
    let text = text.split("..").find(|part| !part.is_empty())?.trim_end_matches('+').trim();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic()).trim();
    let unit = text[digits.len()..].trim().to_ascii_uppercase();
    let number: f64 = digits.parse().ok()?;
    let factor = match unit.as_str() {
        "" | "G" | "GB" | "GIB" => 1.0,
        "T" | "TB" | "TIB" => 1024.0,
        "M" | "MB" | "MIB" => 1.0 / 1024.0,
        _ => return None,
    };
    Some((number * factor).ceil() as u64).filter(|gib| *gib > 0)
}

/// Seconds or minutes without a unit get one; lengths with a unit are ours already. `off` is none.
pub fn span(text: &str, unit: &str) -> Option<String> {
    let text = text.trim();
    if text.is_empty() || ["off", "false", "-1", "null", "true"].contains(&text) {
        return None;
    }
    let is_number = text.chars().all(|letter| letter.is_ascii_digit());
    let with_unit = if is_number { format!("{text}{unit}") } else { text.to_owned() };
    let weeks = with_unit.strip_suffix('w').and_then(|weeks| weeks.parse::<u64>().ok());
    Some(weeks.map_or(with_unit, |weeks| format!("{}d", weeks * 7)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_lengths_get_our_units() {
        let sizes = [
            ("150GB", Some(150)),
            ("1TB", Some(1024)),
            ("100GB..", Some(100)),
            ("..50GB", Some(50)),
            ("256", Some(256)),
            ("x", None),
        ];
        for (text, expected) in sizes {
            assert_eq!(gib(text), expected, "{text}");
        }
        let spans = [
            ("10", "m", Some("10m")),
            ("7200s", "s", Some("7200s")),
            ("off", "s", None),
            ("1w", "s", Some("7d")),
        ];
        for (text, unit, expected) in spans {
            assert_eq!(span(text, unit).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn value_of_a_secret_is_not_copied() {
        let mut job = ImportedJob::default();
        job.take_env("HF_TOKEN", Some("hf_abc"), 3);
        job.take_env("EPOCHS", Some("3"), 4);
        job.take_env("BUCKET", None, 5);
        assert_eq!(job.env, [("EPOCHS".to_owned(), "3".to_owned())]);
        assert_eq!(
            (job.secrets, job.empty_env),
            (vec!["HF_TOKEN".to_owned()], vec!["BUCKET".to_owned()])
        );
    }
}
