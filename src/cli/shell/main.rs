//! From the command line to the command, and from its end to the exit code.
//!
//! Only commands that need a runtime start one: `lamp --help` answers in a few milliseconds. Not
//! here: the work of a command.

use std::ffi::OsString;
use std::sync::Arc;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser, Subcommand};

use super::context::Forgives;
use super::ctrl_c::{gone_before, gone_before_a_set, unless_left_early};
use super::slow_notice::{never_silent, of_cloud, of_root};
use super::{completions, foreign_commands, logging, man, schema};
use crate::cli::account::{doctor, iam, sweep};
use crate::cli::apply::{apply, schedules};
use crate::cli::control::{daemon, discard, extend, logs, notify, outputs, ssh, stop};
use crate::cli::init::{import, init};
use crate::cli::ml_engine::gcloud_flags::GcloudFlags;
use crate::cli::ml_engine::{local, ml_engine, submit};
use crate::cli::models::{models, predict};
use crate::cli::output::printer::shell_word;
use crate::cli::plan::{check, plan};
use crate::cli::prices::prices;
use crate::cli::rehearse::rehearse;
use crate::cli::run::{run, start};
use crate::cli::simulate::replay_idle;
use crate::cli::status::{costs, explain, receipt, status};
use crate::cli::tune::tune;
use crate::cli::{ColorChoice, Context, ExitCode, Fault, Format, Globals, Printer};
use crate::config::Environment;
use crate::job::Wish;
use crate::wire;

/// What `lamp --help` prints: one screen of 80 columns and 40 lines.
const HELP: &str = "\
{about}
{usage-heading} {usage}
Write a job
  init         Write a first job file for a script
  check        Find mistakes in a job file
  plan         Show the machine and the most that it can cost
  rehearse     Interrupt a job here and prove that it resumes
Run it
  run          Run a job file, or a command after `--`
  start        Go on with a job that has ended
  submit       Submit a training package, as gcloud did
  tune         Search hyperparameters: many trials of one job file
  apply        Run what the job files of a directory say
  daemon       Drive all jobs of the job root
  agent        Watch one command on this machine, without a job root
Look at it
  status       Show jobs: state, cost, next end [alias: ps]
  logs         Print the output of a job
  explain      Show every verdict on a job, with its numbers
  outputs      Fetch the files that a job kept
  ssh          Open a shell on the machine of a job
  top          Show all jobs live in this terminal
  web          Show all jobs in a browser
End it
  stop         Save a checkpoint, keep the outputs, end the job
  cancel       End a job at once, without a checkpoint
  extend       Give a job more time or money, or keep it while idle
  discard      Delete the stored data of ended jobs
Money, machines, account
  prices       Show what machines cost, on demand and spot
  receipt      Show what ran, why it ended and what it cost
  costs        Show what jobs cost: by day, job, market, type
  sweep        End machines that no job needs, in all regions
  doctor       Check all that jobs need, here and at AWS
Also: completions, iam, import, local, mcp, ml-engine (ai-platform), models,
  notify, predict, replay, schedules, share, simulate, uninit
Options: -o text|json|jsonl, --job-root URL, -q, -v, --color WHEN, -V
`lamp COMMAND --help` has its flags, `lamp schema` the JSON, `lamp man` pages.
";

