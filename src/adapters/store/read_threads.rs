//! Threads that read a folder for a server, so that the server answers while the folder hangs.
//!
//! ```text
//! read ─> queue ─> a thread reads ─> answer     nobody waits for it any more ─> it is skipped
//! ```
//! They are not threads of the runtime, which waits for its own at the end. Not here: timeouts.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

/// A hanging folder keeps them all. With fewer, slow reads of a network file system wait in a row.
const THREADS: usize = 4;

type Work = Box<dyn FnOnce() + Send>;

/// A queue of reads and its threads, which end with it.
pub(crate) struct ReadThreads {
    queue: Mutex<Sender<Work>>,
}

impl ReadThreads {
    /// # Errors
    /// When the operating system refuses a thread.
    pub(crate) fn start() -> io::Result<ReadThreads> {
        let (queue, works) = channel::<Work>();
        let works = Arc::new(Mutex::new(works));
        for _ in 0..THREADS {
            let works = Arc::clone(&works);
            let thread = std::thread::Builder::new().name("lamp-read".to_owned());
            thread.spawn(move || {
                while let Some(work) = next(&works) {
                    work();
                }
            })?;
        }
        Ok(ReadThreads { queue: Mutex::new(queue) })
    }

    /// Runs a read on one of the threads. A read whose caller has left is not begun.
    ///
    /// # Errors
    /// As the read.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (tell, told) = oneshot::channel();
        let work: Work = Box::new(move || {
            if !tell.is_closed() {
                let _ = tell.send(read());
            }
        });
        let queued = self.queue.lock().unwrap_or_else(PoisonError::into_inner).send(work);
        if queued.is_err() {
            return Err(io::Error::other("the reading threads have ended"));
        }
        told.await.unwrap_or_else(|_| Err(io::Error::other("the reading thread has ended")))
    }
}

/// The lock is held while a thread waits, and never while it reads.
fn next(works: &Mutex<Receiver<Work>>) -> Option<Work> {
    works.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn hanging_reads_hold_up_neither_the_caller_nor_what_is_skipped() {
        let threads = ReadThreads::start().unwrap();
        let (end, ends) = channel::<()>();
        let ends = Arc::new(Mutex::new(ends));
        let hang = || {
            let ends = Arc::clone(&ends);
            threads.run(move || {
                let _ = ends.lock().unwrap().recv();
                Ok(1)
            })
        };
        let short = Duration::from_millis(20);
        for _ in 0..THREADS + 1 {
            assert!(tokio::time::timeout(short, hang()).await.is_err(), "it waits for its folder");
        }
        // The caller of a queued read has gone.
        let (later, ()) = tokio::join!(threads.run(|| Ok(2)), async { drop(end) });
        assert_eq!(later.unwrap(), 2);
    }
}
