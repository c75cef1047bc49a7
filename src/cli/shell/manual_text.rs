//! The manual pages that clap does not make: `lamp-agent(1)`, and `lamp.toml(5)` from the schema.

use std::io;

use clap::{Arg, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};
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

/// The page with a synopsis that names the values: clap's own has the options alone.
///
/// # Errors
/// Never: a page in memory takes each write.
pub fn with_synopsis(page: Vec<u8>, command: &Command) -> io::Result<Vec<u8>> {
    let mut clap = Vec::new();
    Man::new(command.clone()).render_synopsis_section(&mut clap)?;
    let section = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let body = |text: String| text.split_once(".SH SYNOPSIS\n").map(|(_, body)| body.to_owned());
    let (whole, clap) = (section(&page), body(section(&clap)));
    let own = body(synopsis(command).render());
    Ok(match clap.zip(own) {
        Some((clap, own)) => whole.replacen(&clap, &own, 1).into_bytes(),
        None => page,
    })
}

/// `lamp extend [--keep TIME] ... JOB [TIME]`
fn synopsis(command: &Command) -> Roff {
    let mut words = vec![bold(command.get_bin_name().unwrap_or_else(|| command.get_name()))];
    let shown = command.get_arguments().filter(|one| !one.is_hide_set() && !one.is_global_set());
    let (places, flags): (Vec<&Arg>, Vec<&Arg>) = shown.partition(|one| one.is_positional());
    for argument in flags.into_iter().chain(places) {
        let (open, close) = if argument.is_required_set() { ("", "") } else { ("[", "]") };
        words.push(roman(format!(" {open}")));
        if let Some(long) = argument.get_long() {
            words.push(bold(format!("--{long}")));
        } else if let Some(short) = argument.get_short() {
            words.push(bold(format!("-{short}")));
        }
        let takes = argument.is_positional() || argument.get_action().takes_values();
        let names = argument.get_value_names().filter(|_| takes).unwrap_or_default();
        for (at, name) in names.iter().enumerate() {
            let gap = if argument.is_positional() && at == 0 { "" } else { " " };
            words.extend([roman(gap), italic(name.as_str())]);
        }
        words.push(roman(close));
    }
    if command.has_subcommands() {
        words.extend([roman(" "), italic("COMMAND")]);
    }
    let mut page = Roff::new();
    page.control("SH", ["SYNOPSIS"]);
    page.text(words);
    page
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
    fn synopsis_keeps_the_names_of_values() {
        let flag = Arg::new("keep").long("keep").value_name("TIME");
        let yes = Arg::new("yes").long("yes").action(clap::ArgAction::SetTrue);
        let job = Arg::new("job").value_name("JOB").required(true);
        let mut command = Command::new("extend").bin_name("lamp extend").args([flag, yes, job]);
        command.build();
        let mut page = Vec::new();
        Man::new(command.clone()).render(&mut page).expect("a page");
        let page = with_synopsis(page, &command).expect("a page");
        let page = String::from_utf8(page).expect("text");
        let plain =
            page.replace("\\fB", "").replace("\\fI", "").replace("\\fR", "").replace('\\', "");
        assert!(plain.contains("lamp extend [--keep TIME] [--yes] "), "{plain}");
        assert!(plain.contains(" JOB\n.SH DESCRIPTION"), "{plain}");
    }

    #[test]
    fn page_of_agent_keeps_the_columns_and_no_line_is_a_request() {
        let page = agent_page("lamp-agent: watches\n\nUsage:\n  run   runs\n.x is a word\n");
        assert!(page.contains("lamp\\-agent \\- watches\n"), "{page}");
        assert!(page.contains(".nf\nUsage:\n  run   runs\n\\&.x is a word\n.fi\n"), "{page}");
    }
}
