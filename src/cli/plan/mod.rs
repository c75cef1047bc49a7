//! `lamp check` and `lamp plan`: what a job needs, what it would buy, and what that can cost.

pub(crate) mod bid_text;
pub(crate) mod catalog_plan;
pub(crate) mod check;
pub(crate) mod dry_run;
pub(crate) mod forecast;
pub(crate) mod job_args;
pub(crate) mod plan;
pub(crate) mod plan_document;
pub(crate) mod text;
