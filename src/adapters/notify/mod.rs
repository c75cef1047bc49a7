//! The channels to the user: a command, a webhook, Slack, ntfy, mail and the desktop.
//!
//! ```text
//!   Notification ──> message (pure) ──> each channel in its own format ──> at most three tries
//! ```
//! No secret stands in a message, a log or an error. Not here: when something is told
//! (`controller::notify`).

mod channel;
mod channel_error;
mod channel_secret;
mod desktop;
mod email;
mod http;
mod message;
mod notify_channels;

pub use channel::Channel;
pub use channel_error::ChannelError;
pub use message::Message;
pub use notify_channels::NotifyChannels;
