//! Ships the log: cuts pieces, sends them, removes shipped segments.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use serde::{Deserialize, Serialize};

use super::scan::LOOK;
use super::shipping_state::{
    FollowedStart, LogPace, LogPosition, LogSettings, ShippingState, segment_name, segments,
};
use crate::agent::report::batch::Packer;
use crate::agent::report::retry_sender::Outbox;
use crate::agent::timers::to_next;
use crate::jobdir::layout;

/// Raw bytes of one piece: a flood of 32 MB/s makes 32 objects a second. Memory holds at most two
/// pieces.
const PIECE_BYTES_MAX: usize = 1 << 20;

/// The time between two pieces that are not full: a little less than two ticks, which wake the
/// shipper. `lamp logs -f` is at most this much behind. Each piece is a synced file in a synced
/// folder: one a second was a third of the agent's cost beside a line of output a second.
const PIECE_APART: Duration = Duration::from_millis(1900);
/// The same for a store with paid writes: one a second would cost more than all other records. With
/// the ticks it is a piece every three seconds, so a line in `lamp logs -f` is less than five
/// seconds old.
const PIECE_APART_PAID: Duration = Duration::from_millis(2400);
/// The same if the log is not followed.
const PIECE_APART_KEPT: Duration = Duration::from_millis(4900);

/// The time between two full pieces, which limits a flood to 32 MB/s of work.
const FLOOD_APART: Duration = Duration::from_millis(31);

/// The wait while the scan is a little behind.
const SCAN_WAIT: Duration = Duration::from_millis(20);

/// The kept end of a cut output, which has the error message.
const TAIL_BYTES: u64 = 4 << 20;

/// About 500 MB/s; a log shrinks to a fifth.
const ZSTD_LEVEL: i32 = 1;

const STATE: &str = "log.json";

/// The state that survives a crash of the agent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ShipperState {
    start: u32,
    segment: u64,
    offset: u64,
    /// The next piece; with `sending`, the one that may already be in the store.
    piece: u64,
    sending: Option<Piece>,
    shipped: u64,
    /// Bytes skipped beyond the limit, and how many of them the log mentions.
    left_out: u64,
    told: u64,
    /// The limit is reached: from now on only the end is kept.
    full: bool,
}

/// The content of a piece: `before`, then bytes of the segment from the state's offset.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Piece {
    before: String,
    bytes: u64,
}

pub(crate) struct LogShipper {
    shared: Arc<ShippingState>,
    state: ShipperState,
    bytes_max: u64,
    /// The time between two pieces that are not full.
    apart: Duration,
    packer: Packer,
    /// The length of the state file.
    state_bytes: Option<usize>,
    shipped_at: Option<Duration>,
    /// The holder's count when the newest piece reached the end and was not full. `None`: there is
    /// more to send.
    rests_at: Option<u64>,
}

enum ShipStep {
    /// `last`: nothing is known after it.
    Ship { piece: Piece, bytes: Vec<u8>, last: bool },
    /// Something small was done; look again.
    Again,
    /// There is more, and it may wait.
    Later(Duration),
    /// Everything present was shipped.
    AtEnd,
}

/// The first tick of the loop (a whole second) that is at least this far away.
fn at_tick(now: Duration, at_least: Duration) -> Duration {
    const SECOND: Duration = Duration::from_secs(1);
    let tick = to_next(now, SECOND);
    tick + SECOND
        * u32::try_from(at_least.saturating_sub(tick).as_millis().div_ceil(1000)).unwrap_or(0)
}

impl ShipperState {
    pub(crate) fn recall(outbox: &Outbox) -> Self {
        outbox.recall_line(STATE).unwrap_or_default()
    }
}

