//! `WatchdogSec` of the agent's unit: it ends an agent that is silent for too long.
//!
//! One task for each agent sleeps until the last sign of life would be too old. So the signs cost
//! nothing. The service manager starts the next agent as after any other death.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::process::SimProcess;
use crate::ports::Service;
use crate::sim::kernel::virtual_time::Timeline;

/// `WatchdogSec` in systemd/lamp-agent.service.
pub const WATCHDOG: Duration = Duration::from_secs(30);

/// The service manager, as the agent sees it.
pub struct Watchdog {
    timeline: Arc<Timeline>,
    agent: Arc<SimProcess>,
    /// When the agent last gave a sign of life, nanoseconds.
    said: AtomicU64,
}

impl Watchdog {
    /// For an agent that begins now.
    pub fn new(timeline: &Arc<Timeline>, agent: &Arc<SimProcess>) -> Arc<Self> {
        let watchdog = Watchdog {
            timeline: Arc::clone(timeline),
            agent: Arc::clone(agent),
            said: AtomicU64::default(),
        };
        watchdog.hear();
        Arc::new(watchdog)
    }

    fn hear(&self) {
        self.said.store(
            u64::try_from(self.timeline.now().as_nanos()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }

    /// Waits until the agent is dead; true if its silence was the reason. A frozen kernel does not
    /// watch.
    pub async fn watch(&self, kernel: &SimProcess) -> bool {
        while !self.agent.is_dead() {
            let due = Duration::from_nanos(self.said.load(Ordering::Relaxed)) + WATCHDOG;
            let now = self.timeline.now();
            if now >= due {
                self.agent.kill();
                return true;
            }
            self.timeline.sleep(due - now).await;
            if !kernel.is_running() {
                kernel.running().await;
                self.hear();
            }
        }
        false
    }
}

impl Service for Watchdog {
    fn ready(&self) {}
    fn alive(&self) {
        if self.agent.is_running() {
            self.hear();
        }
    }
    fn status(&self, _: &str) {}
    fn stopping(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::in_virtual_time;

    /// When the watchdog ends an agent that gives a sign each second, and then is silent or frozen.
    fn ends(speaks_secs: u64, frozen_at: Option<u64>) -> Duration {
        in_virtual_time(async |timeline: Arc<Timeline>| {
            let (kernel, agent) = (SimProcess::new(None), SimProcess::new(None));
            let watchdog = Watchdog::new(&timeline, &agent);
            let speaks = async {
                for second in 0..speaks_secs {
                    watchdog.alive();
                    if frozen_at == Some(second) {
                        agent.freeze(true);
                    }
                    timeline.sleep(Duration::from_secs(1)).await;
                }
            };
            let watches = async {
                assert!(watchdog.watch(&kernel).await && agent.is_dead());
                timeline.now()
            };
            tokio::join!(speaks, watches).1
        })
    }

    #[test]
    fn watchdog_ends_an_agent_that_is_silent_for_thirty_seconds() {
        assert_eq!(ends(0, None), WATCHDOG);
        assert_eq!(ends(500, None), Duration::from_secs(499) + WATCHDOG);
        assert_eq!(
            ends(500, Some(100)),
            Duration::from_secs(100) + WATCHDOG,
            "a word of one that is frozen does not count"
        );
    }

    #[test]
    fn watchdog_of_a_frozen_kernel_does_nothing() {
        in_virtual_time(async |timeline: Arc<Timeline>| {
            let kernel = SimProcess::new(None);
            let agent = SimProcess::new(Some(Arc::clone(&kernel)));
            let watchdog = Watchdog::new(&timeline, &agent);
            kernel.freeze(true);
            let stands = async {
                timeline.sleep(Duration::from_secs(300)).await;
                kernel.freeze(false);
            };
            let watches = async {
                assert!(watchdog.watch(&kernel).await);
                timeline.now()
            };
            assert_eq!(tokio::join!(stands, watches).1, Duration::from_secs(300) + WATCHDOG);
        });
    }
}
