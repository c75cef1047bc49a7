//! `lamp status --watch`: repeats the look; on a terminal it replaces the one before.

use std::time::Duration;

use super::status;
use crate::app::find_job;
use crate::app::record_errors;
use crate::app::view::job_summary::Summary;
use crate::cli::shell::job_root;
use crate::cli::shell::slow_notice::{never_silent, of_root};
use crate::cli::{Context, ExitCode, Fault};

/// Between two looks at a folder. Longer is noticed; shorter redraws before the user has read it.
const EVERY: Duration = Duration::from_secs(2);

/// The same for a bucket, where each look costs money.
const EVERY_AWAY: Duration = Duration::from_secs(10);

/// Runs until Ctrl-C, or until a named job has ended.
///
/// # Errors
/// As `lamp status`.
pub async fn run(args: &status::Args, context: &Context) -> Result<ExitCode, Fault> {
    loop {
        context.printer.clear_before_next();
        never_silent(context, of_root(context), status::run(args, context)).await?;
        let store = job_root::open_existing(context).await?;
        if let Some(job) = &args.job {
            let dir = find_job::find(&store, Some(job)).await?;
            let summary = Summary::read(&dir, context.clock.now())
                .await
                .map_err(|error| record_errors::record_fault(&error))?;
            if summary.is_none_or(|summary| summary.state.is_final()) {
                return Ok(ExitCode::SUCCESS);
            }
        }
        if context.printer.reader_is_gone() {
            return Ok(ExitCode::SUCCESS);
        }
        context.clock.sleep(if store.is_folder() { EVERY } else { EVERY_AWAY }).await;
    }
}
