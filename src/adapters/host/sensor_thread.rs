//! Runs the sensors on their own thread, so that a hanging driver blocks only that thread.
//!
//! ```text
//!   agent: sample(scope) --scope--> thread: Sensors::sample --Sample--> agent
//!            `-- after the timeout: None, then None at once until the thread is back
//! ```
//! A driver call can block for seconds or for ever, and cannot be cancelled. The agent continues
//! with *unknown*, which never counts as idle. Not here: what the sensors read.

use std::sync::mpsc as sync;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::instance::Sample;
use crate::ports::{Scope, SensorFeed, Sensors};

/// NVIDIA's library runs its initialisers on this stack, some ten KiB. Too small ends the process;
/// the default of 2 MiB only reserves addresses.
const STACK_BYTES: usize = 512 * 1024;

/// How long the agent waits for a sample. A busy machine needs far less, and the agent still keeps
/// its other times (it polls notices every second).
pub const PATIENCE: Duration = Duration::from_millis(800);

pub struct SensorThread {
    requests: sync::SyncSender<Scope>,
    replies: mpsc::Receiver<Sample>,
    patience: Duration,
    /// A request was given up and its reply is still to come.
    overdue: bool,
}

impl SensorThread {
    /// # Errors
    /// When no thread can be made.
    pub fn start(sensors: Box<dyn Sensors>, patience: Duration) -> std::io::Result<SensorThread> {
        let (requests, scopes) = sync::sync_channel(1);
        let (samples, replies) = mpsc::channel(1);
        std::thread::Builder::new()
            .name("sensors".into())
            .stack_size(STACK_BYTES)
            .spawn(move || serve(sensors, &scopes, &samples))?;
        Ok(SensorThread { requests, replies, patience, overdue: false })
    }
}

#[async_trait]
impl SensorFeed for SensorThread {
    /// A sample, or `None` if the sensors did not answer in time.
    ///
    /// Cancel-safe: the next call never takes an old sample for a new one.
    async fn sample(&mut self, scope: &Scope) -> Option<Sample> {
        if self.overdue {
            // A late sample is outdated; it only shows that the thread is back.
            self.replies.try_recv().ok()?;
            tracing::info!("the sensors are back");
        }
        if self.requests.try_send(scope.clone()).is_err() {
            return None;
        }
        self.overdue = true;
        match timeout(self.patience, self.replies.recv()).await {
            Ok(sample) => {
                self.overdue = false;
                sample
            }
            Err(_) => {
                tracing::warn!(
                    "the sensors do not answer; until they do, use is unknown and no job counts as idle"
                );
                None
            }
        }
    }
}

/// Ends when the other side is gone.
fn serve(
    mut sensors: Box<dyn Sensors>,
    scopes: &sync::Receiver<Scope>,
    samples: &mpsc::Sender<Sample>,
) {
    while let Ok(scope) = scopes.recv() {
        if samples.blocking_send(sensors.sample(&scope)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::{Marks, Reading};

    /// Answers on request; counts its samples in `cores`.
    struct SlowSensors {
        go: sync::Receiver<()>,
        count: u32,
    }

    impl Sensors for SlowSensors {
        fn sample(&mut self, _: &Scope) -> Sample {
            let _ = self.go.recv();
            self.count += 1;
            Sample {
                at: jiff::Timestamp::UNIX_EPOCH,
                mono: Duration::ZERO,
                gpus: Reading::Absent,
                cuda: Reading::Absent,
                tree_cpu: Reading::Absent,
                machine_cpu: Reading::Absent,
                cores: self.count,
                tree_memory_bytes: Reading::Absent,
                machine_memory_bytes: Reading::Absent,
                tree_disk: Reading::Absent,
                network: Reading::Absent,
                disk_free_bytes: Reading::Absent,
                tree_processes: Reading::Absent,
                typing: Reading::Absent,
                marks: Marks::default(),
            }
        }
    }

    fn slow(patience: Duration) -> (SensorThread, sync::Sender<()>) {
        let (go, told) = sync::channel();
        (
            SensorThread::start(Box::new(SlowSensors { go: told, count: 0 }), patience)
                .expect("a thread can be made"),
            go,
        )
    }

    #[tokio::test]
    async fn sample_comes_when_the_sensors_answer() {
        let (mut thread, go) = slow(Duration::from_secs(60));
        go.send(()).expect("the thread is there");
        assert_eq!(thread.sample(&Scope::default()).await.expect("in time").cores, 1);
    }

    #[tokio::test]
    async fn hanging_sensor_gives_nothing_and_its_late_answer_is_dropped() {
        let (mut thread, go) = slow(Duration::from_millis(20));
        let scope = Scope::default();
        assert!(thread.sample(&scope).await.is_none());
        assert!(thread.sample(&scope).await.is_none(), "it still hangs");
        go.send(()).expect("the thread is there");
        go.send(()).expect("the thread is there");
        thread.patience = Duration::from_secs(60);
        let sample = loop {
            match thread.sample(&scope).await {
                Some(sample) => break sample,
                None => tokio::task::yield_now().await,
            }
        };
        assert_eq!(sample.cores, 2, "the first answer was of the past");
    }

    #[tokio::test]
    async fn sensors_that_died_give_nothing() {
        let (mut thread, _go) = slow(Duration::from_secs(60));
        (thread.requests, _) = sync::sync_channel(1);
        assert!(thread.sample(&Scope::default()).await.is_none());
    }
}
