//! A small HTTP server with one page, `/metrics`.
//!
//! It only reads. On a loopback address it answers only to the names of this machine, so that no
//! site reaches it through a browser.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// A few scrapers. More would wait for each other, and never hold more memory.
const CONNECTIONS_MAX: usize = 8;

/// A connection that is silent or slow ends then. Prometheus gives up after 10 s.
const CONNECTION: Duration = Duration::from_secs(30);

/// The time between two tries when this process has no free file descriptor.
const AGAIN: Duration = Duration::from_secs(1);

/// The text of a scrape and its type.
pub struct Served {
    pub content_type: &'static str,
    pub text: Arc<dyn Fn() -> Option<String> + Send + Sync>,
}

/// # Errors
/// When the address is in use, or is not of this machine.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Serves until the process ends.
#[expect(clippy::disallowed_methods, reason = "an adapter waits by the machine's own clock")]
pub async fn serve(listener: TcpListener, served: Served) {
    let served = Arc::new(served);
    let is_open = listener.local_addr().is_ok_and(|address| !address.ip().is_loopback());
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        let served = Arc::clone(&served);
        tokio::spawn(async move {
            let _slow = tokio::time::timeout(CONNECTION, connection(stream, served, is_open)).await;
            drop(place);
        });
    }
}

async fn connection(stream: TcpStream, served: Arc<Served>, is_open: bool) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let response = respond(&request, &served, is_open);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).keep_alive(false).max_buf_size(16 * 1024);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), answer).await {
        tracing::debug!("a scrape failed: {error}");
    }
}

fn respond<B>(request: &Request<B>, served: &Served, is_open: bool) -> Response<Full<Bytes>> {
    if !is_open && !is_own_host(request) {
        return plain(StatusCode::FORBIDDEN, "this address is only for this machine\n");
    }
    match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => match (served.text)() {
            Some(text) => {
                let mut response = Response::new(Full::from(text));
                let kind = HeaderValue::from_static(served.content_type);
                response.headers_mut().insert(CONTENT_TYPE, kind);
                response
            }
            None => plain(StatusCode::INTERNAL_SERVER_ERROR, "the values cannot be written\n"),
        },
        (_, "/metrics") => plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is possible\n"),
        _ => plain(StatusCode::NOT_FOUND, "there is only /metrics\n"),
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

/// Whether the request names this machine. A page of another site would name that site.
fn is_own_host<B>(request: &Request<B>) -> bool {
    let Some(host) = request.headers().get(HOST).and_then(|host| host.to_str().ok()) else {
        return false;
    };
    let name = match host.parse::<SocketAddr>() {
        Ok(address) => return address.ip().is_loopback(),
        Err(_) => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_get_of_metrics_by_a_name_of_this_machine_is_answered() {
        let served = Served { content_type: "text/plain", text: Arc::new(|| Some("x".into())) };
        let status = |method: Method, path: &str, host: &str, is_open: bool| {
            let request = Request::builder().method(method).uri(path).header(HOST, host).body(());
            respond(&request.unwrap(), &served, is_open).status().as_u16()
        };
        for host in ["127.0.0.1:9400", "localhost:9400", "[::1]:9400", "localhost"] {
            assert_eq!(status(Method::GET, "/metrics", host, false), 200, "{host}");
        }
        for host in ["evil.example:9400", "10.0.0.1:9400", ""] {
            assert_eq!(status(Method::GET, "/metrics", host, false), 403, "{host}");
        }
        assert_eq!(status(Method::GET, "/metrics", "gpu.example:9400", true), 200);
        assert_eq!(status(Method::GET, "/", "localhost", false), 404);
        assert_eq!(status(Method::POST, "/metrics", "localhost", false), 405);
    }
}
