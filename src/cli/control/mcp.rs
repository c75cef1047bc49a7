//! `lamp mcp`: tools for a coding agent, over stdin and stdout.
//!
//! Not here: the tools and the purse (`mcp`).

use clap::Args as ClapArgs;

use crate::cli::shell::job_root;
use crate::cli::{Context, ExitCode, Fault};
use crate::mcp::{AgentServer, serve};

/// Serve tools to a coding agent (Model Context Protocol, on stdin and stdout)
///
/// A client starts it: `claude mcp add lamp -- lamp mcp`. Tools that start jobs need `[purse]
/// usd_per_day` in the configuration, and stay within it.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {}

/// # Errors
/// Fails when the job root is unreachable, or the client speaks another protocol.
pub async fn run(_args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open(context).await?;
    let workstation = job_root::workstation(context)?;
    let server = AgentServer::new(
        store,
        workstation,
        context.clock.clone(),
        context.environment.clone(),
        context.roots.url.clone(),
    )
    .map_err(|error| {
        Fault::new(ExitCode::INTERNAL, "cannot find the program file of lamp").because(&error)
    })?;
    serve(server).await.map_err(|error| {
        Fault::new(ExitCode::UNREACHABLE, "the client cannot be served")
            .because(&error)
            .meaning("no job was started or changed")
            .hint("a coding agent starts `lamp mcp`; docs/coding-agents.md shows how")
    })?;
    Ok(ExitCode::SUCCESS)
}
