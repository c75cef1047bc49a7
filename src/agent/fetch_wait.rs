//! Waits for a download, and meanwhile reacts to a cancel, a notice or a limit.
//!
//! Not here: what is downloaded, and when it is given up (`fetch_status`).

use std::time::Duration;

use futures::FutureExt;

use super::run_loop::Agent;
use super::startup::fetch_status::Fetching;
use crate::policy::Decision;

/// The time between two looks. More often shows nothing sooner, since the heartbeat is slower; less
/// often leaves stale text.
const FETCH_LOOK: Duration = Duration::from_secs(2);

impl Agent {
    /// Returns the result, or why the download is given up; or the decision that ends the attempt.
    pub(crate) async fn patient_fetch<T>(
        &mut self,
        fetching: &Fetching,
        work: impl Future<Output = T> + Send,
    ) -> Result<Result<T, String>, Decision> {
        let mut work = work.boxed();
        loop {
            let decision = tokio::select! {
                biased;
                fetched = &mut work => {
                    self.tell_of_fetching(None);
                    return Ok(Ok(fetched));
                }
                decision = self.guard_for(FETCH_LOOK) => decision,
            };
            if let Some(decision) = decision {
                return Err(decision);
            }
            let look = fetching.look();
            self.tell_of_fetching(look.told);
            if let Some(text) = look.over {
                return Ok(Err(text));
            }
        }
    }
}
