//! Thins out lines that a program redraws (`\r`, `\b`, cursor up): progress bars, spinners.
//!
//! In the plain state each byte goes through at once. `\r` over text, `\b` or cursor up begins a
//! block, which keeps rows as a terminal would show them. A changed row is written 1 s after its
//! change, then once in 10 s. `\n` on the last row ends the block.
//!
//! A bar is one line of the log, with `\r` between its states. Other lines and their colours stay
//! the same byte for byte. Not here: the numbers of a bar.

use std::time::{Duration, Instant};

use super::terminal_rows::{Block, EscapeSequence, SEQUENCE_BYTES_MAX, encoded, sequence};

/// From the first change to the first state in the log. If this is shorter, a bar of two seconds
/// has two states. If it is longer, a reader who follows the log waits.
const FIRST: Duration = Duration::from_secs(1);
/// Between two states. A bar of one day is then a megabyte. If this is longer, the bar seems to
/// stand still.
const EVERY: Duration = Duration::from_secs(10);
/// How much earlier output is kept for cursor up. If this is smaller, three nested bars are not
/// recognised.
const TAIL_BYTES: usize = 4096;

/// Thins out the states of redrawn rows.
#[derive(Debug, Default)]
pub struct Redraw {
    /// The beginning of a sequence or character, or carriage returns whose meaning is not known
    /// yet.
    pending: Vec<u8>,
    tail: Vec<u8>,
    block: Option<Block>,
    wrote: Option<Instant>,
    due: Option<Instant>,
}

impl Redraw {
    /// When a changed row must be written.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Takes printed bytes, and passes to `log` the ones to keep.
    pub fn take(&mut self, bytes: &[u8], now: Instant, log: &mut impl FnMut(&[u8])) {
        if self.pending.is_empty()
            && self.block.is_none()
            && !bytes.iter().any(|byte| is_special(*byte))
        {
            log(bytes);
            self.remember(bytes);
            return;
        }
        let mut whole = std::mem::take(&mut self.pending);
        whole.extend_from_slice(bytes);
        let mut rest = whole.as_slice();
        while !rest.is_empty() {
            let taken =
                if self.block.is_some() { self.draw(rest, now, log) } else { self.pass(rest, log) };
            match taken {
                Some(taken) => rest = &rest[taken..],
                None => {
                    self.pending = rest.to_vec();
                    break;
                }
            }
        }
    }

    /// Writes the changed rows if they are due.
    pub fn write_due(&mut self, now: Instant, log: &mut impl FnMut(&[u8])) {
        if self.due.is_some_and(|due| due <= now) {
            self.due = None;
            self.wrote = Some(now);
            if let Some(block) = &mut self.block {
                block.write_changed(log);
            }
        }
    }

    /// Writes the changed rows, because the output or the main process has ended.
    pub fn finish(&mut self, log: &mut impl FnMut(&[u8])) {
        if let Some(mut block) = self.block.take() {
            block.write_changed(log);
            self.tail = block.text();
        }
        let pending = std::mem::take(&mut self.pending);
        if !pending.is_empty() {
            log(&pending);
            self.remember(&pending);
        }
        self.due = None;
    }

    fn remember(&mut self, bytes: &[u8]) {
        let newest = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
        if self.tail.len() + newest.len() > 2 * TAIL_BYTES {
            let too_many = self.tail.len().saturating_sub(TAIL_BYTES.saturating_sub(newest.len()));
            self.tail.drain(..too_many);
        }
        self.tail.extend_from_slice(newest);
    }

    /// The number of plain bytes before a redraw. `None`: more bytes are needed to tell.
    fn pass(&mut self, bytes: &[u8], log: &mut impl FnMut(&[u8])) -> Option<usize> {
        let plain = bytes.iter().position(|byte| is_special(*byte)).unwrap_or(bytes.len());
        if plain > 0 {
            log(&bytes[..plain]);
            self.remember(&bytes[..plain]);
            return Some(plain);
        }
        let at_start = self.tail.last().is_none_or(|byte| matches!(byte, b'\n' | b'\r'));
        let (length, draws) = match bytes[0] {
            b'\r' => match bytes.iter().position(|byte| *byte != b'\r') {
                Some(length) => (length, bytes[length] != b'\n' && !at_start),
                None if bytes.len() < SEQUENCE_BYTES_MAX => return None,
                None => (bytes.len(), false),
            },
            b'\x1b' => match sequence(bytes) {
                (EscapeSequence::Cut, _) => return None,
                (
                    EscapeSequence::Control(b'A' | b'D' | b'E' | b'F' | b'G' | b'H' | b'f', _),
                    length,
                ) => (length, true),
                (EscapeSequence::Control(b'J', 2 | 3), length) => (length, true),
                (EscapeSequence::Control(b'K', 1 | 2), length) if !at_start => (length, true),
                // The row is empty, and a log must not hide the reader's cursor.
                (
                    EscapeSequence::Control(b'K', 1 | 2) | EscapeSequence::Control(b'h' | b'l', _),
                    length,
                ) => {
                    return Some(length);
                }
                (_, length) => (length, false),
            },
            _ => (1, !at_start),
        };
        if draws {
            self.block = Some(Block::of(&self.tail));
            return Some(0);
        }
        log(&bytes[..length]);
        self.remember(&bytes[..length]);
        Some(length)
    }

