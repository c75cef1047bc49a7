//! The frame of each page: head, navigation, and the part that changes while it is open.

use axum::http::StatusCode;
use axum::response::{Html, IntoResponse as _, Response};
use maud::{DOCTYPE, Markup, html};

use crate::app::{ExitCode, Fault};

/// The pages of the navigation, by address and title.
const PAGES: &[(&str, &str)] = &[
    ("/", "Jobs"),
    ("/machines", "Machines"),
    ("/costs", "Costs"),
    ("/tunings", "Tunings"),
    ("/prices", "Prices"),
];

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
            div #trouble hidden role="status" {}
            p #paused hidden role="status" {
                "The page waits while text is selected or a control is in use."
            }
            p #stale hidden role="status" {
                span #stale-why { (LOST) } " The facts of this page are from " time #heard { "before" } "."
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
                    link rel="stylesheet" href="/assets/uplot.min.css";
                    script src="/assets/uplot.min.js" defer {}
                    script src="/assets/page.js" defer {}
                    script src="/assets/keys.js" defer {}
                }
                body {
                    header {
                        a.brand href="/" { "Lamplighter" }
                        @if has_nav {
                            nav aria-label="Pages" {
                                @for (to, name) in PAGES {
                                    a href=(to) aria-current=[(*name == self.title).then_some("page")] { (name) }
                                }
                            }
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

/// In place of a page that is not there.
pub fn nothing_page(text: &str) -> Response {
    let page = Page::new("Nothing there").show(html! { p { (text) } }, html! {});
    (StatusCode::NOT_FOUND, page).into_response()
}

/// The status that the code of a fault means.
pub fn status_of(fault: &Fault) -> StatusCode {
    match fault.code {
        ExitCode::NOT_FOUND => StatusCode::NOT_FOUND,
        ExitCode::USAGE => StatusCode::BAD_REQUEST,
        ExitCode::REFUSED => StatusCode::CONFLICT,
        ExitCode::UNREACHABLE => StatusCode::BAD_GATEWAY,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// An entry of a list of facts; without a value, nothing.
pub fn fact(key: &str, value: Option<String>) -> Markup {
    html! { @if let Some(value) = value { div { dt { (key) } dd { (value) } } } }
}

pub fn fault_page(fault: &Fault) -> Response {
    (status_of(fault), Page::new("This did not work").show(fault_box(fault), html! {}))
        .into_response()
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

/// In place of a live part that could not be drawn. The browser keeps what it shows, and shows the
/// fault beside it.
pub fn fault_event(fault: &Fault) -> String {
    format!("{FAULT_EVENT}{}", fault_box(fault).into_string())
}

/// page.js shows it when the connection is lost, and another text when the job root is silent.
const LOST: &str = "The page has lost its connection.";

/// page.js looks for it.
const FAULT_EVENT: &str = "<!--fault-->";

/// Text with `commands` in code.
pub fn in_code(text: &str) -> Markup {
    html! {
        @for (at, part) in text.split('`').enumerate() {
            @if at % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// Only letters and digits stay as they are.
pub fn form_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::form_encoded;

    #[test]
    fn filter_survives_its_way_through_an_address() {
        assert_eq!(form_encoded("state:running cost>5&ä"), "state%3Arunning%20cost%3E5%26%C3%A4");
    }
}
