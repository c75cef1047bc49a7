//! Notifications to the user: what is worth one, and how often.

pub(crate) mod alert;
pub(crate) mod job_events;
mod message_key;
pub(crate) mod notifier;
