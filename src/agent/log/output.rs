//! How much the workload has printed, as a sign of activity.
//!
//! ```text
//!   holder: bytes of this start, at once ──────────────┐
//!                                                      ├──> total: counts each byte once
//!   log scan: bytes of every start, a second later, ───┘
//!             and none on a full disk
//! ```
//! The two counts differ: the scan of a restarted agent also reads the output of earlier starts.
//! Comparing the two sums would hide new lines behind old ones. Not here: the printed text.

#[derive(Debug, Default)]
pub(crate) struct OutputBytes {
    printed: u64,
    logged: u64,
    /// Printed, and not yet read by the scan.
    unread: u64,
    all: u64,
}

impl OutputBytes {
    /// Another start: its holder counts from zero.
    pub(crate) fn begins(&mut self) {
        self.printed = 0;
    }

    pub(crate) fn count(&mut self, printed: u64, logged: u64) -> u64 {
        let (new, read) =
            (printed.saturating_sub(self.printed), logged.saturating_sub(self.logged));
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
    fn printed_bytes_count_once_and_at_once() {
        let mut output = OutputBytes::default();
        assert_eq!(
            [(0, 0), (7, 0), (7, 7), (14, 7), (14, 14)]
                .map(|(printed, logged)| output.count(printed, logged)),
            [0, 7, 7, 14, 14]
        );
        output.begins();
        assert_eq!(
            [(0, 14), (7, 14), (7, 21)].map(|(printed, logged)| output.count(printed, logged)),
            [14, 21, 21]
        );
    }

    /// The scan reads output from before a reboot, and then the disk is too full for new lines.
    #[test]
    fn bytes_of_earlier_starts_do_not_hide_new_lines() {
        let mut output = OutputBytes::default();
        output.count(0, 7);
        let before = output.count(0, 7);
        assert!(output.count(7, 7) > before);
    }
}
