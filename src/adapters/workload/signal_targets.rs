//! Selects the processes of a workload that are asked to save, or told to end first: one rule for
//! all trees.
//!
//! A process must handle the signal. Left out are torch's data loaders, forks of a selected
//! process, runtimes that catch signals on their own, and launchers of a selected process.
//!
//! This is pure: `signal_request` reads the processes.

use std::collections::HashMap;
use std::path::Path;

/// The facts about one process that the rule needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TreeProcess {
    pub pid: u32,
    pub parent: u32,
    /// It was forked and has not executed a program since, so its handlers may be its parent's.
    pub is_forked: bool,
    /// It has a handler for the signal.
    pub catches: bool,
    /// Its runtime (Go) catches nearly every signal, even if the program does not want it.
    pub catches_all: bool,
    /// A data loader of torch, with handlers that end it.
    pub is_data_worker: bool,
    /// The path of its program.
    pub exe: String,
    pub argv: Vec<String>,
    /// It has the progress file, or a file of the checkpoint folder, open for writing.
    pub writes: bool,
}

/// The purpose of the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To save and continue: SIGUSR1, SIGUSR2. A process with a handler survives it.
    Save,
    /// To end, perhaps with a save: SIGTERM, SIGHUP.
    End,
    /// The same with SIGINT, which every Python process handles.
    Interrupt,
}

/// Process ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignalTargets {
    pub asked: Vec<u32>,
    /// Forks of asked processes. They may be data loaders with an inherited handler, or ranks,
    /// without which a joint save waits for ever. They are asked if the others have not begun to
    /// save.
    pub copies: Vec<u32>,
    /// Shells above processes that are told to end: the rest of their scripts must not run.
    pub shells: Vec<u32>,
}

/// By program name. A shell that traps a signal passes it on, or does something else afterwards.
const SHELLS: [&str; 10] =
    ["sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "busybox", "rbash"];
/// Runtimes that catch SIGUSR1 or SIGUSR2 for a debugger or a garbage collector.
const RUNTIMES: [&str; 5] = ["node", "nodejs", "deno", "bun", "java"];
/// Programs that run a script.
const INTERPRETERS: [&str; 9] =
    ["python", "pypy", "perl", "ruby", "node", "julia", "Rscript", "R", "bash"];
/// Options of Python that take the next word.
const TAKE_A_WORD: [&str; 2] = ["-X", "-W"];
/// How Python starts a child process for a function of the same program.
const OWN_CHILDREN: [&str; 3] = ["from multiprocessing", "--multiprocessing-fork", "popen_loky"];

impl TreeProcess {
    fn program(&self) -> &str {
        base(&self.exe)
    }

    fn hears(&self) -> bool {
        self.catches && !self.is_data_worker
    }

    fn is_shell(&self) -> bool {
        SHELLS.contains(&self.program())
    }

    /// Its runtime may handle the signal instead of the program.
    fn hears_by_itself(&self) -> bool {
        self.catches_all || RUNTIMES.contains(&self.program())
    }

    /// The script or module that it runs, or the program itself.
    fn script(&self) -> &str {
        let program = self.program();
        let is_interpreter =
            INTERPRETERS.iter().any(|known| program.starts_with(known)) || self.is_shell();
        let mut words = self.argv.iter().skip(1);
        while let Some(word) = words.next().filter(|_| is_interpreter) {
            if TAKE_A_WORD.contains(&word.as_str()) {
                words.next();
            } else if !word.starts_with('-') {
                return base(word);
            }
        }
        self.argv.first().map_or(program, |first| base(first))
    }

    fn names(&self, other: &TreeProcess) -> bool {
        let wanted = other.script();
        self.argv.iter().skip(1).any(|word| base(word) == wanted)
    }

    /// Whether it runs the same program as the process above it, such as another rank or worker.
    fn is_peer_of(&self, above: &TreeProcess) -> bool {
        let is_own_child =
            || self.argv.iter().any(|word| OWN_CHILDREN.iter().any(|mark| word.contains(mark)));
        self.exe == above.exe
            && (self.is_forked || self.script() == above.script() || is_own_child())
    }
}

fn base(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path)
}

