//! Whoever is at work on the machine itself.

pub trait People: Send + Sync {
    /// Writes a line to each terminal at which somebody is logged in. It waits for none of them, and one that takes nothing is passed over.
    fn tell(&self, text: &str);
}

/// Where nobody is.
pub struct Nobody;

impl People for Nobody {
    fn tell(&self, _: &str) {}
}