/// Starts cloud GPU machines when there is work, and stops them when there is none
#[derive(Clone, Debug, Parser)]
#[command(name = "lamp", version, disable_help_subcommand = true, max_term_width = 100, help_template = HELP)]
pub struct Cli {
    #[command(flatten)]
    pub globals: Globals,
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    Init(init::Args),
    Import(import::Args),
    #[command(visible_alias = "ai-platform")]
    MlEngine(Box<ml_engine::Args>),
    Submit(Box<submit::Args>),
    Local(Box<local::Args>),
    Models(Box<models::Args>),
    Predict(Box<predict::Args>),
    #[cfg(feature = "aws")]
    Uninit(crate::cli::account::uninit_aws::Args),
    Doctor(doctor::Args),
    #[command(alias = "launch")]
    Run(Box<run::Args>),
    #[command(visible_alias = "ps", aliases = ["ls", "list", "queue", "jobs"])]
    Status(status::Args),
    Logs(logs::Args),
    Ssh(ssh::Args),
    Start(start::Args),
    Stop(stop::Args),
    /// End a job at once, without a checkpoint
    Cancel(stop::Args),
    Extend(extend::Args),
    Outputs(outputs::Args),
    #[cfg(feature = "top")]
    Top(crate::cli::control::top::Args),
    #[cfg(feature = "web")]
    Web(crate::cli::control::web::Args),
    #[cfg(feature = "mcp")]
    Mcp(crate::cli::control::mcp::Args),
    #[command(aliases = ["cost", "cost-report"])]
    Receipt(receipt::Args),
    Costs(costs::Args),
    #[cfg(feature = "web")]
    Share(crate::cli::status::share::Args),
    Explain(explain::Args),
    Discard(discard::Args),
    Plan(Box<plan::Args>),
    #[command(aliases = ["gpus", "offer", "show-gpus"])]
    Prices(Box<prices::Args>),
    Rehearse(Box<rehearse::Args>),
    Check(Box<check::Args>),
    Daemon(daemon::Args),
    Sweep(sweep::Args),
    Apply(apply::Args),
    Schedules(schedules::Args),
    Tune(Box<tune::Args>),
    /// The agent of a machine, or of a command that runs alone: `lamp agent --help`
    Agent,
    Iam(iam::Args),
    Notify(notify::Args),
    Completions(completions::Args),
    Replay(replay_idle::Args),
    Simulate(Box<crate::cli::simulate::simulate::Args>),
    #[command(hide = true)]
    Schema(schema::Args),
    #[command(hide = true)]
    Man(man::Args),
}

impl Verb {
    /// A command that launches nothing tolerates configuration errors. A sweep tolerates fewer: the
    /// job root decides which machines are orphans.
    fn forgives(&self) -> Forgives {
        match self {
            Verb::Status(_)
            | Verb::Logs(_)
            | Verb::Ssh(_)
            | Verb::Outputs(_)
            | Verb::Receipt(_)
            | Verb::Costs(_)
            | Verb::Explain(_)
            | Verb::Completions(_)
            | Verb::Man(_) => Forgives::Keys,
            Verb::Stop(_)
            | Verb::Cancel(_)
            | Verb::Extend(_)
            | Verb::Prices(_)
            | Verb::Schedules(_) => Forgives::Keys,
            #[cfg(feature = "top")]
            Verb::Top(_) => Forgives::Keys,
            #[cfg(feature = "web")]
            Verb::Web(_) | Verb::Share(_) => Forgives::Keys,
            #[cfg(feature = "mcp")]
            Verb::Mcp(_) => Forgives::Keys,
            Verb::Doctor(args) if !args.prove => Forgives::Keys,
            Verb::Sweep(_) => Forgives::Terms,
            _ => Forgives::Nothing,
        }
    }

    /// Whether it reads nothing from the current folder: a machine can be stopped even from a
    /// deleted folder.
    fn needs_no_folder(&self) -> bool {
        let ends =
            matches!(self, Verb::Stop(_) | Verb::Cancel(_) | Verb::Extend(_) | Verb::Sweep(_));
        ends || matches!(
            self,
            Verb::Status(_)
                | Verb::Logs(_)
                | Verb::Receipt(_)
                | Verb::Costs(_)
                | Verb::Explain(_)
                | Verb::Doctor(_)
                | Verb::Notify(_)
                | Verb::Schedules(_)
        )
    }
}

pub fn main() -> std::process::ExitCode {
    let words = with_help(with_csv(std::env::args_os().collect()));
    // The agent parses its own arguments: on the GPU machine there is no clap.
    if words.get(1).is_some_and(|verb| verb == "agent") {
        return wire::agent::main(words.into_iter().skip(2).collect(), &["agent"]);
    }
    let environment = Environment::read();
    #[cfg(feature = "aws")]
    if let (1, Some(api)) = (words.len(), &environment.lambda_api) {
        return as_a_function(api, &environment).into();
    }
    let cli = match Cli::try_parse_from(&words)
        .and_then(|cli| nothing_after_dashes(&cli.verb, &words).map_or(Ok(cli), Err))
    {
        Ok(cli) => cli,
        Err(error) => return end_of_parsing(&error, &words, &environment).into(),
    };
    let globals = &cli.globals;
    let printer = Printer::new(globals.output, globals.quiet, globals.color, environment.no_color);
    let printer = Arc::new(printer.with_columns(environment.columns));
    let in_our_voice = globals.verbose == 0
        && globals.output == Format::Text
        && !matches!(cli.verb, Verb::Daemon(_));
    // A silent daemon looks the same as one that does nothing.
    let tells = u8::from(matches!(cli.verb, Verb::Daemon(_)) && !globals.quiet);
    logging::print(
        globals.verbose.max(tells),
        printer.is_colored(),
        in_our_voice.then(|| Arc::clone(&printer)),
    );
    let context = Context::new(
        globals,
        environment,
        Arc::clone(&printer),
        cli.verb.forgives(),
        cli.verb.needs_no_folder(),
    );
    let end = context.and_then(|context| dispatch(&cli.verb, &context));
    let code = end.unwrap_or_else(|fault| {
        printer.fault(&fault);
        fault.code
    });
    unless_unwritten(code, &printer).into()
}