    /// One character or sequence of a block.
    fn draw(&mut self, bytes: &[u8], now: Instant, log: &mut impl FnMut(&[u8])) -> Option<usize> {
        let block = self.block.as_mut()?;
        let first = bytes[0];
        if first == b'\n' && block.is_at_last_row() {
            block.end_last_row(log);
            self.tail = block.text();
            self.tail.push(b'\n');
            (self.block, self.due) = (None, None);
            return Some(1);
        }
        let length = match first {
            b'\x1b' => match sequence(bytes) {
                (EscapeSequence::Cut, _) => return None,
                (EscapeSequence::Control(last, number), length) => {
                    block.control(last, number, log);
                    length
                }
                (EscapeSequence::Other, length) => length,
            },
            _ => {
                let length = encoded(first).min(SEQUENCE_BYTES_MAX);
                let whole = bytes
                    .get(1..length)
                    .is_none_or(|rest| rest.iter().all(|byte| byte & 0xc0 == 0x80));
                if whole && bytes.len() < length {
                    return None;
                }
                let length = if whole { length } else { 1 };
                block.put(&bytes[..length]);
                length
            }
        };
        if block.is_too_wide() {
            block.write_changed(log);
            self.tail = block.text();
            (self.block, self.due) = (None, None);
        } else if self.due.is_none() {
            let next = now + FIRST;
            self.due = Some(self.wrote.map_or(next, |wrote| next.max(wrote + EVERY)));
        }
        Some(length)
    }
}

fn is_special(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\x08' | b'\x1b')
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "any moment will do to begin at")]
mod tests {
    use super::*;

    /// The log, of pieces that come at these seconds.
    fn log(pieces: &[(f64, &str)]) -> String {
        let (mut redraw, began, mut kept) = (Redraw::default(), Instant::now(), Vec::new());
        for (secs, piece) in pieces {
            let now = began + Duration::from_secs_f64(*secs);
            let mut keep = |bytes: &[u8]| kept.extend_from_slice(bytes);
            redraw.write_due(now, &mut keep);
            redraw.take(piece.as_bytes(), now, &mut keep);
        }
        redraw.finish(&mut |bytes| kept.extend_from_slice(bytes));
        String::from_utf8(kept).expect("text")
    }

    #[test]
    fn what_is_not_drawn_over_stays_byte_for_byte() {
        let text = "plain\nwindows\r\ntwo\r\r\n\x1b[32mgreen\x1b[0m\x1b[K\n\ttab\nno end";
        assert_eq!(log(&[(0.0, text)]), text);
        for cut in 1..text.len() {
            assert_eq!(log(&[(0.0, &text[..cut]), (0.1, &text[cut..])]), text, "cut at {cut}");
        }
    }

    #[test]
    fn bar_is_one_line_with_a_state_now_and_then() {
        let mut pieces: Vec<(f64, String)> = (0..=400)
            .map(|tenth| (f64::from(tenth) / 10.0, format!("\r{:>3}% of it", tenth / 4)))
            .collect();
        pieces.push((40.2, "\ndone\n".to_owned()));
        let pieces: Vec<(f64, &str)> =
            pieces.iter().map(|(secs, text)| (*secs, text.as_str())).collect();
        let kept = log(&pieces);
        let states: Vec<&str> =
            kept.split(['\r', '\n']).filter(|state| !state.is_empty()).collect();
        assert_eq!(
            states,
            [
                "  0% of it",
                "  2% of it",
                " 27% of it",
                " 52% of it",
                " 77% of it",
                "100% of it",
                "done"
            ]
        );
        assert_eq!(kept.lines().count(), 2, "{kept:?}");
    }

    #[test]
    fn shorter_state_leaves_nothing_of_the_longer() {
        assert_eq!(log(&[(0.0, "long words\r"), (0.1, "\x1b[Kabc\n")]), "long words\rabc       \n");
        assert_eq!(log(&[(0.0, "abcdef\rxy\n")]), "abcdef\rxycdef\n", "as a terminal shows it");
        assert_eq!(
            log(&[(0.0, "50%"), (0.1, "\r   \r"), (0.2, "\n")]),
            "50%\n",
            "one that is wiped away was there"
        );
        assert_eq!(log(&[(0.0, "1|"), (0.1, "\x08/"), (0.2, "\x08-\n")]), "1|\r1-\n");
    }

