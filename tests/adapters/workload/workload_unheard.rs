//! A start of which nothing was heard: its agent was killed between asking for a holder and hearing
//! of it.

use std::fs::{self, File};
use std::process::{Child, Command};

use lamplighter::ports::Workloads;
use rustix::fs::{FlockOperation, flock};

use crate::workload::workload::{Bench, soon};

struct Stray(Child);

impl Drop for Stray {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The agent has written what to start, and died.
fn asked_for() -> Bench {
    let bench = Bench::of_script("touch ran");
    fs::create_dir_all(bench.dir()).expect("a folder");
    fs::write(bench.dir().join("launch.json"), serde_json::to_vec(&bench.launch).expect("json"))
        .expect("written");
    bench
}

#[tokio::test]
async fn holder_that_lives_and_says_nothing_is_not_none() {
    let bench = asked_for();
    let lock = File::create(bench.dir().join("lock")).expect("a file");
    flock(&lock, FlockOperation::NonBlockingLockExclusive).expect("nobody else has it");
    let error = bench.workloads().attach(bench.dir()).await.err().expect("nobody can tell");
    assert!(!error.is_final(), "{error:?}");
    assert!(bench.dir().join("launch.json").exists(), "it may still start");
}

#[tokio::test]
async fn what_was_given_up_never_starts() {
    let bench = asked_for();
    assert!(bench.workloads().attach(bench.dir()).await.expect("nobody holds it").is_none());
    let mut late = Command::new(&bench.program.exe);
    late.arg("holder").arg(bench.dir());
    let late = soon("it gives up", tokio::process::Command::from(late).output())
        .await
        .expect("this program runs");
    assert_eq!(late.status.code(), Some(70), "{late:?}");
    assert!(!bench.file("ran").exists());
}

#[tokio::test]
async fn workload_whose_holder_died_unheard_is_ended_first() {
    let bench = asked_for();
    let mark = fs::canonicalize(bench.dir()).expect("it is there");
    let mut stray = Stray(
        Command::new("/bin/sleep")
            .arg("1000")
            .env("LAMP_WORKLOAD", &mark)
            .spawn()
            .expect("it runs"),
    );
    let error = bench.workloads().attach(bench.dir()).await.err().expect("it is still there");
    assert!(!error.is_final(), "{error:?}");
    let ended = soon("the stray is killed", async {
        loop {
            if let Some(ended) = stray.0.try_wait().expect("it is ours") {
                return ended;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(!ended.success());
    assert!(bench.workloads().attach(bench.dir()).await.expect("it is gone").is_none());
}
