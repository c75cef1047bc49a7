//! The manual pages that clap does not make: `lamp-agent(1)`, and `lamp.toml(5)` from the schema.

use clap_mangen::roff::{Roff, bold, roman};
use serde_json::Value;

/// `help`: what `lamp-agent --help` prints; its first line is `name: what it does`.
pub fn agent_page(help: &str) -> String {
    let (first, rest) = help.split_once('\n').unwrap_or((help, ""));
    let about = first.split_once(": ").map_or(first, |(_, about)| about);
    let mut page = titled("lamp-agent", "1", about);
    page.control("SH", ["DESCRIPTION"]);
    // The help is laid out in columns.
    page.control("nf", []);
    rest.trim_start_matches('\n').lines().for_each(|line| {
        page.text([roman(line)]);
    });
    page.control("fi", []);
    see_also(&mut page, "lamp(1)").render()
}

/// `schema`: the JSON schema of a job file.
pub fn job_file_page(schema: &Value) -> String {
    let mut page = titled("lamp.toml", "5", "the job file of Lamplighter");
    page.control("SH", ["DESCRIPTION"]);
    page.text([roman(description(schema))]);
    page.text([roman("`lamp check` finds mistakes in it, and `lamp init` writes a first one.")]);
    page.control("SH", ["KEYS"]);
    keys(&mut page, "", schema);
    see_also(&mut page, "lamp(1), lamp-check(1), lamp-init(1), lamp-plan(1)").render()
}

fn titled(name: &str, section: &str, about: &str) -> Roff {
    let source = concat!("lamp ", env!("CARGO_PKG_VERSION"));
    let mut page = Roff::new();
    page.control("TH", [name, section, "", source, "Lamplighter"]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{name} - {about}"))]);
    page
}

fn see_also<'page>(page: &'page mut Roff, pages: &str) -> &'page Roff {
    page.control("SH", ["SEE ALSO"]);
    page.text([roman(pages)])
}

/// One paragraph for each key; the keys of a table follow it with their path.
fn keys(page: &mut Roff, above: &str, schema: &Value) {
    let Some(properties) = schema["properties"].as_object() else { return };
    for (key, value) in properties.iter().filter(|(key, _)| !key.starts_with('$')) {
        let path = if above.is_empty() { key.clone() } else { format!("{above}.{key}") };
        page.control("TP", []);
        page.text([bold(path.as_str())]);
        page.text([roman(description(value))]);
        let default = &value["default"];
        if !default.is_null() {
            page.text([roman(format!("Default: {}.", word(default)))]);
        }
        let examples = value["examples"].as_array().map(Vec::as_slice).unwrap_or_default();
        if let Some(example) = examples.first() {
            page.text([roman(format!("Example: {}", word(example)))]);
        }
        keys(page, &path, value);
    }
}

/// On one line: a line of the source is no line of the page.
fn description(schema: &Value) -> String {
    schema["description"].as_str().unwrap_or_default().replace('\n', " ")
}

/// TOML writes strings, numbers and lists as JSON does.
fn word(value: &Value) -> String {
    value.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn page_of_job_file_has_each_key_with_its_path() {
        let schema = json!({ "description": "A job.", "properties": {
            "$schema": { "description": "For editors." },
            "watch": { "description": "How\nit is watched.", "properties": {
                "idle": { "description": "The window.", "default": "15m", "examples": ["1h"] },
            } },
        } });
        let page = job_file_page(&schema);
        for expected in [
            "\\fBwatch\\fR\nHow it is watched.\n",
            "\\fBwatch.idle\\fR\nThe window.\nDefault: \"15m\".\nExample: \"1h\"\n",
        ] {
            assert!(page.contains(expected), "{expected:?} in {page}");
        }
        assert!(!page.contains("editors"), "{page}");
    }

    #[test]
    fn page_of_agent_keeps_the_columns_and_no_line_is_a_request() {
        let page = agent_page("lamp-agent: watches\n\nUsage:\n  run   runs\n.x is a word\n");
        assert!(page.contains("lamp\\-agent \\- watches\n"), "{page}");
        assert!(page.contains(".nf\nUsage:\n  run   runs\n\\&.x is a word\n.fi\n"), "{page}");
    }
}
