//! Reads file names: the parts of a checkpoint folder, logs, and names that are not final.
//!
//! ```text
//!   checkpoint-100/  step-200.ckpt   a numbered part: one checkpoint, judged by itself
//!   model.pt  optimizer.pt  latest   the common part: kept together, or not at all
//!   train.log  events.out.tfevents   a log: delays no checkpoint
//! ```
//! A folder with a number is a part, unless checkpoints are made inside it
//! (`version_0/checkpoints/...`). Then it is a place. A file with a number is a part once it has a
//! sibling: before, `step-5.pt` and `resnet50.pt` look alike. Not here: time, and when a part is
//! complete (that is [`super::units`]).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use uuid::Uuid;

use crate::job::{CheckpointLink, counts_pieces, is_log_name, link_depth};
use crate::ports::TreeFile;

pub(crate) type NameNumbers = Vec<u64>;

/// A part of the folder that is judged by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FolderPart {
    /// Everything without a number of its own.
    Common,
    /// Everything with these numbers, directly below this folder (`""`: the top).
    Numbered { parent: String, numbers: NameNumbers },
}

impl FolderPart {
    /// The folder of a numbered part.
    pub(crate) fn parent(&self) -> Option<&str> {
        match self {
            FolderPart::Numbered { parent, .. } => Some(parent),
            FolderPart::Common => None,
        }
    }
}

/// Facts learned by watching the folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Places {
    /// Numbered folders that are not checkpoints: checkpoints are made in them, or their files
    /// change again.
    pub folders: BTreeSet<String>,
    /// Folder names with `#` for numbers that get several checkpoints: each start of Lightning
    /// makes one (`version_1`).
    pub kinds: BTreeSet<String>,
    /// File names with `#` for numbers whose older members were rewritten.
    pub files: BTreeSet<String>,
    /// File names with `#` for numbers that came one after another: one alone is a part too.
    pub series: BTreeSet<String>,
}

pub(crate) struct Partition<'a> {
    places: &'a Places,
    /// For each folder: the numbers of file kinds that occur with at least two numbers.
    series: HashMap<String, HashSet<NameNumbers>>,
}

impl<'a> Partition<'a> {
    /// `paths`: the present and the previous files.
    pub(crate) fn new<'p>(paths: impl Iterator<Item = &'p str>, places: &'a Places) -> Self {
        let mut members: HashMap<(&str, String), HashSet<NameNumbers>> = HashMap::new();
        for path in paths.filter(|path| !is_log(path)) {
            let (parent, name) = split(path);
            let Some((shape, numbers)) = numbered(name) else { continue };
            members.entry((parent, shape)).or_default().insert(numbers);
        }
        let mut series: HashMap<String, HashSet<NameNumbers>> = HashMap::new();
        for ((parent, shape), numbers) in members {
            let kind = join(parent, &shape);
            let is_series = numbers.len() > 1 || places.series.contains(&kind);
            if is_series && !places.files.contains(&kind) {
                series.entry(parent.to_owned()).or_default().extend(numbers);
            }
        }
        Partition { places, series }
    }

    pub(crate) fn part_of(&self, path: &str) -> FolderPart {
        self.part(path, |parent, _, numbers| {
            self.series.get(parent).is_some_and(|series| series.contains(numbers))
        })
    }

    /// The same, but a numbered file needs no sibling: for a marked save.
    pub(crate) fn set_of(&self, path: &str) -> FolderPart {
        self.part(path, |parent, shape, _| !self.places.files.contains(&join(parent, shape)))
    }

    fn part(
        &self,
        path: &str,
        is_numbered: impl Fn(&str, &str, &NameNumbers) -> bool,
    ) -> FolderPart {
        let mut begin = 0;
        for (at, _) in path.match_indices('/') {
            let (folder, name) = (&path[..at], &path[begin..at]);
            let parent = &path[..begin.saturating_sub(1)];
            if let Some((shape, numbers)) = numbered(name)
                && !self.places.folders.contains(folder)
                && !self.places.kinds.contains(&join(parent, &shape))
            {
                return FolderPart::Numbered { parent: parent.to_owned(), numbers };
            }
            begin = at + 1;
        }
        let (parent, name) = split(path);
        match numbered(name).filter(|_| !is_log(path)) {
            Some((shape, numbers)) if is_numbered(parent, &shape, &numbers) => {
                FolderPart::Numbered { parent: parent.to_owned(), numbers }
            }
            _ => FolderPart::Common,
        }
    }
}

