//! `[tune]` of the job file.

mod tune_file;

pub use tune_file::{
    AlgorithmWord, EarlyStopWord, GoalWord, ParamFile, ParamTypeWord, ScaleWord, TuneFile, resolve,
};
