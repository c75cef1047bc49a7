//! `lamp stop` and `lamp cancel`: ask each job to end through its job directory; `--wait` waits for
//! the end.
//!
//! ```text
//! words, --all -> jobs -> each asked (app::stop) -> each waited for, in turn -> one document
//! ```
//!
//! A job that cannot be asked does not keep the others from being asked: running machines bill. Not
//! here: what becomes of one job (`app::stop`; after its end, `app::release_kept`).

use clap::Args as ClapArgs;
use futures::stream::{self, StreamExt as _};
use serde_json::{Value, json};

use crate::app::drive;
use crate::app::find_job;
use crate::app::stop::{self, How, Named, PendingStop, StopAnswer, see_it_through};
use crate::app::text::counted;
use crate::app::text::verb;
use crate::cli::run::attach::Attached;
use crate::cli::shell::confirm::confirm;
use crate::cli::shell::job_root;
use crate::cli::shell::terminal::Terminal;
use crate::cli::status::receipt;
use crate::cli::{Context, ExitCode, Fault};
use crate::job::Wish;
use crate::jobdir::JobDir;
use crate::wire::{StoreHandle, Workstation};

/// End jobs: save a checkpoint, keep the outputs, end the machine
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Jobs, each by its id, the beginning of it, or its name [default: the one that is under way]
    #[arg(value_name = "JOB", conflicts_with = "all")]
    pub jobs: Vec<String>,

    /// Every job of yours in this job root that is under way, after a question
    #[arg(long)]
    pub all: bool,

    /// Wait until it has ended, and show its receipt; of several, one after the other
    #[arg(short, long)]
    pub wait: bool,

    /// Do not ask before an unnamed job is ended without a checkpoint, before `--all` ends all,
    /// before the machine of another owner is ended, or before the kept machine of an ended job is
    /// given up; without a terminal, it must be given
    #[arg(short, long)]
    pub yes: bool,
}

/// # Errors
/// Fails when a job is missing, or has ended and keeps nothing, or the job root is unreachable.
/// With several jobs it returns the last error; the others are in it, or are printed before it.
pub async fn run(args: &Args, wish: Wish, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let workstation = job_root::workstation(context)?;
    let meant = if args.all {
        all(context, &store, &workstation, (wish, args.yes)).await?
    } else {
        named(&store, &args.jobs).await?
    };
    // By the command line: a program that names two jobs always reads the same form.
    let several = args.all || args.jobs.len() > 1;
    let named = if args.all {
        Named::All
    } else if args.jobs.is_empty() {
        Named::No
    } else {
        Named::Itself
    };
    let how = How { wish, wait: args.wait, named, several };
    let terminal = Terminal::new(context, args.yes);
    let session = terminal.session(&store)?;
    let (mut said, mut standing, mut faults) =
        (Vec::<Value>::new(), Vec::<PendingStop>::new(), Vec::<Fault>::new());
    let mut code = ExitCode::SUCCESS;
    for dir in meant {
        let asked = match dir {
            Ok(dir) => stop::ask(&session, dir, how).await,
            Err(fault) => Err(fault),
        };
        match asked {
            Ok(StopAnswer::Over(how_it_went, document)) => {
                said.push(document);
                code = if code == ExitCode::SUCCESS { how_it_went } else { code };
            }
            Ok(StopAnswer::Stands(stands)) if args.wait => standing.push(stands),
            Ok(StopAnswer::Stands(stands)) => said.push(stands.document),
            Err(fault) => faults.push(fault),
        }
        // A Ctrl-C at a question ends all questions and waits.
        if faults.last().is_some_and(|fault| fault.code == ExitCode::CTRL_C) {
            said.extend(standing.drain(..).map(|stands| stands.document));
            break;
        }
    }
    for stands in standing {
        match wait(context, (&store, &workstation), &stands, wish).await {
            Ok(Some(ended)) => said.push(ended),
            Ok(None) => {
                code = ExitCode::CTRL_C;
                break;
            }
            Err(fault) => faults.push(fault),
        }
    }
    if context.is_machine_output() {
        match (several, said.pop()) {
            (false, Some(only)) => context.printer.json(&only),
            (false, None) => {}
            (true, last) => {
                said.extend(last);
                context.printer.json(&json!({ "jobs": said }));
            }
        }
    }
    let Some(mut last) = faults.pop() else { return Ok(code) };
    if context.is_machine_output() {
        last.others.extend(faults);
    } else {
        faults.iter().for_each(|fault| context.printer.fault(fault));
    }
    Err(last)
}