impl Places {
    /// Marks a folder and its numbered parents as no checkpoint. `is_of_run`: the same for others
    /// of its kind.
    pub(crate) fn add_folders_of(&mut self, path: &str, is_of_run: bool) {
        for (at, _) in path.match_indices('/') {
            let (parent, name) = split(&path[..at]);
            let Some((shape, _)) = numbered(name) else { continue };
            self.folders.insert(path[..at].to_owned());
            if is_of_run {
                self.kinds.insert(join(parent, &shape));
            }
        }
    }
}

pub(crate) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

pub(crate) fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { [parent, "/", name].concat() }
}

pub(crate) fn top(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

/// By the name only. Weights & Biases keeps its runs open all the time, in a folder of its name.
pub(crate) fn is_log(path: &str) -> bool {
    let (folder, name) = split(path);
    is_log_name(name) || folder.split('/').any(|part| part == "wandb")
}

/// A name without its numbers, and the numbers.
pub(crate) fn numbered(name: &str) -> Option<(String, NameNumbers)> {
    if !name.bytes().any(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (shape, numbers) = shaped(name);
    (!numbers.is_empty() && !counts_pieces(&shape)).then_some((shape, numbers))
}

/// The numbers in a path that may count checkpoints, each with its folder and its name with `#`.
pub(crate) fn kinds(path: &str) -> Vec<(String, NameNumbers)> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    ends.filter_map(|end| kind_at_end(&path[..end])).collect()
}

/// The kind of the last name of a path, in its folder, and its numbers.
fn kind_at_end(path: &str) -> Option<(String, NameNumbers)> {
    let (parent, name) = split(path);
    numbered(name).map(|(shape, numbers)| (join(parent, &shape), numbers))
}

/// The kind of a file that is no log, and its numbers.
pub(crate) fn kind_of(path: &str) -> Option<(String, NameNumbers)> {
    kind_at_end(path).filter(|_| !is_log(path))
}

/// A part of a name with this many letters is a hash, if all are of `0-9a-f` and both kinds occur.
/// Fewer takes words for hashes (`e2e`). More misses the seven letters of a Git commit.
const HASH_LETTERS: usize = 6;

/// The letters of a UUID, and those before its first hyphen.
const UUID_LETTERS: usize = 36;
const UUID_FIRST: usize = 8;

/// Each hash and UUID of a path as `@`: the next save has another.
pub(crate) fn without_hash(path: &str) -> String {
    let mut without = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = find_uuid(rest) {
        without.push_str(&without_hash_word(&rest[..at]));
        without.push('@');
        rest = &rest[at + UUID_LETTERS..];
    }
    without.push_str(&without_hash_word(rest));
    without
}

fn find_uuid(path: &str) -> Option<usize> {
    let is_uuid = |start: usize| {
        let end = start + UUID_LETTERS;
        let goes_on = path.as_bytes().get(end).is_some_and(u8::is_ascii_hexdigit);
        !goes_on && path.get(start..end).is_some_and(|part| Uuid::try_parse(part).is_ok())
    };
    let mut hyphens = path.match_indices('-');
    hyphens.find_map(|(at, _)| at.checked_sub(UUID_FIRST).filter(|start| is_uuid(*start)))
}

fn without_hash_word(path: &str) -> String {
    let is_hash = |part: &str| {
        part.len() >= HASH_LETTERS
            && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
            && part.bytes().any(|byte| byte.is_ascii_digit())
            && part.bytes().any(|byte| byte.is_ascii_alphabetic())
    };
    let mut without = String::with_capacity(path.len());
    for part in path.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric()) {
        let word = part.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
        without.push_str(if is_hash(word) { "@" } else { word });
        without.push_str(&part[word.len()..]);
    }
    without
}

/// Endings of files that hold settings or text for people, and no weights.
const SETTINGS: [&str; 6] = ["yaml", "yml", "toml", "ini", "cfg", "md"];

