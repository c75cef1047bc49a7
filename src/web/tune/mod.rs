//! The pages of hyperparameter tuning.

pub(super) mod tune_page;
