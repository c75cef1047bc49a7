//! The rows of a terminal for redrawn lines: a cursor, its sequences, and the text of each row in
//! the log.
//!
//! [`super::redrawn_lines`] decides when a row is written.

/// Only a shorter row may be a progress bar.
const ROW_CELLS_MAX: usize = 4096;
/// Rows that a cursor may go back to. A terminal has 40.
const ROWS_MAX: usize = 40;
/// A longer sequence does not come from a terminal.
pub const SEQUENCE_BYTES_MAX: usize = 256;

/// One encoded character; zeros after it.
type Cell = [u8; 4];
const BLANK: Cell = [b' ', 0, 0, 0];

#[derive(Debug)]
pub struct Block {
    rows: Vec<TerminalRow>,
    row: usize,
    column: usize,
    /// The row on the last line of the log, which has no line end yet.
    open: Option<usize>,
}

#[derive(Debug, Default)]
struct TerminalRow {
    cells: Vec<Cell>,
    /// Its text in the log.
    shown: Vec<Cell>,
}

/// A sequence of a terminal.
pub enum EscapeSequence {
    /// Its last byte and its first number.
    Control(u8, usize),
    /// It moves and erases no text.
    Other,
    /// The rest has not arrived yet.
    Cut,
}

impl Block {
    /// With the plain lines before it.
    pub fn of(tail: &[u8]) -> Self {
        let mut lines: Vec<&[u8]> = tail.rsplit(|byte| *byte == b'\n').take(ROWS_MAX).collect();
        lines.reverse();
        let mut block = Block { rows: Vec::new(), row: 0, column: 0, open: None };
        for (index, line) in lines.iter().enumerate() {
            block.rows.push(TerminalRow::default());
            (block.row, block.column) = (index, 0);
            block.write_over(line);
            let row = &mut block.rows[index];
            row.shown.clone_from(&row.cells);
        }
        block.open =
            block.rows.last().is_some_and(|row| !row.cells.is_empty()).then_some(block.row);
        block
    }

    /// A plain line: its colours have no width.
    fn write_over(&mut self, mut line: &[u8]) {
        while let Some(first) = line.first() {
            let length = match first {
                b'\x1b' => sequence(line).1.max(1),
                _ => encoded(*first),
            };
            let (now, rest) = line.split_at(length.min(line.len()));
            if now[0] != b'\x1b' {
                self.put(now);
            }
            line = rest;
        }
    }

    pub fn is_at_last_row(&self) -> bool {
        self.row + 1 == self.rows.len()
    }

    /// Too long for a bar.
    pub fn is_too_wide(&self) -> bool {
        self.rows[self.row].cells.len() > ROW_CELLS_MAX
    }

    /// One character at the cursor.
    pub fn put(&mut self, character: &[u8]) {
        let last = self.rows.len() - 1;
        match character[0] {
            b'\r' => self.column = 0,
            b'\n' => (self.row, self.column) = ((self.row + 1).min(last), 0),
            b'\x08' => self.column = self.column.saturating_sub(1),
            b'\t' => (self.column..(self.column / 8 + 1) * 8).for_each(|_| self.put(b" ")),
            0..0x20 | 0x7f => {}
            _ => {
                let cells = &mut self.rows[self.row].cells;
                if cells.len() <= self.column {
                    cells.resize(self.column + 1, BLANK);
                }
                let mut cell = Cell::default();
                cell[..character.len()].copy_from_slice(character);
                cells[self.column] = cell;
                self.column += 1;
            }
        }
    }

    pub fn control(&mut self, last: u8, number: usize, log: &mut impl FnMut(&[u8])) {
        let count = number.clamp(1, ROW_CELLS_MAX);
        match last {
            b'A' => self.row = self.row.saturating_sub(count),
            b'B' => self.row = (self.row + count).min(self.rows.len() - 1),
            b'C' => self.column = (self.column + count).min(ROW_CELLS_MAX),
            b'D' => self.column = self.column.saturating_sub(count),
            b'E' => (self.row, self.column) = ((self.row + count).min(self.rows.len() - 1), 0),
            b'F' => (self.row, self.column) = (self.row.saturating_sub(count), 0),
            b'G' => self.column = count - 1,
            b'K' => {
                let cells = &mut self.rows[self.row].cells;
                match number {
                    0 => cells.truncate(self.column),
                    1 => cells.iter_mut().take(self.column + 1).for_each(|cell| *cell = BLANK),
                    _ => cells.clear(),
                }
            }
            b'J' if number == 0 => {
                self.rows[self.row].cells.truncate(self.column);
                let below = self.row + 1;
                self.rows.iter_mut().skip(below).for_each(|row| row.cells.clear());
            }
            // A new screen begins: the old one is written and dropped.
            b'J' | b'H' | b'f' => {
                self.write_changed(log);
                if self.open.is_some() {
                    log(b"\n");
                }
                *self = Block { rows: vec![TerminalRow::default()], row: 0, column: 0, open: None };
            }
            _ => {}
        }
    }