    /// As tqdm draws them: the inner one a line below, and the cursor goes back up.
    #[test]
    fn nested_bars_do_not_make_a_line_each_time() {
        let mut pieces = vec![(0.0, "\router 0/2".to_owned())];
        for step in 0..600 {
            pieces.push((f64::from(step) / 10.0, format!("\n\rinner {step}/600\x1b[A")));
        }
        pieces.push((60.0, "\router 1/2".to_owned()));
        pieces.push((60.1, "\n\n".to_owned()));
        let pieces: Vec<(f64, &str)> =
            pieces.iter().map(|(secs, text)| (*secs, text.as_str())).collect();
        let kept = log(&pieces);
        assert!(kept.contains("inner 599/600") && kept.contains("outer 1/2"), "{kept:?}");
        assert!(kept.lines().count() < 12 && kept.len() < 300, "{kept:?}");
    }

    #[test]
    fn what_is_cut_anywhere_is_the_same() {
        let text = "█░ 1%\r██ 2%\x1b[A\x1b[2Knew\n\x1b]0;title\x07\r€ \x08\x08ok\n";
        let whole = log(&[(0.0, text)]);
        for cut in (1..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
            assert_eq!(log(&[(0.0, &text[..cut]), (0.1, &text[cut..])]), whole, "cut at {cut}");
        }
        let (mut redraw, now, mut kept) = (Redraw::default(), Instant::now(), Vec::new());
        text.bytes()
            .for_each(|byte| redraw.take(&[byte], now, &mut |bytes| kept.extend_from_slice(bytes)));
        redraw.finish(&mut |bytes| kept.extend_from_slice(bytes));
        assert_eq!(String::from_utf8_lossy(&kept), whole);
    }

    /// Recordings of stock programs, stretched over a minute.
    #[test]
    fn recordings_of_stock_programs_stay_readable_and_small() {
        let cases: [(&str, &[u8], &[&str]); 5] = [
            (
                "tqdm",
                include_bytes!("../../../../tests/data/printed/tqdm.txt"),
                &["40/40", "Epoch 3/3: 100%", "Epochs: 100%"],
            ),
            (
                "Lightning",
                include_bytes!("../../../../tests/data/printed/lightning.txt"),
                &["Epoch 2/2", "`Trainer.fit` stopped: `max_epochs=3` reached."],
            ),
            (
                "Trainer",
                include_bytes!("../../../../tests/data/printed/trainer.txt"),
                &["75/75", "'train_runtime'", "'epoch': '1.2'}", "{'eval_loss'"],
            ),
            (
                "Keras",
                include_bytes!("../../../../tests/data/printed/keras.txt"),
                &["Epoch 3/3", "20/20", "val_loss"],
            ),
            (
                "Ultralytics",
                include_bytes!("../../../../tests/data/printed/ultralytics.txt"),
                &["3/3", "20/20", "mAP50"],
            ),
        ];
        for (name, bytes, wanted) in cases {
            let (mut redraw, began, mut kept) = (Redraw::default(), Instant::now(), Vec::new());
            let pieces: Vec<&[u8]> =
                bytes.split_inclusive(|byte| matches!(byte, b'\r' | b'\n')).collect();
            for (index, piece) in pieces.iter().enumerate() {
                let now = began
                    + Duration::from_secs(60) * u32::try_from(index).expect("few")
                        / u32::try_from(pieces.len()).expect("few");
                redraw.write_due(now, &mut |bytes| kept.extend_from_slice(bytes));
                redraw.take(piece, now, &mut |bytes| kept.extend_from_slice(bytes));
            }
            redraw.finish(&mut |bytes| kept.extend_from_slice(bytes));
            let text = String::from_utf8_lossy(&kept);
            wanted
                .iter()
                .for_each(|part| assert!(text.contains(part), "{name}: no {part} in {text}"));
            assert!(kept.len() * 10 < bytes.len() * 9, "{name}: {} of {}", kept.len(), bytes.len());
            assert!(!text.contains("\x1b[A") && !text.contains("\x1b[2K"), "{name}: {text}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_do_no_harm() {
        let (mut redraw, now, mut kept) = (Redraw::default(), Instant::now(), 0);
        let mut state = 1_u32;
        for _ in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let piece = state.to_le_bytes();
            redraw.take(
                if state.is_multiple_of(3) { b"\r\x1b[" } else { &piece },
                now,
                &mut |bytes| kept += bytes.len(),
            );
            redraw.take(&[b'\r'; 100], now, &mut |bytes| kept += bytes.len());
            assert!(redraw.pending.len() <= SEQUENCE_BYTES_MAX);
        }
        redraw.finish(&mut |bytes| kept += bytes.len());
        assert!(kept > 0);
    }
}