fn unless_unwritten(code: ExitCode, printer: &Printer) -> ExitCode {
    let Some(fault) = printer.unwritten() else { return code };
    printer.fault(&fault);
    if code == ExitCode::SUCCESS { fault.code } else { code }
}

/// AWS Lambda starts the program without arguments, and its environment says where to get requests.
#[cfg(feature = "aws")]
fn as_a_function(api: &str, environment: &Environment) -> ExitCode {
    let printer = Printer::new(Format::Text, false, ColorChoice::Never, true);
    logging::print(1, false, None);
    block_on(crate::cli::account::lambda_entry::run(api, environment)).unwrap_or_else(|fault| {
        printer.fault(&fault);
        fault.code
    })
}

fn dispatch(verb: &Verb, context: &Context) -> Result<ExitCode, Fault> {
    if !matches!(verb, Verb::Daemon(_)) && !context.roots.more.is_empty() {
        return Err(Fault::new(
            ExitCode::USAGE,
            "--job-root was given more than once, and only `lamp daemon` takes several",
        ));
    }
    match verb {
        #[cfg(feature = "aws")]
        Verb::Init(init::Args { what: Some(init::InitTarget::Aws(args)), .. }) => {
            block_on(crate::cli::account::init_aws::run(args, context))
        }
        Verb::Init(args) => init::run(args, context),
        Verb::Import(args) => import::run(args, context),
        Verb::MlEngine(args) => block_on(ml_engine::run(args, context)),
        Verb::Submit(args) => block_on(submit::run(args, context)),
        Verb::Local(args) => block_on(local::run(args, context)),
        Verb::Models(args) => {
            block_on(models::run(&args.command, &GcloudFlags::default(), context))
        }
        Verb::Predict(args) => block_on(predict::run(args, &GcloudFlags::default(), context)),
        #[cfg(feature = "aws")]
        Verb::Uninit(args) => block_on(crate::cli::account::uninit_aws::run(args, context)),
        Verb::Doctor(args) => block_on(doctor::run(args, context)),
        Verb::Iam(args) => iam::run(args, context),
        Verb::Notify(args) => block_on(notify::run(args, context)),
        Verb::Run(args) => {
            block_on(unless_left_early(context, gone_before, run::run(args, context)))
        }
        Verb::Status(args) if args.watch => block_on(crate::cli::status::watch::run(args, context)),
        Verb::Status(args) => {
            block_on(never_silent(context, of_root(context), status::run(args, context)))
        }
        Verb::Logs(args) => block_on(logs::run(args, context)),
        Verb::Ssh(args) => block_on(ssh::run(args, context)),
        Verb::Start(args) => {
            block_on(unless_left_early(context, gone_before, start::run(args, context)))
        }
        Verb::Stop(args) => end_job(args, Wish::Stop, context),
        Verb::Cancel(args) => end_job(args, Wish::Cancel, context),
        Verb::Extend(args) => {
            block_on(never_silent(context, of_root(context), extend::run(args, context)))
        }
        Verb::Explain(args) => {
            block_on(never_silent(context, of_root(context), explain::run(args, context)))
        }
        Verb::Discard(args) => block_on(discard::run(args, context)),
        Verb::Outputs(args) => {
            block_on(never_silent(context, of_root(context), outputs::run(args, context)))
        }
        Verb::Receipt(args) => {
            block_on(never_silent(context, of_root(context), receipt::run(args, context)))
        }
        Verb::Costs(args) => {
            block_on(never_silent(context, of_root(context), costs::run(args, context)))
        }
        #[cfg(feature = "top")]
        Verb::Top(args) => block_on(crate::cli::control::top::run(args, context)),
        #[cfg(feature = "web")]
        Verb::Web(args) => block_on(crate::cli::control::web::run(args, context)),
        #[cfg(feature = "mcp")]
        Verb::Mcp(args) => block_on(crate::cli::control::mcp::run(args, context)),
        #[cfg(feature = "web")]
        Verb::Share(args) => block_on(never_silent(
            context,
            of_root(context),
            crate::cli::status::share::run(args, context),
        )),
        Verb::Plan(args) => block_on(plan::run(args, context)),
        Verb::Prices(args) => block_on(prices::run(args, context)),
        Verb::Rehearse(args) => block_on(rehearse::run(args, context)),
        Verb::Daemon(args) => block_on(daemon::run(args, context)),
        Verb::Apply(args) => {
            block_on(unless_left_early(context, gone_before_a_set, apply::run(args, context)))
        }
        Verb::Schedules(args) => {
            block_on(never_silent(context, of_root(context), schedules::run(args, context)))
        }
        Verb::Tune(args) => block_on(tune::run(args, context)),
        Verb::Sweep(args) => {
            block_on(never_silent(context, of_cloud(context), sweep::run(args, context)))
        }
        // `agent` is handled before clap, unless a global flag comes first.
        Verb::Agent => Err(Fault::new(ExitCode::USAGE, "`agent` takes none of our flags")
            .hint("write `lamp agent ...`, with its own flags after it")),
        Verb::Check(args) => check::run(args, context),
        Verb::Completions(args) => block_on(completions::run(args, Cli::command(), context)),
        Verb::Replay(args) => replay_idle::run(args, context),
        Verb::Simulate(args) => block_on(crate::cli::simulate::simulate::run(args, context)),
        Verb::Schema(args) => schema::run(args, context),
        Verb::Man(args) => man::run(args, Cli::command(), context),
    }
}

