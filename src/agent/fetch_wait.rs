//! Waits for what is fetched, and obeys meanwhile what cannot wait: a cancel, a notice, the limits.
//!
//! What must never live here: what is fetched, and when it is given up (`fetching`).

use std::time::Duration;

use futures::FutureExt;

use super::run_loop::Agent;
use super::startup::fetch_status::Fetching;
use crate::policy::Decision;

/// Between two looks at how the fetching stands. Oftener shows nobody anything sooner, since the heartbeat is slower; less often
/// leaves what is over for longer in the status.
const FETCH_LOOK: Duration = Duration::from_secs(2);

impl Agent {
    /// What comes of it, or why it is given up; or the decision that ends the attempt meanwhile.
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
