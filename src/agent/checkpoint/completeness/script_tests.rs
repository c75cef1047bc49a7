//! Scripts like the ones of users, and what is kept of their folders.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::folder_diff::FolderListing;
use super::folder_watch::FolderWatch;
use super::workload_signals::{EarlierSigns, WorkloadSigns};
use crate::job::ExitStatus;
use crate::ports::{FileStamp, TreeFile};

/// A folder that a script writes to, and the agent's looks at it once a second.
pub(super) struct Script {
    pub(super) files: BTreeMap<String, (i64, u64, u64)>,
    pub(super) open: BTreeSet<String>,
    pub(super) watch: FolderWatch,
    pub(super) now: u64,
    /// Whether the kernel tells which files are open.
    is_open_known: bool,
    pub(super) signs: WorkloadSigns,
    clock: i64,
}

impl Script {
    pub(super) fn new(is_open_known: bool) -> Self {
        let watch = FolderWatch::new(
            FolderListing::default(),
            EarlierSigns { marks: Some(false), ..EarlierSigns::default() },
        );
        let mut script = Script {
            files: BTreeMap::new(),
            open: BTreeSet::new(),
            watch,
            now: 0,
            is_open_known,
            signs: WorkloadSigns::default(),
            clock: 0,
        };
        script.wait(1);
        script
    }

    pub(super) fn write(&mut self, path: &str) {
        self.clock += 1;
        let inode = self.files.get(path).map_or(self.clock.unsigned_abs(), |(_, inode, _)| *inode);
        self.files.insert(path.into(), (self.clock, inode, 9));
    }

    pub(super) fn write_bytes(&mut self, path: &str, bytes: u64) {
        self.write(path);
        self.files.get_mut(path).expect("it was just written").2 = bytes;
    }

    pub(super) fn append(&mut self, path: &str) {
        self.clock += 1;
        let (_, inode, bytes) =
            self.files.get(path).copied().unwrap_or((0, self.clock.unsigned_abs(), 0));
        self.files.insert(path.into(), (self.clock, inode, bytes + 5));
    }

    pub(super) fn remove(&mut self, folder: &str) {
        self.files.retain(|path, _| !path.starts_with(folder));
    }

    fn picture(&self) -> FolderListing {
        let file = |(path, (modified_nanos, inode, bytes)): (&String, &(i64, u64, u64))| TreeFile {
            path: path.clone(),
            stamp: FileStamp {
                bytes: *bytes,
                modified_nanos: *modified_nanos,
                inode: *inode,
                mode: 0o644,
            },
        };
        Arc::new(self.files.iter().map(file).collect())
    }

    pub(super) fn wait(&mut self, secs: u64) {
        for _ in 0..secs {
            self.now += 1;
            let open = self.is_open_known.then_some(&self.open);
            self.watch.observe_open(
                self.picture(),
                Duration::from_secs(self.now),
                self.signs,
                open,
            );
        }
    }

    pub(super) fn train(&mut self, secs: u64) {
        for _ in 0..secs {
            self.signs.any_step = Some(self.signs.any_step.unwrap_or(0.0) + 1.0);
            self.wait(1);
        }
    }

    /// A signal ends it, and the agent looks.
    pub(super) fn dies(&mut self, exit: ExitStatus) {
        let at = Duration::from_secs(self.now);
        let killed = (!exit.is_in_order()).then_some(at);
        self.signs = WorkloadSigns { ended: Some((exit, at)), killed, ..self.signs };
        self.wait(1);
    }

    /// Returns and keeps the complete files.
    pub(super) fn kept(&mut self) -> Vec<String> {
        self.complete(false)
    }

    /// The same while a caller waits for it.
    pub(super) fn kept_as_asked(&mut self) -> Vec<String> {
        self.complete(true)
    }

