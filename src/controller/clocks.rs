//! The clocks that a controller goes by: the workstation's own, and the job root's.
//!
//! ```text
//!   a new plan ─────────> wrong by over five minutes? ──> nothing is launched, the user is told
//!   a due schedule ─────> the same ─────────────────────> nothing is decided, the log says it
//!   a machine is gone ──> the store's time dates its end ──> policy::billing::billed_until
//! ```
//! A machine's hard end is counted from its plan, and the machine compares it with the cloud's
//! clock. With a clock that is a day behind, a machine would start after its own end. With a clock
//! that is a day ahead, it might bill a day too long. A job root in a folder has no other clock.
//! The steady clock measures lengths of time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;

use super::act_result::ActError;
use crate::jobdir::layout;
use crate::market::{Span, elapsed};
use crate::ports::{Clock, Store, StoreError, chain_with_cure};

/// The most that the clock may be off. The drain before a hard end allows for as much, and EC2
/// accepts signatures within it. Clocks set over the network differ by a second. A lower limit
/// would refuse a clock that a person has set.
const OFF_MAX: Duration = Duration::from_secs(5 * 60);

/// A clock that was right is trusted for so long, unless it was set since. A launch follows its
/// plan sooner.
const RIGHT_FOR: Duration = Duration::from_secs(60);

/// When the clock was found right: by the steady clock, and by itself.
#[derive(Debug, Clone, Copy)]
struct SeenRight {
    steady: Duration,
    wall: Timestamp,
}

impl SeenRight {
    /// Whether it has gone as far as the steady clock since then: it was not set (seed 28000341 of
    /// 24 h: a day back, between the question and the plan).
    fn holds(self, steady: Duration, wall: Timestamp) -> bool {
        let went = steady.saturating_sub(self.steady);
        let ought = self.wall.saturating_add(went).unwrap_or(Timestamp::MAX);
        went < RIGHT_FOR && apart(ought, wall) <= OFF_MAX
    }
}

/// The distance of two times, in either order.
fn apart(one: Timestamp, other: Timestamp) -> Duration {
    elapsed(one, other).max(elapsed(other, one))
}

/// Cheap to clone; the clones share what is known of the workstation's clock.
#[derive(Clone)]
pub struct Clocks {
    clock: Arc<dyn Clock>,
    store: Arc<dyn Store>,
    /// When this workstation's clock was last found right.
    right: Arc<Mutex<Option<SeenRight>>>,
}

#[async_trait]
impl Clock for Clocks {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn mono(&self) -> Duration {
        self.clock.mono()
    }

    fn boot(&self) -> String {
        self.clock.boot()
    }

    async fn sleep(&self, time: Duration) {
        self.clock.sleep(time).await;
    }
}

impl Clocks {
    pub fn new(clock: Arc<dyn Clock>, store: Arc<dyn Store>) -> Self {
        Clocks { clock, store, right: Arc::default() }
    }

    /// Refuses to plan with a wrong clock. A store without a time passes: a user waits, and the
    /// plan is written to that store next.
    ///
    /// # Errors
    /// [`ActError::ClockOff`].
    pub async fn check(&self) -> Result<(), ActError> {
        self.compare().await.map(drop)
    }

    /// The same if no user waits: the next look asks the store again.
    ///
    /// # Errors
    /// [`ActError::ClockOff`], or [`ActError::Record`] where the store does not answer.
    pub async fn must_be_right(&self) -> Result<(), ActError> {
        match self.compare().await? {
            None => Ok(()),
            Some(error) => Err(ActError::Record(error.into())),
        }
    }

    /// `Some`: the store did not tell the time, and why.
    async fn compare(&self) -> Result<Option<StoreError>, ActError> {
        let known = || self.right.lock().expect("the holder only reads or sets it");
        let is_known = known().is_some_and(|seen| seen.holds(self.mono(), self.now()));
        if self.store.is_folder() || is_known {
            return Ok(None);
        }
        let look = || SeenRight { steady: self.mono(), wall: self.now() };
        let before = look();
        let theirs = match self.store_time().await {
            Ok(Some(theirs)) => theirs,
            // It has no clock, so the workstation's own must do.
            Ok(None) => return Ok(None),
            Err(error) => return Ok(Some(error)),
        };
        // If the laptop slept between the question and the answer, one of the two is late, and no
        // clock is wrong.
        let ours = [before, look()]
            .into_iter()
            .min_by_key(|ours| apart(ours.wall, theirs))
            .expect("there are two");
        let off = apart(ours.wall, theirs);
        if off <= OFF_MAX {
            *known() = Some(ours);
            return Ok(None);
        }
        let (off, side) = (
            Span::from_secs(off.as_secs()),
            if ours.wall < theirs { "behind" } else { "ahead of" },
        );
        Err(ActError::ClockOff {
            what: format!("this workstation's clock is {off} {side} that of {}", self.store.url()),
        })
    }

    /// The time by the clock that dates heartbeats; the workstation's own clock may be wrong.
    pub async fn store_now(&self) -> Option<Timestamp> {
        self.store_time().await.ok()?
    }

    /// # Errors
    /// When the store does not answer.
    async fn store_time(&self) -> Result<Option<Timestamp>, StoreError> {
        self.store.put(layout::CLOCK, Bytes::new()).await?;
        Ok(self.store.head(layout::CLOCK).await?.map(|meta| meta.modified))
    }

    /// The result, or `None` after this time.
    pub async fn bounded<T>(&self, most: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.sleep(most) => None,
        }
    }

    /// The same, with the error in words.
    ///
    /// # Errors
    /// The error with its causes, or that no answer came in time.
    pub async fn within<T, E: std::error::Error + 'static>(
        &self,
        time: Duration,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, String> {
        let done = self.bounded(time, work).await.ok_or_else(|| no_answer(time))?;
        done.map_err(|error| chain_with_cure(&error))
    }
}

/// In words.
pub(crate) fn no_answer(within: Duration) -> String {
    format!("nobody answered within {} s", within.as_secs())
}
