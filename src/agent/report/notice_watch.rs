//! Asks the metadata service once a second whether the cloud will interrupt the machine.
//!
//! After a missing answer, the last good answer counts, with its time. Only one
//! poll runs at a time, so a hung service blocks nothing else.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

use super::retry_sender::{Task, chain, within};
use crate::agent::timers::to_next;
use crate::instance::{Notice, Tags};
use crate::ports::{Clock, Metadata};

/// EC2 documents five seconds. One second is a local request and saves four of the 120 seconds.
const POLL: Duration = Duration::from_secs(1);

/// The time between two looks at the tags. Users extend long before the old cap.
const TAGS_EVERY: Duration = Duration::from_secs(30);

/// For an adapter that hangs. Adapters have shorter limits of their own.
const ANSWER_MAX: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Default)]
pub struct NoticeAnswers {
    pub notices: Vec<Notice>,
    /// When that answer came, by the monotonic clock. `None`: never yet.
    pub answered: Option<Duration>,
    /// Failed polls since then, and when the first of them was sent.
    pub failures: u32,
    pub silent_since: Option<Duration>,
    /// The hard cap in the machine's tags, which a user's extension raises. `None`: unknown yet, or
    /// there is none.
    pub kill_at: Option<Timestamp>,
}

/// Polls once a second until it is dropped.
pub struct NoticeWatch {
    facts: watch::Receiver<NoticeAnswers>,
    _task: Task,
    _tags: Task,
}

impl NoticeWatch {
    pub fn start(metadata: Arc<dyn Metadata>, clock: Arc<dyn Clock>) -> Self {
        let (sender, facts) = watch::channel(NoticeAnswers::default());
        let sender = Arc::new(sender);
        let _tags =
            Task::spawn(watch_tags(Arc::clone(&sender), Arc::clone(&metadata), Arc::clone(&clock)));
        let _task = Task::spawn(async move {
            loop {
                let asked = clock.mono();
                let answer = within(&*clock, ANSWER_MAX, metadata.notices()).await;
                take(
                    &sender,
                    answer.map(|answer| answer.map_err(|error| chain(&error))),
                    asked,
                    clock.mono(),
                );
                clock.sleep(to_next(clock.mono(), POLL)).await;
            }
        });
        NoticeWatch { facts, _task, _tags }
    }

    /// `changed` resolves when the notices change, or when answers begin to fail. The facts are the
    /// newest.
    pub fn subscribe(&self) -> watch::Receiver<NoticeAnswers> {
        self.facts.clone()
    }
}

/// Reads the hard cap in parallel, so that a hung read does not delay a notice.
async fn watch_tags(
    sender: Arc<watch::Sender<NoticeAnswers>>,
    metadata: Arc<dyn Metadata>,
    clock: Arc<dyn Clock>,
) {
    loop {
        if let Some(Ok(identity)) = within(&*clock, ANSWER_MAX, metadata.identity()).await
            && let Ok(tags) = Tags::from_map(&identity.tags)
        {
            sender.send_if_modified(|facts| {
                std::mem::replace(&mut facts.kill_at, tags.kill_at) != tags.kill_at
            });
        }
        clock.sleep(to_next(clock.mono(), TAGS_EVERY)).await;
    }
}

/// Wakes the receivers only for changes, so that the loop can sleep.
fn take(
    sender: &watch::Sender<NoticeAnswers>,
    answer: Option<Result<Vec<Notice>, String>>,
    asked: Duration,
    now: Duration,
) {
    sender.send_if_modified(|facts| match answer {
        Some(Ok(notices)) => {
            if facts.failures > 0 {
                tracing::info!(
                    "the metadata service answers again, after {} failures",
                    facts.failures
                );
            }
            let news = facts.notices != notices || facts.failures > 0;
            *facts = NoticeAnswers {
                notices,
                answered: Some(now),
                failures: 0,
                silent_since: None,
                kill_at: facts.kill_at,
            };
            news
        }
        failed => {
            facts.failures = facts.failures.saturating_add(1);
            facts.silent_since.get_or_insert(asked);
            if facts.failures == 1 {
                let why = failed.and_then(Result::err).unwrap_or_else(|| "no answer".into());
                tracing::warn!("cannot tell whether the cloud gave notice: {why}");
            }
            facts.failures == 1
        }
    });
}