    pub fn write_changed(&mut self, log: &mut impl FnMut(&[u8])) {
        let last = self.rows.len() - 1;
        for index in 0..=last {
            let text = trimmed(&self.rows[index].cells);
            if !text.is_empty() && text != trimmed(&self.rows[index].shown) {
                self.write(index, log);
                if index != last {
                    log(b"\n");
                    self.open = None;
                }
            }
        }
    }

    pub fn end_last_row(&mut self, log: &mut impl FnMut(&[u8])) {
        let last = self.rows.len() - 1;
        for index in 0..last {
            let text = trimmed(&self.rows[index].cells);
            if !text.is_empty() && text != trimmed(&self.rows[index].shown) {
                self.write(index, log);
                log(b"\n");
                self.open = None;
            }
        }
        let row = &self.rows[last];
        let text = trimmed(&row.cells);
        let stands = self.open == Some(last);
        if !text.is_empty() && text != trimmed(&row.shown) {
            self.write(last, log);
            log(b"\n");
        } else if stands || row.shown.is_empty() {
            log(b"\n");
        }
        self.open = None;
    }

    /// Overwrites its last state, if that is on the last line.
    fn write(&mut self, index: usize, log: &mut impl FnMut(&[u8])) {
        let over = self.open == Some(index);
        let row = &mut self.rows[index];
        let text = trimmed(&row.cells).to_vec();
        let mut line = Vec::with_capacity(text.len() * 2 + 1);
        match (over, self.open) {
            (true, _) => line.push(b'\r'),
            (false, Some(_)) => line.push(b'\n'),
            (false, None) => {}
        }
        append(&mut line, &text);
        if over {
            line.resize(line.len() + trimmed(&row.shown).len().saturating_sub(text.len()), b' ');
        }
        row.shown = text;
        self.open = Some(index);
        log(&line);
    }

    /// The current row, for a cursor that comes back.
    pub fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            if index > 0 {
                text.push(b'\n');
            }
            append(&mut text, trimmed(&row.cells));
        }
        text
    }
}

fn trimmed(cells: &[Cell]) -> &[Cell] {
    &cells[..cells.iter().rposition(|cell| *cell != BLANK).map_or(0, |last| last + 1)]
}

fn append(text: &mut Vec<u8>, cells: &[Cell]) {
    cells.iter().for_each(|cell| text.extend(cell.iter().take_while(|byte| **byte != 0)));
}

/// How many bytes a character has that begins with this byte.
pub fn encoded(first: u8) -> usize {
    match first {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    }
}

/// The sequence that begins with an escape, and its length in bytes.
pub fn sequence(bytes: &[u8]) -> (EscapeSequence, usize) {
    let cut = |length: usize| {
        if length > SEQUENCE_BYTES_MAX {
            (EscapeSequence::Other, 1)
        } else {
            (EscapeSequence::Cut, length)
        }
    };
    match bytes.get(1) {
        None => (EscapeSequence::Cut, 1),
        Some(b'[') => {
            let Some(last) = bytes.iter().skip(2).position(|byte| !(0x20..0x40).contains(byte))
            else {
                return cut(bytes.len());
            };
            let words = &bytes[2..2 + last];
            let number = words.iter().take_while(|byte| byte.is_ascii_digit()).fold(
                0,
                |number: usize, digit| {
                    number.saturating_mul(10).saturating_add(usize::from(digit - b'0'))
                },
            );
            (EscapeSequence::Control(bytes[2 + last], number), last + 3)
        }
        Some(b']') => {
            let end =
                bytes.windows(2).skip(1).position(|pair| pair[0] == 0x07 || pair == b"\x1b\\");
            let bell = bytes.last() == Some(&0x07);
            match end {
                Some(at) => (EscapeSequence::Other, at + if bytes[at + 1] == 0x07 { 2 } else { 3 }),
                None if bell => (EscapeSequence::Other, bytes.len()),
                None => cut(bytes.len()),
            }
        }
        Some(_) => (EscapeSequence::Other, 2),
    }
}
