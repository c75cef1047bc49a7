//! The state of the download of code and checkpoint: what people are told, and when it is given up.
//!
//! The downloader reports here what it fetches and each failure, and retries without limit. The
//! agent looks every other second and decides. A machine that cannot download has normal
//! heartbeats, so no lease, sweeper or switch would end it. Not here: a call of the store, a wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::jobdir::JobDirError;
use crate::market::Span;
use crate::ports::{Clock, StoreError, chain};

/// How long refusals are retried. New rights of a role are known everywhere within minutes. Shorter
/// gives up too early; longer pays for a machine that is refused each time.
const ALLOWED_WITHIN: Duration = Duration::from_secs(600);

/// How long a start or a download waits for disk space. A checkpoint that replaces another may fill
/// the disk for a while. Ten minutes cost less than a lost job; longer pays for a machine without
/// work.
pub(crate) const ROOM_WITHIN: Duration = Duration::from_secs(600);

/// How long a silent store is waited for. Outages last hours on a bad day. Shorter gives up jobs
/// that would have continued. Longer pays for a machine without work. Every new byte restarts this
/// time.
const FRUITLESS_MAX: Duration = Duration::from_secs(3 * 3600);

/// People are told after this long without a byte or an error. A store in trouble may answer a
/// minute late.
const SILENT_AFTER: Duration = Duration::from_secs(120);

/// The beginning of these messages.
pub(crate) const CANNOT: &str = "cannot fetch";

/// The shared state of the download. Cheap to clone.
#[derive(Clone)]
pub struct Fetching {
    clock: Arc<dyn Clock>,
    inner: Arc<Mutex<FetchState>>,
}

#[derive(Default)]
struct FetchState {
    /// The present download, as text. `None`: nothing.
    what: Option<String>,
    /// The bytes of the present try, and of the best one so far.
    come: Arc<AtomicU64>,
    most: u64,
    /// When the total was last a new maximum, and when any byte came.
    moved: Duration,
    stirred: Duration,
    seen: u64,
    trouble: Option<FetchTrouble>,
}

struct FetchTrouble {
    kind: Kind,
    /// The first error of this kind: people are told once.
    text: String,
    /// How long it was the only answer.
    lasted: Duration,
    /// When it last happened. `None`: another error came since.
    said: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Denied,
    Full,
    /// Anything else: usually only time helps.
    Silent,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct FetchVerdict {
    /// The message for people, while it holds.
    pub told: Option<String>,
    pub over: Option<String>,
}

impl Fetching {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Fetching { clock, inner: Arc::default() }
    }

    /// Starts this download. The same text again is another try.
    pub(crate) fn begin(&self, what: String) {
        let now = self.clock.mono();
        let mut inner = self.inner();
        if inner.what.as_ref() != Some(&what) {
            *inner =
                FetchState { what: Some(what), moved: now, stirred: now, ..FetchState::default() };
        }
    }

    /// It is complete, or did not exist.
    pub(crate) fn done(&self) {
        *self.inner() = FetchState::default();
    }

    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.inner().come)
    }

    /// A try failed, and another follows.
    pub(crate) fn failed(&self, error: &JobDirError) {
        let (kind, now) = (Kind::of(error), self.clock.mono());
        let mut inner = self.inner();
        inner.count(now);
        (inner.come, inner.seen) = (Arc::default(), 0);
        match &mut inner.trouble {
            Some(trouble) if trouble.kind == kind => {
                trouble.lasted +=
                    trouble.said.map_or(Duration::ZERO, |said| now.saturating_sub(said));
                trouble.said = Some(now);
            }
            // A store error in between does not cancel a refusal.
            Some(trouble) if kind == Kind::Silent => trouble.said = None,
            _ => {
                inner.trouble = Some(FetchTrouble {
                    kind,
                    text: chain(error),
                    lasted: Duration::ZERO,
                    said: Some(now),
                })
            }
        }
    }

    pub(crate) fn look(&self) -> FetchVerdict {
        let now = self.clock.mono();
        let mut inner = self.inner();
        inner.count(now);
        // Only a store error is over with the first byte. A refusal or a full disk may concern one
        // file of many.
        if inner.come.load(Ordering::Relaxed) > 0 {
            inner.trouble = inner.trouble.take().filter(|trouble| trouble.kind != Kind::Silent);
        }
        let Some(what) = &inner.what else { return FetchVerdict::default() };
        let is_silent = now.saturating_sub(inner.stirred) >= SILENT_AFTER;
        let (kind, cause) = match &inner.trouble {
            Some(trouble) => (trouble.kind, trouble.text.as_str()),
            None if is_silent => (Kind::Silent, "nothing comes, and no error either"),
            // A download that progresses again is not given up before another failure.
            None => return FetchVerdict::default(),
        };
        let is_fruitless = now.saturating_sub(inner.moved) >= FRUITLESS_MAX;
        let (within, lasted) = (
            kind.patience(),
            inner.trouble.as_ref().map_or(Duration::ZERO, |trouble| trouble.lasted),
        );
        let ends = if kind != Kind::Silent && lasted >= within {
            Some(kind)
        } else {
            is_fruitless.then_some(Kind::Silent)
        };
        let over = ends.map(|kind| format!("{CANNOT} {what}: {cause}; {}", kind.ends()));
        let within = Span::from_duration(within);
        let told = format!(
            "{CANNOT} {what}, so the work is not started: {cause}; it is given up after {within} of this"
        );
        FetchVerdict { told: Some(told), over }
    }

    fn inner(&self) -> MutexGuard<'_, FetchState> {
        self.inner.lock().expect("no code panics while it holds it: it only counts")
    }
}

