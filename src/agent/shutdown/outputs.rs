//! Keeps the user's outputs at the end of an attempt.
//!
//! A pattern is a path below the workdir, a folder with its content, or a glob (`job::spec::glob`).
//! The outcome names outputs that are missing or were not uploaded.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::StreamExt;

use crate::agent::report::retry_sender::{Outbox, RetryDelay, chain};
use crate::job::{GLOB_LETTERS, OutputGlob, absence, plain_path};
use crate::jobdir::layout;
use crate::ports::{StoreError, Tree, TreeFile};

/// Parallel uploads of small files: each waits some 30 ms, so sixteen make 500 a second.
const SMALL_IN_FLIGHT: usize = 16;

/// Parallel uploads of large files. A store sends the parts of one in parallel. When time runs out,
/// some files should be complete.
const LARGE_IN_FLIGHT: usize = 4;

/// A small file is sent to a bucket in one request.
const SMALL_BYTES: u64 = 8 * 1024 * 1024;

/// The most files for one pattern, below its literal part. A virtual environment with PyTorch has
/// thirty thousand; more is a data set, which needs a narrower path. Each costs about 150 bytes.
pub(crate) const FILES_MAX: usize = 60_000;

/// How long the search for files may take. As many files as allowed are found within a minute on a
/// slow network disk. A slower one hangs, and later steps need the time.
const FOUND_WITHIN: Duration = Duration::from_secs(5 * 60);

/// Sentences about single files; the rest is a number.
const LOSSES_MAX: usize = 10;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptOutputs {
    pub files: u64,
    pub bytes: u64,
    /// Sentences for the outcome.
    pub losses: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct WantedOutputs<'a> {
    /// Named by the user: a missing one is a loss.
    pub named: &'a [String],
    /// Default places: kept if there are files.
    pub if_any: &'a [&'a str],
}

/// Uploads the wanted files to `outputs/`, until `time_is_up` resolves, which is not known in
/// advance.
pub async fn upload(
    outbox: &Outbox,
    workdir: &Path,
    wanted: WantedOutputs<'_>,
    time_is_up: impl Future<Output = ()>,
) -> KeptOutputs {
    let kept = Mutex::new(KeptOutputs::default());
    let begun = outbox.clock.mono();
    let took = || outbox.clock.mono().saturating_sub(begun).as_secs();
    let mut time_is_up = pin!(time_is_up);
    let finding = outbox.within(FOUND_WITHIN, find(outbox, workdir, wanted));
    let Some(found) = before(time_is_up.as_mut(), finding).await.flatten() else {
        let losses =
            vec![format!("the outputs were not found within {} s, so none is kept", took())];
        return KeptOutputs { losses, ..KeptOutputs::default() };
    };
    let pace = RetryDelay::default();
    // The machine will soon be off: retry quickly.
    pace.hurry();
    let arrived = Mutex::new(vec![false; found.files.len()]);
    let unfit = Mutex::new(BTreeMap::<usize, String>::new());
    let keep = |(index, file)| -> BoxFuture<'_, ()> {
        let (kept, arrived, pace, unfit) = (&kept, &arrived, &pace, &unfit);
        async move {
            match send(outbox, workdir, file, pace).await {
                Ok(bytes) => {
                    let mut kept = kept.lock().expect("never held over a panic");
                    kept.files += 1;
                    kept.bytes += bytes;
                    arrived.lock().expect("never held over a panic")[index] = true;
                }
                Err(error) => {
                    tracing::warn!("output `{}` is not kept: {}", file.path, chain(&error));
                    if let StoreError::Unfit { cause, .. } = error {
                        unfit
                            .lock()
                            .expect("never held over a panic")
                            .insert(index, chain(&*cause));
                    }
                }
            }
        }
        .boxed()
    };
    let (small, large): (Vec<_>, Vec<_>) =
        found.files.iter().enumerate().partition(|(_, file)| file.stamp.bytes <= SMALL_BYTES);
    let (small, large): (Vec<_>, Vec<_>) =
        (small.into_iter().map(&keep).collect(), large.into_iter().map(&keep).collect());
    let small = futures::stream::iter(small).buffer_unordered(SMALL_IN_FLIGHT).collect::<()>();
    let large = futures::stream::iter(large).buffer_unordered(LARGE_IN_FLIGHT).collect::<()>();
    let all = futures::future::join(small, large);
    let in_time = before(time_is_up, all).await.is_some();
    let arrived = arrived.into_inner().expect("never held over a panic");
    let unfit = unfit.into_inner().expect("never held over a panic");
    let text = |index: usize, path: &str| match unfit.get(&index) {
        Some(why) => format!("output `{path}` was not kept: {why}"),
        None => format!("output `{path}` was not kept"),
    };
    let missing = arrived.iter().enumerate().filter(|(_, arrived)| !**arrived);
    let missing: Vec<String> =
        missing.map(|(index, _)| text(index, &found.files[index].path)).collect();
    let mut kept = kept.into_inner().expect("never held over a panic");
    kept.losses = found.losses;
    kept.losses.extend(missing.iter().take(LOSSES_MAX).cloned());
    if missing.len() > LOSSES_MAX {
        kept.losses.push(format!("{} more outputs were not kept", missing.len() - LOSSES_MAX));
    }
    if !in_time {
        kept.losses.push(format!("the upload of the outputs was cut after {} s", took()));
    }
    kept
}

async fn before<T>(
    time_is_up: Pin<&mut impl Future<Output = ()>>,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = time_is_up => None,
    }
}

