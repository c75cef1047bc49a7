//! Who may ask: the host and origin that a browser names, the token, and the headers of answers.
//!
//! ```text
//! host not ours ─> 403     POST from another origin ─> 403     no token ─> 401
//! ```
//!
//! A page of another site can make a name of its own mean 127.0.0.1 (DNS rebinding). Its requests
//! then name that host, and get no answer.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::api;
use super::layout::message_page;
use super::site::Site;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub async fn guard(State(site): State<Arc<Site>>, request: Request, next: Next) -> Response {
    let is_event_stream = request.uri().path().ends_with("/live");
    let mut response = match refusal(&site, &request) {
        Some(refused) => refused,
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // With `no-referrer` a browser hides the origin of our own forms.
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !headers.contains_key(header::CACHE_CONTROL) || is_event_stream {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// The answer to a request that is refused.
fn refusal(site: &Site, request: &Request) -> Option<Response> {
    let headers = request.headers();
    let word = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    // HTTP/1.1 has the header; a request line with a whole address has its own host.
    let host = word(header::HOST);
    let named = request.uri().authority().map(|authority| authority.as_str());
    let is_ours = |host: &str| site.hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host));
    if !host.is_some_and(is_ours) || !named.is_none_or(is_ours) {
        let text = "This name is not one of this page. Open it by the link that `lamp web` printed; \
            `lamp web --host NAME` allows another name.";
        return Some(refused(request, StatusCode::FORBIDDEN, "Unknown host", text));
    }
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    let is_from_here = match word(header::ORIGIN) {
        Some(origin) => {
            let host = origin.strip_prefix("http://").or(origin.strip_prefix("https://"));
            host.is_some_and(is_ours)
        }
        // A browser names the origin of each form. A program has the token in a header.
        // Without one it is told below that the token is missing.
        None => is_read || bearer(headers).is_some() || api::is_for_programs(request.uri().path()),
    };
    if !is_from_here {
        let text = "Another site sent this request. Nothing was changed.";
        return Some(refused(request, StatusCode::FORBIDDEN, "Unknown origin", text));
    }
    let path = request.uri().path();
    let is_open = path == "/enter" || path.starts_with("/assets/");
    let is_known = [bearer(headers), cookie(headers, &site.cookie)]
        .into_iter()
        .flatten()
        .any(|said| site.is_token(said));
    if !is_open && !is_known {
        let text = "This browser has no token. Open the link that `lamp web` printed. \
            The link works once: end `lamp web` and start it again for a new one.";
        let page = refused(request, StatusCode::UNAUTHORIZED, "Who are you?", text);
        return Some(([(header::WWW_AUTHENTICATE, "Bearer")], page).into_response());
    }
    let has_token = bearer(headers).is_some_and(|said| site.is_token(said));
    if api::is_for_programs(path) && !is_read && !has_token {
        let text = "A cookie is not enough here. Nothing was changed.";
        return Some(refused(request, StatusCode::FORBIDDEN, "Unknown program", text));
    }
    None
}

/// A page for a person, or a problem for a program.
fn refused(request: &Request, status: StatusCode, title: &str, text: &str) -> Response {
    if api::is_for_programs(request.uri().path()) {
        let hint = "send `Authorization: Bearer TOKEN`; the token is in the file `web-token` of the state folder";
        return api::problem(status, text, Some(hint));
    }
    message_page(status, title, text)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(header::COOKIE).into_iter();
    all.filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(word, _)| *word == name)
        .map(|(_, value)| value)
}
