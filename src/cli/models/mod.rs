//! `lamp models` and `lamp predict`: trained models of the job root, and their predictions. The
//! same commands stand below `lamp ml-engine`.

mod model_flags;
pub(crate) mod models;
pub(crate) mod predict;
pub(crate) mod versions;
