//! `lamp submit training`, which is `lamp ml-engine jobs submit training` too.
//!
//! ```text
//! flags + config.yaml -> job -> packages -> a job file in a folder of its own -> `lamp run`
//! ```

use std::path::Path;

use clap::{Args as ClapArgs, Subcommand};
use serde_json::json;

use super::document;
use super::gcloud_flags::GcloudFlags;
use super::stream_logs;
use super::training_flags::Args as TrainingArgs;
use crate::app::find_job;
use crate::app::submit::config_yaml::{self, TrainingFile};
use crate::app::submit::job_text::{self, JobDirAs, LaunchTerms};
use crate::app::submit::job_view;
use crate::app::submit::package_build::{self, BuildFolder, PackageSource};
use crate::app::submit::search_view::find_tuning;
use crate::app::submit::training_job::{self, TrainingJob};
use crate::app::submit::training_state::TrainingState;
use crate::app::submit::user_python::UserPython;
use crate::app::tune::begin::{self, TuningAgain};
use crate::cli::output::log_columns::LogColumns;
use crate::cli::output::printer::shell_word;
use crate::cli::run::run::{self, DetachText, NameUse};
use crate::cli::shell::ctrl_c::{LeaveSignals, gone_before, unless_left_early};
use crate::cli::shell::flags::{EndFlags, JobFlags, MachineFlags};
use crate::cli::shell::job_root;
use crate::cli::tune::tune;
use crate::cli::{Context, ExitCode, Fault, JobArgs};
use crate::config::CloudWord;
use crate::market::CloudKind;
use crate::wire;

/// Submit a training job in the words of gcloud
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    pub gcloud: GcloudFlags,
    #[command(subcommand)]
    pub what: SubmitKind,
}

#[derive(Clone, Debug, Subcommand)]
pub enum SubmitKind {
    Training(Box<TrainingArgs>),
}

const NOTHING: &str = "nothing was started or billed";

/// # Errors
/// As [`submit`].
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    args.gcloud.say_what_is_ignored(context);
    run_kind(&args.what, &args.gcloud, context).await
}

/// # Errors
/// As [`submit`].
pub async fn run_kind(
    what: &SubmitKind,
    gcloud: &GcloudFlags,
    context: &Context,
) -> Result<ExitCode, Fault> {
    let SubmitKind::Training(args) = what;
    unless_left_early(context, gone_before, submit(args, gcloud, context)).await
}

/// # Errors
/// Fails when the job has mistakes, its name is taken, its package cannot be built, or it cannot be
/// launched.
async fn submit(
    args: &TrainingArgs,
    gcloud: &GcloudFlags,
    context: &Context,
) -> Result<ExitCode, Fault> {
    let file = whole_file(args, context)?;
    let job = checked(args, &file)?;
    let cloud = cloud_of(args, context);
    job.notes.iter().for_each(|note| context.printer.note(note));
    say_google(args, context);
    say_what_it_had(context, &job, cloud);
    refuse_taken_name(context, &job.name).await?;
    let folder = BuildFolder::new(&wire::random_token())?;
    let prepared = prepare(args, &job, cloud, &folder, context)?;
    let code = match &job.search {
        Some(_) if !args.launch.dry_run => {
            let begun = tune::run(&as_tuning(prepared, args.stream_logs), context).await?;
            match args.stream_logs && begun == ExitCode::SUCCESS {
                true => stream_search(&job.name, context).await?,
                false => begun,
            }
        }
        Some(search) => {
            let (trials, parallel) = (search.trials, search.parallel);
            let words = format!("the plan of one trial; {trials} trials, {parallel} at a time");
            context.printer.note(words);
            run::run(&prepared, context).await?
        }
        None => run::run(&prepared, context).await?,
    };
    if args.launch.dry_run {
        return Ok(code);
    }
    if args.stream_logs {
        return Ok(if code == ExitCode::SUCCESS { code } else { ExitCode::of_workload(1) });
    }
    if code == ExitCode::SUCCESS {
        tell_submitted(gcloud, context, &job.name).await?;
    }
    Ok(code)
}

