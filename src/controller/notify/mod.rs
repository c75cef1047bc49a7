//! Notifications to the user: what is worth one, and how often.

pub(crate) mod alert;
mod gist;
pub(crate) mod job_events;
pub(crate) mod notifier;
