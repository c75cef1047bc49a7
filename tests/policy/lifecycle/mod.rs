//! The controller's one decision.

pub(crate) mod reconcile;
pub(crate) mod reconcile_elsewhere;
pub(crate) mod reconcile_extended;
pub(crate) mod reconcile_facts;
pub(crate) mod reconcile_kept;
pub(crate) mod reconcile_laws;
pub(crate) mod reconcile_missing;
pub(crate) mod reconcile_refused;
pub(crate) mod reconcile_silent;
pub(crate) mod reconcile_unheeded;
