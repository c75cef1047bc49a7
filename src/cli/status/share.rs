//! `lamp share`: a job as one HTML file, for people without this job root.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use serde_json::json;

use crate::cli::shell::job_root;
use crate::cli::{Context, ExitCode, Fault};
use crate::web::share;

/// Write a job as one HTML file: plots, log, attempts, receipt
///
/// The file is complete, and runs no script. It has the end of the log as it is: read it
/// before you give it away.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// A job: its id, the beginning of it, or its name [default: the newest]
    pub job: Option<String>,

    /// The file to write [default: JOB.html]
    pub file: Option<PathBuf>,

    /// Write over a file that exists
    #[arg(long)]
    pub force: bool,
}

/// # Errors
/// Fails when the job is missing, or the file cannot be written.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let shared = share::of(&store, args.job.as_deref(), context.clock.now()).await?;
    let file = args.file.clone().unwrap_or_else(|| format!("{}.html", shared.job).into());
    write(&file, &shared.html, args.force)?;
    let bytes = shared.html.len();
    if context.is_machine_output() {
        context.printer.json(&json!({ "job": shared.job, "file": file, "bytes": bytes }));
    } else {
        context.printer.line(file.display());
        context.printer.note("it has the end of the log as it is: read it before you give it away");
    }
    Ok(ExitCode::SUCCESS)
}

fn write(file: &PathBuf, text: &str, force: bool) -> Result<(), Fault> {
    use std::io::Write as _;

    let mut options = std::fs::OpenOptions::new();
    options.write(true).truncate(true).create(force).create_new(!force);
    let written = options.open(file).and_then(|mut open| open.write_all(text.as_bytes()));
    written.map_err(|error| {
        let shown = file.display();
        if error.kind() == std::io::ErrorKind::AlreadyExists {
            return Fault::new(ExitCode::REFUSED, format!("`{shown}` is already there"))
                .meaning("nothing was written")
                .hint("`--force` writes over it; `lamp share JOB FILE` names another file");
        }
        Fault::new(ExitCode::UNREACHABLE, format!("cannot write `{shown}`"))
            .because(&error)
            .meaning("nothing changed for the job")
            .hint("name a file in a folder that can be written")
    })
}
