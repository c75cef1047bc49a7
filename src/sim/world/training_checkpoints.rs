//! How a false training saves, and what it finds again when it starts.
//!
//! ```text
//!   renamed   model.tmp "half" ── 2 s ──> model, with a mark each
//!   series    model-N "st" ── 1 s ──> whole ── pause ──> optim-N "st" ── 1 s ──> whole
//!             with marks, or without
//! ```
//! A series has one of the layouts of known frameworks: files side by side, a folder each, a folder
//! for each start (`version_1/checkpoints/`, as Lightning does), or a folder each and a file that
//! names the newest (`latest`, as DeepSpeed does). Others are shards, a folder that is renamed when
//! it is whole (as Orbax does), and a folder each beside the logs of TensorBoard and Weights &
//! Biases. A training that dies in between leaves half of it. A script that starts takes the newest
//! whole checkpoint and deletes the rest. Not here: the laws of what is kept of it
//! (`crate::sim::laws::laws`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use super::host::Host;
use crate::ports::Files;
use crate::sim::kernel::rng::Dice;

/// How long a file of a series is half written.
const HALF: Duration = Duration::from_secs(1);

/// The number of checkpoints of a series that stay.
const LEFT: usize = 2;

const PARTS: [&str; 2] = ["model", "optim"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveStyle {
    /// One file, written beside and renamed; each save is marked.
    Renamed,
    /// A model and an optimizer with the step in their names, each written where it stays, the one
    /// so long after the other.
    Series { marks: bool, layout: Layout, pause: Duration },
}

/// Where the two files of a save stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `model-20.pt`
    Files,
    /// `checkpoint-20/model.pt`
    Folders,
    /// `version_1/checkpoints/model-20.pt`, with settings in `version_1/` that are written before
    /// the first step.
    Runs,
    /// `checkpoint-20/model.pt`, and `latest`, which is written in place after each save: the next
    /// start goes on from what it names.
    Pointed,
    /// `checkpoint-20/model-00001-of-00002.pt`
    Shards,
    /// `tmp-checkpoint-20/model.pt`, and the whole folder is renamed to `checkpoint-20` after it.
    Staged,
    /// `checkpoint-20/model.pt`, beside `logs/` and `wandb/`, which grow with each save.
    Logged,
}

const SETTINGS: &str = "hparams.yaml";
const POINTER: &str = "latest";
const LOGS: [&str; 2] = ["logs/events.out.tfevents.17.host", "wandb/offline-run-1/run-1.wandb"];

/// The name of a folder that is not whole yet begins so.
const STAGE: &str = "tmp-";

impl SaveStyle {
    pub(crate) fn of(dice: &Dice) -> SaveStyle {
        let marks = dice.percent(50);
        // Longer pauses without marks are tried by the tests of `agent::checkpoint::completeness`.
        let pause =
            Duration::from_secs(if marks { dice.pick(&[0, 1, 5, 20]) } else { dice.roll(2) });
        let layout = if dice.percent(50) { Layout::Folders } else { Layout::Files };
        let series = SaveStyle::Series { marks, layout, pause };
        if dice.percent(50) { SaveStyle::Renamed } else { series }
    }

    /// With the layouts that were added later.
    pub(crate) fn laid_out(self, dice: &Dice) -> SaveStyle {
        self.among(dice, [Layout::Runs, Layout::Pointed].as_slice())
    }

    /// With those that were added after that.
    pub(crate) fn laid_out_again(self, dice: &Dice) -> SaveStyle {
        self.among(dice, [Layout::Shards, Layout::Staged, Layout::Logged].as_slice())
    }

    fn among(self, dice: &Dice, layouts: &[Layout]) -> SaveStyle {
        match self {
            SaveStyle::Series { marks, pause, .. } if dice.percent(40) => {
                SaveStyle::Series { marks, layout: dice.pick(layouts), pause }
            }
            saves => saves,
        }
    }

    pub(crate) fn marks(self) -> bool {
        !matches!(self, SaveStyle::Series { marks: false, .. })
    }

    /// A training with a long pause marks at its start the checkpoint that it resumes. So its marks
    /// are known before its first save.
    pub(crate) fn announces(self) -> bool {
        matches!(self, SaveStyle::Series { marks: true, pause, .. } if pause > HALF)
    }

    /// How long one save takes. No steps are computed meanwhile.
    pub(crate) fn takes(self) -> Duration {
        match self {
            SaveStyle::Renamed => 2 * HALF,
            SaveStyle::Series { pause, .. } => 2 * HALF + pause,
        }
    }