/// `processes`: a tree, parents before their children.
pub fn whom(processes: &[TreeProcess], purpose: Purpose) -> SignalTargets {
    let by_pid: HashMap<u32, &TreeProcess> =
        processes.iter().map(|process| (process.pid, process)).collect();
    let above = |process: &TreeProcess| ancestors(&by_pid, process.parent);
    let is_copy = |process: &TreeProcess| {
        process.is_forked && by_pid.get(&process.parent).is_some_and(|parent| parent.hears())
    };
    let mut heard: Vec<&TreeProcess> =
        processes.iter().filter(|process| process.hears() && !is_copy(process)).collect();
    if heard.iter().any(|process| !process.hears_by_itself()) {
        heard.retain(|process| !process.hears_by_itself());
    }
    let is_below =
        |low: &TreeProcess, high: &TreeProcess| above(low).any(|process| process.pid == high.pid);
    let is_launcher = |process: &TreeProcess| {
        heard
            .iter()
            .filter(|low| is_below(low, process) && !low.is_peer_of(process))
            .any(|low| process.is_shell() || process.names(low) || low.writes && !process.writes)
    };
    let kept: Vec<&TreeProcess> =
        heard.iter().copied().filter(|process| !is_launcher(process)).collect();
    // A child of a trainer (TensorBoard, a log sender, a pool) ends with the trainer, not before
    // it.
    let is_helper = |process: &TreeProcess| {
        kept.iter().any(|high| {
            is_below(process, high)
                && (purpose == Purpose::Interrupt || !process.is_peer_of(high))
                && !process.writes
        })
    };
    let asked: Vec<u32> = kept
        .iter()
        .filter(|process| purpose == Purpose::Save || !is_helper(process))
        .map(|process| process.pid)
        .collect();
    let is_asked = |pid: u32| asked.contains(&pid);
    let copies = processes
        .iter()
        .filter(|process| purpose == Purpose::Save && process.hears() && is_copy(process))
        .map(|process| process.pid);
    let shells = processes.iter().filter(|process| {
        purpose != Purpose::Save
            && process.is_shell()
            && !is_asked(process.pid)
            && processes.iter().any(|low| is_asked(low.pid) && is_below(low, process))
    });
    SignalTargets {
        copies: copies.collect(),
        shells: shells.map(|process| process.pid).collect(),
        asked,
    }
}