    fn complete(&mut self, is_asked: bool) -> Vec<String> {
        let now = Duration::from_secs(self.now);
        let Some(ripe) = self.watch.complete(now, true, is_asked) else {
            return Vec::new();
        };
        self.watch.keep(Arc::clone(&ripe.picture));
        ripe.picture.iter().map(|file| file.path.clone()).collect()
    }

    fn hugging_face(&mut self, step: u32, pause: u64) {
        self.write(&format!("checkpoint-{step}/model.safetensors"));
        self.wait(pause);
        for name in ["optimizer.pt", "scheduler.pt", "trainer_state.json"] {
            self.write(&format!("checkpoint-{step}/{name}"));
        }
    }
}

pub(super) fn has(files: &[String], folder: &str) -> bool {
    files.iter().any(|path| path.starts_with(folder))
}

#[test]
fn save_with_pause_needs_names_of_previous_save() {
    for is_open_known in [false, true] {
        let mut script = Script::new(is_open_known);
        script.train(5);
        script.hugging_face(25, 4);
        script.wait(1);
        assert_eq!(script.kept(), Vec::<String>::new());
        script.train(4);
        assert!(has(&script.kept(), "checkpoint-25/trainer_state.json"), "the training goes on");
        script.train(6);
        script.write("checkpoint-50/model.safetensors");
        for _ in 0..4 {
            script.wait(1);
            assert!(!has(&script.kept(), "checkpoint-50"), "half of it");
        }
        script.hugging_face(50, 0);
        script.wait(3);
        let kept = script.kept();
        assert!(
            has(&kept, "checkpoint-50/trainer_state.json") && has(&kept, "checkpoint-25"),
            "{kept:?}"
        );
    }
}

#[test]
fn frequent_save_is_kept_if_open_files_are_known() {
    let mut script = Script::new(true);
    let mut kept = Vec::new();
    for save in 1..=10 {
        script.hugging_face(save * 50, 0);
        script.remove(&format!("checkpoint-{}/", save.saturating_sub(2) * 50));
        for _ in 0..2 {
            script.train(1);
            kept.extend(
                script.kept().into_iter().filter(|path| path.ends_with("trainer_state.json")),
            );
        }
    }
    assert!(kept.contains(&"checkpoint-500/trainer_state.json".into()), "{kept:?}");
    assert!(kept.contains(&"checkpoint-400/trainer_state.json".into()), "{kept:?}");
}

#[test]
fn open_file_delays_its_checkpoint() {
    let mut script = Script::new(true);
    script.hugging_face(25, 0);
    script.open.insert("checkpoint-25/model.safetensors".into());
    script.wait(100);
    assert_eq!(script.kept(), Vec::<String>::new());
    script.open.clear();
    script.wait(1);
    assert!(has(&script.kept(), "checkpoint-25/"));
}

#[test]
fn pair_in_place_is_kept_whole_or_not_at_all() {
    for is_open_known in [false, true] {
        let mut script = Script::new(is_open_known);
        for save in 0..4 {
            script.write("model.pt");
            script.wait(4);
            assert!(save < 1 || script.kept().is_empty(), "the optimizer is still to come");
            script.write("optimizer.pt");
            script.train(5);
            let kept = script.kept();
            assert!(save == 0 || kept.len() == 2, "{save}: {kept:?}");
        }
    }
}

#[test]
fn restless_file_is_kept_if_open_files_are_known() {
    let mut script = Script::new(true);
    let mut kept = 0;
    for _ in 0..10 {
        script.write("checkpoint.joblib");
        script.train(1);
        kept += script.kept().len();
    }
    assert!(kept >= 5, "{kept}");
}

