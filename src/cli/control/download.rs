//! Fetches a job's files: which exist, which are here already, and the progress.
//!
//! ```text
//!   list ──> each file:  not here ───────────────────────> fetched, and dated as its object
//!                        here, same size and date ───────> already there
//!                        here, same size, another date ──> fetched beside it and compared
//!                        here, another size ─────────────> left as it is, unless forced
//! ```
//!
//! Each file is written whole or not at all, so an interrupted fetch continues when the command is
//! repeated. Not here: the summary at the end (`outputs`).

use crate::app::record_errors;
use std::collections::{HashSet, VecDeque};
use std::io::IsTerminal;
use std::path::{Component, Path};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use serde::Serialize;

use crate::app::text::counted;
use crate::cli::output::printer::CLEAR;
use crate::cli::{Context, ExitCode, Fault};
use crate::config;
use crate::job::{CheckpointFile, JobId, Manifest};
use crate::jobdir::{JobDir, JobDirError, layout};
use crate::market::Span;
use crate::wire::{self, KeptFile, Store, show_bytes};

/// One at a time, each small file costs a round trip. Each holds up to 32 MiB in memory.
const FILES_IN_FLIGHT: usize = 8;

const PATIENCE: Duration = Duration::from_secs(1);
const SHOW_EVERY: Duration = Duration::from_millis(200);
/// Without a terminal a progress line comes this often. More fills a log; less looks like a hang.
const WORD_EVERY: Duration = Duration::from_secs(10);

/// An unchanged line is repeated this often, so that a long wait does not look like a hang.
const SAME_WORD_EVERY: Duration = Duration::from_secs(300);

/// One output and its state. The field names are an interface.
#[derive(Clone, Debug, Serialize)]
pub struct Output {
    /// Relative to the job's outputs.
    pub path: String,
    /// Relative to the local folder. Files of `$LAMP_OUTPUT_DIR` have no folder of their own there.
    pub here: String,
    pub bytes: u64,
    /// When it was stored, by the store's clock.
    pub modified: Timestamp,
    pub state: OutputState,
    /// Its key, if that is not its path below the outputs.
    #[serde(skip)]
    pub key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputState {
    /// Seen in the job directory; no fetch was requested.
    Listed,
    Fetched,
    AlreadyThere,
    /// A different file is here, and was left as it is.
    KeptLocal,
    Failed,
}

/// All outputs of a job, in order of their paths.
///
/// # Errors
/// Fails when the job root is unreachable.
pub async fn list(context: &Context, dir: &JobDir) -> Result<Vec<Output>, Fault> {
    let prefix = layout::outputs(dir.job());
    let listing = dir.store().list(&prefix);
    let found = with_progress(context, || "listing the outputs".to_owned(), listing).await;
    let found = found.map_err(|error| record_errors::record_fault(&JobDirError::Store(error)))?;
    let named = found.iter().filter_map(|object| Some((object.key.strip_prefix(&prefix)?, object)));
    // A bucket's console makes empty objects for folders.
    let files = named.filter(|(path, _)| !path.is_empty() && !path.ends_with('/'));
    let output = |(path, object): (&str, &_)| listed(path, object);
    return Ok(at_home(files.map(output).collect()));

    fn listed(path: &str, object: &wire::ObjectMeta) -> Output {
        Output {
            path: path.to_owned(),
            here: path.to_owned(),
            bytes: object.bytes,
            modified: object.modified,
            state: OutputState::Listed,
            key: None,
            error: None,
        }
    }
}

/// Puts files of `$LAMP_OUTPUT_DIR` beside the other outputs. If one name clashes, all keep their
/// place.
fn at_home(mut outputs: Vec<Output>) -> Vec<Output> {
    let begins = format!("{}/", layout::OUTPUT_DIR);
    let first = |path: &str| path.split('/').next().unwrap_or_default().to_owned();
    let (inside, beside): (Vec<&Output>, Vec<&Output>) =
        outputs.iter().partition(|output| output.path.starts_with(&begins));
    let taken: HashSet<String> = beside.iter().map(|output| first(&output.path)).collect();
    if inside.iter().all(|output| !taken.contains(&first(&output.path[begins.len()..]))) {
        for output in &mut outputs {
            if let Some(rest) = output.path.strip_prefix(&begins) {
                output.here = rest.to_owned();
            }
        }
    }
    outputs
}

pub fn of_checkpoint(job: &JobId, manifest: &Manifest, folder: &str) -> Vec<Output> {
    let path = |file: &CheckpointFile| format!("{}/{}", folder.trim_matches('/'), file.path);
    let output = |file: &CheckpointFile| Output {
        path: path(file),
        here: path(file),
        bytes: file.bytes,
        modified: file
            .modified
            .and_then(|nanos| Timestamp::from_nanosecond(nanos.into()).ok())
            .unwrap_or(manifest.created),
        state: OutputState::Listed,
        key: Some(format!("{}{}", layout::job(job), file.key)),
        error: None,
    };
    manifest.files.iter().map(output).collect()
}

/// Fetches the outputs into a folder, and sets the `state` of each.
///
/// # Errors
/// Fails when the disk is too small, or the folder cannot be written.
pub async fn fetch(
    context: &Context,
    dir: &JobDir,
    outputs: Vec<Output>,
    folder: &Path,
    force: bool,
) -> Result<Vec<Output>, Fault> {
    room_for(&outputs, folder, force)?;
    if let Err(error) = wire::make_writable(folder) {
        let what = format!("cannot write into `{}`", config::shown(folder, &context.current_dir));
        let fault = Fault::new(ExitCode::REFUSED, what)
            .because(&error)
            .meaning("nothing was fetched; the outputs are safe in the job root");
        return Err(fault.hint(format!(
            "`lamp outputs {} --to FOLDER` brings them to another folder",
            dir.job()
        )));
    }
    let (all, total) = (outputs.len(), outputs.iter().map(|output| output.bytes).sum::<u64>());
    let (come, done) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
    let brought = stream::iter(outputs).map(|mut output| {
        let (come, done) = (&come, &done);
        async move {
            let before = Seen {
                store: dir.store(),
                key: output
                    .key
                    .clone()
                    .unwrap_or_else(|| format!("{}{}", layout::outputs(dir.job()), output.path)),
                come,
            };
            match before.bring(&output, folder, force).await {
                Ok(state) => output.state = state,
                Err(error) => (output.state, output.error) = (OutputState::Failed, Some(error)),
            }
            done.fetch_add(1, Ordering::Relaxed);
            output
        }
    });
    let pace = Pace::default();
    pace.how_far(0, 0, total, context.clock.mono());
    let told = || {
        let far = pace.how_far(come.load(Ordering::Relaxed), 0, total, context.clock.mono());
        format!(
            "fetching {} of {}, {far}",
            done.load(Ordering::Relaxed),
            counted(all as u64, "file")
        )
    };
    Ok(with_progress(context, told, brought.buffered(FILES_IN_FLIGHT).collect()).await)
}

struct Seen<'a> {
    store: &'a Store,
    key: String,
    /// Bytes of all files so far; skipped files count too.
    come: &'a Arc<AtomicU64>,
}

