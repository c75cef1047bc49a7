//! `lamp ml-engine`: the commands of gcloud for training and prediction, in its grammar.

pub(crate) mod document;
pub(crate) mod gcloud_flags;
pub(crate) mod jobs;
pub(crate) mod ml_engine;
