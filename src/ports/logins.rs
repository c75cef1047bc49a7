//! The users who are logged in on the machine itself.

pub trait People: Send + Sync {
    /// Writes a line to each terminal with a logged-in user. Never waits: skips a terminal that
    /// blocks.
    fn tell(&self, text: &str);
}

/// For machines without logins.
pub struct Nobody;

impl People for Nobody {
    fn tell(&self, _: &str) {}
}
