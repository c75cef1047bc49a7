//! The changing part of a page, sent again when it has changed (server-sent events).

use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::{Event, KeepAlive, Sse};
use futures::stream::{self, Stream};

use super::site::Site;

/// `draw` gives the part as HTML. The first one is sent at once: the page may be older.
pub fn stream<D, F>(
    site: Arc<Site>,
    draw: D,
) -> Sse<impl Stream<Item = Result<Event, Infallible>> + Send>
where
    D: Fn(Arc<Site>) -> F + Send + 'static,
    F: Future<Output = String> + Send,
{
    let first = (site, draw, String::new());
    let parts = stream::unfold(first, |(site, draw, before)| async move {
        loop {
            if !before.is_empty() {
                site.clock.sleep(site.every()).await;
            }
            let part = draw(Arc::clone(&site)).await;
            if part != before {
                // A carriage return would end the line of the event.
                let event = Event::default().data(part.replace('\r', "&#13;"));
                return Some((Ok(event), (site, draw, part)));
            }
        }
    });
    Sse::new(parts).keep_alive(KeepAlive::default())
}