/// The processes above it, the nearest first. A listing made while processes came and went may have
/// a circle; this does not loop for ever.
fn ancestors<'a>(
    by_pid: &'a HashMap<u32, &'a TreeProcess>,
    from: u32,
) -> impl Iterator<Item = &'a TreeProcess> {
    std::iter::successors(by_pid.get(&from).copied(), |process| {
        by_pid.get(&process.parent).copied()
    })
    .take(by_pid.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PYTHON: &str = "/usr/bin/python3.11";

    /// A process that hears the signal; `text` is its command.
    fn hears(pid: u32, parent: u32, exe: &str, text: &str) -> TreeProcess {
        TreeProcess { catches: true, ..deaf(pid, parent, exe, text) }
    }

    fn deaf(pid: u32, parent: u32, exe: &str, text: &str) -> TreeProcess {
        TreeProcess {
            pid,
            parent,
            exe: exe.into(),
            argv: text.split(' ').map(str::to_owned).collect(),
            ..TreeProcess::default()
        }
    }

    fn asked(tree: &[TreeProcess], purpose: Purpose) -> Vec<u32> {
        whom(tree, purpose).asked
    }

    #[test]
    fn launchers_of_all_kinds_are_passed_over() {
        for (what, launcher) in [
            ("uv passes it on", hears(1, 0, "/usr/bin/uv", "uv run python train.py")),
            (
                "a script of Python swallows it",
                hears(1, 0, PYTHON, "python3 wrap.py python3 train.py"),
            ),
            ("node hears it for its debugger", hears(1, 0, "/usr/bin/node", "npm run train")),
            ("a shell traps it", hears(1, 0, "/usr/bin/bash", "bash job.sh")),
            (
                "torchrun ends its ranks",
                hears(1, 0, PYTHON, "python3 /venv/bin/torchrun --nproc-per-node 2 train.py"),
            ),
            (
                "Go hears everything",
                TreeProcess { catches_all: true, ..hears(1, 0, "/usr/bin/run", "run x") },
            ),
            (
                "it hears nothing",
                deaf(1, 0, PYTHON, "python3 /venv/bin/accelerate launch train.py"),
            ),
        ] {
            let tree = [
                launcher,
                deaf(2, 1, "/usr/bin/dash", "sh -c python"),
                hears(3, 2, PYTHON, "/usr/bin/python3 -u train.py --lr 1"),
            ];
            for purpose in [Purpose::Save, Purpose::End, Purpose::Interrupt] {
                assert_eq!(asked(&tree, purpose), [3], "{what}, {purpose:?}");
            }
        }
    }

    #[test]
    fn launcher_without_a_handler_below_it_is_the_one_to_ask() {
        let tree =
            [hears(1, 0, "/usr/bin/uv", "uv run train.py"), deaf(2, 1, PYTHON, "python train.py")];
        assert_eq!(asked(&tree, Purpose::End), [1], "it passes the signal on, or ends its child");
        assert_eq!(
            asked(&[hears(1, 0, "/usr/bin/node", "node train.js")], Purpose::Save),
            [1],
            "node may be the trainer"
        );
        assert_eq!(
            asked(&[deaf(1, 0, PYTHON, "python train.py")], Purpose::Save),
            Vec::<u32>::new()
        );
    }

    #[test]
    fn all_ranks_are_asked_wherever_they_stand() {
        let own = "python -c spawn_main --multiprocessing-fork";
        for (what, child) in [
            ("multiprocessing", own),
            ("the same script again", "/usr/bin/python3 /work/train.py --lr 1"),
        ] {
            let tree = [
                hears(1, 0, PYTHON, "python train.py --lr 1"),
                hears(2, 1, PYTHON, child),
                hears(3, 1, PYTHON, child),
            ];
            assert_eq!(asked(&tree, Purpose::Save), [1, 2, 3], "{what}");
            assert_eq!(asked(&tree, Purpose::End), [1, 2, 3], "{what}");
            assert_eq!(asked(&tree, Purpose::Interrupt), [1], "{what}: every Python hears SIGINT");
        }
        let fork =
            |pid| TreeProcess { is_forked: true, ..hears(pid, 1, PYTHON, "python train.py") };
        let tree = [hears(1, 0, PYTHON, "python train.py"), fork(2), fork(3)];
        let found = whom(&tree, Purpose::Save);
        assert_eq!(
            (found.asked, found.copies),
            (vec![1], vec![2, 3]),
            "forks may be ranks or load data"
        );
        let tree = [deaf(1, 0, PYTHON, "python train.py"), fork(2), fork(3)];
        assert_eq!(asked(&tree, Purpose::Save), [2, 3], "their parent only waits for them");
    }

    #[test]
    fn helpers_are_not_taken_for_trainers() {
        let loader = |pid| TreeProcess {
            is_data_worker: true,
            is_forked: true,
            ..hears(pid, 1, PYTHON, "python train.py")
        };
        let trainer = hears(1, 0, PYTHON, "python train.py data.mp4");
        let helpers = [
            TreeProcess {
                catches_all: true,
                ..hears(4, 1, "/venv/bin/wandb-core", "wandb-core --port")
            },
            hears(5, 1, PYTHON, "python /venv/bin/tensorboard --logdir out"),
            hears(6, 1, "/usr/bin/ffmpeg", "ffmpeg -i data.mp4"),
        ];
        let tree: Vec<TreeProcess> =
            [trainer, loader(2), loader(3)].into_iter().chain(helpers).collect();
        assert_eq!(asked(&tree, Purpose::End), [1]);
        assert_eq!(
            whom(&tree, Purpose::Save).copies,
            Vec::<u32>::new(),
            "torch's workers are never asked"
        );
        let deaf_trainer: Vec<TreeProcess> =
            [deaf(1, 0, PYTHON, "python train.py"), loader(2)].into();
        assert_eq!(asked(&deaf_trainer, Purpose::End), Vec::<u32>::new());
    }

    #[test]
    fn who_writes_the_checkpoints_is_the_trainer() {
        let trainer = TreeProcess { writes: true, ..hears(2, 1, PYTHON, "python train.py") };
        let tree = [hears(1, 0, PYTHON, "python hidden.py"), trainer];
        assert_eq!(asked(&tree, Purpose::End), [2]);
        assert_eq!(asked(&tree, Purpose::Save), [2]);
    }

    #[test]
    fn shells_above_those_that_end_are_known() {
        let tree = [
            deaf(1, 0, "/usr/bin/bash", "bash job.sh"),
            hears(2, 1, PYTHON, "python train.py"),
            deaf(3, 1, "/usr/bin/tee", "tee log"),
            deaf(4, 1, "/usr/bin/bash", "bash beside.sh"),
        ];
        assert_eq!(
            whom(&tree, Purpose::End),
            SignalTargets { asked: vec![2], copies: vec![], shells: vec![1] }
        );
        assert_eq!(whom(&tree, Purpose::Save).shells, Vec::<u32>::new());
    }
}
