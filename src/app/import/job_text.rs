//! The text of an imported job file. Comments mark what a person must decide.

use super::imported_job::{ImportNote, ImportedJob};
use super::source_format::SourceFormat;
use crate::job::JobId;

pub fn job_file(job: &ImportedJob, format: SourceFormat) -> String {
    let mut text =
        format!("# From a job file of {format}, by `lamp import`. `lamp check` judges it.\n");
    list_notes(&mut text, job);
    let name = job.name.as_deref().unwrap_or("job");
    text.push_str(&format!("\nname = {}\n", quoted(&JobId::slug(name))));
    key(&mut text, "workdir", job.workdir.as_deref().map(quoted));
    key(&mut text, "nodes", job.nodes.map(|nodes| nodes.to_string()));
    text.push_str(&format!("command = {}\n", command(job)));
    key(
        &mut text,
        "setup",
        job.setup.as_deref().filter(|setup| !setup.trim().is_empty()).map(script),
    );
    if job.nodes.is_some() {
        // The script reads the variables of its rank itself.
        text.push_str("\n[gang]\nengine = \"env\"\n");
    }
    text.push_str(&machine(job));
    text.push_str(&watch(job));
    text.push_str(&limits(job));
    if let Some(retries) = &job.retries {
        text.push_str(&format!("\n[retries]\nmax = {retries}\n"));
    }
    if let Some(cron) = &job.cron {
        text.push_str(&format!("\n[schedule]\ncron = {}\n", quoted(cron)));
    }
    text.push_str(&variables(job));
    text
}

fn list_notes(text: &mut String, job: &ImportedJob) {
    for (title, decide) in [("Decide:", true), ("Not carried over, or changed:", false)] {
        let notes: Vec<&ImportNote> =
            job.notes.iter().filter(|note| note.decide == decide).collect();
        if notes.is_empty() {
            continue;
        }
        text.push_str(&format!("#\n# {title}\n"));
        for note in notes {
            let line = note.line.map(|line| format!("line {line}, ")).unwrap_or_default();
            text.push_str(&comment(&format!("- {line}{}: {}", note.key, note.text)));
        }
    }
}

/// A comment of one line, whatever the text holds.
fn comment(text: &str) -> String {
    let shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("# {shown}\n")
}

fn key(text: &mut String, name: &str, value: Option<String>) {
    if let Some(value) = value {
        text.push_str(&format!("{name} = {value}\n"));
    }
}

fn command(job: &ImportedJob) -> String {
    match &job.script {
        Some(text) if text.trim().lines().count() == 1 => {
            format!("[\"bash\", \"-c\", {}]", quoted(text.trim()))
        }
        Some(text) => format!("[\"bash\", \"-c\", {}]", script(text)),
        None => list(&job.args),
    }
}

fn machine(job: &ImportedJob) -> String {
    let mut text = "\n[machine]\ncloud = \"aws\"\n".to_owned();
    key(&mut text, "gpus", job.gpus.as_deref().map(quoted));
    if job.gpus.is_none() && job.instance_types.is_empty() {
        text.push_str(
            "# gpus = \"A10G:1\"          # Decide: without it, a machine without a GPU\n",
        );
    }
    let some = |list_of: &[String]| (!list_of.is_empty()).then(|| list(list_of));
    key(&mut text, "instance_types", some(&job.instance_types));
    key(&mut text, "regions", some(&job.regions));
    key(&mut text, "image", job.image.as_deref().map(quoted));
    key(&mut text, "disk", job.disk_gib.map(|gib| quoted(&format!("{gib}GiB"))));
    key(&mut text, "market", job.market.map(quoted));
    key(&mut text, "max_price", job.max_price.clone());
    text
}

fn watch(job: &ImportedJob) -> String {
    let mut text = String::new();
    key(&mut text, "idle", job.idle.as_deref().map(quoted));
    key(&mut text, "idle_gpu_percent", job.idle_gpu_percent.clone());
    key(&mut text, "grace", job.grace.as_deref().map(quoted));
    if text.is_empty() { text } else { format!("\n[watch]\n{text}") }
}

fn limits(job: &ImportedJob) -> String {
    match &job.max_runtime {
        Some(span) => format!("\n[limits]\nmax_runtime = {}\n# budget = 20               # dollars, over all attempts\n", quoted(span)),
        None => "\n[limits]\nmax_runtime = \"24h\"        # Decide: how long one attempt may run\n# budget = 20               # dollars, over all attempts\n".to_owned(),
    }
}

fn variables(job: &ImportedJob) -> String {
    let mut text = String::new();
    if !(job.env.is_empty() && job.empty_env.is_empty()) {
        text.push_str("\n[env]\n");
    }
    for (name, value) in &job.env {
        text.push_str(&format!("{} = {}\n", bare(name), quoted(value)));
    }
    for name in &job.empty_env {
        text.push_str(&format!("# {} = \"\"  # Decide: its value\n", bare(name)));
    }
    if !job.secrets.is_empty() {
        text.push_str("\n# Decide: `env` takes the value from your environment, `ssm:NAME` from AWS.\n[secrets]\n");
    }
    for name in &job.secrets {
        text.push_str(&format!("# {} = \"env\"\n", bare(name)));
    }
    text
}

/// A name as a key of TOML.
fn bare(name: &str) -> String {
    let is_bare =
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    if is_bare { name.to_owned() } else { quoted(name).replace('\n', " ") }
}

fn quoted(text: &str) -> String {
    let one_line = toml_edit::Value::from(text).to_string();
    if one_line.contains('\n') { escaped(text) } else { one_line }
}

/// A basic string in one line.
fn escaped(text: &str) -> String {
    let letters = text.chars().map(|c| match c {
        '"' => "\\\"".to_owned(),
        '\\' => "\\\\".to_owned(),
        '\n' => "\\n".to_owned(),
        '\t' => "\\t".to_owned(),
        c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
        c => c.to_string(),
    });
    format!("\"{}\"", letters.collect::<String>())
}

/// Several lines as they are, unless a literal string cannot hold them.
fn script(text: &str) -> String {
    let is_plain = |c: char| !c.is_control() || c == '\n' || c == '\t';
    if text.contains("'''") || text.ends_with('\'') || !text.chars().all(is_plain) {
        return escaped(text);
    }
    format!("'''\n{}\n'''", text.trim_end())
}

fn list(words: &[String]) -> String {
    format!("[{}]", words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(", "))
}
