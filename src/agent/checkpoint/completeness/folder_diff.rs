//! Compares two looks at a checkpoint folder.
//!
//! Not here: the file system, time, and what follows from a difference.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::file_names::{
    FolderPart, NameNumbers, Partition, Places, is_log, is_unfinished, join, kinds, numbered, split,
};
use crate::ports::{FileStamp, Tree, TreeFile, TreeLink};

/// The files of the folder at one moment.
pub(crate) type FolderListing = Arc<Vec<TreeFile>>;

/// Whether a look found this file. Listings are ordered by path.
pub(crate) fn lists(listing: &FolderListing, path: &str) -> bool {
    listing.binary_search_by(|file| file.path.as_str().cmp(path)).is_ok()
}

/// The parts of a picture that are unchanged. `None` if the common files have changed.
pub(crate) fn remaining(
    picture: &FolderListing,
    seen: &FolderListing,
    places: &Places,
) -> Option<Vec<TreeFile>> {
    let partition =
        Partition::new(picture.iter().chain(seen.iter()).map(|file| file.path.as_str()), places);
    let parts = |picture: &FolderListing| {
        let mut parts: BTreeMap<FolderPart, Vec<TreeFile>> = BTreeMap::new();
        for file in without_logs(picture) {
            parts.entry(partition.part_of(&file.path)).or_default().push(file.clone());
        }
        parts
    };
    let (was, is) = (parts(picture), parts(seen));
    if was
        .get(&FolderPart::Common)
        .is_some_and(|common| is.get(&FolderPart::Common) != Some(common))
    {
        return None;
    }
    let mut files: Vec<TreeFile> = was
        .into_iter()
        .filter(|(part, files)| is.get(part) == Some(files))
        .flat_map(|(_, files)| files)
        .collect();
    files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Some(files)
}

/// Whether only logs of a picture have changed.
pub(crate) fn stands(picture: &FolderListing, seen: &FolderListing, places: &Places) -> bool {
    remaining(picture, seen, places).is_some_and(|files| files.iter().eq(without_logs(picture)))
}

/// Whether a part of a picture has a new file by now: then it was not complete.
pub(crate) fn has_grown(picture: &FolderListing, seen: &FolderListing, places: &Places) -> bool {
    let known: HashSet<&str> = picture.iter().map(|file| file.path.as_str()).collect();
    // Each second of an upload asks, and usually nothing is new. To sort 60,000 names into parts
    // takes longer than to send them.
    let new: Vec<&str> = seen
        .iter()
        .map(|file| file.path.as_str())
        .filter(|path| !known.contains(path) && !is_log(path))
        .collect();
    if new.is_empty() {
        return false;
    }
    let partition =
        Partition::new(picture.iter().chain(seen.iter()).map(|file| file.path.as_str()), places);
    let parts: HashSet<FolderPart> =
        without_logs(picture).map(|file| partition.part_of(&file.path)).collect();
    new.iter().any(|path| parts.contains(&partition.part_of(path)))
}

/// The greatest numbers of each kind of file in a folder.
pub(crate) fn latest(picture: &FolderListing) -> HashMap<String, NameNumbers> {
    let mut latest: HashMap<String, NameNumbers> = HashMap::new();
    for file in picture.iter() {
        let (folder, name) = split(&file.path);
        let Some((shape, numbers)) = numbered(name) else { continue };
        let known = latest.entry(join(folder, &shape)).or_default();
        *known = numbers.max(std::mem::take(known));
    }
    latest
}

/// The numbers inside each numbered folder, by kind.
pub(crate) type KindsInside = HashMap<FolderPart, HashMap<String, HashSet<NameNumbers>>>;

pub(crate) fn inside_parts(picture: &FolderListing, partition: &Partition<'_>) -> KindsInside {
    let mut inside = KindsInside::new();
    for file in picture.iter() {
        let part = partition.part_of(&file.path);
        let FolderPart::Numbered { parent, .. } = &part else { continue };
        let kinds: Vec<(String, NameNumbers)> = kinds_inside(parent, &file.path).collect();
        let known = inside.entry(part).or_default();
        for (kind, numbers) in kinds {
            known.entry(kind).or_default().insert(numbers);
        }
    }
    inside
}

/// The numbers of a path below a numbered folder in `parent`.
pub(crate) fn kinds_inside<'a>(
    parent: &'a str,
    path: &str,
) -> impl Iterator<Item = (String, NameNumbers)> + use<'a> {
    kinds(path).into_iter().filter(|(kind, _)| {
        kind.len() > parent.len() && kind[parent.len()..].trim_start_matches('/').contains('/')
    })
}

/// The files of each part, without logs.
pub(crate) fn by_part<'a>(
    picture: &'a FolderListing,
    partition: &Partition<'_>,
) -> BTreeMap<FolderPart, Vec<&'a TreeFile>> {
    let mut parts: BTreeMap<FolderPart, Vec<&TreeFile>> = BTreeMap::new();
    for file in picture.iter().filter(|file| !is_log(&file.path)) {
        parts.entry(partition.part_of(&file.path)).or_default().push(file);
    }
    parts
}

