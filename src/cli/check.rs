//! `lamp check`: all that is wrong with a job, before anything is started.

use clap::Args as ClapArgs;
use serde_json::json;

use super::flags::JobArgs;
use super::printer::Stream;
use super::{Context, ExitCode, Fault, Format};
use crate::config::{self, Loaded};
use crate::job::{Finding, Severity};

/// Find everything that is wrong with a job
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    pub job: JobArgs,
}

/// # Errors
/// The job file is not there or cannot be read. Findings are the result, not an error.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    match args.job.load(context) {
        Ok(loaded) => report_good(&loaded, context),
        Err(fault) if fault.code == ExitCode::FINDINGS && fault.file.is_some() => {
            report(context, fault.file.as_deref().unwrap_or_default(), &fault.findings, None);
            Ok(ExitCode::FINDINGS)
        }
        Err(fault) => Err(fault),
    }
}

fn report_good(loaded: &Loaded, context: &Context) -> Result<ExitCode, Fault> {
    let file = loaded.file.as_deref().map_or_else(|| "the command line".to_owned(), |path| config::shown(path, &context.current_dir));
    report(context, &file, &loaded.findings, Some(loaded));
    Ok(ExitCode::SUCCESS)
}

fn report(context: &Context, file: &str, findings: &[Finding], loaded: Option<&Loaded>) {
    let printer = &context.printer;
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    if context.format != Format::Text {
        let mut document = json!({"file": file, "ok": errors == 0, "errors": errors, "warnings": warnings, "findings": findings});
        if let Some(loaded) = loaded {
            document["workdir"] = json!(loaded.workdir);
            document["spec"] = json!(loaded.spec);
            document["origins"] = json!(loaded.origins);
        }
        printer.json(&document);
        return;
    }
    for finding in findings {
        printer.line(printer.finding_text(Stream::Out, Some(file), finding));
    }
    let plural = |n: usize, word: &str| if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") };
    match (errors, warnings) {
        (0, 0) => printer.line(format!("{file}: no findings")),
        (0, _) => printer.line(format!("{file}: {}", plural(warnings, "warning"))),
        (_, 0) => printer.line(format!("{file}: {}", plural(errors, "error"))),
        (..) => printer.line(format!("{file}: {}, {}", plural(errors, "error"), plural(warnings, "warning"))),
    }
}
