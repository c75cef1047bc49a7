//! The command line: a folder for each group of commands, and the shell around them.
//!
//! ```text
//! shell::main ─ parse ─ Context (printer, config, job root) ─ run ─ ExitCode | Fault ─ printer
//! ```
//!
//! A command is a file with `pub struct Args` (clap) and `pub fn run(args, &Context) ->
//! Result<ExitCode, Fault>`. `run` is async if it talks to a store or a cloud. It has a line in
//! `shell::main::Verb` and in `shell::main::dispatch`. Not here: a decision about a job (`policy`),
//! or the choice of an adapter (`wire`).
//!
//! | Folder | What |
//! |---|---|
//! | `init`, `plan`, `run`, `rehearse`, `apply` | make a job, or show what it would be |
//! | `tune` | search hyperparameters: many jobs of one file |
//! | `status`, `prices`, `simulate` | show jobs, prices and simulations |
//! | `control` | act on a job: stop, extend, log, outputs, shell, daemon |
//! | `account` | the workstation and the AWS account: doctor, set-up, sweeper, permissions |
//! | `ml_engine` | the commands of `gcloud ml-engine`, in its grammar |
//! | `models` | trained models, and predictions here |
//! | `output` | the only place that prints: streams, tables, wrapping |
//! | `shell` | arguments, faults, exit codes, Ctrl-C; the only place with every command |

pub(crate) mod account;
pub(crate) mod apply;
pub(crate) mod control;
pub(crate) mod init;
pub(crate) mod ml_engine;
pub(crate) mod models;
pub(crate) mod output;
pub(crate) mod plan;
pub(crate) mod prices;
pub(crate) mod rehearse;
pub(crate) mod run;
pub(crate) mod shell;
pub(crate) mod simulate;
pub(crate) mod status;
pub(crate) mod tune;

pub use crate::app::analysis::idle_replay::{Replayed, ReplayedVerdict, replay_idle};
pub use crate::app::find_job::each_under_way;
pub use crate::app::log_tail::LogTail;
pub use crate::app::{ExitCode, Fault};
pub use output::printer::{Printer, Stream, Style};
pub use output::table::{
    Give, render as render_table, render_folded as render_table_folded,
    render_within as render_table_within,
};
pub use run::attach::Attached;
pub use shell::args::{ColorChoice, Format, Globals};
pub use shell::context::{Context, JobRoots, ReadConfig};
pub use shell::flags::{JobArgs, JobFlags};
pub use shell::main::{Cli, Verb, main};
