//! `lamp schema` (hidden): the JSON schema of job files and configurations, for `config/schema` and
//! editors.

use clap::{Args as ClapArgs, ValueEnum};

use crate::cli::{Context, ExitCode, Fault};
use crate::config;

/// Print the JSON schema of a file
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[arg(value_enum)]
    pub file: File,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum File {
    /// The job file
    Job,
    /// The user configuration
    Config,
}

/// # Errors
/// None.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    match args.file {
        File::Job => context.printer.json(&config::job_schema()),
        File::Config => context.printer.json(&config::user_schema()),
    }
    Ok(ExitCode::SUCCESS)
}
