//! Messages for work that takes long.

use std::time::Duration;

use crate::cli::Context;

/// Less would report every slow line; after more, users press Ctrl-C. A job root that accepts
/// connections without answers is silent for two minutes.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Runs a command, and says what it waits for if nothing was printed for `SILENCE_MAX`.
pub async fn never_silent<T>(
    context: &Context,
    what: impl std::fmt::Display,
    work: impl Future<Output = T>,
) -> T {
    // Earlier output does not count.
    let _before = context.printer.has_spoken();
    let mut work = std::pin::pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = context.clock.sleep(SILENCE_MAX) => {
            if !context.printer.has_spoken() {
                context.printer.note(what);
            }
        }
    }
    work.await
}

/// The text of [`never_silent`] for commands that ask only the job root.
pub fn of_root(context: &Context) -> String {
    format!(
        "the job root {} has not answered all that was asked yet; still waiting",
        context.roots.url
    )
}

/// For commands that ask the cloud too: either may be the silent one.
pub fn of_cloud(context: &Context) -> String {
    format!(
        "the job root {} or the cloud has not answered all that was asked yet; still waiting",
        context.roots.url
    )
}
