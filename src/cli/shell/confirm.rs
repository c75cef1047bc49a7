//! Asks the user before something is ended. Without a terminal, only `--yes` confirms.

use std::io::IsTerminal as _;

use super::ctrl_c;
use crate::cli::{Context, ExitCode, Fault};

/// `what` is a sentence without its end.
///
/// # Errors
/// Fails without a terminal, or when the user says no.
pub fn confirm(context: &Context, what: &str, yes: bool, meaning: &str) -> Result<(), Fault> {
    if yes {
        return Ok(());
    }
    let refused = |what: String| {
        Fault::new(ExitCode::REFUSED, what).meaning(meaning).hint("`--yes` says so beforehand")
    };
    if !can_ask(context) {
        return Err(refused(format!("{what}, and this call cannot ask")));
    }
    if says_yes(context, &format!("{what}; go on? [y/N]"), meaning)? {
        Ok(())
    } else {
        Err(refused("not confirmed".into()))
    }
}

/// Whether a person sees a question and can answer it.
pub fn can_ask(context: &Context) -> bool {
    std::io::stdin().is_terminal() && !context.is_machine_output() && !context.printer.is_quiet()
}

/// Asks the question, after [`can_ask`].
///
/// # Errors
/// Fails when the user leaves at the question.
pub fn says_yes(context: &Context, question: &str, meaning: &str) -> Result<bool, Fault> {
    let Some(answer) = ctrl_c::line_or_left(|| context.printer.note(question)) else {
        return Err(ctrl_c::left_at_the_question(meaning));
    };
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}