/// Retries until the file arrives, or can never arrive.
async fn send(
    outbox: &Outbox,
    workdir: &Path,
    file: &TreeFile,
    pace: &RetryDelay,
) -> Result<u64, StoreError> {
    let key = format!("{}{}", layout::outputs(outbox.dir.job()), file.path);
    let path = workdir.join(&file.path);
    let mut failures = 0;
    loop {
        match outbox.dir.store().put_file_unhashed(&key, &path).await {
            Ok(bytes) => return Ok(bytes),
            Err(
                error @ (StoreError::Denied { .. }
                | StoreError::Full { .. }
                | StoreError::Unfit { .. }),
            ) => return Err(error),
            Err(error) if matches!(outbox.files.stamp_aside(&path).await, Ok(None)) => {
                return Err(error);
            }
            Err(_) => {}
        }
        failures += 1;
        pace.wait(&*outbox.clock, failures).await;
    }
}

#[derive(Default)]
struct FoundOutputs {
    files: Vec<TreeFile>,
    losses: Vec<String>,
}

async fn find(outbox: &Outbox, workdir: &Path, wanted: WantedOutputs<'_>) -> FoundOutputs {
    let mut found = FoundOutputs::default();
    let mut files = BTreeMap::new();
    let named = wanted.named.iter().map(|glob| (glob.as_str(), true));
    for (glob, is_named) in named.chain(wanted.if_any.iter().map(|glob| (*glob, false))) {
        let (base, pattern) = (base(glob), Pattern::new(glob));
        let (tree, prefix) = match look(outbox, workdir, &base).await {
            Ok(seen) => seen,
            Err(error) => {
                found.losses.push(format!("output `{glob}` was not kept: {error}"));
                continue;
            }
        };
        let full = |path: &str| format!("{prefix}{path}");
        let mut any = false;
        for file in tree.files.iter().filter(|file| pattern.matches(&full(&file.path))) {
            any = true;
            files.insert(full(&file.path), file.stamp);
        }
        if !any && is_named {
            found.losses.push(absence(glob));
        }
        if tree.truncated {
            found.losses.push(format!(
                "some of `{glob}` may be missing: there are more than {FILES_MAX} files"
            ));
        }
        let skipped =
            tree.skipped.iter().map(|text| full(text)).filter(|text| {
                text.split_once(": ").is_some_and(|(path, _)| pattern.matches(path))
            });
        found.losses.extend(skipped.take(LOSSES_MAX).map(|text| format!("output {text}")));
    }
    found.files = files.into_iter().map(|(path, stamp)| TreeFile { path, stamp }).collect();
    found
}

/// The files at the literal part of a pattern, and the prefix of their paths.
async fn look(outbox: &Outbox, workdir: &Path, base: &str) -> std::io::Result<(Tree, String)> {
    let path = workdir.join(base);
    if let Some(stamp) = outbox.files.stamp_aside(&path).await? {
        let files = vec![TreeFile { path: base.to_owned(), stamp }];
        return Ok((Tree { files, ..Tree::default() }, String::new()));
    }
    let tree = outbox.files.walk_aside(&path, FILES_MAX).await?;
    Ok((tree, if base.is_empty() { String::new() } else { format!("{base}/") }))
}

fn base(glob: &str) -> String {
    let glob = plain_path(glob);
    let literal = |part: &&str| !part.contains(GLOB_LETTERS);
    glob.split('/').take_while(literal).collect::<Vec<_>>().join("/")
}

/// A pattern, ready for many paths.
pub(crate) struct Pattern {
    /// A file name may look like a pattern.
    path: String,
    /// `None`: only a path, or an invalid pattern, which `lamp check` has refused.
    glob: Option<OutputGlob>,
}

impl Pattern {
    pub fn new(glob: &str) -> Self {
        let is_glob = glob.contains(GLOB_LETTERS);
        Pattern {
            path: plain_path(glob),
            glob: if is_glob { OutputGlob::new(glob).ok() } else { None },
        }
    }

    /// Whether a path is named by the pattern, or is below it.
    pub fn matches(&self, path: &str) -> bool {
        if self.path.is_empty() {
            return false;
        }
        let is_below = path
            .strip_prefix(&self.path)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        is_below || self.glob.as_ref().is_some_and(|glob| glob.names(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_paths_folders_and_globs() {
        for (glob, path, expected) in [
            ("model.pt", "model.pt", true),
            ("model.pt", "sub/model.pt", false),
            ("./out/", "out/a/b.txt", true),
            ("out", "out.txt", false),
            ("*.json", "a.json", true),
            ("*.json", "sub/a.json", false),
            ("**/*.json", "a.json", true),
            ("**/*.json", "x/y/a.json", true),
            ("runs/*/metrics.csv", "runs/7/metrics.csv", true),
            ("runs/*", "runs/7/metrics.csv", true),
            ("a?c*e", "abcdee", true),
            ("a?c*e", "ac", false),
            ("**", "anything/at/all", true),
            ("", "a", false),
            ("*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
            ("out/**", "out/a/b", true),
            ("a**b", "a/b", false),
            ("model_[0-9].pt", "model_7.pt", true),
            ("model_[0-9].pt", "model_x.pt", false),
            ("model_[!0-9].pt", "model_x.pt", true),
            ("a[!b]c", "a/c", false),
            ("*.{pt,json}", "model.pt", true),
            ("*.{pt,json}", "log.txt", false),
            ("{runs/*,out}/m.csv", "runs/1/m.csv", true),
            ("{**/x,y}", "a/b/x", true),
            ("run[1].txt", "run1.txt", true),
            ("run[1].txt", "run[1].txt", true),
            ("run\\[1].txt", "run[1].txt", true),
            ("run\\[1].txt", "run1.txt", false),
            ("[a", "[a", true),
            ("[]a-]*", "-x", true),
            ("(a|b).$", "a.$", false),
        ] {
            assert_eq!(Pattern::new(glob).matches(path), expected, "{glob} {path}");
        }
    }
}