impl Seen<'_> {
    async fn bring(
        &self,
        output: &Output,
        folder: &Path,
        force: bool,
    ) -> Result<OutputState, String> {
        // A key written by a hostile machine must not lead out of the folder.
        if !Path::new(&output.here).components().all(|part| matches!(part, Component::Normal(_))) {
            return Err("its name leads out of the folder".to_owned());
        }
        let target = folder.join(&output.here);
        let here = KeptFile::at(&target).map_err(|error| error.to_string())?;
        let skip = |state| {
            self.come.fetch_add(output.bytes, Ordering::Relaxed);
            Ok(state)
        };
        match here {
            Some(here) if is_same(&here, output) => return skip(OutputState::AlreadyThere),
            Some(here) if !force && here.bytes != output.bytes => {
                return skip(OutputState::KeptLocal);
            }
            Some(here) if !force => return self.compare(&here, &target).await,
            _ => {}
        }
        self.get(&target).await?;
        // If the time cannot be set, the next fetch compares the contents.
        let _ = wire::date_file(&target, output.modified);
        Ok(OutputState::Fetched)
    }

    async fn compare(&self, here: &KeptFile, target: &Path) -> Result<OutputState, String> {
        let beside = wire::Beside::of(target);
        let theirs = self.get(beside.path()).await?;
        let ours = here.sha256().await.map_err(|error| error.to_string())?;
        Ok(if ours == theirs { OutputState::AlreadyThere } else { OutputState::KeptLocal })
    }

    async fn get(&self, target: &Path) -> Result<String, String> {
        match self.store.get_file_counted(&self.key, target, self.come).await {
            Ok(Some((_, sha256))) => Ok(sha256),
            Ok(None) => Err("it is not there any more".to_owned()),
            Err(error) => Err(Fault::from_error(ExitCode::UNREACHABLE, &error).sentence()),
        }
    }
}

fn is_same(here: &KeptFile, output: &Output) -> bool {
    here.bytes == output.bytes && here.is_dated(output.modified)
}

/// Refuses before the fetch when the disk is too small for all files.
fn room_for(outputs: &[Output], folder: &Path, force: bool) -> Result<(), Fault> {
    let comes = |output: &&Output| match KeptFile::at(&folder.join(&output.here)) {
        Ok(Some(here)) => force && !is_same(&here, output),
        _ => true,
    };
    let needed: u64 = outputs.iter().filter(comes).map(|output| output.bytes).sum();
    match wire::free_bytes(folder) {
        Some(free) if free < needed => {
            let what = format!(
                "the outputs need {}, and `{}` has room for {}",
                show_bytes(needed),
                folder.display(),
                show_bytes(free)
            );
            Err(Fault::new(ExitCode::UNREACHABLE, what)
                .meaning("nothing was fetched")
                .hint("`--to FOLDER` names a place on another disk"))
        }
        _ => Ok(()),
    }
}

