//! Reads the records at a fixed pace, away from the drawing, and carries out acts.
//!
//! ```text
//! followed ─> overview task ─┐
//!         └─> job task ──────┼─ news ─> drawing
//! effects ──> act tasks ─────┘
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};

use super::acts::{carry_out, foretell};
use super::keys::Effect;
use super::model::{Followed, TopNews};
use super::source::TopSource;
use super::trace::JobTrace;
use crate::app::overview::overview::{JobRow, Overview};
use crate::market::elapsed;

/// A newer trace would look the same.
const TRACE_OLD: Duration = Duration::from_secs(60);

/// Jobs whose last hour is read at once. Each has up to a dozen objects.
const TRACES_IN_FLIGHT: usize = 4;

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
            Effect::Nothing | Effect::Quit => {}
        }
    }
    // A view that is left at once must not lose what was confirmed.
    for act in under_way {
        let _ = act.await;
    }
}

/// The last hour of each job that has not ended.
pub async fn traces_once(
    source: &TopSource,
    overview: &Overview,
) -> BTreeMap<String, Arc<JobTrace>> {
    let mut traces = Traces::default();
    traces.read(source, overview).await;
    traces.shown()
}

async fn follow_overview(
    source: Arc<TopSource>,
    mut watched: watch::Receiver<Followed>,
    news: Sender<TopNews>,
) {
    let mut traces = Traces::default();
    loop {
        let read = source.overview().await;
        let overview = read.as_ref().ok().cloned();
        if news.send(TopNews::Overview(read)).is_err() {
            return;
        }
        if let Some(overview) = overview {
            traces.read(&source, &overview).await;
            let _ = news.send(TopNews::Traces(traces.shown()));
        }
        source.clock.sleep(source.every()).await;
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
            () = source.clock.sleep(source.every()) => {}
            changed = watched.changed() => if changed.is_err() { return },
        }
    }
}

/// The traces that were read, and when.
#[derive(Default)]
struct Traces(BTreeMap<String, (Timestamp, Option<Arc<JobTrace>>)>);

impl Traces {
    async fn read(&mut self, source: &TopSource, overview: &Overview) {
        let now = source.clock.now();
        let is_open = |job: &str| {
            overview.jobs.iter().any(|row| row.summary.job == *job && !row.summary.state.is_final())
        };
        self.0.retain(|job, _| is_open(job));
        let is_new =
            |job: &str| self.0.get(job).is_some_and(|(read, _)| elapsed(*read, now) < TRACE_OLD);
        let old: Vec<&JobRow> = overview
            .jobs
            .iter()
            .filter(|row| is_open(&row.summary.job) && !is_new(&row.summary.job))
            .collect();
        let read = |row: JobRow| async move {
            let trace = JobTrace::read(&row, &source.store).await;
            (row.summary.job, (now, trace.map(Arc::new)))
        };
        let rows = old.into_iter().cloned().collect::<Vec<_>>();
        let found: Vec<_> =
            stream::iter(rows).map(read).buffer_unordered(TRACES_IN_FLIGHT).collect().await;
        self.0.extend(found);
    }

    fn shown(&self) -> BTreeMap<String, Arc<JobTrace>> {
        let shown = |(job, (_, trace)): (&String, &(Timestamp, Option<Arc<JobTrace>>))| {
            Some((job.clone(), Arc::clone(trace.as_ref()?)))
        };
        self.0.iter().filter_map(shown).collect()
    }
}