/// The flags, over the file of `--config`.
fn whole_file(args: &TrainingArgs, context: &Context) -> Result<TrainingFile, Fault> {
    let flags = args.as_file();
    let Some(path) = &args.config else { return Ok(flags) };
    let shown = path.display().to_string();
    let text = read(&context.current_dir.join(path)).map_err(|error| {
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => ExitCode::NOT_FOUND,
            _ => ExitCode::UNREACHABLE,
        };
        Fault::new(code, format!("cannot read `{shown}`"))
            .because(&error)
            .meaning(NOTHING)
            .hint("`--config` names a Job in YAML or JSON, relative to the current folder")
    })?;
    let (file, found) = config_yaml::read(&text);
    if found.is_empty() {
        return Ok(file.under(flags));
    }
    let fault = Fault::new(ExitCode::FINDINGS, format!("`{shown}` is no job"));
    Err(fault.meaning(NOTHING).findings(shown, found))
}

#[expect(clippy::disallowed_methods, reason = "reads a file that the user names")]
fn read(path: &Path) -> std::io::Result<String> {
    std::fs::read_to_string(path)
}

/// The service took no longer name.
const NAME_CHARS_MAX: usize = 128;

/// The service refused all other names.
fn is_name_of_service(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(is_plain)
        && name.len() <= NAME_CHARS_MAX
}

fn checked(args: &TrainingArgs, file: &TrainingFile) -> Result<TrainingJob, Fault> {
    if !is_name_of_service(&args.job) {
        let what = format!("`{}` is no name of a job for the training service", args.job);
        return Err(Fault::new(ExitCode::USAGE, what).meaning(NOTHING).hint(format!(
            "write a letter, then letters, digits and underscores, at most {NAME_CHARS_MAX} \
             characters, like `mnist_train_1`"
        )));
    }
    let job = training_job::training_job(&args.job, file).map_err(|found| {
        let shown = match &args.config {
            Some(path) => path.display().to_string(),
            None => crate::config::COMMAND_LINE.to_owned(),
        };
        Fault::new(ExitCode::FINDINGS, "the job has mistakes")
            .meaning(NOTHING)
            .findings(shown, found)
    })?;
    if args.launch.strict && training_job::has_versions(&file.training_input) {
        let what = "a version of Python or TensorFlow is asked for, and none can be had";
        return Err(Fault::new(ExitCode::REFUSED, what).meaning(NOTHING).hint(
            "leave out `--strict`, or the versions of the file and of the flags; `install_requires` \
             in setup.py names a TensorFlow",
        ));
    }
    Ok(job)
}

/// As `lamp run` chooses: the flag, the configuration, this workstation.
fn cloud_of(args: &TrainingArgs, context: &Context) -> CloudKind {
    let configured =
        context.config.user.defaults.machine.as_ref().and_then(|machine| machine.cloud.clone());
    args.launch.cloud.clone().or(configured).map_or(CloudKind::Local, |word: CloudWord| word.0)
}

fn say_google(args: &TrainingArgs, context: &Context) {
    if args.google.staging_bucket.is_some() {
        context.printer.note("--staging-bucket has no meaning here: packages go with the job");
    }
}

/// A local job takes this workstation as it is, whatever the tier was.
fn say_what_it_had(context: &Context, job: &TrainingJob, cloud: CloudKind) {
    if cloud == CloudKind::Local {
        context.printer.note(format!(
            "it runs on this workstation as it is; the service gave it {}, which `--cloud aws` buys",
            job.need().words()
        ));
    } else if let Some(gpus) = job.need().gpus {
        let beside = job.need().beside_gpus();
        let beside = beside.map(|beside| format!(", as fast or faster, beside at least {beside}"));
        context.printer.note(format!(
            "it gets {} GPU{} of at least {} GiB, in place of {}{}",
            gpus.count,
            if gpus.count == 1 { "" } else { "s" },
            gpus.memory_gib,
            gpus.was,
            beside.unwrap_or_default()
        ));
    }
}

/// A second job of a name would be another job, so a script that runs twice must not make it.
async fn refuse_taken_name(context: &Context, name: &str) -> Result<(), Fault> {
    let store = job_root::open(context).await?;
    begin::refuse_taken(&store, name).await?;
    let others = find_job::all_named(&store, name).await?;
    let Some(other) = others.first() else { return Ok(()) };
    Err(Fault::new(ExitCode::REFUSED, format!("a job `{name}` exists: `{other}`"))
        .meaning(NOTHING)
        .hint(format!(
            "take another name, as `{name}_$(date +%Y%m%d_%H%M%S)`; `lamp status {other}` shows that one"
        )))
}

