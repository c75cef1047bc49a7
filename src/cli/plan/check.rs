//! `lamp check`: all errors in a job and in what it would ship, before anything starts.

use clap::Args as ClapArgs;
use serde_json::json;

use crate::app::launch::limit_check::OutOfReach;
use crate::app::launch::saved_files;
use crate::app::launch::submission::shown_file;
use crate::app::text::counted;
use crate::cli::output::printer::Stream;
use crate::cli::output::printer::shell_word;
use crate::cli::shell::flags::JobArgs;
use crate::cli::{Context, ExitCode, Fault, Format};
use crate::config::Loaded;
use crate::job::{Finding, IdleSpec, Severity};
use crate::policy::{YoungWindow, young_window};
use crate::wire::{self, Survey};

/// Find everything that is wrong with a job
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    pub job: JobArgs,
}

/// # Errors
/// Fails when the job file is missing or unreadable. Findings are the result, not an error.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    match args.job.examine(context) {
        Ok((mut loaded, survey)) => {
            let file = shown_file(&loaded, &context.current_dir);
            let is_whole =
                loaded.findings.iter().all(|finding| finding.severity != Severity::Error);
            let spec = &loaded.spec;
            let out_of_reach = OutOfReach::of_its_words(spec, context.clock.now())
                .filter(|_| is_whole && spec.limits.work.is_some());
            loaded.findings.extend(out_of_reach.iter().map(OutOfReach::finding));
            report(context, &file, &loaded.findings, Some(&loaded), survey.as_ref())
        }
        Err(fault) => match &fault.file {
            Some(file) => report(context, file, &fault.findings, None, None),
            None => Err(fault),
        },
    }
}

fn report(
    context: &Context,
    file: &str,
    findings: &[Finding],
    loaded: Option<&Loaded>,
    survey: Option<&Survey>,
) -> Result<ExitCode, Fault> {
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    if context.printer.format() == Format::Text {
        for finding in findings {
            context.printer.line(context.printer.finding_text(Stream::Out, Some(file), finding));
        }
        context.printer.line(format!("{file}: {}", summary(errors, warnings)));
        if let Some((loaded, survey)) = loaded.zip(survey) {
            let files = counted(survey.files, "file");
            context.printer.line(format!(
                "ships {files}, {}, from {}",
                wire::show_bytes(survey.bytes),
                survey.root.display()
            ));
            context.printer.line(saved_files::line(&loaded.spec));
        }
        if let Some(note) = loaded.and_then(idle_note) {
            context.printer.note(note);
        }
        if let Some(loaded) =
            loaded.filter(|loaded| errors == 0 && loaded.spec.checkpoint.is_some())
        {
            context.printer.note(untried(loaded, file));
        }
    } else {
        let workdir = loaded.zip(survey).map(|(loaded, survey)| json!({"path": loaded.workdir, "files": survey.files, "bytes": survey.bytes}));
        context.printer.json(&json!({
            "file": file, "ok": errors == 0, "errors": errors, "warnings": warnings, "findings": findings, "workdir": workdir,
            "spec": loaded.map(|loaded| &loaded.spec), "origins": loaded.map(|loaded| &loaded.origins),
            "schedule": loaded.and_then(|loaded| loaded.schedule.as_ref()),
        }));
    }
    Ok(if errors == 0 { ExitCode::SUCCESS } else { ExitCode::FINDINGS })
}

/// How the idle rule changes a window that the user set: at first it is longer, and a short one
/// much longer.
pub fn idle_note(loaded: &Loaded) -> Option<String> {
    let usual = IdleSpec::default().window;
    let YoungWindow { asked, first, until } =
        young_window(&loaded.spec.watch.idle).filter(|young| Some(young.asked) != usual)?;
    Some(format!(
        "`idle = \"{asked}\"` holds once the work has gone on for {until}; before that it takes up to {first} of silence, and where little of \
         it is seen, or after long pauses of its own, a longer one (docs/policies.md)"
    ))
}

/// The file does not say what its script does at an interruption.
fn untried(loaded: &Loaded, file: &str) -> String {
    let words = if loaded.file.is_some() {
        format!("lamp rehearse {}", shell_word(file))
    } else {
        "lamp rehearse".to_owned()
    };
    format!(
        "whether the script saves and resumes is not looked at here: `{words}` interrupts it on this workstation, and tries it"
    )
}

fn summary(errors: usize, warnings: usize) -> String {
    let counted = |n: usize, word| counted(n as u64, word);
    match (errors, warnings) {
        (0, 0) => "no findings".to_owned(),
        (0, _) => counted(warnings, "warning"),
        (_, 0) => counted(errors, "error"),
        _ => format!("{}, {}", counted(errors, "error"), counted(warnings, "warning")),
    }
}