/// Whether a file holds settings by its name, as Hydra's `.hydra/config.yaml`.
pub(crate) fn is_settings(path: &str) -> bool {
    let is_of_hydra = path.split('/').any(|name| name == ".hydra");
    let ending = path.rsplit_once('.').map(|(_, ending)| ending).unwrap_or_default();
    is_of_hydra || SETTINGS.contains(&ending)
}

/// Each number of a path as `#`, to compare two checkpoints.
pub(crate) fn shape_of(path: &str) -> String {
    if path.bytes().any(|byte| byte.is_ascii_digit()) { shaped(path).0 } else { path.to_owned() }
}

fn shaped(name: &str) -> (String, NameNumbers) {
    let (mut shape, mut numbers, mut rest) =
        (String::with_capacity(name.len()), NameNumbers::new(), name);
    while let Some(at) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let digits = rest[at..].bytes().take_while(u8::is_ascii_digit).count();
        shape.push_str(&rest[..at]);
        // `-00002-of-00005` is a piece of one checkpoint; its two numbers stay in the shape.
        let after = &rest[at + digits..];
        let of = after
            .strip_prefix("-of-")
            .map(|total| total.bytes().take_while(u8::is_ascii_digit).count())
            .filter(|digits| *digits > 0);
        if let Some(total) = of {
            shape.push_str(&rest[at..at + digits + "-of-".len() + total]);
            rest = &after["-of-".len() + total..];
            continue;
        }
        shape.push('#');
        numbers.push(rest[at..at + digits].parse().unwrap_or(u64::MAX));
        rest = after;
    }
    shape.push_str(rest);
    (shape, numbers)
}

/// Unfinished names: Orbax and older Hugging Face rename a whole folder.
const UNFINISHED_ENDS: [&str; 6] = [".tmp", "-tmp", ".part", ".incomplete", ".__lock", "~"];
const UNFINISHED_BEGINS: [&str; 2] = [".tmp", "tmp-"];

/// Whether the name says that the file is not finished yet.
pub(crate) fn is_unfinished(path: &str) -> bool {
    let says = |name: &str| {
        UNFINISHED_ENDS.iter().any(|end| name.ends_with(end))
            || UNFINISHED_BEGINS.iter().any(|begin| name.starts_with(begin))
    };
    path.split('/').any(says)
}

/// Whether a path stays below its folder. Upload and restore both check this.
pub(crate) fn stays_below(path: &str) -> bool {
    !path.contains('\0') && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Whether a link's target stays below the checkpoint folder, by its text. Upload and restore check
/// this.
pub(crate) fn link_stays_below(link: &CheckpointLink) -> bool {
    let is_text = !link.target.is_empty() && !link.target.contains('\0');
    stays_below(&link.path)
        && is_text
        && link_depth(&link.path, &link.target).is_some_and(|depth| depth > 0)
}

/// The names of a checkpoint with `#` for numbers, the count of each, and the name written last.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NameCounts {
    pub names: BTreeMap<String, u32>,
    pub last: Option<String>,
}

impl NameCounts {
    /// Whether any name is in both: then they are of one kind.
    pub(crate) fn shares(&self, other: &NameCounts) -> bool {
        self.names.keys().any(|name| other.names.contains_key(name))
    }

    pub(crate) fn has_all_of(&self, other: &NameCounts, but: impl Fn(&str) -> bool) -> bool {
        other.names.iter().all(|(name, number)| {
            self.names.get(name).is_some_and(|has| has >= number) || but(name)
        })
    }
}

pub(crate) fn held(files: &[&TreeFile]) -> NameCounts {
    let mut names = BTreeMap::new();
    files.iter().for_each(|file| *names.entry(shape_of(&file.path)).or_default() += 1);
    let last =
        files.iter().max_by_key(|file| file.stamp.modified_nanos).map(|file| shape_of(&file.path));
    NameCounts { names, last }
}