#[test]
fn run_folder_with_logs_keeps_the_checkpoints_inside_it() {
    for is_open_known in [false, true] {
        let mut script = Script::new(is_open_known);
        script.write("version_0/hparams.yaml");
        let mut kept = Vec::new();
        for epoch in 0..5 {
            for _ in 0..6 {
                script.append("version_0/events.out.tfevents.17.host.1.0");
                script.append("version_0/metrics.csv");
                script.train(1);
                kept.extend(script.kept());
            }
            script.write(&format!(
                "version_0/checkpoints/epoch={epoch}-step={}.ckpt",
                (epoch + 1) * 20
            ));
        }
        script.train(3);
        kept.extend(script.kept());
        for epoch in [1, 2, 4] {
            let name =
                format!("version_0/checkpoints/epoch={epoch}-step={}.ckpt", (epoch + 1) * 20);
            assert!(kept.contains(&name), "{name} {is_open_known}: {kept:?}");
        }
        assert!(has(&kept, "version_0/hparams.yaml") && has(&kept, "version_0/metrics.csv"));
    }
}

#[test]
fn pointer_is_kept_beside_a_log_of_any_name() {
    let mut script = Script::new(false);
    let mut kept = Vec::new();
    for save in 1..=6 {
        for _ in 0..10 {
            script.append("metrics.json");
            script.train(1);
            let now = script.kept();
            if !now.is_empty() {
                kept = now;
            }
        }
        script.write(&format!("model_{save:07}.pth"));
        script.write("last_checkpoint");
    }
    assert!(
        kept.contains(&"last_checkpoint".into()) && kept.contains(&"model_0000005.pth".into()),
        "{kept:?}"
    );
}

#[test]
fn staggered_shards_are_not_logs() {
    let mut script = Script::new(true);
    for save in 1..=4 {
        for second in 0..12 {
            for rank in (0..6).filter(|rank| second > *rank) {
                let name = format!("global_step{save}/zero_rank_{rank}.pt");
                if rank == 0 || second < 9 {
                    script.append(&name);
                    script.open.insert(name);
                } else {
                    script.open.remove(&name);
                }
            }
            script.wait(1);
            assert!(
                !has(&script.kept(), &format!("global_step{save}/")),
                "{save}: rank 0 is being written"
            );
        }
        script.open.clear();
        script.train(12);
        assert!(has(&script.kept(), &format!("global_step{save}/")), "{save}");
    }
}

#[test]
fn open_database_does_not_delay_saves() {
    let mut script = Script::new(true);
    script.open.insert("metrics.db".into());
    let mut kept = Vec::new();
    for _ in 0..5 {
        for _ in 0..10 {
            script.write("metrics.db");
            script.train(1);
            kept = Some(script.kept()).filter(|kept| !kept.is_empty()).unwrap_or(kept);
        }
        script.write("model.pt");
        script.write("optimizer.pt");
    }
    assert!(has(&kept, "optimizer.pt") && has(&kept, "model.pt"), "{kept:?}");
}

/// The first save rests in its middle for longer than a first save must. The second is compared
/// with all of it.
#[test]
fn first_save_that_rested_in_its_middle_teaches_all_its_names() {
    let mut script = Script::new(true);
    for step in [25, 50] {
        for name in ["config.json", "model.safetensors"] {
            script.write(&format!("checkpoint-{step}/{name}"));
        }
        for second in 0..20 {
            script.train(1);
            let kept = script.kept();
            assert!(step == 25 || !has(&kept, "checkpoint-50/"), "after {second} s: {kept:?}");
        }
        for name in ["optimizer.pt", "trainer_state.json"] {
            script.write(&format!("checkpoint-{step}/{name}"));
        }
        script.train(12);
        assert!(has(&script.kept(), &format!("checkpoint-{step}/trainer_state.json")));
    }
}

/// CatBoost: a snapshot is renamed over the one before. Logs and a scratch file stay open.
#[test]
fn snapshot_is_kept_beside_scratch_file_that_stays_open() {
    let mut script = Script::new(true);
    let open = ["learn_error.tsv", "time_left.tsv", "tmp/index.tmp"];
    script.open.extend(open.map(str::to_owned));
    let mut kept = 0;
    for _ in 0..10 {
        for _ in 0..3 {
            script.append("learn_error.tsv");
            script.append("time_left.tsv");
            script.train(1);
            kept += usize::from(has(&script.kept(), "snapshot.cbsnapshot"));
        }
        script.remove("snapshot.cbsnapshot");
        script.write("snapshot.cbsnapshot");
    }
    assert!(kept >= 5, "{kept}");
}

