//! `lamp ml-engine`: the commands of gcloud for training and prediction, in its grammar.

pub(crate) mod document;
pub(crate) mod gcloud_flags;
pub(crate) mod jobs;
pub(crate) mod local;
pub(crate) mod local_train;
pub(crate) mod ml_engine;
pub(crate) mod stream_logs;
pub(crate) mod submit;
pub(crate) mod training_flags;
