//! The last answer of EC2 about prices, kept for some minutes.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Mutex;

use crate::app::{ExitCode, Fault};
use crate::job::MachineSpec;
use crate::market::{Span, Supply, elapsed};
use crate::wire::Workstation;

/// EC2 changes a spot price a few times a day. A shorter time asks it again for each changed bid.
const KEPT: Duration = Duration::from_secs(10 * 60);

/// A silent region must not hold a page.
const PATIENCE: Duration = Duration::from_secs(60);

/// The last answer of EC2, so that another bid asks nothing.
#[derive(Default)]
pub struct PriceMemory(Mutex<Option<RememberedSupply>>);

/// An answer of EC2, and when it was asked.
#[derive(Clone)]
pub struct RememberedSupply {
    machine: MachineSpec,
    window: Span,
    pub at: Timestamp,
    pub supply: Arc<Supply>,
}

impl PriceMemory {
    /// # Errors
    /// When EC2 fails to answer, or AWS is missing in this build.
    pub async fn supply(
        &self,
        workstation: &Workstation,
        machine: &MachineSpec,
        window: Span,
        now: Timestamp,
    ) -> Result<RememberedSupply, Fault> {
        let mut kept = self.0.lock().await;
        let is_same = |kept: &&RememberedSupply| {
            kept.machine == *machine && kept.window == window && elapsed(kept.at, now) < KEPT
        };
        if let Some(kept) = kept.as_ref().filter(is_same) {
            return Ok(kept.clone());
        }
        let asked = workstation.ec2_supply(machine, window);
        let supply = match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(supply)) => Arc::new(supply),
            Ok(Err(error)) => return Err(Fault::from_error(ExitCode::UNREACHABLE, &*error)),
            Err(_) => {
                let text = format!("EC2 did not answer within {} s", PATIENCE.as_secs());
                return Err(Fault::new(ExitCode::UNREACHABLE, text));
            }
        };
        let answer = RememberedSupply { machine: machine.clone(), window, at: now, supply };
        *kept = Some(answer.clone());
        Ok(answer)
    }
}