fn end_job(args: &stop::Args, wish: Wish, context: &Context) -> Result<ExitCode, Fault> {
    let verb = stop::run(args, wish, context);
    // A user who waits for the end of a job expects the silence.
    if args.wait {
        block_on(verb)
    } else {
        block_on(never_silent(context, of_cloud(context), verb))
    }
}

fn block_on<F: Future<Output = Result<ExitCode, Fault>>>(verb: F) -> Result<ExitCode, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime
        .map_err(|error| {
            Fault::new(ExitCode::INTERNAL, "cannot start the runtime").because(&error)
        })?
        .block_on(verb)
}

/// Help and version are data; everything else is a usage error, printed like all faults.
fn end_of_parsing(error: &clap::Error, words: &[OsString], environment: &Environment) -> ExitCode {
    let format = format_of(words);
    if let Some(fault) = word_of_others(error, words) {
        Printer::new(format, false, ColorChoice::Never, environment.no_color).fault(&fault);
        return fault.code;
    }
    if !error.use_stderr() || format == Format::Text {
        let printer = Printer::new(format, false, ColorChoice::Never, environment.no_color);
        if let Err(unwritten) = error.print() {
            printer.note_unwritten(&unwritten);
        }
        if let Some(hint) = forgotten_dashes(error, words).or_else(|| forgotten_sum(error)) {
            printer.hint(hint);
        }
        return if error.use_stderr() {
            ExitCode::USAGE
        } else {
            unless_unwritten(ExitCode::SUCCESS, &printer)
        };
    }
    let what = what_of(&error.to_string());
    let printer = Printer::new(format, false, ColorChoice::Never, environment.no_color);
    let hint =
        forgotten_dashes(error, words).or_else(|| forgotten_sum(error)).unwrap_or_else(|| {
            "`lamp --help` lists the verbs, `lamp VERB --help` its flags".to_owned()
        });
    printer.fault(&Fault::new(ExitCode::USAGE, what).hint(hint));
    ExitCode::USAGE
}

/// Clap's first sentence with the lines after it, which have the names of what is missing.
fn what_of(text: &str) -> String {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default().trim_start_matches("error: ");
    let named: Vec<&str> = lines.take_while(|line| line.starts_with("  ")).map(str::trim).collect();
    if named.is_empty() { first.to_owned() } else { format!("{first} {}", named.join(", ")) }
}

/// `lamp prices --buy` without a price.
fn forgotten_sum(error: &clap::Error) -> Option<String> {
    let is_buy = matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(name)) if name.starts_with("--buy "));
    let is_missing = matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if value.is_empty());
    let line = "`--buy` needs what such a machine costs in a shop, in dollars: `lamp prices --gpu A10G --buy 10000` says after how many months it pays";
    (is_buy && is_missing).then(|| line.to_owned())
}