#[test]
fn pointer_is_never_kept_without_its_checkpoint() {
    let mut script = Script::new(false);
    for save in 1..=4 {
        script.write(&format!("global_step{save}0/model.pt"));
        script.wait(1);
        script.write(&format!("global_step{save}0/optim.pt"));
        script.write("latest");
        for _ in 0..12 {
            script.train(1);
            let kept = script.kept();
            assert!(
                kept.is_empty() || has(&kept, &format!("global_step{save}0/optim.pt")),
                "{save}: {kept:?}"
            );
        }
    }
}

#[test]
fn half_save_of_killed_writer_is_never_kept() {
    let mut script = Script::new(false);
    script.hugging_face(25, 0);
    script.train(5);
    assert!(has(&script.kept(), "checkpoint-25"));
    script.write("checkpoint-50/model.safetensors");
    script.wait(1);
    script.dies(ExitStatus { signal: Some(9), ..ExitStatus::default() });
    script.signs = WorkloadSigns { ended: None, life: 1, ..script.signs };
    script.train(100);
    assert!(!has(&script.kept(), "checkpoint-50"));
    for step in [75, 100] {
        script.hugging_face(step, 0);
        script.train(5);
        let kept = script.kept();
        assert!(
            has(&kept, &format!("checkpoint-{step}/")) && !has(&kept, "checkpoint-50"),
            "{kept:?}"
        );
    }
}

#[test]
fn checkpoint_under_deletion_is_left_out() {
    let mut script = Script::new(false);
    for step in [25, 50, 75] {
        script.hugging_face(step, 0);
        script.train(5);
        script.kept();
    }
    script.hugging_face(100, 0);
    script.files.remove("checkpoint-25/optimizer.pt");
    script.wait(3);
    let kept = script.kept();
    assert!(
        has(&kept, "checkpoint-100/")
            && has(&kept, "checkpoint-75/")
            && !has(&kept, "checkpoint-25/"),
        "{kept:?}"
    );
}

/// The run folder of a script, its saves inside, and a file beside them that is no log by name.
#[derive(Clone, Copy, Debug)]
enum BesideFile {
    /// It grows, and stays open.
    Grows,
    /// It stays open, and its lines are not flushed.
    Open,
    /// It is rewritten many times a second.
    Rewritten,
}

/// Saves every so many seconds, and deletes all but the newest two. Returns what was kept last.
fn run_folder(
    script: &mut Script,
    every: u64,
    saves: u64,
    beside: Option<BesideFile>,
) -> Vec<String> {
    let (mut kept, side) = (Vec::new(), "runs/exp1/out.txt");
    script.write_bytes("runs/exp1/args.yaml", 10);
    for save in 1..=saves {
        for _ in 0..every {
            match beside {
                Some(BesideFile::Grows) => script.append(side),
                Some(BesideFile::Open) if save > 1 => {}
                Some(BesideFile::Open | BesideFile::Rewritten) => script.write(side),
                None => {}
            }
            if let Some(BesideFile::Grows | BesideFile::Open) = beside {
                script.open.insert(side.into());
            }
            script.wait(1);
            kept = Some(script.kept()).filter(|kept| !kept.is_empty()).unwrap_or(kept);
        }
        script.write_bytes(&format!("runs/exp1/weights/epoch_{save}.pt"), 10_000);
        script.remove(&format!("runs/exp1/weights/epoch_{}.pt", save.saturating_sub(2)));
    }
    kept
}

