//! Commands of other tools, and the `lamp` command for each.
//!
//! Harmless or equal words are aliases in `shell::Verb`. A word that ends something, or has two
//! meanings, runs nothing: the user gets the command to paste.

use crate::cli::output::printer::shell_word;

/// The commands for an unknown word, with the arguments that followed it.
pub fn meant(word: &str, rest: &[&str]) -> Option<String> {
    let of_job = |verb: &str| with(verb, rest, "JOB");
    Some(match word {
        "down" | "terminate" | "halt" | "shutdown" => format!("{} saves and ends a job, `lamp stop --all` every job of yours", of_job("stop")),
        "kill" | "abort" => format!("{} ends a job at once; {} saves before", of_job("cancel"), of_job("stop")),
        "up" => format!("{} runs a job; {} goes on with one that has ended", with("run", rest, "FILE"), with("start", &[], "JOB")),
        "submit" | "create" => format!("{} runs a job and returns at once", with("run --detach", rest, "FILE")),
        "attach" | "connect" => format!("{} follows the output of a job; {} opens a shell on its machine", of_job("logs -f"), of_job("ssh")),
        "exec" | "shell" => format!("{} opens a shell on the machine of a job", of_job("ssh")),
        "resume" | "restart" | "continue" => format!("{} goes on with a job that has ended", of_job("start")),
        "rm" | "delete" | "remove" => {
            format!("{} deletes what an ended job has stored; {} ends a job that runs", of_job("discard"), of_job("stop"))
        }
        "download" | "fetch" | "pull" => format!("{} brings home what a job kept", of_job("outputs")),
        "autostop" => "`lamp run --idle 15m FILE` ends an idle job; `lamp extend JOB 2h` gives a running job more time".into(),
        "orphans" | "cleanup" => "`lamp sweep` ends machines of yours that no job needs".into(),
        _ => return None,
    })
}

/// The command in backticks. Without a job among the arguments, the placeholder stays.
fn with(verb: &str, rest: &[&str], placeholder: &str) -> String {
    let is_value =
        |at: usize| at > 0 && matches!(rest[at - 1], "-o" | "--output" | "--job-root" | "--color");
    let names_one =
        rest.iter().enumerate().any(|(at, word)| !word.starts_with('-') && !is_value(at));
    let mut words: Vec<String> = rest.iter().map(|word| shell_word(word)).collect();
    if !names_one {
        words.push(placeholder.to_owned());
    }
    format!("`lamp {verb} {}`", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_other_tools_get_command_to_paste() {
        let cases: [(&str, &[&str], &str); 9] = [
            ("down", &["llama"], "`lamp stop llama`"),
            ("kill", &[], "`lamp cancel JOB`"),
            ("kill", &["a b"], "`lamp cancel 'a b'`"),
            ("up", &["my job.toml"], "`lamp run 'my job.toml'`"),
            ("submit", &["job.toml"], "`lamp run --detach job.toml`"),
            ("attach", &["llama"], "`lamp logs -f llama`"),
            ("attach", &["llama"], "`lamp ssh llama`"),
            ("kill", &["-o", "json"], "`lamp cancel -o json JOB`"),
            ("restart", &["--detach"], "`lamp start --detach JOB`"),
        ];
        for (word, rest, told) in cases {
            let hint = meant(word, rest).unwrap_or_else(|| panic!("{word} is unknown"));
            assert!(hint.contains(told), "{word}: {hint}");
        }
        assert_eq!(meant("chekc", &[]), None);
    }
}
