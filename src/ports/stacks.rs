//! Reports what the processes of a tree wait for.

use async_trait::async_trait;

use super::Scope;

#[async_trait]
pub trait Stacks: Send + Sync {
    /// A text for people, at most `bytes_max` long, within a few seconds. Never fails: the text
    /// says what could not be read.
    async fn dump(&self, scope: &Scope, bytes_max: usize) -> String;
}
