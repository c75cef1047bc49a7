//! The way in: the link with a one-time code, which becomes a cookie with the token.
//!
//! A GET changes nothing, so the link shows a form, and the form sends the code.

use std::sync::Arc;

use axum::extract::{Form, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use maud::html;
use serde::Deserialize;

use super::layout::{Page, message_page};
use super::site::Site;

/// A cookie of a month: a longer one outlives what it was made for.
const KEPT_SECS: u32 = 30 * 24 * 3600;

#[derive(Deserialize)]
pub struct SignInForm {
    #[serde(default)]
    code: String,
    /// The page to show first.
    #[serde(default)]
    to: String,
}

pub async fn form(Query(entry): Query<SignInForm>) -> Response {
    let body = html! {
        form #enter method="post" action="/enter" {
            p { "This link opens the page of your jobs in this browser. It works once." }
            input type="hidden" name="code" value=(entry.code);
            input type="hidden" name="to" value=(entry.to);
            button { "Open" }
        }
    };
    Page::new("Open the page").plain(body).into_response()
}

pub async fn enter(State(site): State<Arc<Site>>, Form(entry): Form<SignInForm>) -> Response {
    let Some(token) = site.exchange(&entry.code) else {
        let text = "This link was used before, or is not one of this `lamp web`. \
            End `lamp web` and start it again for a new link.";
        return message_page(StatusCode::FORBIDDEN, "The link is not valid", text);
    };
    let cookie =
        format!("{}={token}; Path=/; Max-Age={KEPT_SECS}; HttpOnly; SameSite=Strict", site.cookie);
    (
        StatusCode::SEE_OTHER,
        [(header::SET_COOKIE, cookie), (header::LOCATION, inside(&entry.to).to_owned())],
    )
        .into_response()
}

/// A path of this site: `//other.example` would lead away.
fn inside(to: &str) -> &str {
    let is_path = to.starts_with('/')
        && !to.starts_with("//")
        && !to.contains('\\')
        && to.bytes().all(|byte| byte.is_ascii_graphic());
    if is_path { to } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::inside;

    #[test]
    fn way_in_leads_to_a_page_of_this_site() {
        assert_eq!(inside("/job/x?attempt=1"), "/job/x?attempt=1");
        for away in ["", "//evil.example", "/\\evil.example", "https://evil.example", "/a\r\nb"] {
            assert_eq!(inside(away), "/", "{away:?}");
        }
    }
}