    /// The step of the newest whole checkpoint. Half and superfluous ones are deleted.
    pub(crate) fn resumed(self, host: &Host, folder: &Path) -> u64 {
        let SaveStyle::Series { layout, .. } = self else {
            return host
                .disk
                .read(&folder.join("model"))
                .ok()
                .flatten()
                .and_then(|body| step_of(&body))
                .unwrap_or(0);
        };
        let whole = tidy(host, folder);
        if layout == Layout::Runs {
            // The first thing that it does, and before anything is computed.
            let _ = host.disk.write(
                &folder.join(format!("version_{}/{SETTINGS}", newest_run(host, folder) + 1)),
                b"lr: 0.1",
            );
        }
        match layout {
            Layout::Pointed => {
                pointed(host, folder).filter(|step| whole.contains(step)).unwrap_or(0)
            }
            _ => whole.into_iter().next_back().unwrap_or(0),
        }
    }

    /// False: the save failed, and the earlier checkpoint stays.
    pub(crate) async fn write(
        self,
        host: &Host,
        folder: &Path,
        step: u64,
        open: &Mutex<Option<PathBuf>>,
        running: impl AsyncFn(),
    ) -> bool {
        let opens = |path: Option<&Path>| {
            *open.lock().expect("the lock is not poisoned") = path.map(Path::to_owned)
        };
        let second = async |time| {
            host.world.timeline.sleep(time).await;
            running().await;
        };
        let SaveStyle::Series { layout, pause, .. } = self else {
            let (part, model) = (folder.join("model.tmp"), folder.join("model"));
            if host.disk.write(&part, b"half").is_err() {
                return false;
            }
            second(self.takes()).await;
            if host.disk.write(&part, format!("step {step}").as_bytes()).is_err() {
                return false;
            }
            host.disk.rename(&part, &model);
            return true;
        };
        if whole(host, folder).contains_key(&step) {
            return layout != Layout::Pointed || point(host, folder, step);
        }
        let run = newest_run(host, folder);
        if layout == Layout::Logged {
            for log in LOGS {
                // A training goes on without a line of its log.
                let _ = host.disk.append(&folder.join(log), b"line\n");
            }
        }
        for (index, part) in PARTS.iter().enumerate() {
            if index > 0 {
                second(pause).await;
            }
            let path = folder.join(name(layout, run, part, step));
            let begun = host.disk.write(&path, b"st");
            host.world.aside(format_args!("{} begins {}", host.id, path.display()));
            opens(Some(&path));
            second(HALF).await;
            opens(None);
            if begun
                .and_then(|()| host.disk.append(&path, format!("ep {step}").as_bytes()))
                .is_err()
            {
                // The disk is full: delete the part that was begun.
                tidy(host, folder);
                host.world.aside(format_args!("{} has no room for {}", host.id, path.display()));
                return false;
            }
            host.world.aside(format_args!("{} has written {}", host.id, path.display()));
        }
        if layout == Layout::Staged {
            for part in PARTS {
                let (from, to) =
                    (name(layout, run, part, step), name(Layout::Folders, run, part, step));
                host.disk.rename(&folder.join(from), &folder.join(to));
            }
        }
        // All of this takes no time, so the pointer always names a whole save.
        let is_named = layout != Layout::Pointed || point(host, folder, step);
        tidy(host, folder);
        is_named
    }
}

fn name(layout: Layout, run: u64, part: &str, step: u64) -> String {
    match layout {
        Layout::Files => format!("{part}-{step}.pt"),
        Layout::Folders | Layout::Pointed | Layout::Logged => {
            format!("checkpoint-{step}/{part}.pt")
        }
        Layout::Runs => format!("version_{run}/checkpoints/{part}-{step}.pt"),
        Layout::Shards => {
            let shard = 1 + PARTS.iter().position(|of| *of == part).unwrap_or(0);
            format!("checkpoint-{step}/model-{shard:05}-of-{:05}.pt", PARTS.len())
        }
        Layout::Staged => format!("{STAGE}checkpoint-{step}/{part}.pt"),
    }
}

/// The number of the newest start that has its own folder; 0 if there is none.
fn newest_run(host: &Host, folder: &Path) -> u64 {
    let files = host.disk.walk(folder, usize::MAX - 1).map(|tree| tree.files).unwrap_or_default();
    files
        .iter()
        .filter_map(|file| file.path.strip_prefix("version_")?.split_once('/')?.0.parse().ok())
        .max()
        .unwrap_or(0)
}

/// Names the newest; false if the disk is full.
fn point(host: &Host, folder: &Path, step: u64) -> bool {
    host.disk.write(&folder.join(POINTER), format!("checkpoint-{step}").as_bytes()).is_ok()
}

fn pointed(host: &Host, folder: &Path) -> Option<u64> {
    named_by(&host.disk.read(&folder.join(POINTER)).ok()??)
}

fn named_by(body: &[u8]) -> Option<u64> {
    std::str::from_utf8(body).ok()?.strip_prefix("checkpoint-")?.parse().ok()
}

/// Keeps the newest whole checkpoints, and returns their steps.
fn tidy(host: &Host, folder: &Path) -> Vec<u64> {
    let mut whole = whole(host, folder);
    while whole.len() > LEFT {
        whole.pop_first();
    }
    for file in host.disk.walk(folder, usize::MAX - 1).map(|tree| tree.files).unwrap_or_default() {
        if !whole.values().any(|paths| paths.contains(&file.path)) && !is_beside(&file.path) {
            let _ = host.disk.remove(&folder.join(&file.path));
        }
    }
    whole.into_keys().collect()
}

