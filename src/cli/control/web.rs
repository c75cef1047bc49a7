//! `lamp web`: the page of all jobs, for a browser on this workstation.
//!
//! Not here: the pages (`web`).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::Args as ClapArgs;
use serde_json::json;

use crate::cli::shell::confirm::confirm;
use crate::cli::shell::{ctrl_c, job_root};
use crate::cli::{Context, ExitCode, Fault};
use crate::web::{Listen, Site, serve};
use crate::wire::TuneEngine;

/// Show all jobs in a browser: state, cost, next end
///
/// Prints a link that works once. Ctrl-C ends the page; the jobs go on.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// The port on this machine; 0 takes a free one
    #[arg(long, default_value_t = 7878)]
    pub port: u16,

    /// The address to listen on, like 10.0.0.5 or 0.0.0.0 [default: 127.0.0.1, only this machine]
    #[arg(long, value_name = "IP")]
    pub listen: Option<IpAddr>,

    /// A further host name of the page, for a proxy in front of it; may be repeated
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,

    /// Do not ask before other machines may reach the page; where nobody can be asked, it must be
    /// said
    #[arg(short, long)]
    pub yes: bool,
}

/// # Errors
/// Fails when the port is in use, the job root is unreachable, or the user declines.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let ip = args.listen.unwrap_or(Ipv4Addr::LOCALHOST.into());
    let address = SocketAddr::new(ip, args.port);
    if !ip.is_loopback() {
        let what = format!(
            "other machines can reach {address}: whoever has the token in the state folder can read and end your jobs, and it is sent without encryption"
        );
        confirm(context, &what, args.yes, "nothing listens")?;
    }
    let store = job_root::open(context).await?;
    let workstation = job_root::workstation(context)?;
    let listen = Listen::bind(address).await.map_err(|error| {
        Fault::new(ExitCode::UNREACHABLE, format!("cannot listen on {address}"))
            .because(&error)
            .meaning("no page is there, and nothing was changed")
            .hint("`lamp web --port 0` takes a free port")
    })?;
    let site = Site::new(store, workstation, context.clock.clone(), context.config.is_misread)
        .map_err(|error| {
            Fault::new(ExitCode::UNREACHABLE, "cannot keep the token of the page")
                .because(&error)
                .hint("set XDG_STATE_HOME to a folder that can be written")
        })?;
    let engine = TuneEngine::new(context.environment.cache_dir().as_deref());
    let site = site.asking(engine).reached_at(listen.hosts(&args.host), listen.address.port());
    // Listen before the link is printed: the reader may end it at once.
    let mut left = ctrl_c::LeaveSignals::listen();
    if context.is_machine_output() {
        context.printer.json(&json!({ "link": site.link(), "address": listen.address }));
    } else {
        context.printer.line(site.link());
        context.printer.note(
            "this link opens the page in your browser, once; Ctrl-C ends the page, the jobs go on",
        );
    }
    serve(listen, site, left.heard()).await.map_err(|error| {
        Fault::new(ExitCode::UNREACHABLE, "the page cannot be served any more").because(&error)
    })?;
    Ok(ExitCode::SUCCESS)
}
