//! The frame of each page: head, navigation, and the part that changes while it is open.

use axum::http::StatusCode;
use axum::response::{Html, IntoResponse as _, Response};
use maud::{DOCTYPE, Markup, html};

use crate::app::Fault;

pub struct Page<'a> {
    title: &'a str,
    /// Where the changing part comes from.
    live: Option<String>,
}

impl<'a> Page<'a> {
    pub fn new(title: &'a str) -> Self {
        Page { title, live: None }
    }

    /// The changing part is sent again from this address.
    #[must_use]
    pub fn live(mut self, from: String) -> Self {
        self.live = Some(from);
        self
    }

    /// `fixed` stays as it is; `changing` is replaced.
    pub fn show(&self, fixed: Markup, changing: Markup) -> Html<String> {
        let body = html! {
            (fixed)
            div #live data-from=[self.live.as_deref()] { (changing) }
            p #stale hidden role="status" {
                "The page has lost its connection. What it shows is old."
            }
        };
        self.frame(true, body)
    }

    /// Without navigation.
    pub fn plain(&self, body: Markup) -> Html<String> {
        self.frame(false, body)
    }

    fn frame(&self, has_nav: bool, body: Markup) -> Html<String> {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · Lamplighter" }
                    link rel="icon" href="/assets/icon.svg";
                    link rel="stylesheet" href="/assets/style.css";
                    script src="/assets/page.js" defer {}
                }
                body {
                    header {
                        a.brand href="/" { "Lamplighter" }
                        @if has_nav {
                            nav aria-label="Pages" { a href="/" { "Jobs" } }
                        }
                    }
                    main { h1 { (self.title) } (body) }
                }
            }
        };
        Html(page.into_string())
    }
}

/// A page of one sentence.
pub fn message_page(status: StatusCode, title: &str, text: &str) -> Response {
    (status, Page::new(title).plain(html! { p { (text) } })).into_response()
}

pub fn fault_box(fault: &Fault) -> Markup {
    html! {
        section.need role="alert" {
            p { strong { (fault.sentence()) } }
            @if let Some(meaning) = &fault.meaning { p { (meaning) } }
            @if let Some(hint) = &fault.hint { p { (in_code(hint)) } }
        }
    }
}

/// Text with `commands` in code.
pub fn in_code(text: &str) -> Markup {
    html! {
        @for (at, part) in text.split('`').enumerate() {
            @if at % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}
