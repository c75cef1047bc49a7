//! SIGINT and SIGTERM to this process, counted: the first asks, the second insists. SIGHUP is heard and means nothing: a
//! terminal that was closed or an SSH session that dropped is why people run the agent.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Counts from now on, for as long as the runtime lives.
pub fn count() -> io::Result<watch::Receiver<u32>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
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

/// None ever come: for an agent under a service manager, whose SIGTERM ends the agent and never the workload.
pub fn none() -> watch::Receiver<u32> {
    watch::channel(0).1
}
