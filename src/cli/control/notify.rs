//! `lamp notify`: lists the channels to the user, and sends a test message.

use clap::{Args as ClapArgs, Subcommand};
use serde_json::json;

use crate::app::notify::channel_test::{ChannelTested, NotifyView, test, view};
use crate::cli::output::printer::{Stream, Style};
use crate::cli::output::table;
use crate::cli::shell::job_root;
use crate::cli::{Context, ExitCode, Fault};

/// Show how you are notified, or send a test message
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    pub what: Option<NotifyAct>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum NotifyAct {
    /// Send a test message through each channel, and say whether it came through
    Test {
        /// Only this one: command, webhook, slack, ntfy, email or desktop
        channel: Option<String>,
    },
}

/// # Errors
/// Fails when no channel is set up, or the name is unknown.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let Some(NotifyAct::Test { channel }) = &args.what else {
        show(context, &view(&context.config.user.notify));
        return Ok(ExitCode::SUCCESS);
    };
    let workstation = job_root::workstation_of(context)?;
    let now = context.clock.now();
    let tested = test(workstation, channel.as_deref(), now).await?;
    show_tested(context, &tested);
    let is_delivered = tested.iter().all(|tested| tested.delivered);
    Ok(if is_delivered { ExitCode::SUCCESS } else { ExitCode::UNREACHABLE })
}

fn show(context: &Context, view: &NotifyView) {
    let printer = &context.printer;
    if context.is_machine_output() {
        return printer.json(view);
    }
    let rows: Vec<Vec<String>> = view
        .channels
        .iter()
        .map(|channel| vec![channel.channel.to_owned(), channel.to.clone()])
        .collect();
    if rows.is_empty() {
        printer.note("no channel is set up: messages about jobs go nowhere");
        return printer
            .hint("write a table like [notify.ntfy] into ~/.config/lamplighter/config.toml");
    }
    printer.line(table::render(&["channel", "to"], &rows, &[]));
    printer.note(format!("events: {}", view.on.join(", ")));
    printer.hint("`lamp notify test` sends a message through each");
}

fn show_tested(context: &Context, tested: &[ChannelTested]) {
    let printer = &context.printer;
    if context.is_machine_output() {
        return printer.json(&json!({ "tests": tested }));
    }
    for one in tested {
        let (word, style) =
            if one.delivered { ("ok  ", Style::Good) } else { ("FAIL", Style::Bad) };
        let word = printer.paint(Stream::Out, style, word);
        let error = one.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
        printer.prose(6, format!("{word}  {} to {}{error}", one.channel, one.to));
        if let Some(cure) = &one.cure {
            let word = printer.paint(Stream::Out, Style::Hint, "do:");
            printer.prose(10, format!("      {word} {cure}"));
        }
    }
}