impl LogShipper {
    pub(crate) fn new(
        shared: Arc<ShippingState>,
        state: ShipperState,
        settings: &LogSettings,
    ) -> Self {
        let paid = shared.outbox.dir.store().url().starts_with("s3:");
        let apart = match (settings.pace == LogPace::Kept, paid) {
            (true, _) => PIECE_APART_KEPT,
            (false, true) => PIECE_APART_PAID,
            (false, false) => PIECE_APART,
        };
        LogShipper {
            shared,
            state,
            bytes_max: settings.bytes_max,
            apart,
            packer: Packer::new(ZSTD_LEVEL),
            state_bytes: None,
            shipped_at: None,
            rests_at: None,
        }
    }

    pub(crate) async fn run(mut self) {
        self.send_again().await;
        loop {
            if let Some(wait) = self.too_early() {
                self.wait(wait).await;
                continue;
            }
            let wait = match self.step() {
                ShipStep::Ship { piece, bytes, last } => {
                    let full = bytes.len() >= PIECE_BYTES_MAX;
                    let printed = self.shared.printed();
                    self.send(piece, bytes).await;
                    self.rests_at = (last && !full).then_some(printed);
                    match full {
                        true => FLOOD_APART,
                        // The tick wakes the shipper for new output: its own timer would only fire
                        // a little earlier.
                        false if last && !self.finishing() => self.next_look().max(self.apart),
                        false => Duration::ZERO,
                    }
                }
                ShipStep::Again => Duration::ZERO,
                ShipStep::Later(wait) => wait,
                ShipStep::AtEnd => self.at_end(),
            };
            if wait.is_zero() {
                tokio::task::yield_now().await;
                continue;
            }
            self.wait(wait).await;
        }
    }

    async fn wait(&self, time: Duration) {
        tokio::select! {
            biased;
            () = self.shared.outbox.clock.sleep(time) => {}
            () = self.shared.wake_shipper.notified(), if time > FLOOD_APART => {}
        }
    }

    /// The wait until the next piece, if the folder need not be looked at yet.
    fn too_early(&self) -> Option<Duration> {
        let counted = self.rests_at.filter(|_| !self.finishing())?;
        let full = self.shared.printed().saturating_sub(counted) >= PIECE_BYTES_MAX as u64;
        let now = self.shared.outbox.clock.mono();
        let left = self.apart.saturating_sub(now.saturating_sub(self.shipped_at?));
        (!full && !left.is_zero()).then(|| at_tick(now, left))
    }

    /// At the same moments as other periodic looks.
    fn next_look(&self) -> Duration {
        to_next(self.shared.outbox.clock.mono(), LOOK)
    }

    fn finishing(&self) -> bool {
        self.shared.finishing.load(Ordering::Relaxed)
    }

    /// Everything is shipped. A caller that waits for the end also needs the last lines to be
    /// scanned.
    fn at_end(&self) -> Duration {
        if !self.finishing() {
            return self.next_look();
        }
        if !self.scan_is_past(self.state.segment, self.state.offset) {
            return SCAN_WAIT;
        }
        self.shared.at_end.send_replace(true);
        LOOK
    }

    fn scan_is_past(&self, segment: u64, offset: u64) -> bool {
        *self.shared.scanned() >= LogPosition { start: self.state.start, segment, offset }
    }

    fn step(&mut self) -> ShipStep {
        let follows = self.shared.follows();
        let Some(index) = follows.iter().position(|follow| follow.start >= self.state.start) else {
            return ShipStep::AtEnd;
        };
        let follow = &follows[index];
        if follow.start > self.state.start {
            (self.state.start, self.state.segment, self.state.offset) = (follow.start, 0, 0);
        }
        let dir = follow.dir.join("log");
        let there: Vec<(u64, u64)> = segments(&self.shared.outbox, &dir)
            .into_iter()
            .filter(|(number, _)| *number >= self.state.segment)
            .collect();
        let finishing = self.finishing();
        let unread = there
            .iter()
            .map(|(_, bytes)| bytes)
            .sum::<u64>()
            .saturating_sub(self.offset_in(&there));
        self.shared.lost().unsent = unread;
        if self.state.full && !(finishing && index + 1 == follows.len()) {
            return self.pass_over(&dir, &there, index + 1 < follows.len());
        }
        let Some(&(number, bytes)) = there.first() else {
            return self.next_start(&follows, index);
        };
        if number > self.state.segment {
            (self.state.segment, self.state.offset) = (number, 0);
        }
        if bytes <= self.state.offset {
            let over = there.len() > 1 || index + 1 < follows.len();
            return if over {
                self.segment_done(&dir, number, &follows, index, there.len() > 1)
            } else {
                self.nothing_left()
            };
        }
        self.cut(&dir, there.len() == 1, bytes, unread, finishing)
    }

