//! What a process tree is waiting for.

use async_trait::async_trait;

use super::Scope;

#[async_trait]
pub trait Stacks: Send + Sync {
    /// One text for people, at most `bytes_max` long, within a few seconds. Never fails: what cannot be read is said in
    /// the text.
    async fn dump(&self, scope: &Scope, bytes_max: usize) -> String;
}
