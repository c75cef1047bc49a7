//! The service manager that started us: systemd's notification socket.
//!
//! Without one every call does nothing. A message that cannot be sent is logged and forgotten: the manager's own
//! watchdog is what notices a silent service.

use sd_notify::NotifyState;

use crate::ports::Service;

/// Talks to the manager named by `NOTIFY_SOCKET`, if there is one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Notify;

impl Notify {
    fn send(self, states: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(states) {
            tracing::debug!(%error, "the service manager did not take a message");
        }
    }
}

impl Service for Notify {
    fn ready(&self) {
        self.send(&[NotifyState::Ready]);
    }

    fn alive(&self) {
        self.send(&[NotifyState::Watchdog]);
    }

    fn status(&self, text: &str) {
        // A line break would begin another field of the message.
        let line = text.replace(['\n', '\r'], " ");
        self.send(&[NotifyState::Status(&line)]);
    }

    fn stopping(&self) {
        self.send(&[NotifyState::Stopping]);
    }
}
