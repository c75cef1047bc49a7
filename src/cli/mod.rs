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
//! | `stop` (and `lamp cancel`), `extend`, `ssh` | verbs that act on a job that runs; `control::release_kept` is `stop` of one that has ended, `discard` deletes what such a one has stored |
//! | `daemon`, `sweep` (`stray` is the part of it that a person asks for by a machine's id), `doctor`, `iam`, `init_aws`, `uninit` (`setup_steps` is both's), `sweeper` | verbs of the workstation and of the account |
//! | `completions`, `schema` | verbs about the program itself |
//! | `NAME_*` | a part of the verb before the underscore: `apply::cost`, `status::explain_text`, `plan::text`, `prices::table` |
//! | `args`, `flags`, `until`, `workdir`, `submission`, `job_root`, `shell::job_root_errors`, `context` | shared by verbs: from the command line to a job |
//! | `attach`, `live`, `log_tail`, `signals`, `patience`, `confirm`, `fetch` | shared by verbs: beside a job that runs, and questions to the user |
//! | `caps`, `cadence`, `forecast`, `most`, `reach`, `ready`, `proven`, `prove` (`prove_sweeper` is a part of it), `purchase`, `region`, `plan::no_offer_hints`, `kept`, `discarded`, `rehearsal` (with `rehearse::second_attempt`, `rehearse::last_checkpoint`, `rehearse::resume_watch`, `rehearse::missing_proof`) | shared by verbs: what a job can cost, needs or keeps |
//! | `within` | shared by verbs that leave a job alone: from within a workload they cannot |
//! | `alone`, `status::attempt_text`, `machine`, `summary` | shared by verbs: a job, read from its records |
//! | `printer`, `table`, `wrap`, `local_times`, `traces` | text: the only place that prints |
//! | `exit`, `fault` | what a verb ends with |
//! | `shell::foreign_commands` | the command for a word that other tools have |
//! | `shell` | the only place that knows every verb |

pub(crate) mod account;
pub(crate) mod apply;
pub(crate) mod control;
pub(crate) mod init;
pub(crate) mod output;
pub(crate) mod plan;
pub(crate) mod prices;
pub(crate) mod rehearse;
pub(crate) mod run;
pub(crate) mod shell;
pub(crate) mod simulate;
pub(crate) mod status;

pub use control::log_tail::LogTail;
pub use output::printer::{Printer, Stream, Style};
pub use output::table::{Give, render as render_table, render_within as render_table_within};
pub use run::attach::Attached;
pub use run::workdir::{Examined, Prepared};
pub use shell::args::{ColorChoice, Format, Globals};
pub use shell::context::Context;
pub use shell::exit::ExitCode;
pub use shell::fault::Fault;
pub use shell::flags::{JobArgs, JobFlags};
pub use shell::job_root::each_under_way;
pub use shell::main::{Cli, Verb, main};
pub use simulate::replay_idle::{Change, Replayed, replay_idle};