/// A `log.txt` that the script held open hid all saves of its run folder. A `train.log` hid
/// none.
#[test]
fn busy_file_in_run_folder_delays_no_save() {
    for (beside, is_open_known, every) in [
        (BesideFile::Grows, true, 5),
        (BesideFile::Grows, false, 5),
        (BesideFile::Grows, true, 1),
        (BesideFile::Open, true, 5),
        (BesideFile::Open, true, 1),
        (BesideFile::Rewritten, true, 3),
        (BesideFile::Rewritten, true, 1),
    ] {
        let mut script = Script::new(is_open_known);
        let saves = if every == 1 { 16 } else { 10 };
        let kept = run_folder(&mut script, every, saves, Some(beside));
        let newest = format!("runs/exp1/weights/epoch_{}.pt", saves - 1);
        assert!(kept.contains(&newest), "{beside:?} {is_open_known} {every}: {kept:?}");
    }
}

/// 98 saves were made in a run folder, and none was kept: none rested for two seconds.
#[test]
fn save_every_second_is_kept_at_once() {
    let mut script = Script::new(true);
    let kept = run_folder(&mut script, 1, 20, None);
    assert!(kept.contains(&"runs/exp1/weights/epoch_19.pt".into()), "in a run folder: {kept:?}");
    for (keep, saves) in [(2, 12), (1000, 28)] {
        for folder in ["", "run0/"] {
            let (mut script, mut kept) = (Script::new(true), Vec::new());
            script.write_bytes(&format!("{folder}args.yaml"), 10);
            for save in 1..=saves {
                script.write_bytes(&format!("{folder}epoch_{save}.pt"), 10_000);
                script.remove(&format!("{folder}epoch_{}.pt", u64::saturating_sub(save, keep)));
                script.wait(1);
                let now = script.kept();
                assert!(now.is_empty() || now.len() > 1, "settings alone: {now:?}");
                kept = Some(now).filter(|now| !now.is_empty()).unwrap_or(kept);
            }
            let newest = format!("{folder}epoch_{saves}.pt");
            assert!(kept.contains(&newest), "all but {keep} deleted: {kept:?}");
        }
    }
}

/// Without open files, saves that never rest cannot be judged: that was never said.
#[test]
fn saves_that_cannot_be_judged_are_told() {
    let mut script = Script::new(false);
    let kept = run_folder(&mut script, 1, 130, None);
    let is_told = script.watch.never_rests(Duration::from_secs(script.now));
    assert!(kept.is_empty() && is_told, "{is_told} {kept:?}");
}

/// With a notice, a set of `args.json` and logs was kept, and the machine was left to go.
#[test]
fn settings_alone_are_no_checkpoint_beside_unfinished_weights() {
    for is_open_known in [false, true] {
        let mut script = Script::new(is_open_known);
        script.write_bytes("args.json", 10);
        script.train(15);
        assert_eq!(script.kept(), ["args.json"], "there are no weights yet");
        script.write_bytes("args.json", 11);
        script.train(15);
        for number in [1, 2] {
            script.open.insert(format!("epoch_{number}.pt"));
            script.write_bytes(&format!("epoch_{number}.pt"), 10_000);
        }
        for _ in 0..8 {
            script.append("epoch_1.pt");
            script.append("epoch_2.pt");
            script.train(1);
            assert_eq!(script.kept(), [""; 0]);
        }
    }
}

/// Pieces of one checkpoint have numbers too, and may come one a second beside an open index.
#[test]
fn pieces_of_one_checkpoint_are_not_saves() {
    for (each_second, is_piece_open) in [(1, true), (40, false)] {
        let mut script = Script::new(true);
        for number in 0..60 {
            script.append("checkpoint-100/index.json");
            script.open = BTreeSet::from(["checkpoint-100/index.json".to_owned()]);
            for piece in 0..each_second {
                let name = format!("checkpoint-100/block_{}.bin", number * each_second + piece);
                script.write(&name);
                if is_piece_open {
                    script.open.insert(name);
                }
            }
            script.train(1);
            assert_eq!(script.kept(), [""; 0], "after {number} s");
        }
        script.open.clear();
        script.train(12);
        assert_eq!(script.kept().len(), 60 * each_second + 1);
    }
}
