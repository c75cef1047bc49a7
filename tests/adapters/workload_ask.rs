//! A request by signal reaches those who understand it and ends nobody else.

use lamplighter::ports::Signal;

use crate::workload::{Bench, soon};

/// A trainer with a handler, its child that inherited the handler, behind a pipe into a program without one.
const PIPELINE: &str = r#"python3 -c '
import os, signal, time
def answer(*_):
    open("asked-%s" % ("trainer" if os.getpid() == trainer else "child"), "w").close()
trainer = os.getpid()
signal.signal(signal.SIGUSR1, answer)
if os.fork() == 0:
    while True: time.sleep(0.01)
open("ready", "w").close()
while True: time.sleep(0.01)
' | tee copy"#;

#[tokio::test]
async fn only_the_topmost_process_with_a_handler_is_asked() {
    let bench = Bench::of_script(PIPELINE);
    let workload = bench.start().await;
    bench.until_file("ready").await;
    let before = bench.alive().len();
    assert_eq!(workload.ask(Signal::Usr1).expect("it can be asked"), 1);
    bench.until_file("asked-trainer").await;
    assert!(!bench.file("asked-child").exists(), "its child inherited the handler and is left alone");
    assert_eq!(bench.alive().len(), before, "the shell and `tee` know no such signal and live");
    soon("the tree dies", workload.kill_tree()).await.expect("nothing is stuck");
}

#[tokio::test]
async fn a_workload_that_would_not_understand_is_not_asked_and_lives() {
    let bench = Bench::of_script("touch ready; while :; do sleep 0.01; done");
    let workload = bench.start().await;
    bench.until_file("ready").await;
    assert_eq!(workload.ask(Signal::Usr1).expect("it can be asked"), 0);
    assert!(!bench.alive().is_empty());
    soon("the tree dies", workload.kill_tree()).await.expect("nothing is stuck");
}
