//! The jobs that the overview lists, and their order.

use std::cmp::Reverse;

use crate::app::overview::job_filter::JobFilter;
use crate::app::overview::overview::{JobRow, Overview};

/// Ended jobs without a filter. More would hide the others.
const ENDED_SHOWN: usize = 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobOrder {
    /// Unfinished first, the newest first in each group.
    #[default]
    Newest,
    Cost,
    Rate,
    NextEnd,
    Name,
}

impl JobOrder {
    pub fn next(self) -> JobOrder {
        match self {
            JobOrder::Newest => JobOrder::Cost,
            JobOrder::Cost => JobOrder::Rate,
            JobOrder::Rate => JobOrder::NextEnd,
            JobOrder::NextEnd => JobOrder::Name,
            JobOrder::Name => JobOrder::Newest,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            JobOrder::Newest => "newest",
            JobOrder::Cost => "cost",
            JobOrder::Rate => "rate",
            JobOrder::NextEnd => "next end",
            JobOrder::Name => "name",
        }
    }
}

/// The rows that fit the filter, in order.
pub fn listed<'a>(overview: &'a Overview, filter: &str, order: JobOrder) -> Vec<&'a JobRow> {
    let chosen = JobFilter::parse(filter);
    let is_filtered = !filter.trim().is_empty();
    let mut ended = 0;
    let mut rows: Vec<&JobRow> = overview
        .jobs
        .iter()
        .filter(|row| chosen.fits(&row.summary))
        .filter(|row| {
            ended += usize::from(row.summary.state.is_final());
            is_filtered || ended <= ENDED_SHOWN || !row.summary.state.is_final()
        })
        .collect();
    match order {
        JobOrder::Newest => {}
        JobOrder::Cost => rows.sort_by_key(|row| Reverse(row.summary.usd)),
        JobOrder::Rate => rows.sort_by_key(|row| {
            Reverse(row.summary.usd_per_hour.filter(|_| !row.summary.state.is_final()))
        }),
        // A job without an end comes last.
        JobOrder::NextEnd => rows.sort_by_key(|row| {
            let at = row.next_end.as_ref().map(|end| end.at);
            (at.is_none(), at)
        }),
        JobOrder::Name => rows.sort_by(|one, other| one.summary.name.cmp(&other.summary.name)),
    }
    rows
}
