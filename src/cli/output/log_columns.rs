//! Lines of a log in the columns of gcloud: severity, time, task, trial, message.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Makes lines of pieces, which may end inside a line.
#[derive(Clone, Debug)]
pub struct LogColumns {
    pub task: String,
    /// Empty: the job is no search.
    pub trial: String,
    rest: Vec<u8>,
}

impl LogColumns {
    pub fn new(task: &str, trial: Option<u32>) -> Self {
        let trial = trial.map(|number| number.to_string()).unwrap_or_default();
        LogColumns { task: task.to_owned(), trial, rest: Vec::new() }
    }

    /// The complete lines. `at`: when the piece came to the job root.
    pub fn lines(&mut self, at: Timestamp, piece: &[u8]) -> Vec<String> {
        self.rest.extend_from_slice(piece);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return Vec::new();
        };
        let after = self.rest.split_off(end + 1);
        let whole = std::mem::replace(&mut self.rest, after);
        let text = String::from_utf8_lossy(&whole);
        text.lines().map(|line| self.line(at, line)).collect()
    }

    /// The rest after the last line end.
    pub fn last(&mut self, at: Timestamp) -> Option<String> {
        let rest = std::mem::take(&mut self.rest);
        (!rest.is_empty()).then(|| self.line(at, &String::from_utf8_lossy(&rest)))
    }

    fn line(&self, at: Timestamp, message: &str) -> String {
        // A progress bar writes over itself.
        let message = message.rsplit('\r').find(|part| !part.is_empty()).unwrap_or_default();
        let time = at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %z").to_string();
        [severity(message), &time, &self.task, &self.trial, message].join("\t")
    }
}

/// As Python's `logging` and TensorFlow begin their lines; else `INFO`.
fn severity(message: &str) -> &'static str {
    let word = message.trim_start_matches('[').split([':', ' ', ']']).next().unwrap_or_default();
    match word {
        "DEBUG" => "DEBUG",
        "WARNING" | "WARN" => "WARNING",
        "ERROR" | "Traceback" => "ERROR",
        "CRITICAL" | "FATAL" => "CRITICAL",
        _ => glog_severity(word),
    }
}

/// `W0405`: a letter, the month and the day.
fn glog_severity(word: &str) -> &'static str {
    let is_date = word.len() == 5 && word.bytes().skip(1).all(|byte| byte.is_ascii_digit());
    match word.chars().next().filter(|_| is_date) {
        Some('W') => "WARNING",
        Some('E') => "ERROR",
        Some('F') => "CRITICAL",
        _ => "INFO",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_columns_of_gcloud_although_pieces_end_inside() {
        let at = Timestamp::UNIX_EPOCH;
        let mut columns = LogColumns::new("master-replica-0", Some(3));
        assert_eq!(columns.lines(at, b"epo"), [""; 0]);
        let lines = columns.lines(at, b"ch 1\nWARNING:root:low\n 10%\r 20%\r\nend");
        let fields: Vec<Vec<&str>> = lines.iter().map(|line| line.split('\t').collect()).collect();
        let shown: Vec<(&str, &str, &str, &str)> =
            fields.iter().map(|line| (line[0], line[2], line[3], line[4])).collect();
        assert_eq!(
            shown,
            [
                ("INFO", "master-replica-0", "3", "epoch 1"),
                ("WARNING", "master-replica-0", "3", "WARNING:root:low"),
                ("INFO", "master-replica-0", "3", " 20%"),
            ]
        );
        assert!(columns.last(at).is_some_and(|line| line.ends_with("\tend")));
        assert_eq!(columns.last(at), None);
    }

    #[test]
    fn severity_follows_from_the_first_word() {
        for (message, expected) in [
            ("INFO:tensorflow:loss", "INFO"),
            ("ERROR:root:no", "ERROR"),
            ("Traceback (most recent call last):", "ERROR"),
            ("[WARNING] low", "WARNING"),
            ("W0405 10:00:00 x.cc:1] low", "WARNING"),
            ("E1234 boom", "ERROR"),
            ("Errors: 0", "INFO"),
            ("", "INFO"),
        ] {
            assert_eq!(severity(message), expected, "{message}");
        }
    }
}
