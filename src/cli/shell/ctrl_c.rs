//! The signals that mean: the user left.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::app::session::Session;
use crate::cli::{Context, ExitCode, Fault};

/// While it exists, Ctrl-C, SIGTERM and a closed terminal do not end the process: they are noted.
pub struct LeaveSignals {
    channels: [Option<Signal>; 3],
    /// A signal came during work that must not be interrupted.
    has_left: bool,
}

/// A [`LeaveSignals`] handles the signals.
static HEARS: AtomicBool = AtomicBool::new(false);

/// A listener only reports that nothing was done.
static SAYS: AtomicBool = AtomicBool::new(false);

/// Runs a command that makes a [`LeaveSignals`] once it has something to leave behind. A signal
/// before that ends the command.
///
/// # Errors
/// `gone` when the user left early, or the command's own error.
pub async fn unless_left_early<T>(
    context: &Context,
    gone: fn() -> Fault,
    verb: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    let mut early = LeaveSignals::channels();
    SAYS.store(true, Ordering::Relaxed);
    end_what_hangs(context, gone);
    let left = async {
        early.heard().await;
        if HEARS.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        () = left => Err(gone()),
        done = verb => done,
    }
}

/// While this thread waits for a disk or pipe it hears no signal. Another thread ends the program
/// then.
fn end_what_hangs(context: &Context, gone: fn() -> Fault) {
    let (printer, clock) = (Arc::clone(&context.printer), Arc::clone(&context.clock));
    std::thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        runtime.block_on(async {
            LeaveSignals::channels().heard().await;
            clock.sleep(INSISTS_AFTER).await;
            if !HEARS.load(Ordering::Relaxed) {
                printer.fault(&gone());
                std::process::exit(ExitCode::CTRL_C.number().into());
            }
        });
    });
}

/// Asks the question and reads a line from the terminal; `None`: the user left.
pub fn line_or_left(question: impl FnOnce()) -> Option<String> {
    // The runtime's thread asks, so two other threads wait for the line and the signal.
    let (sender, receiver) = std::sync::mpsc::channel();
    let is_open = Arc::new(AtomicBool::new(true));
    let (leaves, asked) = (sender.clone(), Arc::clone(&is_open));
    let (ready, is_ready) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        runtime.block_on(async {
            let mut channels = LeaveSignals::channels();
            drop(ready);
            channels.heard().await;
            if asked.load(Ordering::Relaxed) {
                let _ = leaves.send(None);
                channels.heard().await;
            }
        });
        // Once listened to, a signal no longer ends the process. Without another listener, this
        // thread must.
        if !SAYS.load(Ordering::Relaxed) && !HEARS.load(Ordering::Relaxed) {
            std::process::exit(ExitCode::CTRL_C.number().into());
        }
    });
    let _ = is_ready.recv();
    question();
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = std::io::stdin().read_line(&mut line);
        let _ = sender.send(Some(line));
    });
    let line = receiver.recv().ok().flatten();
    is_open.store(false, Ordering::Relaxed);
    line
}

/// A closing window sends two signals at once; a second one after this time is the user's.
const INSISTS_AFTER: Duration = Duration::from_secs(1);

impl LeaveSignals {
    pub fn listen() -> Self {
        HEARS.store(true, Ordering::Relaxed);
        LeaveSignals::channels()
    }

    fn channels() -> Self {
        // A signal without a listener keeps its default action, which ends the process.
        LeaveSignals {
            channels: [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
                .map(|kind| signal(kind).ok()),
            has_left: false,
        }
    }

    /// Resolves at the next signal, or at one that came since the last call.
    pub async fn heard(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.channels;
        tokio::select! {
            () = heard(interrupt) => {}
            () = heard(terminate) => {}
            () = heard(hangup) => {}
        }
    }

    /// Runs work that can be given up without a trace, until the user leaves.
    ///
    /// # Errors
    /// `gone` when the user left, or the work's own error.
    pub async fn or_give_up<T>(
        &mut self,
        gone: impl Fn() -> Fault,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        if self.has_left {
            return Err(gone());
        }
        tokio::select! {
            biased;
            () = self.heard() => Err(gone()),
            done = work => done,
        }
    }

    /// Runs work that is not worth a wait, until the user leaves. Returns whether it is done.
    pub async fn unless_heard(&mut self, work: impl Future<Output = ()>) -> bool {
        tokio::select! {
            biased;
            () = self.heard() => self.has_left = true,
            () = work => {}
        }
        !self.has_left
    }

    /// Runs work that must not be interrupted, because it may buy a machine. Returns also whether
    /// the user left. A second signal gives the work up: `None`.
    pub async fn undisturbed<T>(
        &mut self,
        session: &Session<'_>,
        work: impl Future<Output = T>,
    ) -> (Option<T>, bool) {
        let mut work = pin!(work);
        let mut heard_at = None;
        loop {
            tokio::select! {
                biased;
                done = &mut work => return (Some(done), heard_at.is_some()),
                () = self.heard() => {
                    let now = session.clock.mono();
                    match heard_at {
                        Some(before) if now.saturating_sub(before) >= INSISTS_AFTER => return (None, true),
                        Some(_) => continue,
                        None => (heard_at, self.has_left) = (Some(now), true),
                    }
                    session.note("a machine may be launched just now: a moment, so that it is not left alone; Ctrl-C again leaves at once");
                }
            }
        }
    }
}

/// Is set when the user leaves, for code that computes and cannot wait. A second signal ends the
/// process.
pub fn raised_when_left() -> Arc<AtomicBool> {
    let raised = Arc::new(AtomicBool::new(false));
    let raises = Arc::clone(&raised);
    let (ready, is_ready) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        runtime.block_on(async {
            let mut left = LeaveSignals::listen();
            drop(ready);
            left.heard().await;
            raises.store(true, Ordering::Relaxed);
            left.heard().await;
        });
        std::process::exit(ExitCode::CTRL_C.number().into());
    });
    let _ = is_ready.recv();
    raised
}

pub fn left_at_the_question(meaning: &str) -> Fault {
    Fault::new(ExitCode::CTRL_C, "left at the question").meaning(meaning)
}

pub fn gone_before_a_set() -> Fault {
    Fault::new(ExitCode::CTRL_C, "left before anything was done")
        .meaning("nothing was changed: what runs goes on")
}

pub fn gone_before() -> Fault {
    Fault::new(ExitCode::CTRL_C, "left before the job was made")
        .meaning("nothing was started or billed")
}

/// Resolves at Ctrl-C, at SIGTERM from a service manager, and when the terminal closes.
pub async fn left() {
    LeaveSignals::listen().heard().await;
}

async fn heard(channel: &mut Option<Signal>) {
    match channel {
        Some(channel) => drop(channel.recv().await),
        None => std::future::pending().await,
    }
}
