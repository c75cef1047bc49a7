//! The table of bounds.md with the time of each single fault, and the rows of docs/promises.md that
//! are marked as measured.
//!
//! Not here: the bounds (`bounds`).
#![allow(dead_code, reason = "`just soak` prints the table, and the test compares it")]

use std::collections::BTreeSet;
use std::time::Duration;

pub const HEAD: &str = "| Row | What befalls it | Who is there outside | Until | Half | 99 % | The longest | Asked | The longest again |\n|---|---|---|---|---|---|---|---|---|";

/// One row of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// The row of the matrix, if it has one.
    pub row: Option<u32>,
    pub what: String,
    pub who: String,
    pub until: String,
    pub longest: String,
    pub asked: String,
    /// The fault and the parties, as `--lone` takes them.
    pub lone: String,
}

impl Told {
    /// All cells but the measured times.
    pub fn key(&self) -> (Option<u32>, &str, &str, &str, &str, &str) {
        (self.row, &self.what, &self.who, &self.until, &self.asked, &self.lone)
    }

    /// The longest time. For a bound of the kind `Never`, the number of times.
    pub fn took(&self) -> Duration {
        let number = |word: &str| word.parse::<u64>().unwrap_or_default();
        let words: Vec<&str> = self.longest.split(' ').collect();
        Duration::from_secs(match words[..] {
            [minutes, "min", secs, "s"] => number(minutes) * 60 + number(secs),
            [number_of, _] => number(number_of),
            _ => 0,
        })
    }
}

/// The rows of the table in a text.
pub fn cells(text: &str) -> Vec<Told> {
    let rows = text.lines().filter(|line| line.matches('|').count() == 10 && line.contains("| `"));
    rows.map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        Told {
            row: cells[1].parse().ok(),
            what: cells[2].to_owned(),
            who: cells[3].to_owned(),
            until: cells[4].to_owned(),
            longest: cells[7].to_owned(),
            asked: cells[8].to_owned(),
            lone: cells[9].split('`').nth(1).unwrap_or_default().to_owned(),
        }
    })
    .collect()
}

/// How the bound of a measured row of the matrix ends.
pub const MEASURED: &str = "; measured): ";

/// The rows of the matrix that are measured.
pub fn measured_rows(told: &[Told]) -> BTreeSet<u32> {
    told.iter().filter_map(|one| one.row).collect()
}
