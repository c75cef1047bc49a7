//! A request by signal reaches those who understand it and ends nobody else.

use lamp_test_support::skipped;
use lamplighter::ports::Signal;

use crate::workload::workload::{Bench, soon};

/// A trainer with a handler, its child that inherited the handler, behind a pipe into a program
/// without one.
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
    assert!(
        !bench.file("asked-child").exists(),
        "its child inherited the handler and is left alone"
    );
    assert_eq!(bench.alive().len(), before, "the shell and `tee` know no such signal and live");
    soon("the tree dies", workload.kill_tree()).await.expect("nothing is stuck");
}

#[tokio::test]
async fn workload_that_would_not_understand_is_not_asked_and_lives() {
    let bench = Bench::of_script("touch ready; while :; do sleep 0.01; done");
    let workload = bench.start().await;
    bench.until_file("ready").await;
    assert_eq!(workload.ask(Signal::Usr1).expect("it can be asked"), 0);
    assert!(!bench.alive().is_empty());
    soon("the tree dies", workload.kill_tree()).await.expect("nothing is stuck");
}

/// A trainer that leaves a file when it is asked. `SIGTERM` ends it, half a second later, with a
/// second file.
const TRAINER: &str = r#"
import os, signal, sys, time
name = os.environ.get("NAME", "trainer")
def save(*_):
    open("asked-" + name, "a").write("x")
def end(*_):
    open("told-" + name, "a").write("x")
    time.sleep(0.5)
    os.rename("told-" + name, "saved-" + name)
    sys.exit(0)
signal.signal(signal.SIGUSR1, save)
signal.signal(signal.SIGTERM, end)
open("ready-" + name, "w").close()
while True: time.sleep(0.01)
"#;

/// It has handlers of its own and passes nothing on.
const LAUNCHER: &str = r#"
import signal, subprocess, sys
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda *_: open("swallowed", "w").close())
sys.exit(subprocess.run(sys.argv[1:]).returncode)
"#;

fn bench(script: &str) -> Bench {
    let bench = Bench::of_script(script);
    std::fs::write(bench.file("train.py"), TRAINER).expect("written");
    std::fs::write(bench.file("launch.py"), LAUNCHER).expect("written");
    bench
}

#[tokio::test]
async fn trainer_is_asked_behind_a_launcher_that_swallows_the_signal() {
    let bench = bench("python3 launch.py python3 train.py; true");
    let workload = bench.start().await;
    bench.until_file("ready-trainer").await;
    assert_eq!(workload.ask(Signal::Usr1).expect("it can be asked"), 1);
    bench.until_file("asked-trainer").await;
    assert_eq!(workload.tell(Signal::Term).expect("it can be told"), 1);
    bench.until_file("saved-trainer").await;
    soon("the launcher ends with it", workload.ended()).await;
    assert!(!bench.file("swallowed").exists(), "the launcher was passed over both times");
}

#[tokio::test]
async fn node_js_is_passed_over_where_a_child_hears_the_signal() {
    let bench = bench("exec node wrap.js python3 train.py");
    let wrap = r#"require("child_process").spawn(process.argv[2], process.argv.slice(3), { stdio: "inherit" }).on("exit", (code) => process.exit(code))"#;
    std::fs::write(bench.file("wrap.js"), wrap).expect("written");
    if std::process::Command::new("node").arg("--version").output().is_err() {
        return;
    }
    let workload = bench.start().await;
    bench.until_file("ready-trainer").await;
    assert_eq!(workload.ask(Signal::Usr1).expect("it can be asked"), 1);
    bench.until_file("asked-trainer").await;
    soon("the tree dies", workload.kill_tree()).await.expect("nothing is stuck");
}

/// The wrappers that are on this machine: `npm` and `npx` come with Node.js, `uv` from PyPI.
#[tokio::test]
async fn trainer_is_asked_and_told_behind_wrappers_as_installed() {
    for (program, command) in [
        ("npm", "npm run --silent train"),
        ("npx", "npx --no-install -c 'python3 train.py'"),
        ("uv", "uv run --no-project --offline python3 train.py"),
    ] {
        let Some(found) = std::env::var_os("PATH").and_then(|path| {
            std::env::split_paths(&path).map(|folder| folder.join(program)).find(|at| at.is_file())
        }) else {
            skipped(program, "it is not installed");
            continue;
        };
        let bench = bench(&command.replacen(program, &found.display().to_string(), 1));
        let package =
            r#"{"name": "x", "version": "1.0.0", "scripts": {"train": "python3 train.py"}}"#;
        std::fs::write(bench.file("package.json"), package).expect("written");
        let workload = bench.start().await;
        bench.until_file("ready-trainer").await;
        assert_eq!(workload.ask(Signal::Usr1).expect("it can be asked"), 1, "{command}");
        bench.until_file("asked-trainer").await;
        assert!(workload.tell(Signal::Term).expect("it can be told") >= 1, "{command}");
        bench.until_file("saved-trainer").await;
        soon("the wrapper ends with it", workload.ended()).await;
    }
}