/// The jobs that the words mean, each once; without a word, the one under way.
async fn named(store: &StoreHandle, words: &[String]) -> Result<Vec<Result<JobDir, Fault>>, Fault> {
    let found = match words {
        [] | [_] => vec![find_job::find_under_way(store, words.first().map(String::as_str)).await],
        several => find_job::each_under_way(store, several).await?,
    };
    let mut meant: Vec<Result<JobDir, Fault>> = Vec::new();
    for found in found {
        let is_there = |dir: &JobDir| meant.iter().flatten().any(|other| other.job() == dir.job());
        if !found.as_ref().is_ok_and(is_there) {
            meant.push(found);
        }
    }
    Ok(meant)
}

/// After the user has confirmed their names. Unreadable jobs come back as errors, because they may
/// run. A bucket may hold other owners' jobs.
async fn all(
    context: &Context,
    store: &StoreHandle,
    workstation: &Workstation,
    (wish, yes): (Wish, bool),
) -> Result<Vec<Result<JobDir, Fault>>, Fault> {
    let owned = stream::iter(find_job::all_under_way(store).await?).map(|dir| async {
        let dir = dir?;
        let owner = find_job::owner_of(&dir).await?;
        Ok((dir, owner))
    });
    let (mut mine, mut unread, mut theirs, mut nobodys) = (Vec::new(), Vec::new(), 0, 0);
    for read in owned.buffered(find_job::READS_IN_FLIGHT).collect::<Vec<Result<_, Fault>>>().await {
        match read {
            Ok((dir, Some(owner))) if owner == workstation.owner => mine.push(dir),
            Ok((_, Some(_))) => theirs += 1,
            // A job without a known owner ends only when it is named.
            Ok((_, None)) => nobodys += 1,
            Err(fault) => unread.push(fault),
        }
    }
    let left = [(theirs, "of another owner"), (nobodys, "whose owner its records do not say")];
    let left: String = left
        .into_iter()
        .filter(|(jobs, _)| *jobs > 0)
        .map(|(jobs, of)| format!("; {} {of} left alone", counted(jobs, "job")))
        .collect();
    if mine.is_empty() && unread.is_empty() {
        return Err(Fault::new(ExitCode::NOT_FOUND, format!("no job of yours is under way in {}{left}", store.url()))
            .hint("`lamp status --all` lists those that have ended, `lamp sweep` looks for machines whose job is not here"));
    }
    if !mine.is_empty() {
        let names: Vec<&str> = mine.iter().map(|dir| dir.job().as_str()).collect();
        let how = if wish == Wish::Cancel {
            "ends them at once, without a checkpoint"
        } else {
            "ends them, each with its last save where it makes one"
        };
        let jobs = if mine.len() == 1 { "1 job is" } else { &format!("{} jobs are", mine.len()) };
        confirm(
            context,
            &format!("{jobs} under way, {}: this {how}{left}", names.join(", ")),
            yes,
            "nothing was asked of any of them",
        )?;
    }
    Ok(mine.into_iter().map(Ok).chain(unread.into_iter().map(Err)).collect())
}

/// Waits until it has ended. `None`: the user left, and the wish stands.
async fn wait(
    context: &Context,
    (store, workstation): (&StoreHandle, &Workstation),
    stands: &PendingStop,
    wish: Wish,
) -> Result<Option<Value>, Fault> {
    let dir = &stands.dir;
    let controller = drive::controller(workstation, store)?;
    let Some(ended) =
        Attached::new(context, dir).without_log().follow_and_drive(&controller).await?
    else {
        see_it_through(&Terminal::new(context, false).session(store)?, dir, wish);
        context.printer.note(format!("the {} stands", verb(wish)));
        context.printer.hint(format!("`lamp status {}` shows when it is over", dir.job()));
        return Ok(None);
    };
    if !context.is_machine_output() {
        receipt::show(context, dir, &ended).await;
    }
    if ended.last_checkpoint.is_some() {
        context.printer.hint(stop::how_to_go_on(dir.job()));
    }
    Ok(Some(
        serde_json::to_value(&ended).expect("a receipt has string keys and no failing serializers"),
    ))
}