    /// The shipped part of the first segment.
    fn offset_in(&self, there: &[(u64, u64)]) -> u64 {
        there
            .first()
            .filter(|(number, _)| *number == self.state.segment)
            .map_or(0, |(_, bytes)| self.state.offset.min(*bytes))
    }

    fn cut(
        &mut self,
        dir: &Path,
        newest: bool,
        bytes: u64,
        unread: u64,
        finishing: bool,
    ) -> ShipStep {
        let now = self.shared.outbox.clock.mono();
        let since = self.shipped_at.map_or(self.apart, |at| now.saturating_sub(at));
        if newest
            && !finishing
            && bytes - self.state.offset < PIECE_BYTES_MAX as u64
            && since < self.apart
        {
            return ShipStep::Later(at_tick(now, self.apart - since));
        }
        let mut before = String::new();
        if self.state.full && unread > TAIL_BYTES {
            // The end of a log that was too long, within its limit.
            let skipped = (unread - TAIL_BYTES).min(bytes - self.state.offset);
            self.state.offset += skipped;
            self.state.left_out += skipped;
            self.shared.lost().left_out = self.state.left_out;
            return ShipStep::Again;
        }
        if self.state.full && self.state.left_out > self.state.told {
            before = self.tell();
        } else if self.state.offset == 0 && self.state.piece > 0 && self.first_of_start() {
            before = format!("\n[lamp: {}]\n", self.label());
        }
        let path = dir.join(segment_name(self.state.segment));
        match self.shared.outbox.files.read_from(&path, self.state.offset, PIECE_BYTES_MAX) {
            Ok(Some(body)) if !body.is_empty() => ShipStep::Ship {
                piece: Piece { before, bytes: body.len() as u64 },
                bytes: body,
                last: newest,
            },
            Ok(_) => ShipStep::AtEnd,
            Err(error) => {
                tracing::warn!("cannot read {}: {error}", path.display());
                ShipStep::Later(self.next_look())
            }
        }
    }

    /// Beyond the limit, the end of the log at least says how much is missing.
    fn nothing_left(&mut self) -> ShipStep {
        if self.state.full && self.finishing() && self.state.left_out > self.state.told {
            return ShipStep::Ship {
                piece: Piece { before: self.tell(), bytes: 0 },
                bytes: Vec::new(),
                last: false,
            };
        }
        ShipStep::AtEnd
    }

    fn tell(&mut self) -> String {
        self.state.told = self.state.left_out;
        format!("\n[lamp: {} bytes of output were left out here]\n", self.state.left_out)
    }

    fn label(&self) -> String {
        let said = self
            .shared
            .follows()
            .iter()
            .find(|follow| follow.start == self.state.start)
            .and_then(|follow| follow.label.clone());
        said.unwrap_or_else(|| format!("start {} of the workload", self.state.start))
    }

    /// Whether nothing of this start was shipped yet: its first segment has the number 1.
    fn first_of_start(&self) -> bool {
        self.state.segment == 1
    }

    /// The segment is shipped, and the holder needs its space. The scan must have read it first.
    fn segment_done(
        &mut self,
        dir: &Path,
        number: u64,
        follows: &[FollowedStart],
        index: usize,
        more: bool,
    ) -> ShipStep {
        if !self.scan_is_past(number, self.state.offset) {
            return ShipStep::Later(SCAN_WAIT);
        }
        self.remove(dir, number);
        if more {
            (self.state.segment, self.state.offset) = (number + 1, 0);
            return ShipStep::Again;
        }
        self.next_start(follows, index)
    }

