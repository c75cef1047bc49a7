//! Reads the records at a fixed pace, away from the drawing, and carries out acts.
//!
//! ```text
//! followed ─> overview task ─┐
//!         └─> job task ──────┼─ news ─> drawing
//! effects ──> act tasks ─────┘
//! ```

use std::sync::Arc;
use std::sync::mpsc::Sender;

use tokio::sync::{mpsc, watch};

use super::acts::{carry_out, foretell};
use super::keys::Effect;
use super::model::{Followed, TopNews};
use super::source::TopSource;
use crate::app::{ExitCode, Fault};

/// Starts the tasks that read. They end with the runtime, or when the view has ended.
pub fn start(source: &Arc<TopSource>, watched: &watch::Receiver<Followed>, news: &Sender<TopNews>) {
    tokio::spawn(follow_overview(Arc::clone(source), watched.clone(), news.clone()));
    tokio::spawn(follow_job(Arc::clone(source), watched.clone(), news.clone()));
}

/// Answers questions and carries out acts, each in its own task. Ends with the view.
pub async fn serve_effects(
    source: Arc<TopSource>,
    mut effects: mpsc::UnboundedReceiver<Effect>,
    news: Sender<TopNews>,
) {
    let mut under_way = Vec::new();
    while let Some(effect) = effects.recv().await {
        let (source, news) = (Arc::clone(&source), news.clone());
        match effect {
            Effect::Foretell(order) => drop(tokio::spawn(async move {
                let sentence = foretell(&source, &order).await;
                let _ = news.send(TopNews::Foretold { order, sentence });
            })),
            Effect::CarryOut(order) => under_way.push(tokio::spawn(async move {
                let _ = news.send(carry_out(source, order).await);
            })),
            Effect::KeepFilters(filters) => {
                if let Err(error) = source.place.workstation.keep_filters(&filters) {
                    let text = "the filters could not be written to the state folder";
                    let fault = Fault::new(ExitCode::INTERNAL, text).because(&error);
                    let _ = news.send(TopNews::NotKept(fault));
                }
            }
            Effect::Nothing | Effect::Quit => {}
        }
    }
    // A view that is left at once must not lose what was confirmed.
    for act in under_way {
        let _ = act.await;
    }
}

async fn follow_overview(
    source: Arc<TopSource>,
    mut watched: watch::Receiver<Followed>,
    news: Sender<TopNews>,
) {
    loop {
        let read = source.overview().await;
        let overview = read.as_ref().ok().cloned();
        if news.send(TopNews::Overview(read)).is_err() {
            return;
        }
        if let Some(overview) = overview {
            let _ = news.send(TopNews::Traces(source.traces(&overview).await));
        }
        source.place.clock.sleep(source.every()).await;
        if watched.wait_for(|watched| !watched.is_paused).await.is_err() {
            return;
        }
    }
}

async fn follow_job(
    source: Arc<TopSource>,
    mut watched: watch::Receiver<Followed>,
    news: Sender<TopNews>,
) {
    loop {
        let is_wanted = |watched: &Followed| watched.job.is_some() && !watched.is_paused;
        let Ok(wanted) = watched.wait_for(is_wanted).await.map(|watched| watched.clone()) else {
            return;
        };
        watched.mark_unchanged();
        let job = wanted.job.unwrap_or_default();
        let read = source.job(&job, wanted.attempt).await;
        if news.send(TopNews::Look { job, read }).is_err() {
            return;
        }
        // Another job or attempt is read at once.
        tokio::select! {
            () = source.place.clock.sleep(source.every()) => {}
            changed = watched.changed() => if changed.is_err() { return },
        }
    }
}
