//! The service manager that started this process: systemd's notification socket.
//!
//! Without one every call does nothing. A failed message is only logged: the manager's watchdog
//! notices a silent service.

use sd_notify::NotifyState;

use crate::ports::Service;

/// Sends to the socket in `NOTIFY_SOCKET`, if there is one.
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
        // A line break would begin another field.
        let line = text.replace(['\n', '\r'], " ");
        self.send(&[NotifyState::Status(&line)]);
    }

    fn stopping(&self) {
        self.send(&[NotifyState::Stopping]);
    }
}
