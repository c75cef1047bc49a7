//! Runs simulated jobs in parallel, one per processor.
//!
//! Not here: which jobs run, or how the results are used.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use crate::sim::{Course, Lived, OwnJob, PriceRound};

/// Simulates all jobs in order, and blocks until the last has ended. Calls `goes_on` at about every
/// simulated minute, with the number of finished jobs. `None`: `goes_on` returned false before its
/// end.
pub fn live_all(jobs: &[OwnJob<'_>], goes_on: impl Fn(usize) -> bool + Sync) -> Vec<Option<Lived>> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let lived: Mutex<Vec<Option<Lived>>> = Mutex::new(jobs.iter().map(|_| None).collect());
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(jobs.len());
    let asked = || goes_on(done.load(Ordering::Relaxed));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                // Warnings of a simulated controller or agent do not matter to the user.
                let _silent =
                    tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::new());
                while let Some((at, job)) = Some(next.fetch_add(1, Ordering::Relaxed))
                    .and_then(|at| Some((at, jobs.get(at)?)))
                {
                    let Some(one) = asked().then(|| crate::sim::live(job, asked)).flatten() else {
                        return;
                    };
                    lived.lock().expect("nobody panics while holding it: it is only filled")[at] =
                        Some(one);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    lived.into_inner().expect("nobody panics while holding it: it is only filled")
}
