//! `lamp completions`: shell completion of commands, flags and jobs.

use clap::{Args as ClapArgs, Command};
use clap_complete::Shell;

use super::job_root;
use crate::app::record_errors;
use crate::cli::{Context, ExitCode, Fault};
use crate::jobdir;

/// Print the completion script of a shell
///
/// For bash: `lamp completions bash > ~/.local/share/bash-completion/completions/lamp`
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[arg(value_enum, required_unless_present = "jobs")]
    pub shell: Option<Shell>,

    /// The ids of all jobs, a line each: what the scripts ask
    #[arg(long, hide = true, conflicts_with = "shell")]
    pub jobs: bool,
}

/// Commands that take jobs, with their aliases.
const JOB_VERBS: [&str; 14] = [
    "status", "ps", "logs", "ssh", "start", "stop", "cancel", "extend", "outputs", "receipt",
    "explain", "discard", "cost", "jobs",
];

/// The marks of a job argument in the generated zsh script.
const ZSH_JOB: [&str; 2] = [":job -- ", ":jobs -- "];

/// Lists job ids for the script, at each key press.
const LISTS: &str = "lamp completions --jobs 2>/dev/null";

/// The generated function runs first; values of flags keep its completion.
const BASH_JOBS: &str = r#"
_lamp_jobs() {
    _lamp "$@"
    case "$2,$3" in
        -*|*,-o|*,--output|*,--color|*,--job-root) return 0 ;;
    esac
    case "${COMP_WORDS[1]}" in
        JOB_VERBS) COMPREPLY=( $(compgen -W "$(LISTS)" -- "$2") ) ;;
    esac
    return 0
}
complete -F _lamp_jobs -o bashdefault -o default lamp
"#;

/// `commands`: the whole command line.
///
/// # Errors
/// With `--jobs`, fails when the job root is unreachable.
pub async fn run(args: &Args, mut commands: Command, context: &Context) -> Result<ExitCode, Fault> {
    let Some(shell) = args.shell else {
        let store = job_root::open_existing(context).await?;
        let jobs = jobdir::jobs(store.as_ref())
            .await
            .map_err(|error| record_errors::record_fault(&error.into()))?;
        jobs.iter().for_each(|job| context.printer.line(job));
        return Ok(ExitCode::SUCCESS);
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut commands, "lamp", &mut script);
    let script = with_jobs(shell, &String::from_utf8_lossy(&script));
    if context.is_machine_output() {
        context.printer.json(&serde_json::json!({ "shell": shell.to_string(), "script": script }));
    } else {
        context.printer.bytes(script.as_bytes());
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds completion of job ids. Other shells get the generated script.
fn with_jobs(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => {
            let text = format!("{script}{BASH_JOBS}");
            text.replace("JOB_VERBS", &JOB_VERBS.join("|")).replace("LISTS", LISTS)
        }
        Shell::Fish => {
            format!(
                "{script}complete -c lamp -n \"__fish_seen_subcommand_from {}\" -f -a \"({LISTS})\"\n",
                JOB_VERBS.join(" ")
            )
        }
        Shell::Zsh => {
            let of_job = |line: &str| ZSH_JOB.iter().any(|start| line.contains(start));
            let lines = script.lines().map(|line| {
                if of_job(line) {
                    line.replace(":_default'", ":_lamp_jobs'")
                } else {
                    line.to_owned()
                }
            });
            let jobs = format!(
                "_lamp_jobs() {{\n    local -a jobs\n    jobs=(${{(f)\"$({LISTS})\"}})\n    compadd -a jobs\n}}\n\n"
            );
            let script = lines.collect::<Vec<_>>().join("\n");
            // The script calls itself at its end.
            script.replacen("\n_lamp() {", &format!("\n{jobs}_lamp() {{"), 1) + "\n"
        }
        _ => script.to_owned(),
    }
}
