//! `lamp daemon --web`: the page and the API in the daemon's own process.
//!
//! A failure of the page never ends the daemon: it is said, and the jobs are driven on.

use std::future::pending;
use std::net::SocketAddr;

use crate::cli::{Context, ExitCode, Fault};
use crate::web::{Listen, Site, serve};
use crate::wire::{StoreHandle, TuneEngine, Workstation};

/// The address of the page, and further names by which a browser may reach it.
#[derive(Clone, Copy)]
pub struct WantedPage<'a> {
    pub address: SocketAddr,
    pub hosts: &'a [String],
}

/// A service cannot ask a person, so the daemon refuses an address that other machines can reach.
///
/// # Errors
/// Fails when other machines could reach the address.
pub fn only_this_machine(address: SocketAddr) -> Result<(), Fault> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    let what = format!("`--web {address}` would let other machines reach the page");
    Err(Fault::new(ExitCode::USAGE, what)
        .meaning("nothing was started")
        .hint("`lamp web --listen` asks first; a tunnel needs no other address"))
}

/// Serves until the daemon ends. Without an address it only waits.
pub async fn beside(
    wanted: Option<WantedPage<'_>>,
    context: &Context,
    store: StoreHandle,
    workstation: &Workstation,
) {
    if let Some(wanted) = wanted
        && let Err(error) = page(wanted, context, store, workstation).await
    {
        let address = wanted.address;
        context.printer.warn(format!("no page at {address}: {error}; the jobs are driven on"));
        context.printer.hint("`--web 127.0.0.1:0` takes a free port");
    }
    pending().await
}

async fn page(
    wanted: WantedPage<'_>,
    context: &Context,
    store: StoreHandle,
    workstation: &Workstation,
) -> std::io::Result<()> {
    let listen = Listen::bind(wanted.address).await?;
    let site =
        Site::new(store, workstation.clone(), context.clock.clone(), context.config.is_misread)?;
    let engine = TuneEngine::new(context.environment.cache_dir().as_deref());
    let hosts = listen.hosts(wanted.hosts);
    let site = site.asking(engine).reached_at(hosts, listen.address.port());
    context.printer.note(format!(
        "the page of {} is at {}; this link works once",
        workstation.job_root,
        site.link()
    ));
    serve(listen, site, pending()).await
}
