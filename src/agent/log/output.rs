//! How much the work has printed, as a sign of life.
//!
//! ```text
//!   holder: bytes of this start, at once ──────────────┐
//!                                                      ├──> all: grows whenever the work prints, and once for each byte
//!   log scan: bytes of every start, a second later, ───┘
//!             and none on a disk without room
//! ```
//! The two do not count the same: the scan of an agent that was started anew reads what earlier starts have left, and to hold one sum
//! against the other hid the lines of a start behind those (seeds 29007695 and 34011317 of 24 h). What must never live here: what was
//! printed.

/// What has been counted so far.
#[derive(Debug, Default)]
pub(crate) struct Output {
    printed: u64,
    logged: u64,
    /// Printed, and not yet read by the scan.
    unread: u64,
    all: u64,
}

impl Output {
    /// Another start: its holder counts from nothing.
    pub(crate) fn begins(&mut self) {
        self.printed = 0;
    }

    /// Takes in both counts, and gives the bytes of all.
    pub(crate) fn count(&mut self, printed: u64, logged: u64) -> u64 {
        let (new, read) = (printed.saturating_sub(self.printed), logged.saturating_sub(self.logged));
        (self.printed, self.logged) = (self.printed.max(printed), self.logged.max(logged));
        self.unread += new;
        let known = read.min(self.unread);
        self.unread -= known;
        self.all += new + (read - known);
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_counts_once_and_at_once() {
        let mut output = Output::default();
        assert_eq!([(0, 0), (7, 0), (7, 7), (14, 7), (14, 14)].map(|(printed, logged)| output.count(printed, logged)), [0, 7, 7, 14, 14]);
        output.begins();
        assert_eq!([(0, 14), (7, 14), (7, 21)].map(|(printed, logged)| output.count(printed, logged)), [14, 21, 21]);
    }

    /// Its scan reads what a start before a reboot has left, and then the disk has no room for any line.
    #[test]
    fn what_earlier_starts_have_left_hides_no_line_of_this_one() {
        let mut output = Output::default();
        output.count(0, 7);
        let before = output.count(0, 7);
        assert!(output.count(7, 7) > before);
    }
}
