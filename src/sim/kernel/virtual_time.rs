//! Virtual time: when no task can go on, the clock jumps to the next sleeper. Six hours take a
//! second.
//!
//! One thread, one queue. When the runtime parks, every task waits, and time moves. Not here: a
//! real clock, or a thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::LocalSet;

/// The world's own time; the clocks of its machines are readings of it.
#[derive(Default)]
pub struct Timeline {
    /// Nanoseconds. Every step of every task reads it.
    now: AtomicU64,
    state: Mutex<SleepQueue>,
    /// The main task can go on: time must not move before it has.
    awake: AtomicBool,
}

#[derive(Default)]
struct SleepQueue {
    next: u64,
    /// The last to wake is first. There are dozens, and most sleep for a second or two. Changes
    /// near the end of a `Vec` cost a fraction of those in a tree.
    sleepers: Vec<Sleeper>,
}

struct Sleeper {
    key: WakeKey,
    waker: Waker,
}

/// When a sleeper wakes, nanoseconds, and its number: earlier sleeps have lower ones.
type WakeKey = (u64, u64);

impl SleepQueue {
    /// The index of a sleeper, or where to insert it.
    fn place(&self, key: WakeKey) -> Result<usize, usize> {
        self.sleepers.binary_search_by(|sleeper| key.cmp(&sleeper.key))
    }
}

/// When every world begins: 2026-01-01.
pub const EPOCH_SECS: i64 = 1_767_225_600;

impl Timeline {
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.now.load(Ordering::Relaxed))
    }

    pub fn wall(&self) -> Timestamp {
        at(self.now())
    }

    pub async fn sleep(&self, time: Duration) {
        let key = {
            let mut state = self.state();
            state.next += 1;
            (nanos(self.now().saturating_add(time)), state.next)
        };
        Sleep { timeline: self, key, waits: false }.await;
    }

    fn state(&self) -> MutexGuard<'_, SleepQueue> {
        self.state.lock().expect("the lock is not poisoned")
    }

    /// Called when no task can go on.
    fn jump(&self) {
        if self.awake.load(Ordering::Relaxed) {
            return;
        }
        let first = self.state().sleepers.last().map(|sleeper| sleeper.key.0);
        let deadline = first.expect("the world waits for something that never happens");
        self.now.fetch_max(deadline, Ordering::Relaxed);
        while let Some(sleeper) = self.due(deadline) {
            sleeper.wake();
        }
    }

    fn due(&self, deadline: u64) -> Option<Waker> {
        let mut state = self.state();
        state.sleepers.pop_if(|sleeper| sleeper.key.0 <= deadline).map(|sleeper| sleeper.waker)
    }

    fn is_over(&self, until: u64) -> bool {
        self.now.load(Ordering::Relaxed) >= until
    }
}

/// A moment of the world as a time of day.
pub fn at(moment: Duration) -> Timestamp {
    let secs = i64::try_from(moment.as_secs()).unwrap_or(i64::MAX).saturating_add(EPOCH_SECS);
    Timestamp::new(secs, moment.subsec_nanos().cast_signed()).expect("no world is as old as time")
}

/// Five centuries of a world fit.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

struct Sleep<'a> {
    timeline: &'a Timeline,
    key: WakeKey,
    /// It is among the sleepers until it is woken.
    waits: bool,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.timeline.is_over(self.key.0) {
            return Poll::Ready(());
        }
        self.waits = true;
        let mut state = self.timeline.state();
        match state.place(self.key) {
            Ok(place) => state.sleepers[place].waker.clone_from(context.waker()),
            Err(place) => state
                .sleepers
                .insert(place, Sleeper { key: self.key, waker: context.waker().clone() }),
        }
        drop(state);
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if self.waits && !self.timeline.is_over(self.key.0) {
            let mut state = self.timeline.state();
            // Its waker may be the last of a task that holds other sleeps. Drop it after the lock.
            let gone = state.place(self.key).ok().map(|place| state.sleepers.remove(place));
            drop((state, gone));
        }
    }
}

/// Notes that the main task was woken.
struct MainWaker {
    timeline: Arc<Timeline>,
    inner: Waker,
}

impl Wake for MainWaker {
    fn wake(self: Arc<Self>) {
        self.timeline.awake.store(true, Ordering::Relaxed);
        self.inner.wake_by_ref();
    }
}

/// Runs `work` to its end, in virtual time on this thread.
pub fn in_virtual_time<F: Future>(work: impl FnOnce(Arc<Timeline>) -> F) -> F::Output {
    let timeline = Arc::new(Timeline::default());
    let parked = Arc::clone(&timeline);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .on_thread_park(move || parked.jump())
        .build()
        .expect("a runtime without drivers needs nothing of the system");
    let local = LocalSet::new();
    let work = work(Arc::clone(&timeline));
    runtime.block_on(async {
        let mut whole = Box::pin(local.run_until(work));
        // Reused while the runtime's own waker is the same.
        let mut known: Option<(Waker, Waker)> = None;
        std::future::poll_fn(|context| {
            timeline.awake.store(false, Ordering::Relaxed);
            let inner = context.waker();
            let (_, waker) = match known.take() {
                Some(same) if same.0.will_wake(inner) => known.insert(same),
                _ => known.insert((
                    inner.clone(),
                    Waker::from(Arc::new(MainWaker {
                        timeline: Arc::clone(&timeline),
                        inner: inner.clone(),
                    })),
                )),
            };
            whole.as_mut().poll(&mut Context::from_waker(waker))
        })
        .await
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleepers_wake_in_order_and_work_takes_no_virtual_time() {
        let order = in_virtual_time(async |timeline: Arc<Timeline>| {
            let order = Arc::new(Mutex::new(Vec::new()));
            let tasks: Vec<_> = [30, 10, 20]
                .into_iter()
                .map(|secs| {
                    let (timeline, order) = (Arc::clone(&timeline), Arc::clone(&order));
                    tokio::task::spawn_local(async move {
                        timeline.sleep(Duration::from_secs(secs)).await;
                        for _ in 0..5 {
                            tokio::task::yield_now().await;
                        }
                        order.lock().unwrap().push((secs, timeline.now().as_secs()));
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            Arc::into_inner(order).unwrap().into_inner().unwrap()
        });
        assert_eq!(order, [(10, 10), (20, 20), (30, 30)]);
    }

    #[test]
    #[should_panic(expected = "never happens")]
    fn world_without_sleepers_panics() {
        in_virtual_time(async |_| std::future::pending::<()>().await);
    }
}
