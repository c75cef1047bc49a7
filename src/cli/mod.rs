//! The command line: one file per verb, and the shell around them.
//!
//! ```text
//! shell::main ─ parse ─ Context (printer, user config, job root) ─ verb::run ─ ExitCode | Fault ─ printer
//! ```
//!
//! A verb is a file `cli/VERB.rs` with `pub struct Args` (clap) and `pub fn run(args, &Context) -> Result<ExitCode, Fault>`,
//! or `pub async fn run` where it talks to a store or a cloud; it gets a line in `shell::Verb` and one in
//! `shell::dispatch`. What must never live here: a decision about a job (`policy`), or the choice of an adapter (`wire`).
//!
//! | Files | What |
//! |---|---|
//! | `check`, `init`, `plan`, `run`, `rehearse`, `start`, `apply`, `schedules` | verbs that make or show a job |
//! | `status`, `logs`, `explain`, `receipt`, `outputs`, `prices`, `simulate`, `replay` | verbs that look |
//! | `stop` (and `lamp cancel`), `extend`, `ssh` | verbs that act on a job that runs; `give_up` is `stop` of one that has ended, `discard` deletes what such a one has stored |
//! | `daemon`, `sweep` (`stray` is the part of it that a person asks for by a machine's id), `doctor`, `iam`, `init_aws`, `uninit` (`setup_steps` is both's), `sweeper` | verbs of the workstation and of the account |
//! | `completions`, `schema` | verbs about the program itself |
//! | `NAME_*` | a part of the verb before the underscore: `apply_cost`, `explain_words`, `plan_text`, `price_table` |
//! | `args`, `flags`, `until`, `workdir`, `submission`, `job_root`, `root_fault`, `context` | shared by verbs: from the command line to a job |
//! | `attach`, `live`, `log_tail`, `signals`, `patience`, `confirm`, `fetch` | shared by verbs: beside a job that runs, and questions to the user |
//! | `caps`, `cadence`, `forecast`, `most`, `reach`, `ready`, `proven`, `prove` (`prove_sweeper` is a part of it), `purchase`, `region`, `nothing_fits`, `kept`, `discarded`, `rehearsal` (with `rehearsal_again`, `rehearsal_cut`, `rehearsal_watch`, `rehearsal_missing`) | shared by verbs: what a job can cost, needs or keeps |
//! | `within` | shared by verbs that leave a job alone: from within a workload they cannot |
//! | `alone`, `attempt_words`, `machine`, `summary` | shared by verbs: a job, read from its records |
//! | `printer`, `table`, `wrap`, `local_times`, `traces` | text: the only place that prints |
//! | `exit`, `fault` | what a verb ends with |
//! | `words_of_others` | the command for a word that other tools have |
//! | `shell` | the only place that knows every verb |

mod alone;
mod apply;
mod apply_caps;
mod apply_cost;
mod apply_do;
mod apply_files;
mod apply_short;
mod args;
mod at_stake;
mod attach;
mod attempt_records;
mod attempt_words;
mod cadence;
mod caps;
mod check;
mod coming_end;
mod completions;
mod confirm;
mod context;
mod daemon;
mod daemon_end;
mod discard;
mod discard_look;
mod discarded;
mod doctor;
mod doctor_aws;
mod draft;
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
mod init_progress;
mod init_python;
mod init_saves;
mod init_starter;
mod job_root;
mod keeps;
mod kept;
mod live;
mod local_times;
mod log_tail;
mod logs;
mod machine;
mod most;
mod no_image;
mod nothing_fits;
mod one_more;
mod other_root;
mod outputs;
mod patience;
mod permission;
mod plan;
mod plan_bid;
mod plan_shipped;
mod plan_text;
mod price_course;
mod price_plot;
mod price_source;
mod price_table;
mod prices;
mod printer;
mod prove;
mod prove_sweeper;
mod proven;
mod purchase;
mod reach;
mod ready;
mod receipt;
mod region;
mod rehearsal;
mod rehearsal_again;
mod rehearsal_cadence;
mod rehearsal_cut;
mod rehearsal_environment;
mod rehearsal_missing;
mod rehearsal_watch;
mod rehearse;
mod replay;
mod replay_market;
mod root_fault;
mod run;
mod run_from;
mod schedules;
mod schema;
#[cfg(feature = "aws")]
mod setup_steps;
mod shell;
mod signals;
mod silence;
mod simulate;
mod simulate_text;
mod simulate_world;
mod spec_gone;
mod ssh;
mod start;
mod start_code;
mod status;
mod status_watch;
mod stop;
mod stop_ask;
mod stray;
mod submission;
mod summary;
mod sweep;
#[cfg(feature = "aws")]
mod sweeper;
mod swept;
mod table;
mod traces;
#[cfg(feature = "aws")]
mod uninit;
mod unknown;
mod until;
mod within;
mod words_of_others;
mod workdir;
mod wrap;

pub use args::{ColorChoice, Format, Globals};
pub use attach::Attached;
pub use context::Context;
pub use exit::ExitCode;
pub use fault::Fault;
pub use flags::{JobArgs, JobFlags};
pub use job_root::each_under_way;
pub use log_tail::LogTail;
pub use printer::{Printer, Stream, Style};
pub use replay::{Change, Replayed, replay_idle};
pub use shell::{Cli, Verb, main};
pub use table::{Give, render as render_table, render_within as render_table_within};
pub use workdir::{Examined, Prepared};