/// `lamp run -- $COMMAND` with an empty variable: it would run another job, to its end.
fn nothing_after_dashes(verb: &Verb, words: &[OsString]) -> Option<clap::Error> {
    let takes_a_command =
        matches!(verb, Verb::Run(_) | Verb::Plan(_) | Verb::Check(_) | Verb::Rehearse(_));
    let is_empty = takes_a_command && words.last().is_some_and(|word| word == "--");
    is_empty.then(|| {
        Cli::command().error(
            ErrorKind::MissingRequiredArgument,
            "nothing stands after `--`, where the command of the job belongs",
        )
    })
}

/// `lamp help`, `lamp help run` and `lamp version`, as in most programs.
fn with_help(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.len() == 2 && words[1] == "version" {
        words[1] = "--version".into();
    }
    if words.get(1).is_some_and(|word| word == "help") {
        words.remove(1);
        words.truncate(2);
        words.push("--help".into());
    }
    words
}

/// `lamp down JOB`: a command of another tool.
fn word_of_others(error: &clap::Error, words: &[OsString]) -> Option<Fault> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let words: Vec<&str> = words.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
    let at = words.iter().position(|other| other == word)?;
    // `lamp submit FILE`, where `lamp submit training` is meant for packages.
    if words[..at].last() == Some(&"submit") {
        let hint = foreign_commands::meant("submit", &words[at..])?;
        let what = format!("`lamp submit` knows `training` alone, and not `{word}`");
        return Some(Fault::new(ExitCode::USAGE, what).hint(hint));
    }
    let hint = foreign_commands::meant(word, &words[at + 1..])?;
    Some(Fault::new(ExitCode::USAGE, format!("`{word}` is not a command of lamp")).hint(hint))
}

/// `lamp run python train.py`: the user's command in place of a job file.
fn forgotten_dashes(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let words: Vec<&str> = words.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
    let at = words.iter().position(|word| ["run", "plan", "check", "rehearse"].contains(word))?;
    let verb = words[at];
    let first = at + 1 + words[at + 1..].iter().position(|word| !word.starts_with('-'))?;
    // A word after an unknown flag may be its value.
    let unknown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(unknown)) => words.iter().position(|word| word == unknown),
        _ => None,
    };
    if unknown.is_some_and(|unknown| unknown < first) {
        return None;
    }
    let is_command = !words[first].contains('/')
        && !words[first].ends_with(".toml")
        && !words[first].ends_with(".json");
    let is_forgotten = error.kind() == ErrorKind::UnknownArgument
        && is_command
        && !words.contains(&"--")
        && words.len() > first + 1;
    is_forgotten.then(|| {
        format!(
            "a command stands after two dashes: `lamp {verb} -- {}`",
            words[first..].iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
        )
    })
}

/// Only `prices`, `costs` and `explain --samples` have `-o csv`, because their rows are all alike.
/// For other commands clap reports the error.
fn with_csv(words: Vec<OsString>) -> Vec<OsString> {
    if !words
        .iter()
        .skip(1)
        .take_while(|word| *word != "--")
        .any(|word| ["prices", "costs", "explain"].iter().any(|verb| word == *verb))
    {
        return words;
    }
    let mut rest = words.into_iter().peekable();
    let (mut taken, mut is_csv) = (Vec::new(), false);
    while let Some(word) = rest.next() {
        let is_whole = ["-ocsv", "-o=csv", "--output=csv"].iter().any(|whole| word == *whole);
        let is_first =
            (word == "-o" || word == "--output") && rest.next_if(|next| next == "csv").is_some();
        if is_whole || is_first { is_csv = true } else { taken.push(word) }
    }
    // A flag of the command, so it comes after it.
    taken.extend(is_csv.then(|| OsString::from("--csv")));
    taken
}

/// The requested format, read without clap because clap has just failed.
fn format_of(words: &[OsString]) -> Format {
    let words: Vec<_> =
        words.iter().map_while(|word| word.to_str()).take_while(|word| *word != "--").collect();
    let json = words.windows(2).any(|pair| matches!(pair, ["-o" | "--output", "json" | "jsonl"]))
        || words.iter().any(|word| {
            matches!(
                *word,
                "-ojson" | "-ojsonl" | "-o=json" | "-o=jsonl" | "--output=json" | "--output=jsonl"
            )
        });
    if json { Format::Json } else { Format::Text }
}
