//! Work that may take longer than a person waits without a word.

use std::time::Duration;

use super::Context;

/// After this long a person wonders whether anything happens.
const PATIENCE: Duration = Duration::from_secs(1);

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
