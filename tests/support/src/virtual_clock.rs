//! Virtual time: when no task can go on, the clock jumps to the next sleeper. A test of 20 minutes
//! takes a millisecond.
//!
//! Only for code that waits through the `Clock` port and touches nothing outside this process.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use lamplighter::ports::Clock;

#[derive(Default)]
pub struct VirtualClock(Mutex<State>);

#[derive(Default)]
struct State {
    now: Duration,
    /// How far the wall clock was set.
    set: SignedDuration,
    boots: u32,
    next: u64,
    sleepers: BTreeMap<(Duration, u64), Waker>,
}

/// How often all ready tasks run before time moves. Chains of tasks that wake each other are short.
const ROUNDS: usize = 50;

/// Jumps of the clock after which a test is thought to wait for ever.
const JUMPS_MAX: usize = 200_000;

#[async_trait]
impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let state = self.0.lock().unwrap();
        start + state.now + state.set
    }

    fn mono(&self) -> Duration {
        self.0.lock().unwrap().now
    }

    fn boot(&self) -> String {
        format!("boot {}", self.0.lock().unwrap().boots)
    }

    async fn sleep(&self, time: Duration) {
        let (deadline, id) = {
            let mut state = self.0.lock().unwrap();
            state.next += 1;
            (state.now + time, state.next)
        };
        Sleep { clock: self, key: (deadline, id) }.await;
    }
}

struct Sleep<'a> {
    clock: &'a VirtualClock,
    key: (Duration, u64),
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.clock.0.lock().unwrap();
        if state.now >= self.key.0 {
            state.sleepers.remove(&self.key);
            return Poll::Ready(());
        }
        state.sleepers.insert(self.key, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        self.clock.0.lock().unwrap().sleepers.remove(&self.key);
    }
}

impl VirtualClock {
    /// Sets the wall clock forward or back. The steady clock stays.
    pub fn set(&self, by: SignedDuration) {
        self.0.lock().unwrap().set += by;
    }

    /// The machine was off for so long. By chance its new steady clock has the same time as before.
    pub fn reboot(&self, off: Duration) {
        let mut state = self.0.lock().unwrap();
        state.set += SignedDuration::try_from(off).expect("no test lasts as long");
        state.boots += 1;
    }

    async fn drive(&self) {
        for _ in 0..JUMPS_MAX {
            rounds().await;
            // One thread does blocking work in order, so earlier blocking work is done after this.
            tokio::task::spawn_blocking(|| ()).await.expect("nothing panics");
            rounds().await;
            let mut state = self.0.lock().unwrap();
            let Some((&(deadline, _), _)) = state.sleepers.first_key_value() else { return };
            state.now = state.now.max(deadline);
            let now = state.now;
            for (_, waker) in state.sleepers.range(..=(now, u64::MAX)) {
                waker.wake_by_ref();
            }
        }
    }
}

async fn rounds() {
    for _ in 0..ROUNDS {
        tokio::task::yield_now().await;
    }
}

/// Runs a test in virtual time.
pub fn simulate<F: Future>(test: impl FnOnce(Arc<VirtualClock>) -> F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .build()
        .expect("a runtime");
    let clock = Arc::new(VirtualClock::default());
    runtime.block_on(async {
        let test = test(Arc::clone(&clock));
        tokio::select! {
            biased;
            output = test => output,
            () = clock.drive() => panic!("the test waits for something that never happens"),
        }
    })
}

/// Waits for a condition; the limit is virtual time.
pub async fn until(
    clock: &VirtualClock,
    what: &str,
    limit: Duration,
    mut condition: impl FnMut() -> bool,
) {
    let end = clock.mono() + limit;
    while !condition() {
        assert!(clock.mono() < end, "not within {limit:?}: {what}");
        clock.sleep(Duration::from_millis(200)).await;
    }
}
