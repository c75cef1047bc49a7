//! The service manager that started the agent, if one did.

/// Calls are cheap and never fail. Without a service manager they do nothing.
pub trait Service: Send + Sync {
    /// Start-up is complete.
    fn ready(&self);
    /// The main loop runs.
    fn alive(&self);
    /// One line for `systemctl status`.
    fn status(&self, text: &str);
    fn stopping(&self);
}
