//! A complete checkpoint: the files of the checkpoint folder at one moment, then the manifest.
//!
//! The manifest is written last. Attempts resume only from a checkpoint with a manifest.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::{AttemptNo, CheckpointNo};

/// The agent's journal entry when a checkpoint folder keeps changing and no file of it can be
/// judged complete. Readers look for it: such a job may have no later checkpoint.
pub const NEVER_RESTS: &str = "the checkpoint folder has not rested for two seconds in a minute, so nothing of it is kept and an \
    interruption would lose the work: save less often, save under a new number each time, or mark each checkpoint in the progress file";

/// `checkpoints/<n>/manifest.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    pub number: CheckpointNo,
    pub attempt: AttemptNo,
    pub created: Timestamp,
    /// The workload's step at that moment, if it reported one.
    #[serde(default)]
    pub step: Option<f64>,
    pub files: Vec<ManifestEntry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<CheckpointLink>,
    /// Seconds from the request, or the folder's first change, until the folder was quiet.
    pub save_secs: f64,
    /// Seconds to read, hash and upload.
    pub upload_secs: f64,
    /// Whether the workload had marked this or an earlier checkpoint as complete. The next machine
    /// then waits for its marks.
    #[serde(default)]
    pub marks: Option<bool>,
    /// The longest silence of the workload so far, in seconds: the next machine waits as long.
    /// `None`: it has neither reported a step nor printed anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_secs: Option<f64>,
    /// The notice, request or verdict that asked for it; `None`: the interval did.
    #[serde(default)]
    pub asked_by: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestEntry {
    /// Relative to the checkpoint folder, with `/` between the parts.
    pub path: String,
    pub bytes: u64,
    /// Lower-case hex.
    pub sha256: String,
    /// The object with its bytes, relative to the job. An unchanged file points into an earlier
    /// checkpoint.
    pub key: String,
    /// Unix permission bits.
    #[serde(default)]
    pub mode: Option<u32>,
    /// Last change, nanoseconds since 1970: scripts find the newest file by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<i64>,
}

/// A symbolic link to a folder of the checkpoint, such as `latest -> step-40`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointLink {
    /// Relative to the checkpoint folder.
    pub path: String,
    /// Relative, and inside the checkpoint folder.
    pub target: String,
}

/// How many folders below the checkpoint folder a link at `path` leads, by its target's words.
/// `None`: its words leave the folder, even for one step.
pub fn link_depth(path: &str, target: &str) -> Option<usize> {
    if target.starts_with('/') {
        return None;
    }
    target.split('/').filter(|part| !matches!(*part, "" | ".")).try_fold(
        path.matches('/').count(),
        |depth, part| match part {
            ".." => depth.checked_sub(1),
            _ => Some(depth + 1),
        },
    )
}

/// A checkpoint as shown in the outcome and the receipt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct CheckpointSummary {
    #[cfg_attr(feature = "web", schema(value_type = u32))]
    pub number: CheckpointNo,
    #[cfg_attr(feature = "web", schema(value_type = u32))]
    pub attempt: AttemptNo,
    pub created: Timestamp,
    #[serde(default)]
    pub step: Option<f64>,
    pub bytes: u64,
    /// The workload's own name for it: its new file or folder, such as `model-5.pt` or
    /// `checkpoint-500`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Manifest {
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    pub fn summary(&self) -> CheckpointSummary {
        CheckpointSummary {
            number: self.number,
            attempt: self.attempt,
            created: self.created,
            step: self.step,
            bytes: self.bytes(),
            name: self.name(),
        }
    }

    /// The numbered folder of the newest step. Otherwise the folder with all that is new, otherwise
    /// the largest new file.
    fn name(&self) -> Option<String> {
        let ours = format!("checkpoints/{}/", self.number);
        let new: Vec<&ManifestEntry> =
            self.files.iter().filter(|file| file.key.starts_with(&ours)).collect();
        let largest = new.iter().max_by_key(|file| file.bytes)?;
        // A resumed run writes its last folder again, and logs stand beside all folders.
        let numbered = self.files.iter().filter_map(|file| {
            let top = file.path.split_once('/')?.0;
            Some((number_at_end(top)?, top))
        });
        let is_its = |number: u64| self.step.is_some_and(|step| step == number as f64);
        // `v0` and `run3` are folders of runs, not of steps.
        let is_of_steps = |name: &str| {
            ["checkpoint", "ckpt", "step", "epoch"]
                .iter()
                .any(|word| name.to_ascii_lowercase().contains(word))
        };
        let is_new = |top: &str| {
            new.iter().any(|file| file.path.split_once('/').is_some_and(|(first, _)| first == top))
        };
        let numbered =
            numbered.filter(|(number, top)| is_its(*number) || is_of_steps(top) && is_new(top));
        if let Some((_, top)) = numbered.max_by_key(|(number, _)| (is_its(*number), *number)) {
            return Some(top.to_owned());
        }
        let folder =
            new.iter().map(|file| folder_of(&file.path)).reduce(common).unwrap_or_default();
        Some(if new.len() > 1 && !folder.is_empty() {
            folder.to_owned()
        } else {
            largest.path.clone()
        })
    }
}

