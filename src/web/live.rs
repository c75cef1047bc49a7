//! The changing part of a page, sent again when it has changed (server-sent events).
//!
//! ```text
//! pages of one address ─> drawn in the last seconds? yes: the same text
//!                                                    no:  draw ─> keep ─> send
//!                                                           └─ too slow ─> say so, draw again
//! ```

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Uri;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures::stream::{self, Stream, StreamExt as _};

use super::patience::{patience, who_is_silent};
use super::site::Site;

/// One message to an open page.
#[derive(Debug, PartialEq)]
pub enum LivePiece {
    /// The changing part as HTML.
    Part(Arc<str>),
    /// There was no new part in time. The text says for how long.
    Silent(String),
}

/// A stream between two of its pieces.
struct OpenPage<D> {
    site: Arc<Site>,
    address: Uri,
    draw: D,
    before: Arc<str>,
    /// When the last part was drawn, by the monotonic clock.
    heard: Duration,
    is_silent: bool,
}

/// page.js listens to events of this name.
const SILENT_EVENT: &str = "silent";

/// `draw` gives the part of this address as HTML. The first one is sent at once: the page may be
/// older.
pub fn stream<D, F>(
    site: Arc<Site>,
    address: Uri,
    draw: D,
) -> Sse<impl Stream<Item = Result<Event, Infallible>> + Send>
where
    D: Fn(Arc<Site>) -> F + Send + 'static,
    F: Future<Output = String> + Send + 'static,
{
    let event = |piece| match piece {
        LivePiece::Part(part) => Event::default().data(&*part),
        LivePiece::Silent(text) => Event::default().event(SILENT_EVENT).data(text),
    };
    let events = pieces(site, address, draw).map(move |piece| Ok(event(piece)));
    Sse::new(events).keep_alive(KeepAlive::default())
}

/// Without an end. A drawing that takes as long as a page may take is given up.
pub fn pieces<D, F>(site: Arc<Site>, address: Uri, draw: D) -> impl Stream<Item = LivePiece> + Send
where
    D: Fn(Arc<Site>) -> F + Send + 'static,
    F: Future<Output = String> + Send + 'static,
{
    let heard = site.clock.mono();
    let first = OpenPage { site, address, draw, before: Arc::from(""), heard, is_silent: false };
    stream::unfold(first, |mut page| async move {
        let piece = page.next().await;
        Some((piece, page))
    })
}

impl<D, F> OpenPage<D>
where
    D: Fn(Arc<Site>) -> F + Send + 'static,
    F: Future<Output = String> + Send + 'static,
{
    async fn next(&mut self) -> LivePiece {
        let (site, address) = (Arc::clone(&self.site), self.address.to_string());
        loop {
            if !self.before.is_empty() {
                site.clock.sleep(site.every()).await;
            }
            let (now, every) = (site.clock.mono(), site.every());
            let drawn = site.parts.of(&address, now, every, (self.draw)(Arc::clone(&site)));
            let part = tokio::select! {
                part = drawn => part,
                () = site.clock.sleep(patience(self.address.path())) => {
                    self.is_silent = true;
                    let silent = site.clock.mono().saturating_sub(self.heard).as_secs();
                    return LivePiece::Silent(who_is_silent(self.address.path(), silent));
                }
            };
            self.heard = site.clock.mono();
            // After a silence the same part says that the job root answers again.
            if part != self.before || std::mem::take(&mut self.is_silent) {
                self.before = Arc::clone(&part);
                self.is_silent = false;
                return LivePiece::Part(part);
            }
        }
    }
}