/// Whether a file belongs to no save.
fn is_beside(path: &str) -> bool {
    path == POINTER || path.ends_with(SETTINGS) || LOGS.contains(&path)
}

/// The steps whose two files are whole on the disk, in order, and the paths of the files.
fn whole(host: &Host, folder: &Path) -> BTreeMap<u64, Vec<String>> {
    let files = host.disk.walk(folder, usize::MAX - 1).map(|tree| tree.files).unwrap_or_default();
    let body = |path: &str| host.disk.read(&folder.join(path)).ok().flatten();
    let mut parts: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for (step, path) in files
        .into_iter()
        .filter(|file| !file.path.starts_with(STAGE))
        .filter_map(|file| Some((step_of(&body(&file.path)?)?, file.path)))
    {
        parts.entry(step).or_default().push(path);
    }
    parts.retain(|_, paths| paths.len() == PARTS.len());
    parts
}

/// The step that a checkpoint file holds; `None` if it is half written.
pub fn step_of(body: &[u8]) -> Option<u64> {
    std::str::from_utf8(body).ok()?.strip_prefix("step ")?.parse().ok()
}

/// The newest step that the uploaded files hold, by their paths and bodies. If a file names a step,
/// it is this one.
///
/// # Errors If a file is half, the other file of a pair is missing, or the named checkpoint is
/// missing.
pub(crate) fn held<'a>(files: impl Iterator<Item = (&'a str, Vec<u8>)>) -> Result<u64, String> {
    let mut parts: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    let (mut named, mut has_settings) = (None, false);
    for (path, body) in files {
        if path == POINTER {
            named = Some(named_by(&body).ok_or_else(|| format!("half of {path}"))?);
            continue;
        }
        if is_beside(path) {
            has_settings |= path.ends_with(SETTINGS);
            continue;
        }
        let step = step_of(&body).ok_or_else(|| format!("half of {path}"))?;
        parts.entry(step).or_default().push(path);
    }
    let alone = parts.values().find(|paths| paths.len() != PARTS.len() && **paths != ["model"]);
    if let Some(paths) = alone {
        return Err(format!("{} without its other half", paths.join(", ")));
    }
    match named {
        Some(step) if !parts.contains_key(&step) => {
            Err(format!("{POINTER} without the checkpoint of step {step} that it names"))
        }
        Some(step) => Ok(step),
        // Settings alone are a folder from which the work begins again.
        None => parts
            .into_keys()
            .next_back()
            .or(has_settings.then_some(0))
            .ok_or_else(|| "nothing".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploaded_checkpoints_are_whole_and_in_pairs() {
        let held = |files: &[(&'static str, &str)]| {
            held(files.iter().map(|(path, body)| (*path, body.as_bytes().to_vec())))
        };
        assert_eq!(held(&[("model", "step 7")]), Ok(7));
        assert_eq!(
            held(&[
                ("model-7.pt", "step 7"),
                ("optim-7.pt", "step 7"),
                ("model-9.pt", "step 9"),
                ("optim-9.pt", "step 9")
            ]),
            Ok(9)
        );
        assert_eq!(
            held(&[("model-7.pt", "step 7"), ("optim-7.pt", "st")]),
            Err("half of optim-7.pt".into())
        );
        assert_eq!(
            held(&[("model-7.pt", "step 7")]),
            Err("model-7.pt without its other half".into())
        );
        assert_eq!(
            held(&[("model-7.pt", "step 7"), ("optim-7.pt", "step 5")]),
            Err("optim-7.pt without its other half".into())
        );
        assert_eq!(held(&[]), Err("nothing".into()));
        let pair = |step| {
            [
                ("checkpoint-7/model.pt", "step 7"),
                ("checkpoint-7/optim.pt", "step 7"),
                (POINTER, step),
            ]
        };
        assert_eq!(
            (held(&pair("checkpoint-7")), held(&pair("check"))),
            (Ok(7), Err("half of latest".into()))
        );
        assert_eq!(
            held(&pair("checkpoint-9")),
            Err("latest without the checkpoint of step 9 that it names".into())
        );
        let run = [
            ("version_1/hparams.yaml", "lr: 0.1"),
            ("version_1/checkpoints/model-7.pt", "step 7"),
            ("version_1/checkpoints/optim-7.pt", "step 7"),
        ];
        assert_eq!(held(&run), Ok(7));
        let shards = [
            ("checkpoint-7/model-00001-of-00002.pt", "step 7"),
            ("checkpoint-7/model-00002-of-00002.pt", "step 7"),
            (LOGS[0], "line"),
        ];
        assert_eq!(held(&shards), Ok(7));
        assert_eq!(held(&shards[1..]).map_err(|why| why.contains("other half")), Err(true));
        assert_eq!(held(&shards[2..]), Err("nothing".into()), "a log is no checkpoint");
    }
}