pub(crate) fn same_but_logs(one: &FolderListing, other: &FolderListing) -> bool {
    without_logs(one).eq(without_logs(other))
}

/// Whether a picture has files that an earlier one does not.
pub(crate) fn has_news(picture: &FolderListing, before: &FolderListing) -> bool {
    has_news_but(picture, before, |_| false)
}

/// The same, without some files beside the logs.
pub(crate) fn has_news_but(
    picture: &FolderListing,
    before: &FolderListing,
    is_side: impl Fn(&str) -> bool,
) -> bool {
    let before = stamps(before);
    without_logs(picture).any(|file| !is_in(&before, file) && !is_side(&file.path))
}

/// The earliest time of the files that a picture has and an earlier one does not: nanoseconds since
/// 1970, by their file system.
pub(crate) fn written_first(before: &FolderListing, after: &FolderListing) -> Option<i64> {
    let before = stamps(before);
    let new = without_logs(after).filter(|file| !is_in(&before, file));
    new.map(|file| file.stamp.modified_nanos).min()
}

/// Whether nothing is new and the newest file was deleted: the job continues from the checkpoint
/// before. (Scripts delete the oldest one at every save.)
pub(crate) fn goes_back(picture: &FolderListing, before: &FolderListing) -> bool {
    let newest = without_logs(before).max_by_key(|file| file.stamp.modified_nanos);
    newest.is_some_and(|newest| picture.iter().all(|file| file.path != newest.path))
        && !has_news(picture, before)
}

/// Whether a picture has every file of an earlier one that is still in the folder.
pub(crate) fn holds_what_stands(
    picture: &FolderListing,
    (before, seen): (&FolderListing, &FolderListing),
) -> bool {
    let (picture, seen) = (stamps(picture), stamps(seen));
    without_logs(before).all(|file| !is_in(&seen, file) || is_in(&picture, file))
}

pub(crate) fn without_logs(picture: &FolderListing) -> impl Iterator<Item = &TreeFile> {
    picture.iter().filter(|file| !is_log(&file.path))
}

/// To look up a file: a folder may hold ten thousand.
pub(crate) fn stamps(picture: &FolderListing) -> HashMap<&str, FileStamp> {
    picture.iter().map(|file| (file.path.as_str(), file.stamp)).collect()
}

/// Whether a picture has this file unchanged.
pub(crate) fn is_in(known: &HashMap<&str, FileStamp>, file: &TreeFile) -> bool {
    known.get(file.path.as_str()) == Some(&file.stamp)
}

/// A file is rewritten, or appears under another number: a save after another.
pub(crate) fn saves_again(before: &FolderListing, after: &FolderListing) -> bool {
    let was = stamps(before);
    let known: BTreeSet<(String, Vec<u64>)> =
        without_logs(before).flat_map(|file| kinds(&file.path)).collect();
    let is_another = |(kind, numbers): (String, Vec<u64>)| {
        let of_kind =
            known.range((kind.clone(), Vec::new())..).take_while(|(other, _)| *other == kind);
        of_kind.clone().next().is_some() && of_kind.clone().all(|(_, other)| *other != numbers)
    };
    without_logs(after).any(|file| match was.get(file.path.as_str()) {
        Some(stamp) => *stamp != file.stamp,
        None => kinds(&file.path).into_iter().any(is_another),
    })
}

/// The folder holds one file beside logs, and another has taken its place.
pub(crate) fn one_replaced(before: &FolderListing, after: &FolderListing) -> bool {
    replaced(&without_logs(before).collect::<Vec<_>>(), &without_logs(after).collect::<Vec<_>>())
}

/// One file in the place of another by rename: it was complete when it got its name.
pub(crate) fn replaced(old: &[&TreeFile], new: &[&TreeFile]) -> bool {
    let ([old], [new]) = (old, new) else { return false };
    old.path == new.path && old.stamp.inode != new.stamp.inode
}

/// The type bits of a link's mode (`S_IFLNK`). A picture lists a link to a folder as a file with
/// this mode.
const LINK: u32 = 0o120_000;

pub(crate) fn is_link(file: &TreeFile) -> bool {
    file.stamp.mode & LINK == LINK
}

/// The files and links of a checkpoint, without those whose names say unfinished.
pub(crate) fn picture(tree: Tree) -> FolderListing {
    let link = |link: TreeLink| TreeFile {
        path: link.path,
        stamp: FileStamp { mode: link.stamp.mode | LINK, ..link.stamp },
    };
    let mut files: Vec<TreeFile> =
        tree.files.into_iter().filter(|file| !is_unfinished(&file.path)).collect();
    let links = tree.links.into_iter().filter(|link| !is_unfinished(&link.path)).map(link);
    let had = files.len();
    files.extend(links);
    if files.len() > had {
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    }
    Arc::new(files)
}
