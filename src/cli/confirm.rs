//! A word of the user before something is ended: on a terminal it is asked for, elsewhere only `--yes` is one.

use std::io::IsTerminal as _;

use super::{Context, ExitCode, Fault, signals};

/// `what` will be done: a sentence without its end.
///
/// # Errors
/// Nobody was there to ask, or the answer is no.
pub fn confirm(context: &Context, what: &str, yes: bool, meaning: &str) -> Result<(), Fault> {
    if yes {
        return Ok(());
    }
    let refused = |what: String| Fault::new(ExitCode::REFUSED, what).meaning(meaning).hint("`--yes` says so beforehand");
    if !std::io::stdin().is_terminal() || context.is_machine_output() {
        return Err(refused(format!("{what}, and nobody was there to ask")));
    }
    let Some(answer) = signals::line_or_left(|| context.printer.note(format!("{what}; go on? [y/N]"))) else {
        return Err(signals::left_at_the_question(meaning));
    };
    if ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) { Ok(()) } else { Err(refused("not confirmed".into())) }
}