/// Builds the packages, and writes the job file beside the folder that ships.
fn prepare(
    args: &TrainingArgs,
    job: &TrainingJob,
    cloud: CloudKind,
    folder: &BuildFolder,
    context: &Context,
) -> Result<run::Args, Fault> {
    let python = UserPython::find(&context.environment)?;
    let at = |path: &Path| context.current_dir.join(path);
    let uris = job.package_uris.iter().map(Path::new);
    let archives = args.packages.iter().map(|path| path.as_path()).chain(uris);
    let source = PackageSource {
        package: args.package_path.as_deref().map(at),
        archives: archives.map(at).collect(),
    };
    let ship = folder.0.join("ship");
    let into = ship.join(job_text::PACKAGES);
    let packages = package_build::collect(&source, &python, folder, &into)?;
    let job_dir_as = args.launch.job_dir_as;
    let terms = LaunchTerms { cloud, job_dir_as, now: context.clock.now() };
    let script = job_text::run_module(job, job_dir_as);
    folder.write(&format!("ship/{}", job_text::RUN_MODULE), &script)?;
    let file = folder.write("job.toml", &job_text::job_file(job, &packages, terms))?;
    Ok(run_args(args, job, &file))
}

fn run_args(args: &TrainingArgs, job: &TrainingJob, file: &Path) -> run::Args {
    let launch = &args.launch;
    let machine = MachineFlags { spot: launch.spot, ..MachineFlags::default() };
    let ends = EndFlags { budget: launch.budget.clone(), ..EndFlags::default() };
    let flags = JobFlags { machine, ends, ..JobFlags::default() };
    let is_path = |url: &&String| !url.contains("://");
    run::Args {
        job: JobArgs { file: Some(file.to_owned()), flags, command: Vec::new() },
        from: None,
        detach: !args.stream_logs,
        unproven: launch.unproven,
        dry_run: launch.dry_run,
        again: true,
        late_save: false,
        outputs: job
            .job_dir
            .as_ref()
            .filter(is_path)
            .filter(|_| launch.job_dir_as == JobDirAs::Folder)
            .map(Into::into),
        names: NameUse::Once,
        detach_text: DetachText::Nothing,
        log_columns: args.stream_logs.then(|| LogColumns::new(stream_logs::TASK, None)),
    }
}

/// The same job, tried with other values each time.
fn as_tuning(run: run::Args, is_watched: bool) -> tune::Args {
    tune::Args {
        act: None,
        job: run.job,
        // Another process drives it, also while its logs are shown here.
        detach: true,
        unproven: run.unproven || is_watched,
        again: TuningAgain::Refused,
        detach_text: run.detach_text,
    }
}

/// The logs of all trials until the tuning has ended. It goes on if the user leaves.
async fn stream_search(name: &str, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let mut left = LeaveSignals::listen();
    if let Some(memory) = find_tuning(&store, name).await? {
        tokio::select! {
            streamed = stream_logs::stream_trials(context, memory) => streamed?,
            () = left.heard() => return Ok(ExitCode::CTRL_C),
        };
    }
    let view = job_view::read(&store, name, context.clock.now()).await?;
    let has_succeeded = view.state == TrainingState::Succeeded;
    Ok(if has_succeeded { ExitCode::SUCCESS } else { ExitCode::of_workload(1) })
}

/// What gcloud printed: sentences for people, then the document.
async fn tell_submitted(gcloud: &GcloudFlags, context: &Context, name: &str) -> Result<(), Fault> {
    let store = job_root::open(context).await?;
    let view = job_view::read(&store, name, context.clock.now()).await?;
    let word = shell_word(name);
    for line in [
        format!("Job [{name}] submitted successfully."),
        "Your job is still active. You may view the status of your job with the command".into(),
        String::new(),
        format!("  $ lamp ml-engine jobs describe {word}"),
        String::new(),
        "or continue streaming the logs with the command".into(),
        String::new(),
        format!("  $ lamp ml-engine jobs stream-logs {word}"),
        String::new(),
    ] {
        context.printer.note(line);
    }
    let document = json!({ "jobId": name, "state": view.state.word() });
    document::show(context, gcloud, &document);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_service_refused_are_refused() {
        for name in ["mnist_train_20261201_101500", "A", "My_Search"] {
            assert!(is_name_of_service(name), "{name}");
        }
        let long = "a".repeat(129);
        for name in ["", "1st", "_a", "mnist-train", "a b", "a.b", "caf\u{e9}", &long] {
            assert!(!is_name_of_service(name), "{name}");
        }
    }
}
