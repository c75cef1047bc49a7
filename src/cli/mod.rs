//! The command line: one file per verb, and the shell around them.
//!
//! ```text
//! shell::main ─ parse ─ Context (printer, user config, job root) ─ verb::run ─ ExitCode | Fault ─ printer
//! ```
//!
//! A verb is a file `cli/VERB.rs` with `pub struct Args` (clap) and `pub fn run(args, &Context) -> Result<ExitCode, Fault>`,
//! or `pub async fn run` where it talks to a store or a cloud; it gets a line in `shell::Verb` and one in
//! `shell::dispatch`. What must never live here: a decision about a job (`policy`), or the choice of an adapter (`wire`).

mod alone;
mod apply;
mod apply_caps;
mod apply_cost;
mod apply_do;
mod apply_short;
mod args;
mod attach;
mod attempt_words;
mod cadence;
mod caps;
mod check;
mod completions;
mod confirm;
mod context;
mod daemon;
mod doctor;
mod doctor_aws;
mod exit;
mod explain;
mod explain_cost;
mod explain_words;
mod extend;
mod fault;
mod fetch;
mod flags;
mod forecast;
mod give_up;
mod iam;
mod init;
#[cfg(feature = "aws")]
mod init_aws;
mod job_root;
mod kept;
mod live;
mod log_tail;
mod logs;
mod machine;
mod most;
mod nothing_fits;
mod outputs;
mod patience;
mod plan;
mod plan_text;
mod price_plot;
mod price_table;
mod prices;
mod printer;
mod prove;
mod proven;
mod purchase;
mod reach;
mod ready;
mod receipt;
mod region;
mod rehearsal;
mod rehearsal_cadence;
mod rehearsal_missing;
mod rehearse;
mod replay;
mod replay_market;
mod run;
mod schedules;
mod schema;
#[cfg(feature = "aws")]
mod setup_steps;
mod shell;
mod signals;
mod simulate;
mod simulate_text;
mod ssh;
mod start;
mod status;
mod stop;
mod submission;
mod summary;
mod sweep;
#[cfg(feature = "aws")]
mod sweeper;
mod table;
mod traces;
#[cfg(feature = "aws")]
mod uninit;
mod until;
mod workdir;
mod wrap;

pub use args::{ColorChoice, Format, Globals};
pub use attach::Attached;
pub use context::Context;
pub use exit::ExitCode;
pub use fault::Fault;
pub use flags::{JobArgs, JobFlags};
pub use log_tail::LogTail;
pub use printer::{Printer, Stream, Style};
pub use replay::{Change, Replayed, replay_idle};
pub use shell::{Cli, Verb, main};
pub use table::{Give, render as render_table, render_within as render_table_within};
pub use workdir::{Examined, Prepared};