/// The transfer rate over the last seconds, since a slow line may become fast.
#[derive(Default)]
pub struct Pace {
    seen: std::cell::RefCell<VecDeque<(Duration, u64)>>,
}

/// The window of the rate; without a terminal it has three samples.
const PACE_OF: Duration = Duration::from_secs(20);

impl Pace {
    /// `1.2 GiB of 20.0 GiB, 45.1 MiB/s, 7m 7s left`. `before`: bytes of an earlier try, which do
    /// not count for the rate.
    pub fn how_far(&self, come: u64, before: u64, total: u64, now: Duration) -> String {
        let mut seen = self.seen.borrow_mut();
        let moved = come.saturating_sub(before);
        if seen.back().is_some_and(|(_, last)| moved < *last) {
            seen.clear();
        }
        seen.push_back((now, moved));
        while seen.len() > 2 && now.saturating_sub(seen[1].0) >= PACE_OF {
            seen.pop_front();
        }
        let (since, first) = seen[0];
        let a_second = (moved - first) as f64 / now.saturating_sub(since).as_secs_f64().max(0.001);
        let mut text = format!("{} of {}", show_bytes(come), show_bytes(total));
        if a_second >= 1.0 {
            let left = total.saturating_sub(come) as f64 / a_second;
            text.push_str(&format!(
                ", {}/s, {} left",
                show_bytes(a_second as u64),
                Span::from_secs(left.ceil() as u64)
            ));
        }
        text
    }
}

/// Runs `work`. After a second, people see its progress.
pub async fn with_progress<T>(
    context: &Context,
    told: impl Fn() -> String,
    work: impl Future<Output = T>,
) -> T {
    let terminal = std::io::stderr().is_terminal()
        && !context.is_machine_output()
        && !context.printer.is_quiet();
    let shown = std::cell::Cell::new(false);
    let show = async {
        context.clock.sleep(PATIENCE).await;
        let mut said: Option<(String, Duration)> = None;
        loop {
            if terminal {
                context.printer.raw_err(&format!("{CLEAR}{}", told()));
                shown.set(true);
                context.clock.sleep(SHOW_EVERY).await;
            } else {
                let (text, now) = (told(), context.clock.mono());
                if is_news(said.as_ref(), &text, now) {
                    context.printer.note(&text);
                    said = Some((text, now));
                }
                context.clock.sleep(WORD_EVERY).await;
            }
        }
    };
    // Clears the line also when Ctrl-C drops the work.
    let _clear = Clear { context, shown: &shown };
    tokio::select! {
        done = work => done,
        () = show => unreachable!("it is shown until the work is done"),
    }
}

fn is_news(said: Option<&(String, Duration)>, text: &str, now: Duration) -> bool {
    said.is_none_or(|(before, at)| before != text || now.saturating_sub(*at) >= SAME_WORD_EVERY)
}

struct Clear<'a> {
    context: &'a Context,
    shown: &'a std::cell::Cell<bool>,
}

impl Drop for Clear<'_> {
    fn drop(&mut self) {
        if self.shown.get() {
            self.context.printer.raw_err(CLEAR);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_line_is_written_into_a_file_once_and_then_now_and_then() {
        let said = Some(("waiting".to_owned(), Duration::from_secs(100)));
        let news = |text: &str, secs: u64| is_news(said.as_ref(), text, Duration::from_secs(secs));
        assert_eq!(
            [
                news("waiting", 110),
                news("waiting", 399),
                news("waiting", 400),
                news("fetched", 110)
            ],
            [false, false, true, true]
        );
        assert!(is_news(None, "waiting", Duration::ZERO));
    }

    #[test]
    fn the_line_says_how_far_and_how_long_by_what_came_lately() {
        let (gib, pace) = (1 << 30, Pace::default());
        let look = |come: u64, before: u64, secs: u64| {
            pace.how_far(come, before, 11 * gib, Duration::from_secs(secs))
        };
        assert_eq!(look(0, 0, 2), "0 B of 11.0 GiB");
        assert_eq!(look(gib, 0, 18), "1.0 GiB of 11.0 GiB, 64.0 MiB/s, 2m 40s left");
        assert_eq!(look(gib, 0, 28), "1.0 GiB of 11.0 GiB, 39.4 MiB/s, 4m 20s left");
        assert_eq!(look(gib + (10 << 20), 0, 38), "1.0 GiB of 11.0 GiB, 512.0 KiB/s, 5h 41m left");
        // A new try, which counts the existing bytes as fast as it reads them.
        assert_eq!(look(gib / 2, gib / 2, 50), "512.0 MiB of 11.0 GiB");
        assert_eq!(look(gib, gib, 51), "1.0 GiB of 11.0 GiB");
        assert_eq!(look(gib + (10 << 20), gib, 60), "1.0 GiB of 11.0 GiB, 1.0 MiB/s, 2h 50m left");
    }
}
