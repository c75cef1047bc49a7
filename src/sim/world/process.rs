//! Something that runs and can be frozen or killed between any two of its calls: a kernel, an
//! agent, a controller.
//!
//! Its ports go through it ([`super::process_ports`]). While it is frozen, no call returns. Once it
//! is dead, no call returns or takes effect.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::ports::Clock;

/// Counts the calls of its ports.
pub struct SimProcess {
    /// The process that it runs on. It freezes and dies with it.
    on: Option<Arc<SimProcess>>,
    frozen: AtomicBool,
    dead: AtomicBool,
    state: Mutex<ProcessState>,
}

#[derive(Default)]
struct ProcessState {
    calls: u64,
    /// The call at which it dies or pauses, and whether that call takes effect first.
    dies: Option<(u64, bool)>,
    /// It pauses instead, like a laptop that is closed.
    pause: Option<(Arc<dyn Clock>, Duration)>,
    waiting: Vec<Waker>,
}

/// The result of a call.
enum CallFate {
    Done,
    /// The process dies instead.
    Never,
    /// It is done, and the process dies before the answer.
    Unheard,
    /// A pause comes before the call or before its answer.
    Late {
        after: bool,
        clock: Arc<dyn Clock>,
        pause: Duration,
    },
}

impl SimProcess {
    pub fn new(on: Option<Arc<SimProcess>>) -> Arc<Self> {
        SimProcess::with(on, ProcessState::default())
    }

    /// One that dies at its n-th call, before or after the effect.
    pub fn mortal(on: Option<Arc<SimProcess>>, dies: Option<(u64, bool)>) -> Arc<Self> {
        SimProcess::with(on, ProcessState { dies, ..ProcessState::default() })
    }

    fn with(on: Option<Arc<SimProcess>>, state: ProcessState) -> Arc<Self> {
        Arc::new(SimProcess {
            on,
            frozen: AtomicBool::default(),
            dead: AtomicBool::default(),
            state: Mutex::new(state),
        })
    }

    /// One that pauses at its n-th call, before or after the effect.
    pub fn pausing(call: u64, after: bool, clock: Arc<dyn Clock>, pause: Duration) -> Arc<Self> {
        SimProcess::with(
            None,
            ProcessState {
                dies: Some((call, after)),
                pause: Some((clock, pause)),
                ..ProcessState::default()
            },
        )
    }

    /// Whether it came to the call at which it dies or pauses.
    pub fn was_reached(&self) -> bool {
        let state = self.state();
        state.dies.is_some_and(|(call, _)| state.calls >= call)
    }

    pub fn freeze(&self, frozen: bool) {
        self.frozen.store(frozen, Ordering::Relaxed);
        let woken = if frozen { Vec::new() } else { std::mem::take(&mut self.state().waiting) };
        woken.into_iter().for_each(Waker::wake);
    }

    pub fn kill(&self) {
        self.dead.store(true, Ordering::Relaxed);
        let woken = std::mem::take(&mut self.state().waiting);
        woken.into_iter().for_each(Waker::wake);
    }

    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed) || self.on.as_ref().is_some_and(|on| on.is_dead())
    }

    pub fn is_running(&self) -> bool {
        !self.stands() && self.on.as_ref().is_none_or(|on| on.is_running())
    }

    /// Also when it was ended since.
    pub fn was_frozen(&self) -> bool {
        self.frozen.load(Ordering::Relaxed)
    }

    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Resolves while it runs; never once it is dead.
    pub async fn running(&self) {
        std::future::poll_fn(|context| {
            if self.waits(context.waker(), false) { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    /// Resolves when it is dead.
    pub async fn died(&self) {
        std::future::poll_fn(|context| {
            if self.waits(context.waker(), true) { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    /// Dead or frozen, itself.
    fn stands(&self) -> bool {
        self.dead.load(Ordering::Relaxed) || self.frozen.load(Ordering::Relaxed)
    }

    fn waits(&self, waker: &Waker, for_death: bool) -> bool {
        let own = if for_death { !self.dead.load(Ordering::Relaxed) } else { self.stands() };
        if own {
            let mut state = self.state();
            if !state.waiting.iter().any(|other| other.will_wake(waker)) {
                state.waiting.push(waker.clone());
            }
        }
        match &self.on {
            // If either dies, both are dead. Both must run to go on.
            Some(on) if for_death => own && on.waits(waker, true),
            Some(on) => own || on.waits(waker, false),
            None => own,
        }
    }

    /// A call of a port.
    pub async fn call<T>(&self, work: impl Future<Output = T>) -> T {
        self.running().await;
        match self.fate() {
            CallFate::Done => {
                let done = work.await;
                self.running().await;
                done
            }
            CallFate::Never => self.end().await,
            CallFate::Unheard => {
                work.await;
                self.end().await
            }
            CallFate::Late { after: false, clock, pause } => {
                clock.sleep(pause).await;
                work.await
            }
            CallFate::Late { after: true, clock, pause } => {
                let done = work.await;
                clock.sleep(pause).await;
                done
            }
        }
    }

    /// The same for a call that does not wait. A dead process gets an answer without effect.
    pub fn act<T>(&self, work: impl FnOnce() -> T, nothing: impl FnOnce() -> T) -> T {
        if self.is_dead() {
            return nothing();
        }
        match self.fate() {
            // A call that does not wait cannot pause.
            CallFate::Done | CallFate::Late { .. } => work(),
            CallFate::Never => {
                self.kill();
                nothing()
            }
            CallFate::Unheard => {
                let done = work();
                self.kill();
                done
            }
        }
    }

    async fn end<T>(&self) -> T {
        self.kill();
        std::future::pending().await
    }

    fn fate(&self) -> CallFate {
        let mut state = self.state();
        state.calls += 1;
        let Some((_, after)) = state.dies.filter(|(call, _)| *call == state.calls) else {
            return CallFate::Done;
        };
        match (&state.pause, after) {
            (Some((clock, pause)), after) => {
                CallFate::Late { after, clock: Arc::clone(clock), pause: *pause }
            }
            (None, true) => CallFate::Unheard,
            (None, false) => CallFate::Never,
        }
    }

    fn state(&self) -> MutexGuard<'_, ProcessState> {
        self.state.lock().expect("the lock is not poisoned")
    }
}
