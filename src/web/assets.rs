//! Style, script and icon, inside the program. Anyone may read them.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};

const FILES: &[(&str, &str, &str)] = &[
    ("style.css", "text/css; charset=utf-8", include_str!("assets/style.css")),
    ("page.js", "text/javascript; charset=utf-8", include_str!("assets/page.js")),
    ("keys.js", "text/javascript; charset=utf-8", include_str!("assets/keys.js")),
    // uPlot 1.6.32 by Leon Sorokin, MIT (assets/uplot-LICENSE), unchanged.
    ("uplot.min.js", "text/javascript; charset=utf-8", include_str!("assets/uplot.min.js")),
    ("uplot.min.css", "text/css; charset=utf-8", include_str!("assets/uplot.min.css")),
    ("uplot-LICENSE", "text/plain; charset=utf-8", include_str!("assets/uplot-LICENSE")),
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