impl FetchState {
    fn count(&mut self, now: Duration) {
        let come = self.come.load(Ordering::Relaxed);
        if come != self.seen {
            (self.seen, self.stirred) = (come, now);
        }
        if come > self.most {
            (self.most, self.moved) = (come, now);
        }
    }
}

impl Kind {
    fn of(error: &JobDirError) -> Self {
        match error {
            JobDirError::Store(StoreError::Denied { .. }) => Kind::Denied,
            JobDirError::Store(StoreError::Full { .. }) => Kind::Full,
            _ => Kind::Silent,
        }
    }

    fn patience(self) -> Duration {
        match self {
            Kind::Denied => ALLOWED_WITHIN,
            Kind::Full => ROOM_WITHIN,
            Kind::Silent => FRUITLESS_MAX,
        }
    }

    /// The consequence when the retries end, and what helps.
    fn ends(self) -> String {
        let within = Span::from_duration(self.patience());
        let given_up = "so nothing was started and this machine is given up";
        match self {
            Kind::Denied => format!(
                "it was refused for {within}, {given_up}, as any other would be: let its role read the job root (`lamp doctor`, `lamp init aws`), \
                 then run the job again"
            ),
            Kind::Full => format!(
                "there was no room for it for {within}, {given_up}, as any other with such a disk would be: ask for more with `disk` in \
                 `[machine]`, then run the job again"
            ),
            Kind::Silent => format!(
                "nothing new of it has come for {within}, {given_up}; what was saved before is kept: look at the job root and the way to it \
                 (`lamp doctor`), then run the job again"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use jiff::Timestamp;

    use super::*;

    #[derive(Default)]
    struct Hands(AtomicU64);

    #[async_trait]
    impl Clock for Hands {
        fn now(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }
        fn mono(&self) -> Duration {
            Duration::from_secs(self.0.load(Ordering::Relaxed))
        }
        fn boot(&self) -> String {
            String::new()
        }
        async fn sleep(&self, _: Duration) {}
    }

    fn error(kind: Kind) -> JobDirError {
        let (act, key, cause) = ("download", "k".to_owned(), "injected".into());
        JobDirError::Store(match kind {
            Kind::Denied => StoreError::Denied { act, key, cause },
            Kind::Full => StoreError::Full { act, key, cause },
            Kind::Silent => StoreError::Unavailable { act, key, cause },
        })
    }

    /// One answer a minute; returns the minute when it is given up.
    fn given_up(answers: impl Fn(u64) -> (Kind, u64)) -> Option<u64> {
        let clock = Arc::new(Hands::default());
        let fetching = Fetching::new(clock.clone());
        fetching.begin("it".into());
        (0..600).find(|minute| {
            let (kind, come) = answers(*minute);
            fetching.counter().fetch_add(come, Ordering::Relaxed);
            fetching.failed(&error(kind));
            clock.0.fetch_add(59, Ordering::Relaxed);
            let look = fetching.look();
            assert!(look.told.is_some_and(|told| {
                told.starts_with("cannot fetch it, so the work is not started: ")
            }));
            clock.0.fetch_add(1, Ordering::Relaxed);
            look.over.is_some()
        })
    }

    #[test]
    fn refusal_ends_fetch_soon_and_outage_late() {
        assert_eq!(given_up(|_| (Kind::Denied, 0)), Some(10));
        assert_eq!(given_up(|_| (Kind::Full, 7)), Some(10), "as much as the disk takes, each time");
        assert_eq!(given_up(|minute| (Kind::Full, minute)), Some(10), "and a little more or less");
        assert_eq!(given_up(|_| (Kind::Silent, 0)), Some(180));
        assert_eq!(
            given_up(|_| (Kind::Silent, 7)),
            Some(180),
            "the same beginning each time is no progress"
        );
        assert_eq!(given_up(|minute| (Kind::Silent, minute)), None, "it gets on");
        let outage =
            |minute| (if (5..100).contains(&minute) { Kind::Silent } else { Kind::Denied }, 0);
        assert_eq!(
            given_up(outage),
            Some(106),
            "an outage does not reset the time of the refusals"
        );
    }

    #[test]
    fn progress_removes_fetch_message() {
        let clock = Arc::new(Hands::default());
        let fetching = Fetching::new(clock.clone());
        assert_eq!(fetching.look(), FetchVerdict::default());
        fetching.begin("it".into());
        clock.0.fetch_add(119, Ordering::Relaxed);
        assert_eq!(fetching.look(), FetchVerdict::default(), "a call may take a while");
        clock.0.fetch_add(1, Ordering::Relaxed);
        assert!(
            fetching
                .look()
                .told
                .is_some_and(|told| told.contains("nothing comes, and no error either"))
        );
        fetching.failed(&error(Kind::Silent));
        assert!(
            fetching.look().told.is_some_and(|told| told.contains("cannot download `k`: injected"))
        );
        fetching.counter().fetch_add(1, Ordering::Relaxed);
        assert_eq!(fetching.look(), FetchVerdict::default());
        fetching.failed(&error(Kind::Full));
        fetching.begin("it".into());
        assert!(
            fetching
                .look()
                .told
                .is_some_and(|told| told.contains("no space left to download `k`: injected"))
        );
        fetching.begin("another".into());
        assert_eq!(fetching.look(), FetchVerdict::default());
        fetching.failed(&error(Kind::Denied));
        fetching.done();
        assert_eq!(fetching.look(), FetchVerdict::default());
    }
}
