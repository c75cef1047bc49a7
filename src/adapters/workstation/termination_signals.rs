//! Counts SIGINT and SIGTERM to this process: the first asks, the second insists. SIGHUP is
//! ignored: the agent must survive a closed terminal or a dropped SSH session.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Counts from now on, until the runtime ends.
pub fn count() -> io::Result<watch::Receiver<u32>> {
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut hangup = signal(SignalKind::hangup())?;
    let (sender, receiver) = watch::channel(0);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => continue,
            }
            sender.send_modify(|count| *count += 1);
        }
    });
    Ok(receiver)
}

/// Never counts: for an agent under a service manager, whose SIGTERM ends the agent and never the
/// workload.
pub fn none() -> watch::Receiver<u32> {
    watch::channel(0).1
}
