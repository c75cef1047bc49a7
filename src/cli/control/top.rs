//! `lamp top`: all jobs live in this terminal.
//!
//! Not here: the screens and their keys (`top`).

use std::io::IsTerminal as _;

use clap::Args as ClapArgs;

use crate::app::job_act::ActPlace;
use crate::app::overview::machine_watch::CloudAsking;
use crate::cli::shell::{ctrl_c, job_root};
use crate::cli::{Context, ExitCode, Fault};
use crate::top::{Palette, TopSource, live, once};

/// Show all jobs live in this terminal: state, cost, next end
///
/// Enter opens a job, `?` lists the keys. The jobs go on when it ends.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Print one frame as plain text, and end
    #[arg(long)]
    pub once: bool,
}

/// # Errors
/// Fails when the job root is unreachable, or the terminal cannot be used.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let workstation = job_root::workstation(context)?;
    let can_draw = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let is_live = can_draw && !args.once && !context.is_machine_output();
    let asking = if is_live { CloudAsking::Beside } else { CloudAsking::Once };
    let place = ActPlace {
        store,
        workstation,
        clock: context.clock.clone(),
        is_misread: context.config.is_misread,
    };
    let source = TopSource::new(place, asking);
    if context.is_machine_output() {
        context.printer.json(&*source.overview().await?);
        return Ok(ExitCode::SUCCESS);
    }
    let palette = Palette { is_colored: context.printer.is_colored() };
    if !is_live {
        let width = context.printer.view_columns();
        let overview = source.overview().await?;
        context.printer.line(once(overview, &source, palette, width).await);
        return Ok(ExitCode::SUCCESS);
    }
    // Listen before the terminal is changed: a signal then still restores it.
    let mut left = ctrl_c::LeaveSignals::listen();
    live(source, palette, None, left.heard()).await.map_err(|error| {
        Fault::new(ExitCode::UNREACHABLE, "this terminal cannot show the view")
            .because(&error)
            .meaning("the jobs go on")
            .hint("`lamp top --once` prints one frame, `lamp status` the jobs")
    })?;
    Ok(ExitCode::SUCCESS)
}
