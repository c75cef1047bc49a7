//! The server: its address, its routes, and its end.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::middleware;
use axum::response::Response;
use axum::routing::get;
use tokio::net::TcpListener;

use super::layout::nothing_page;
use super::site::Site;
use super::tune::tune_page;
use super::{
    act_page, api, assets, costs_page, gpu_table, guard, job_page, machines_page, overview_page,
    patience, plots, prices_page, share, sign_in,
};

/// A bound address: nothing is answered yet.
pub struct Listen {
    listener: TcpListener,
    pub address: SocketAddr,
}

impl Listen {
    /// # Errors
    /// When the address is in use, or is not one of this machine.
    pub async fn bind(address: SocketAddr) -> std::io::Result<Listen> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Listen { listener, address })
    }

    /// The hosts that a browser may name: the address itself, and `localhost` for loopback.
    pub fn hosts(&self, more: &[String]) -> Vec<String> {
        let port = self.address.port();
        let mut hosts = vec![self.address.to_string()];
        if self.address.ip().is_loopback() || self.address.ip().is_unspecified() {
            hosts.extend(["127.0.0.1", "localhost", "[::1]"].map(|name| format!("{name}:{port}")));
        }
        for name in more {
            // A proxy in front has a port of its own.
            hosts.extend([name.clone(), format!("{name}:{port}")]);
        }
        if self.address.ip().is_unspecified() {
            // No browser asks for `0.0.0.0`: the link names an address that works.
            hosts.remove(0);
        }
        hosts
    }
}

/// Answers until `end`.
///
/// # Errors
/// When the socket fails.
pub async fn serve(
    listen: Listen,
    site: Site,
    end: impl Future<Output = ()>,
) -> std::io::Result<()> {
    let site = Arc::new(site);
    let router = Router::new()
        .route("/", get(overview_page::page))
        .route("/live", get(overview_page::events))
        .route("/job/{job}", get(job_page::page))
        .route("/job/{job}/live", get(job_page::events))
        .route("/job/{job}/plot.json", get(plots::json))
        .route("/job/{job}/table/{series}", get(plots::table))
        .route("/job/{job}/csv/{series}", get(plots::csv))
        .route("/job/{job}/gpus", get(gpu_table::table))
        .route("/job/{job}/gpus.csv", get(gpu_table::csv))
        .route("/job/{job}/act/{act}", get(act_page::ask).post(act_page::act))
        .route("/job/{job}/share", get(share::file))
        .route("/machines", get(machines_page::page))
        .route("/prices", get(prices_page::page))
        .route("/prices.csv", get(prices_page::csv))
        .route("/costs", get(costs_page::page))
        .route("/costs.csv", get(costs_page::csv))
        .route("/costs.focus.csv", get(costs_page::focus))
        .route("/tunings", get(tune_page::list))
        .route("/tuning/{name}", get(tune_page::page))
        .route("/tuning/{name}/live", get(tune_page::events))
        .route("/enter", get(sign_in::form).post(sign_in::enter))
        .route("/assets/{name}", get(assets::asset))
        .merge(api::router())
        .fallback(nothing_there)
        .layer(middleware::from_fn(patience::limited))
        .layer(middleware::from_fn_with_state(Arc::clone(&site), guard::guard))
        .with_state(site);
    tokio::select! {
        served = async { axum::serve(listen.listener, router).await } => served,
        // An open page holds its connection for ever, so nothing is waited for.
        () = end => Ok(()),
    }
}

async fn nothing_there(uri: Uri) -> Response {
    if api::is_for_programs(uri.path()) {
        let hint = Some("`/api/v1/openapi.json` has each address");
        return api::problem(StatusCode::NOT_FOUND, "there is nothing with this address", hint);
    }
    nothing_page("There is no page with this address.")
}
