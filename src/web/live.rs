//! The changing part of a page, sent again when it has changed (server-sent events).
//!
//! ```text
//! pages of one address ─> drawn in the last seconds? yes: the same text
//!                                                    no:  draw ─> keep ─> send
//! ```

use std::convert::Infallible;
use std::sync::Arc;

use axum::http::Uri;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures::stream::{self, Stream};

use super::site::Site;

/// `draw` gives the part of this address as HTML. The first one is sent at once: the page may be
/// older.
pub fn stream<D, F>(
    site: Arc<Site>,
    address: Uri,
    draw: D,
) -> Sse<impl Stream<Item = Result<Event, Infallible>> + Send>
where
    D: Fn(Arc<Site>) -> F + Send + 'static,
    F: Future<Output = String> + Send,
{
    let first = (site, address.to_string(), draw, Arc::<str>::from(""));
    let parts = stream::unfold(first, |(site, address, draw, before)| async move {
        loop {
            if !before.is_empty() {
                site.clock.sleep(site.every()).await;
            }
            let (now, every) = (site.clock.mono(), site.every());
            let part = site.parts.of(&address, now, every, draw(Arc::clone(&site))).await;
            if part != before {
                let event = Event::default().data(&*part);
                return Some((Ok(event), (site, address, draw, part)));
            }
        }
    });
    Sse::new(parts).keep_alive(KeepAlive::default())
}
