//! Scans the workload's output for signs of activity: its size, matching lines, the "done" line.
//!
//! Never waits for the store: a store that is down must not make a job look stalled. The work is
//! bounded by bytes and by lines a second. Output beyond that is counted but not matched.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use regex_lite::Regex;

use super::progress_lines::Reader;
use super::progress_steps::{PrintedProgress, Steps};
use super::shipping_state::{FollowedStart, LogPosition, ShippingState, segment_name, segments};
use crate::agent::activity_counters::{ActivityCounters, ClockReading};
use crate::agent::report::retry_sender::Outbox;
use crate::agent::startup::attempt::SETUP;
use crate::agent::timers::to_next;

/// The time between two looks without a wake-up. The loop wakes the scan at each tick after new
/// output. This one is for output that the holder could not count; shorter would wake the processor
/// more often.
pub(crate) const LOOK: Duration = Duration::from_secs(4);

const LOOK_BYTES_MAX: u64 = 16 << 20;

/// The wait after a look that did not reach the end. With it the scan reads 32 MB a second: thirty
/// times a verbose training, and a few percent of a core.
const BEHIND: Duration = Duration::from_millis(500);

/// Bytes read at a time, before other tasks run.
const CHUNK_BYTES: usize = 256 * 1024;

/// Only the beginning of a line is matched. Progress lines are short; a printed tensor may be 10
/// MB.
const LINE_BYTES_MAX: usize = 4096;

/// Lines matched in one look: at some ten microseconds each, two percent of a core. More lines only
/// count as bytes.
const LINES_MAX: usize = 1000;

/// Bytes read in one look when only a bar is searched: its newest state is at the end.
const SKIM_BYTES: u64 = 64 * 1024;

/// The meaning of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LineSign {
    /// It matches the pattern; with its step, if its first group is a number.
    Match(Option<f64>),
    /// A step from a bar or a line of a stock program, and its loss.
    Shown(PrintedProgress, Option<f64>),
    Done,
}

/// Splits bytes into lines and matches each.
#[derive(Default)]
pub(crate) struct LineScan {
    pattern: Option<Regex>,
    done_line: Option<String>,
    /// Without a pattern.
    shown: Option<(Reader, Steps)>,
    /// The start is the command's, not the setup's.
    is_work: bool,
    line: Vec<u8>,
    lines_left: usize,
}

impl LineScan {
    pub(crate) fn new(pattern: Option<Regex>, done_line: Option<String>) -> Self {
        let shown = pattern.is_none().then(|| (Reader::new(), Steps::default()));
        LineScan {
            pattern,
            done_line,
            shown,
            is_work: true,
            line: Vec::new(),
            lines_left: LINES_MAX,
        }
    }

    fn wants_all(&self) -> bool {
        self.pattern.is_some() || self.done_line.is_some()
    }

    /// Another start of the workload, or its setup, whose bars do not count.
    fn begins(&mut self, is_work: bool) {
        self.is_work = is_work;
        if let Some((_, steps)) = &mut self.shown {
            *steps = Steps::default();
        }
    }

    pub(crate) fn renew(&mut self) {
        self.lines_left = LINES_MAX;
    }