/// Rank 0 is the parent of rank 1; a save needs both. `CONTEXT`: how multiprocessing starts it.
const RANKS: &str = r#"
import os, signal, sys, time, multiprocessing
def rank(me, barrier):
    want = []
    signal.signal(signal.SIGUSR1, lambda *_: want.append(1))
    open("ready-%d" % me, "w").close()
    while True:
        time.sleep(0.01)
        if want:
            want.clear()
            barrier.wait()
            open(os.path.join(os.environ["LAMP_CHECKPOINT_DIR"], "saved-%d" % me), "w").close()
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    barrier = context.Barrier(2)
    context.Process(target=rank, args=(1, barrier), daemon=True).start()
    rank(0, barrier)
"#;

#[tokio::test]
async fn all_ranks_are_asked_however_they_were_started() {
    for (context, at_once) in [("spawn", 2), ("fork", 1)] {
        let mut bench = bench(&format!("exec python3 ranks.py {context}"));
        std::fs::write(bench.file("ranks.py"), RANKS).expect("written");
        std::fs::create_dir(bench.file("out")).expect("a folder");
        let out = bench.file("out").display().to_string();
        bench.launch.env.insert("LAMP_CHECKPOINT_DIR".into(), out);
        let workload = bench.start().await;
        bench.until_file("ready-0").await;
        bench.until_file("ready-1").await;
        assert_eq!(
            workload.ask(Signal::Usr1).expect("it can be asked"),
            at_once,
            "{context}: a fork may only load data, and is asked later"
        );
        bench.until_file("out/saved-0").await;
        bench.until_file("out/saved-1").await;
        soon("the tree dies", workload.kill_tree()).await.expect("nothing is stuck");
    }
}

/// A trainer whose data come from processes that die of SIGTERM; it saves when its next batch is
/// there.
const LOADERS: &str = r#"
import multiprocessing, os, signal, sys, time
want = False
def load(number):
    time.sleep(0.05)
    return number
def fresh():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
def ask(*_):
    global want; want = True
if __name__ == "__main__":
    pool = multiprocessing.get_context("spawn").Pool(2, initializer=fresh)
    signal.signal(signal.SIGTERM, ask)
    pool.map(load, range(2))
    open("ready", "w").close()
    while True:
        pool.map(load, range(2))
        if want:
            open("saved", "w").close()
            sys.exit(0)
"#;

#[tokio::test]
async fn those_that_load_data_live_until_the_trainer_has_saved() {
    let bench = bench("python3 loaders.py; touch after");
    std::fs::write(bench.file("loaders.py"), LOADERS).expect("written");
    let workload = bench.start().await;
    bench.until_file("ready").await;
    assert_eq!(workload.tell(Signal::Term).expect("it can be told"), 1);
    bench.until_file("saved").await;
    let ended = soon("the shell ends too", workload.ended()).await;
    assert_eq!(ended.exit.code, Some(0), "the trainer's own exit, and not its shell's");
    assert!(!bench.file("after").exists(), "what the script has after the trainer does not begin");
    soon("the tree dies", workload.kill_tree()).await.expect("nothing is stuck");
}

/// The last save counts as whole only if its writer was not killed.
#[tokio::test]
async fn exit_of_a_program_below_a_shell_is_its_own() {
    for (script, code, signal) in [
        ("python3 train.py; true", Some(0), None),
        ("python3 train.py | tee log", Some(0), None),
        ("bash -c 'python3 launch.py python3 train.py; true'; true", Some(0), None),
        ("sh -c 'trap \"\" INT; python3 killed.py; true'", None, Some(9)),
    ] {
        let bench = bench(script);
        let killed = TRAINER.replace("sys.exit(0)", "os.kill(os.getpid(), 9)");
        assert_ne!(killed, TRAINER);
        std::fs::write(bench.file("killed.py"), killed).expect("written");
        let workload = bench.start().await;
        bench.until_file("ready-trainer").await;
        assert_eq!(workload.tell(Signal::Term).expect("it can be told"), 1, "{script}");
        let ended = soon("the shell ends with it", workload.ended()).await;
        assert_eq!((ended.exit.code, ended.exit.signal), (code, signal), "{script}");
        soon("the tree dies", workload.kill_tree()).await.expect("nothing is stuck");
    }
}

#[tokio::test]
async fn one_that_is_within_its_save_is_not_told_again() {
    let bench = bench("exec python3 train.py");
    let workload = bench.start().await;
    bench.until_file("ready-trainer").await;
    assert_eq!(workload.tell(Signal::Term).expect("it can be told"), 1);
    bench.until_file("told-trainer").await;
    assert_eq!(workload.tell(Signal::Term).expect("it is told already"), 1);
    workload.tell_rest();
    bench.until_file("saved-trainer").await;
    soon("it ends", workload.ended()).await;
    assert_eq!(
        std::fs::read_to_string(bench.file("saved-trainer")).expect("there"),
        "x",
        "its handler ran once"
    );
}

#[tokio::test]
async fn tree_that_handles_nothing_ends_at_once() {
    let bench = bench("sleep 1000 & sleep 1000");
    let workload = bench.start().await;
    crate::workload::workload::until("the children are there", || bench.alive().len() >= 3).await;
    assert_eq!(workload.tell(Signal::Term).expect("it can be told"), 0);
    let ended = soon("it ends", workload.ended()).await;
    assert_eq!(ended.exit.signal, Some(15));
}
