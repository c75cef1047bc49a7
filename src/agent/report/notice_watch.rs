//! Asks the machine's metadata once a second whether the cloud is about to take it.
//!
//! An answer that does not come is not "no notice": the last good answer stands, with the time at which it came. One poll
//! is in flight at a time, so that a service that hangs costs nothing but its own slot.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

use super::retry_sender::{Task, chain, within};
use crate::agent::wake::to_next;
use crate::instance::{Notice, Tags};
use crate::ports::{Clock, Metadata};

/// EC2 documents five seconds; a second costs a local request and gives the save four seconds more of its 120.
const POLL: Duration = Duration::from_secs(1);

/// Between two looks at the tags. An extension is asked for long before the old cap; every second would be a second request
/// for nothing.
const TAGS_EVERY: Duration = Duration::from_secs(30);

/// An adapter has shorter limits of its own; this one is for an adapter that hangs.
const ANSWER_MAX: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Default)]
pub struct NoticeFacts {
    /// The notices of the last good answer.
    pub notices: Vec<Notice>,
    /// When that answer came, by the steady clock; `None`: never yet.
    pub answered: Option<Duration>,
    /// Failed polls since then, and when the first of them was asked.
    pub failures: u32,
    pub silent_since: Option<Duration>,
    /// The hard cap by the machine's own tags, which a user's extension raises; `None`: not known yet, or there is none.
    pub kill_at: Option<Timestamp>,
}

/// Polls once a second; dropping it ends that.
pub struct NoticeWatch {
    facts: watch::Receiver<NoticeFacts>,
    _task: Task,
    _tags: Task,
}

impl NoticeWatch {
    pub fn start(metadata: Arc<dyn Metadata>, clock: Arc<dyn Clock>) -> Self {
        let (sender, facts) = watch::channel(NoticeFacts::default());
        let sender = Arc::new(sender);
        let _tags = Task::spawn(watch_tags(Arc::clone(&sender), Arc::clone(&metadata), Arc::clone(&clock)));
        let _task = Task::spawn(async move {
            loop {
                let asked = clock.mono();
                let answer = within(&*clock, ANSWER_MAX, metadata.notices()).await;
                take(&sender, answer.map(|answer| answer.map_err(|error| chain(&error))), asked, clock.mono());
                clock.sleep(to_next(clock.mono(), POLL)).await;
            }
        });
        NoticeWatch { facts, _task, _tags }
    }

    /// `changed` resolves when the notices do, or when answers begin to fail; the facts are always the newest.
    pub fn subscribe(&self) -> watch::Receiver<NoticeFacts> {
        self.facts.clone()
    }
}

/// Looks after the hard cap beside the notices, so that a look that hangs delays none of them.
async fn watch_tags(sender: Arc<watch::Sender<NoticeFacts>>, metadata: Arc<dyn Metadata>, clock: Arc<dyn Clock>) {
    loop {
        if let Some(Ok(identity)) = within(&*clock, ANSWER_MAX, metadata.identity()).await
            && let Ok(tags) = Tags::from_map(&identity.tags)
        {
            sender.send_if_modified(|facts| std::mem::replace(&mut facts.kill_at, tags.kill_at) != tags.kill_at);
        }
        clock.sleep(to_next(clock.mono(), TAGS_EVERY)).await;
    }
}

/// Wakes the receivers only for news: a loop should not wake each second to learn that nothing happened.
fn take(sender: &watch::Sender<NoticeFacts>, answer: Option<Result<Vec<Notice>, String>>, asked: Duration, now: Duration) {
    sender.send_if_modified(|facts| match answer {
        Some(Ok(notices)) => {
            if facts.failures > 0 {
                tracing::info!("the metadata service answers again, after {} failures", facts.failures);
            }
            let news = facts.notices != notices || facts.failures > 0;
            *facts = NoticeFacts { notices, answered: Some(now), failures: 0, silent_since: None, kill_at: facts.kill_at };
            news
        }
        failed => {
            facts.failures = facts.failures.saturating_add(1);
            facts.silent_since.get_or_insert(asked);
            if facts.failures == 1 {
                let why = failed.and_then(Result::err).unwrap_or_else(|| "no answer".into());
                tracing::warn!("nobody knows whether the cloud gave notice: {why}");
            }
            facts.failures == 1
        }
    });
}