    /// A carriage return also ends a line: progress bars write nothing else.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut said: impl FnMut(LineSign)) {
        for part in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let ends = part.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r'));
            let text = if ends { &part[..part.len() - 1] } else { part };
            let room = LINE_BYTES_MAX - self.line.len();
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            if ends {
                self.line_ends(&mut said);
                self.line.clear();
            }
        }
    }

    /// The output has ended, and so has its last line.
    pub(crate) fn end(&mut self, mut said: impl FnMut(LineSign)) {
        self.line_ends(&mut said);
        self.line.clear();
    }

    fn line_ends(&mut self, said: &mut impl FnMut(LineSign)) {
        if self
            .done_line
            .as_ref()
            .is_some_and(|done| self.line.trim_ascii() == done.as_bytes().trim_ascii())
        {
            said(LineSign::Done);
        }
        if self.line.is_empty() || self.lines_left == 0 {
            return;
        }
        self.lines_left -= 1;
        let text = String::from_utf8_lossy(&self.line);
        if let Some((reader, steps)) = self.shown.as_mut().filter(|_| self.is_work)
            && let Some(line) = reader.read(&text)
            && let Some(stand) = steps.take(&line)
        {
            said(LineSign::Shown(stand, line.loss));
        }
        let Some(pattern) = &self.pattern else { return };
        if let Some(captures) = pattern.captures(&text) {
            let step = captures
                .get(1)
                .and_then(|group| group.as_str().replace([',', '_'], "").parse().ok());
            said(LineSign::Match(step));
        }
    }
}

/// The scan of all starts, in order.
struct Scan {
    shared: Arc<ShippingState>,
    board: ActivityCounters,
    lines: LineScan,
    place: LogPosition,
    budget: u64,
    /// Output from before the first look was written at an unknown time.
    timed: bool,
}

pub(crate) async fn run(shared: Arc<ShippingState>, board: ActivityCounters, lines: LineScan) {
    let mut scan =
        Scan { shared, board, lines, place: LogPosition::default(), budget: 0, timed: false };
    loop {
        scan.lines.renew();
        scan.budget = LOOK_BYTES_MAX;
        let mut behind = false;
        for follow in &*scan.shared.follows() {
            behind = follow.start >= scan.place.start && !scan.read(follow).await;
            if behind {
                break;
            }
        }
        scan.timed = true;
        let clock = &scan.shared.outbox.clock;
        tokio::select! {
            biased;
            () = clock.sleep(if behind { BEHIND } else { to_next(clock.mono(), LOOK) }) => {}
            () = scan.shared.wake_scan.notified() => {}
        }
    }
}

impl Scan {
    /// Reads new output of a start. `false`: there is more than one look may read.
    async fn read(&mut self, follow: &FollowedStart) -> bool {
        if follow.start > self.place.start {
            self.end_line();
            self.place = LogPosition { start: follow.start, segment: 0, offset: 0 };
            *self.shared.scanned() = self.place;
            self.lines.begins(follow.label.as_deref() != Some(SETUP));
        }
        let dir = follow.dir.join("log");
        for (segment, bytes) in segments(&self.shared.outbox, &dir) {
            if segment < self.place.segment {
                continue;
            }
            if segment > self.place.segment {
                self.place = LogPosition { start: follow.start, segment, offset: 0 };
            }
            let unread = bytes.saturating_sub(self.place.offset);
            let skim =
                if self.lines.is_work && !self.board.has_own_steps() { SKIM_BYTES } else { 0 };
            if !self.lines.wants_all() && unread > skim {
                self.board.record_log_bytes(unread - skim);
                self.place.offset = bytes - skim;
                self.lines.line.clear();
            }
            while self.place.offset < bytes && self.budget > 0 && self.chunk(&dir).await {}
            *self.shared.scanned() = self.place;
            if self.place.offset < bytes && self.budget == 0 {
                return false;
            }
        }
        if follow.ended {
            self.end_line();
        }
        true
    }

    /// Reads a chunk. `false`: there is nothing to read.
    async fn chunk(&mut self, dir: &Path) -> bool {
        let path = dir.join(segment_name(self.place.segment));
        let Ok(Some(bytes)) =
            self.shared.outbox.files.read_from(&path, self.place.offset, CHUNK_BYTES)
        else {
            return false;
        };
        self.place.offset += bytes.len() as u64;
        self.budget = self.budget.saturating_sub(bytes.len() as u64);
        self.board.record_log_bytes(bytes.len() as u64);
        let Scan { lines, board, shared, timed, .. } = self;
        let before = board.reports().0;
        // With several new bar states, only the newest has its time.
        let mut shown = None;
        lines.feed(&bytes, |said| match said {
            LineSign::Shown(..) => shown = Some(said),
            said => tell(board, &shared.outbox, said, *timed),
        });
        if board.reports().0 > before {
            let stamp = shared.outbox.files.stamp(&path).ok().flatten();
            board.told_by(stamp.map(|stamp| stamp.modified_nanos));
        }
        shown.into_iter().for_each(|said| tell(board, &shared.outbox, said, *timed));
        tokio::task::yield_now().await;
        !bytes.is_empty()
    }

