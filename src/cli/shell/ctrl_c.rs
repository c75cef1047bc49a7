//! The signals that mean: the user has gone.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::{Context, ExitCode, Fault};

/// From the moment it is made, Ctrl-C, SIGTERM from a service manager and the end of the terminal end nothing by themselves: they
/// are heard.
pub struct Left {
    channels: [Option<Signal>; 3],
    /// It was heard while something was not to be disturbed.
    has_left: bool,
}

/// Whether somebody listens who knows what is to be done; and whether somebody does who only says that nothing was.
static HEARS: AtomicBool = AtomicBool::new(false);
static SAYS: AtomicBool = AtomicBool::new(false);

/// Runs a verb that listens with [`Left`] once something can be left behind: who leaves before that is told so.
///
/// # Errors
/// `gone`: the user has left early; or the verb's own.
pub async fn unless_left_early<T>(context: &Context, gone: fn() -> Fault, verb: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let mut early = Left::channels();
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

/// Nothing is heard while this thread waits for a disk or a pipe that does not answer. Another one ends the program then.
fn end_what_hangs(context: &Context, gone: fn() -> Fault) {
    let (printer, clock) = (Arc::clone(&context.printer), Arc::clone(&context.clock));
    std::thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            Left::channels().heard().await;
            clock.sleep(INSISTS_AFTER).await;
            if !HEARS.load(Ordering::Relaxed) {
                printer.fault(&gone());
                std::process::exit(ExitCode::CTRL_C.number().into());
            }
        });
    });
}

/// The next line of the terminal, once the question was put; `None`: the user has left instead.
pub fn line_or_left(question: impl FnOnce()) -> Option<String> {
    // The thread of the runtime is the one that asks: two others wait for whichever comes first.
    let (sender, receiver) = std::sync::mpsc::channel();
    let is_open = Arc::new(AtomicBool::new(true));
    let (leaves, asked) = (sender.clone(), Arc::clone(&is_open));
    let (ready, is_ready) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            let mut channels = Left::channels();
            drop(ready);
            channels.heard().await;
            if asked.load(Ordering::Relaxed) {
                let _ = leaves.send(None);
                channels.heard().await;
            }
        });
        // What was once listened to ends nothing by itself any more; where nobody else listens, it still must.
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

/// A window that closes says so twice, and a person who types again has read what was said.
const INSISTS_AFTER: Duration = Duration::from_secs(1);

impl Left {
    pub fn listen() -> Self {
        HEARS.store(true, Ordering::Relaxed);
        Left::channels()
    }

    fn channels() -> Self {
        // A signal that cannot be listened to keeps its default action, which ends us.
        Left { channels: [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(|kind| signal(kind).ok()), has_left: false }
    }

    /// Resolves at the next of them, or at one that came since it was last heard.
    pub async fn heard(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.channels;
        tokio::select! {
            () = heard(interrupt) => {}
            () = heard(terminate) => {}
            () = heard(hangup) => {}
        }
    }

    /// What may be given up without a trace, as long as the user has not gone.
    ///
    /// # Errors
    /// `gone`: the user has; or the work's own.
    pub async fn or_give_up<T>(&mut self, gone: impl Fn() -> Fault, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        if self.has_left {
            return Err(gone());
        }
        tokio::select! {
            biased;
            () = self.heard() => Err(gone()),
            done = work => done,
        }
    }

    /// What is worth no waiting, as long as the user has not gone; whether it is done.
    pub async fn unless_heard(&mut self, work: impl Future<Output = ()>) -> bool {
        tokio::select! {
            biased;
            () = self.heard() => self.has_left = true,
            () = work => {}
        }
        !self.has_left
    }

    /// What must not be cut in two, because a machine may be bought in the middle of it; and whether the user has gone meanwhile.
    /// Who insists leaves it as it is: `None`.
    pub async fn undisturbed<T>(&mut self, context: &Context, work: impl Future<Output = T>) -> (Option<T>, bool) {
        let mut work = pin!(work);
        let mut heard_at = None;
        loop {
            tokio::select! {
                biased;
                done = &mut work => return (Some(done), heard_at.is_some()),
                () = self.heard() => {
                    let now = context.clock.mono();
                    match heard_at {
                        Some(before) if now.saturating_sub(before) >= INSISTS_AFTER => return (None, true),
                        Some(_) => continue,
                        None => (heard_at, self.has_left) = (Some(now), true),
                    }
                    context.printer.note("a machine may be launched just now: a moment, so that it is not left alone; Ctrl-C again leaves at once");
                }
            }
        }
    }
}

/// Raised when the user leaves, for whoever computes and cannot wait for it. Who leaves twice ends the process.
pub fn raised_when_left() -> Arc<AtomicBool> {
    let raised = Arc::new(AtomicBool::new(false));
    let raises = Arc::clone(&raised);
    let (ready, is_ready) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            let mut left = Left::listen();
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

/// Before anything was confirmed.
pub fn left_at_the_question(meaning: &str) -> Fault {
    Fault::new(ExitCode::CTRL_C, "left at the question").meaning(meaning)
}

/// Before anything of a set was touched.
pub fn gone_before_a_set() -> Fault {
    Fault::new(ExitCode::CTRL_C, "left before anything was done").meaning("nothing was changed: what runs goes on")
}

/// Before a job was made.
pub fn gone_before() -> Fault {
    Fault::new(ExitCode::CTRL_C, "left before the job was made").meaning("nothing was started, and nothing bills")
}

/// Resolves at Ctrl-C, at SIGTERM from a service manager, and when the terminal goes away.
pub async fn left() {
    Left::listen().heard().await;
}

async fn heard(channel: &mut Option<Signal>) {
    match channel {
        Some(channel) => drop(channel.recv().await),
        None => std::future::pending().await,
    }
}
