//! SIGNATURES, being filled in.
use crate::instance::Sample;
use crate::job::{Finding, Spec};

/// What is wrong with this machine for this job; an error means: do not start.
pub fn preflight(_spec: &Spec, _sample: &Sample) -> Vec<Finding> {
    todo!()
}
