//! Style, script and icon, inside the program. They hold no facts, so they need no token.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};

const FILES: &[(&str, &str, &str)] = &[
    ("style.css", "text/css; charset=utf-8", include_str!("assets/style.css")),
    ("page.js", "text/javascript; charset=utf-8", include_str!("assets/page.js")),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];

pub async fn asset(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(file, _, _)| *file == name) {
        Some((_, kind, text)) => {
            ([(header::CONTENT_TYPE, *kind), (header::CACHE_CONTROL, "no-cache")], *text)
                .into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