impl CheckpointSummary {
    /// Its number, its name and its step: "3, `model-5.pt` (step 5)".
    pub fn told(&self) -> String {
        let name = self.name.as_ref().map(|name| format!(", `{name}`")).unwrap_or_default();
        let step = self.step.map(|step| format!(" (step {step})")).unwrap_or_default();
        format!("{}{name}{step}", self.number.number())
    }
}

/// 500 of `checkpoint-500` and of `global_step500`.
fn number_at_end(name: &str) -> Option<u64> {
    let letters = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    if letters.is_empty() { None } else { name[letters.len()..].parse().ok() }
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The innermost folder that holds both.
fn common<'a>(one: &'a str, other: &'a str) -> &'a str {
    let mut folder = one;
    while !(folder.is_empty()
        || other == folder
        || other.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')))
    {
        folder = folder_of(folder);
    }
    folder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_has_the_name_of_what_is_new_in_it() {
        let name = |files: &[(&str, u64, u32)]| {
            let file = |(path, bytes, number): &(&str, u64, u32)| serde_json::json!({ "path": path, "bytes": bytes, "sha256": "", "key": format!("checkpoints/{}/files/{path}", CheckpointNo::new(*number)) });
            let files: Vec<_> = files.iter().map(file).collect();
            let manifest: Manifest =
                serde_json::from_value(serde_json::json!({ "format": 1, "number": 2, "attempt": 1, "created": "2026-11-28T00:00:00Z",
                "files": files, "save_secs": 1.0, "upload_secs": 1.0 }))
                .expect("a manifest");
            manifest.summary().name
        };
        type Files<'a> = &'a [(&'a str, u64, u32)];
        let cases: [(Files<'_>, Option<&str>); 9] = [
            (&[], None),
            (&[("model.pt", 5, 1)], None),
            (&[("model-1.pt", 5, 1), ("model-2.pt", 5, 2)], Some("model-2.pt")),
            (
                &[
                    ("checkpoint-500/a.bin", 5, 2),
                    ("checkpoint-500/b/c.json", 1, 2),
                    ("checkpoint-400/a.bin", 5, 1),
                ],
                Some("checkpoint-500"),
            ),
            (
                &[("v0/checkpoints/epoch=3.ckpt", 5, 2), ("v0/checkpoints/epoch=2.ckpt", 5, 1)],
                Some("v0/checkpoints/epoch=3.ckpt"),
            ),
            (&[("latest", 1, 2), ("step-4.pt", 9, 2)], Some("step-4.pt")),
            (
                &[("checkpoint-600/optimizer.pt", 9, 2), ("runs/events.1", 1, 2)],
                Some("checkpoint-600"),
            ),
            (&[("checkpoint-500/optimizer.pt", 9, 1), ("step-800.pt", 5, 2)], Some("step-800.pt")),
            (
                &[("checkpoint-800/optimizer.pt", 9, 2), ("checkpoint-1000/optimizer.pt", 9, 2)],
                Some("checkpoint-1000"),
            ),
        ];
        for (files, expected) in cases {
            assert_eq!(name(files).as_deref(), expected, "{files:?}");
        }
    }
}
