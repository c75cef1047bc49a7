//! Work that may take longer than a person waits without a word.

use std::time::Duration;

use crate::cli::Context;

/// After this long a person wonders whether anything happens.
const PATIENCE: Duration = Duration::from_secs(1);

/// So long a verb that only looks or asks may be silent. Less would speak of every slow line; after more, whoever waits has
/// pressed Ctrl-C, and a job root that takes connections and answers none is silent for two minutes.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Does the work of a verb; says what it waits for if nothing was printed for so long.
pub async fn never_silent<T>(context: &Context, what: impl std::fmt::Display, work: impl Future<Output = T>) -> T {
    // What was said before it began does not count.
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

/// Does the work; says what is going on if it is not done within a second.
pub async fn saying<T>(context: &Context, what: impl std::fmt::Display, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = context.clock.sleep(PATIENCE) => context.printer.note(format!("{what} ...")),
    }
    work.await
}

/// What [`never_silent`] says of verbs that ask the job root alone.
pub fn of_root(context: &Context) -> String {
    format!("the job root {} has not answered all that was asked yet; still waiting", context.job_root)
}

/// Of verbs that ask the cloud too: nobody can tell from here which of the two is silent.
pub fn of_cloud(context: &Context) -> String {
    format!("the job root {} or the cloud has not answered all that was asked yet; still waiting", context.job_root)
}
