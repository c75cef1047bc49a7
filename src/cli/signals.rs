//! The signals that mean: the user has gone.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Resolves at Ctrl-C, at SIGTERM from a service manager, and when the terminal goes away.
pub async fn left() {
    let mut channels = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(|kind| signal(kind).ok());
    let [interrupt, terminate, hangup] = &mut channels;
    tokio::select! {
        () = heard(interrupt) => {}
        () = heard(terminate) => {}
        () = heard(hangup) => {}
    }
}

/// A signal that cannot be listened to keeps its default action, which ends us.
async fn heard(channel: &mut Option<Signal>) {
    match channel {
        Some(channel) => drop(channel.recv().await),
        None => std::future::pending().await,
    }
}