    fn end_line(&mut self) {
        let Scan { lines, board, shared, timed, .. } = self;
        lines.end(|said| tell(board, &shared.outbox, said, *timed));
    }
}

fn tell(board: &ActivityCounters, outbox: &Outbox, said: LineSign, timed: bool) {
    let now = ClockReading::now(&*outbox.clock);
    match said {
        LineSign::Done => board.set_done(now.mono),
        LineSign::Match(step) => {
            board.record_sign();
            if let Some(step) = step {
                board.record_step(step, now, timed);
            }
        }
        LineSign::Shown(stand, loss) => board.record_printed(stand, loss, now, timed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(pattern: &str, done: Option<&str>, pieces: &[&[u8]]) -> Vec<LineSign> {
        let mut scan = LineScan::new(Some(Regex::new(pattern).unwrap()), done.map(str::to_owned));
        let mut said = Vec::new();
        for piece in pieces {
            scan.feed(piece, |what| said.push(what));
        }
        scan.end(|what| said.push(what));
        said
    }

    #[test]
    fn pattern_matches_across_chunks_and_first_group_is_step() {
        let step = |step| LineSign::Match(Some(step));
        assert_eq!(
            scan(r"step (\d+)", None, &[b"epoch 1 st", b"ep 12 loss 0.1\nnoise\nstep 13"]),
            [step(12.0), step(13.0)]
        );
        assert_eq!(
            scan(r"(\d[\d,]*)/", None, &[b"\r1,024/9000 it\r2,048/9000 it\r"]),
            [step(1024.0), step(2048.0)]
        );
        assert_eq!(
            scan("epoch", Some("ALL DONE"), &[b"epoch x\n  ALL DONE \nnot ALL DONE\n"]),
            [LineSign::Match(None), LineSign::Done]
        );
    }

    #[test]
    fn long_line_and_binary_count_as_one_line_each() {
        let long = vec![b'x'; 10 << 20];
        let binary: Vec<u8> = (0..=255u8).filter(|byte| !matches!(byte, b'\n' | b'\r')).collect();
        assert_eq!(
            scan("^x", None, &[&long, b"\n", &binary, b"\nstep\n"]),
            [LineSign::Match(None)]
        );
    }

    #[test]
    fn bars_are_read_without_pattern_but_not_in_setup() {
        let bar = b"\r 37%|###   | 37/100 [00:10<00:17,  3.60it/s]\r 40%|###   | 40/100 [00:11<00:17,  3.60it/s]\r";
        let read = |is_work| {
            let mut scan = LineScan::new(None, None);
            scan.begins(is_work);
            let mut said = Vec::new();
            scan.feed(bar, |what| said.push(what));
            said
        };
        let shown = |step| LineSign::Shown(PrintedProgress { step, total: None }, None);
        assert_eq!((read(true), read(false)), (vec![shown(37.0), shown(40.0)], vec![]));
        assert_eq!(scan("never", None, &[bar]), [], "a pattern goes before");
    }

    #[test]
    fn flood_is_matched_up_to_limit_and_done_line_always() {
        let mut text = b"step 1\n".repeat(LINES_MAX * 3);
        text.extend_from_slice(b"done\n");
        let said = scan(r"step (\d+)", Some("done"), &[&text]);
        assert_eq!(said.len(), LINES_MAX + 1);
        assert_eq!(said.last(), Some(&LineSign::Done));
    }
}