pub(crate) fn count(names: impl Iterator<Item = String>) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    names.for_each(|name| *counts.entry(name).or_default() += 1);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(paths: &[&str], places: &Places) -> Vec<FolderPart> {
        let partition = Partition::new(paths.iter().copied(), places);
        paths.iter().map(|path| partition.part_of(path)).collect()
    }

    fn numbered_part(parent: &str, numbers: &[u64]) -> FolderPart {
        FolderPart::Numbered { parent: parent.into(), numbers: numbers.to_vec() }
    }

    #[test]
    fn names_that_differ_in_numbers_are_parts_and_pieces_are_not() {
        for series in [
            ["checkpoint-500/model.pt", "checkpoint-1000/model.pt"],
            ["step-100.ckpt", "step-200.ckpt"],
            ["epoch=3-step=400.ckpt", "epoch=4-step=500.ckpt"],
            ["model.ckpt-10.data-00000-of-00002", "model.ckpt-20.data-00000-of-00002"],
            ["weights/epoch3.pt", "weights/epoch4.pt"],
        ] {
            let parts = parts(&series, &Places::default());
            assert!(
                parts[0] != parts[1] && !parts.contains(&FolderPart::Common),
                "{series:?}: {parts:?}"
            );
        }
        for common in [
            ["model.pt", "optimizer.pt"],
            ["resnet50.pt", "optimizer.pt"],
            ["rank0.pt", "rank1.pt"],
            ["rng_state_0.pth", "rng_state_1.pth"],
            ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
            ["mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt"],
            ["train-1.log", "train-2.log"],
        ] {
            assert_eq!(
                parts(&common, &Places::default()),
                [FolderPart::Common, FolderPart::Common],
                "{common:?}"
            );
        }
    }

    #[test]
    fn files_of_one_number_are_one_part() {
        let files = ["model-100.pt", "model-99.pt", "optim-0100.pt", "optim-99.pt"];
        let parts = parts(&files, &Places::default());
        assert_eq!(
            parts,
            [
                numbered_part("", &[100]),
                numbered_part("", &[99]),
                numbered_part("", &[100]),
                numbered_part("", &[99])
            ]
        );
    }

    #[test]
    fn file_of_a_number_joins_the_series_beside_it() {
        let files = ["model-8.pt", "model-9.pt", "optim-8.pt"];
        assert_eq!(parts(&files, &Places::default())[2], numbered_part("", &[8]));
    }

    #[test]
    fn run_folder_is_a_place_once_checkpoints_are_made_in_it() {
        let files = [
            "version_0/checkpoints/epoch=0-step=20.ckpt",
            "version_0/checkpoints/epoch=1-step=40.ckpt",
            "version_0/hparams.yaml",
        ];
        assert_eq!(parts(&files, &Places::default()), vec![numbered_part("", &[0]); 3]);
        let mut places = Places::default();
        places.add_folders_of(files[1], true);
        let inner = |numbers: &[u64]| numbered_part("version_0/checkpoints", numbers);
        assert_eq!(parts(&files, &places), [inner(&[0, 20]), inner(&[1, 40]), FolderPart::Common]);
        let next = ["version_1/checkpoints/epoch=0-step=20.ckpt", "version_1/hparams.yaml"];
        assert_eq!(
            parts(&next, &places),
            [FolderPart::Common, FolderPart::Common],
            "the folder of the next start is a place too"
        );
    }

    #[test]
    fn log_is_known_by_its_name() {
        for log in [
            "train.log",
            "runs/Nov21/events.out.tfevents.17.host",
            "version_0/metrics.csv",
            "train-20261121.log",
            "run/log.txt",
            "train_log.txt",
            "wandb/offline-run-1-a/files/x.json",
        ] {
            assert!(is_log(log), "{log}");
        }
        for part in ["state.json", "model.pt", "logs", "vocab.txt", "catalog.txt"] {
            assert!(!is_log(part), "{part}");
        }
    }

    #[test]
    fn unfinished_names_do_not_count() {
        for name in [
            "a.tmp",
            "a.part",
            "a~",
            ".tmpXYZ",
            "x/.tmp-1/model.pt",
            "tmp-checkpoint-50/model.pt",
            "50.orbax-checkpoint-tmp/d/x",
            "a.__lock",
        ] {
            assert!(is_unfinished(name), "{name}");
        }
        assert!(!is_unfinished("kept.pt"));
    }
}
