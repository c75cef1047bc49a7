//! `lamp completions`: what a shell needs to complete our verbs and flags.

use clap::{Args as ClapArgs, CommandFactory};
use clap_complete::Shell;

use super::{Cli, Context, ExitCode, Fault};

/// Print the completion script of a shell
///
/// For bash: `lamp completions bash > ~/.local/share/bash-completion/completions/lamp`
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[arg(value_enum)]
    pub shell: Shell,
}

/// # Errors
/// None.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "lamp", &mut script);
    if context.is_machine_output() {
        context.printer.json(&serde_json::json!({ "shell": args.shell.to_string(), "script": String::from_utf8_lossy(&script) }));
    } else {
        context.printer.bytes(&script);
    }
    Ok(ExitCode::SUCCESS)
}
