//! The table of docs/false-world.md that tells how long each fault takes alone, and what the fault matrix of docs/promises.md makes of it.
//!
//! What must never live here: what is asked (`bounds`).
#![allow(dead_code, reason = "`just soak` makes the clauses, and the test compares too")]

use std::collections::BTreeMap;
use std::time::Duration;

pub const HEAD: &str = "| Row | What befalls it | Who is there outside | Until | Half | 99 % | The longest | Asked | The longest again |\n|---|---|---|---|---|---|---|---|---|";

/// One row of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Of the matrix; `None`: it has none.
    pub row: Option<u32>,
    pub what: String,
    pub who: String,
    pub until: String,
    pub longest: String,
    pub asked: String,
    /// The fault and who is there, as `--lone` takes it.
    pub lone: String,
}

impl Told {
    /// What it is of, and what is asked: not how long it took.
    pub fn key(&self) -> (Option<u32>, &str, &str, &str, &str, &str) {
        (self.row, &self.what, &self.who, &self.until, &self.asked, &self.lone)
    }

    /// The longest, as a time; of what does not come, how often it came.
    pub fn took(&self) -> Duration {
        let number = |word: &str| word.parse::<u64>().unwrap_or_default();
        let words: Vec<&str> = self.longest.split(' ').collect();
        Duration::from_secs(match words[..] {
            [minutes, "min", secs, "s"] => number(minutes) * 60 + number(secs),
            [number_of, _] => number(number_of),
            _ => 0,
        })
    }

    /// As the matrix has it.
    fn clause(&self, with_who: bool) -> String {
        let who = match self.who.as_str() {
            "no workstation" if with_who => " by the sweeper alone",
            "no sweeper" if with_who => " without a sweeper",
            _ => "",
        };
        let longest = &self.longest;
        match self.until.as_str() {
            "of work done again" => format!("done again {longest} at most{who}"),
            until if longest.ends_with(" times") => format!("{until}: {longest}{who}"),
            until => format!("{until} after {longest} at most{who}"),
        }
    }
}

/// The rows of a text that has the table somewhere.
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

/// What the end of each row of the matrix says of it.
pub fn clauses(told: &[Told]) -> BTreeMap<u32, String> {
    let mut faults: BTreeMap<u32, Vec<(&str, Vec<&Told>)>> = BTreeMap::new();
    for one in told {
        let Some(row) = one.row else { continue };
        let of_row = faults.entry(row).or_default();
        match of_row.iter_mut().find(|(what, _)| *what == one.what) {
            Some((_, all)) => all.push(one),
            None => of_row.push((&one.what, vec![one])),
        }
    }
    let clause = |of_row: Vec<(&str, Vec<&Told>)>| {
        let several = of_row.len() > 1;
        let parts = of_row.iter().map(|(what, all)| {
            let with_who = all.iter().any(|one| one.who != all[0].who);
            let said: Vec<String> = all.iter().map(|one| one.clause(with_who)).collect();
            if several { format!("{what}: {}", said.join(", ")) } else { said.join(", ") }
        });
        format!("alone ([measured](false-world.md#what-each-fault-takes-alone)): {} |", parts.collect::<Vec<_>>().join("; "))
    };
    faults.into_iter().map(|(row, of_row)| (row, clause(of_row))).collect()
}
