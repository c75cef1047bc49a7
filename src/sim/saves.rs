//! How a false training saves, and what it finds again when it starts.
//!
//! ```text
//!   renamed   model.tmp "half" ── 2 s ──> model                                     a mark each
//!   series    model-N "st" ── 1 s ──> whole ── pause ──> optim-N "st" ── 1 s ──> whole     with marks, or without
//! ```
//! Whoever dies in between leaves half of it. A script that starts takes the newest that is whole and sweeps the rest away, as those
//! do that expect to be interrupted. What must never live here: the laws of what is kept of it (`super::laws`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use super::dice::Dice;
use super::host::Host;
use crate::ports::Files;

/// So long a file of a series is half.
const HALF: Duration = Duration::from_secs(1);

/// Of a series so many are left.
const LEFT: usize = 2;

const PARTS: [&str; 2] = ["model", "optim"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saves {
    /// One file, written beside and renamed; each save is marked.
    Renamed,
    /// A model and an optimizer with the step in their names, each written where it stays, the one so long after the other.
    Series { marks: bool, folders: bool, pause: Duration },
}

impl Saves {
    pub(super) fn of(dice: &Dice) -> Saves {
        let marks = dice.percent(50);
        // Whoever pauses for longer than two seconds must mark (docs/environment.md).
        let pause = Duration::from_secs(if marks { dice.pick(&[0, 1, 5, 20]) } else { dice.roll(2) });
        let series = Saves::Series { marks, folders: dice.percent(50), pause };
        if dice.percent(50) { Saves::Renamed } else { series }
    }

    pub(super) fn marks(self) -> bool {
        !matches!(self, Saves::Series { marks: false, .. })
    }

    /// Whoever pauses for long names at its start what it goes on from, so that its marks are known before the first of them.
    pub(super) fn announces(self) -> bool {
        matches!(self, Saves::Series { marks: true, pause, .. } if pause > HALF)
    }

    /// How long one takes, in which the work stands.
    pub(super) fn takes(self) -> Duration {
        match self {
            Saves::Renamed => 2 * HALF,
            Saves::Series { pause, .. } => 2 * HALF + pause,
        }
    }

    /// The step of the newest that is whole; what is half or superfluous goes.
    pub(super) fn resumed(self, host: &Host, folder: &Path) -> u64 {
        let Saves::Series { folders, .. } = self else {
            return host.disk.read(&folder.join("model")).ok().flatten().and_then(|body| step_of(&body)).unwrap_or(0);
        };
        let whole = tidy(host, folder, folders);
        whole.into_iter().next_back().unwrap_or(0)
    }

    /// False: it came to nothing, and what was there before stands.
    pub(super) async fn write(self, host: &Host, folder: &Path, step: u64, open: &Mutex<Option<PathBuf>>, running: impl AsyncFn()) -> bool {
        let opens = |path: Option<&Path>| *open.lock().expect("nobody panics with it") = path.map(Path::to_owned);
        let second = async |time| {
            host.world.timeline.sleep(time).await;
            running().await;
        };
        let Saves::Series { folders, pause, .. } = self else {
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
        if whole(host, folder).contains(&step) {
            return true;
        }
        for (index, part) in PARTS.iter().enumerate() {
            if index > 0 {
                second(pause).await;
            }
            let path = folder.join(name(folders, part, step));
            let begun = host.disk.write(&path, b"st");
            host.world.aside(format_args!("{} begins {}", host.id, path.display()));
            opens(Some(&path));
            second(HALF).await;
            opens(None);
            if begun.and_then(|()| host.disk.append(&path, format!("ep {step}").as_bytes())).is_err() {
                // A disk without room: what it had begun is taken away again.
                tidy(host, folder, folders);
                host.world.aside(format_args!("{} has no room for {}", host.id, path.display()));
                return false;
            }
            host.world.aside(format_args!("{} has written {}", host.id, path.display()));
        }
        tidy(host, folder, folders);
        true
    }
}

fn name(folders: bool, part: &str, step: u64) -> String {
    if folders { format!("checkpoint-{step}/{part}.pt") } else { format!("{part}-{step}.pt") }
}

/// Leaves the newest that are whole, and gives their steps.
fn tidy(host: &Host, folder: &Path, folders: bool) -> Vec<u64> {
    let whole = whole(host, folder);
    let left = whole[whole.len().saturating_sub(LEFT)..].to_vec();
    let kept: Vec<String> = left.iter().flat_map(|step| PARTS.map(|part| name(folders, part, *step))).collect();
    for file in host.disk.walk(folder, usize::MAX - 1).map(|tree| tree.files).unwrap_or_default() {
        if !kept.contains(&file.path) {
            let _ = host.disk.remove(&folder.join(&file.path));
        }
    }
    left
}

/// The steps of which both parts are whole on the disk, in order.
fn whole(host: &Host, folder: &Path) -> Vec<u64> {
    let files = host.disk.walk(folder, usize::MAX - 1).map(|tree| tree.files).unwrap_or_default();
    let body = |path: &str| host.disk.read(&folder.join(path)).ok().flatten();
    let mut parts: BTreeMap<u64, usize> = BTreeMap::new();
    for step in files.iter().filter_map(|file| step_of(&body(&file.path)?)) {
        *parts.entry(step).or_default() += 1;
    }
    parts.into_iter().filter(|(_, count)| *count == PARTS.len()).map(|(step, _)| step).collect()
}

/// What a file of a checkpoint of ours holds; `None`: half of it.
pub fn step_of(body: &[u8]) -> Option<u64> {
    std::str::from_utf8(body).ok()?.strip_prefix("step ")?.parse().ok()
}

/// The newest step of what was kept, by the paths and the bodies of its files.
///
/// # Errors
/// When a file of it is half, or one of a pair stands alone.
pub(super) fn held<'a>(files: impl Iterator<Item = (&'a str, Vec<u8>)>) -> Result<u64, String> {
    let mut parts: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for (path, body) in files {
        let step = step_of(&body).ok_or_else(|| format!("half of {path}"))?;
        parts.entry(step).or_default().push(path);
    }
    let alone = parts.values().find(|paths| paths.len() != PARTS.len() && **paths != ["model"]);
    if let Some(paths) = alone {
        return Err(format!("{} without its other half", paths.join(", ")));
    }
    parts.into_keys().next_back().ok_or_else(|| "nothing".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_whole_and_in_pairs() {
        let held = |files: &[(&'static str, &str)]| held(files.iter().map(|(path, body)| (*path, body.as_bytes().to_vec())));
        assert_eq!(held(&[("model", "step 7")]), Ok(7));
        assert_eq!(held(&[("model-7.pt", "step 7"), ("optim-7.pt", "step 7"), ("model-9.pt", "step 9"), ("optim-9.pt", "step 9")]), Ok(9));
        assert_eq!(held(&[("model-7.pt", "step 7"), ("optim-7.pt", "st")]), Err("half of optim-7.pt".into()));
        assert_eq!(held(&[("model-7.pt", "step 7")]), Err("model-7.pt without its other half".into()));
        assert_eq!(held(&[("model-7.pt", "step 7"), ("optim-7.pt", "step 5")]), Err("optim-7.pt without its other half".into()));
        assert_eq!(held(&[]), Err("nothing".into()));
    }
}