    fn next_start(&mut self, follows: &[FollowedStart], index: usize) -> ShipStep {
        match follows.get(index + 1) {
            Some(next) => {
                (self.state.start, self.state.segment, self.state.offset) = (next.start, 0, 0);
                ShipStep::Again
            }
            None => ShipStep::AtEnd,
        }
    }

    /// Beyond the limit: makes space for the holder, and leaves what the end may need.
    fn pass_over(&mut self, dir: &Path, there: &[(u64, u64)], superseded: bool) -> ShipStep {
        let mut left: u64 = there.iter().map(|(_, bytes)| bytes).sum();
        for (position, &(number, bytes)) in there.iter().enumerate() {
            let newest = position + 1 == there.len();
            let needed = left - bytes < TAIL_BYTES || newest;
            if (needed && !superseded) || !self.scan_is_past(number, bytes) {
                break;
            }
            let behind =
                if number == self.state.segment { self.state.offset.min(bytes) } else { 0 };
            self.remove(dir, number);
            left -= bytes;
            self.state.left_out += bytes - behind;
            self.shared.lost().left_out = self.state.left_out;
            (self.state.segment, self.state.offset) = (number + 1, 0);
        }
        if superseded && left == 0 {
            let follows = self.shared.follows();
            let index = follows
                .iter()
                .position(|follow| follow.start == self.state.start)
                .unwrap_or_default();
            return self.next_start(&follows, index);
        }
        self.keep();
        ShipStep::Later(LOOK)
    }

    fn remove(&self, dir: &Path, number: u64) {
        let path = dir.join(segment_name(number));
        if let Err(error) = self.shared.outbox.files.remove(&path) {
            tracing::warn!("cannot remove {}: {error}", path.display());
        }
    }

    fn keep(&mut self) {
        self.shared.outbox.keep_line(STATE, &self.state, &mut self.state_bytes);
    }

    /// Records the range of the piece, then sends it for as long as it takes.
    async fn send(&mut self, piece: Piece, bytes: Vec<u8>) {
        self.state.sending = Some(piece.clone());
        self.keep();
        let (outbox, number) = (self.shared.outbox.clone(), self.state.piece + 1);
        let mut raw = piece.before.into_bytes();
        raw.extend_from_slice(&bytes);
        drop(bytes);
        match self.packer.pack(&raw) {
            Ok(frame) => {
                drop(raw);
                let (key, frame) = (
                    layout::log_piece(outbox.dir.job(), outbox.attempt, number),
                    Bytes::from(frame),
                );
                outbox
                    .persist("a piece of the log", &self.shared.pace, || {
                        outbox.dir.store().put_durable(&key, frame.clone()).boxed()
                    })
                    .await;
            }
            Err(error) => tracing::warn!("a piece of the log is lost: cannot compress it: {error}"),
        }
        self.state.sending = None;
        self.state.piece = number;
        self.state.offset += piece.bytes;
        self.state.shipped += piece.bytes;
        self.state.full = self.state.shipped >= self.bytes_max;
        self.shipped_at = Some(outbox.clock.mono());
    }

    /// Sends the interrupted piece of an earlier agent again. A missing segment was shipped before
    /// its removal.
    async fn send_again(&mut self) {
        let Some(piece) = self.state.sending.take() else { return };
        let follows = self.shared.follows();
        let Some(follow) = follows.iter().find(|follow| follow.start == self.state.start) else {
            return;
        };
        let path = follow.dir.join("log").join(segment_name(self.state.segment));
        let length = usize::try_from(piece.bytes).unwrap_or(PIECE_BYTES_MAX);
        match self.shared.outbox.files.read_from(&path, self.state.offset, length) {
            Ok(Some(body)) if body.len() as u64 == piece.bytes => self.send(piece, body).await,
            _ => {
                self.state.piece += 1;
                self.state.offset += piece.bytes;
                self.state.shipped += piece.bytes;
            }
        }
    }
}
