//! `lamp check` and `lamp plan`: what a job needs, what it would buy, and what that can cost.

pub(crate) mod account_ready;
pub(crate) mod bid_text;
pub(crate) mod catalog_plan;
pub(crate) mod check;
pub(crate) mod checkpoint_cadence;
pub(crate) mod dry_run;
pub(crate) mod first_plan;
pub(crate) mod forecast;
pub(crate) mod gang_cost;
pub(crate) mod limit_check;
pub(crate) mod no_image_hints;
pub(crate) mod no_offer_hints;
pub(crate) mod plan;
pub(crate) mod plan_document;
pub(crate) mod preflight;
pub(crate) mod region_arg;
pub(crate) mod saved_files;
pub(crate) mod submission;
pub(crate) mod text;
