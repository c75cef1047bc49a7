//! SIGNATURES, being filled in.
use super::journal::Journal;
use super::outbox::Outbox;
use crate::ports::{Scope, Stacks};

/// Writes down what the tree is waiting for, and records it. Gives the key, or `None` when the store did not take it.
pub async fn collect(_outbox: &Outbox, _journal: &Journal, _stacks: &dyn Stacks, _scope: &Scope) -> Option<String> {
    todo!()
}
