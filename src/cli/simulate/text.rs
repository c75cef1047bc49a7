//! The output of `lamp simulate`: a table, a plot of marks, and a legend for both.
//!
//! Cost and finish are for finished runs only: a run without a machine is not cheap. Not here: the
//! playing (`policy::market::replay`).

use std::time::Duration;

use serde::Serialize;

use super::world::word;
use crate::cli::output::table::{Give, render_within};
use crate::job::MarketChoice;
use crate::market::Span;
use crate::policy::market::replay::{Play, Ran, Spread, Unfinished};

#[derive(Clone, Debug, Serialize)]
pub struct MarketRow {
    pub market: &'static str,
    /// Over the runs that finished; `null` when there are none.
    pub usd: Option<Spread>,
    pub finish_hours: Option<Spread>,
    /// The parts of that time; `null` likewise.
    pub finish_parts: Option<TimeShares>,
    /// Ended by a limit, or given up.
    pub unfinished_share: f64,
    /// The mean cost of those.
    pub usd_unfinished: Option<f64>,
    /// The share of all runs that missed a deadline.
    pub late_share: f64,
    /// The shares of runs that the longest run time and the budget ended.
    pub over_run_time_share: f64,
    pub over_budget_share: f64,
    pub interruptions: f64,
    pub lost_hours: f64,
    pub on_demand_hours: f64,
    pub starts: f64,
    /// Over the runs that finished, sorted.
    #[serde(skip)]
    costs: Vec<f64>,
    #[serde(skip)]
    runs: usize,
    /// The number of unfinished runs, by cause.
    #[serde(skip)]
    ended: Vec<(Unfinished, usize)>,
}

/// The parts of the time to the end, as means over the finished runs. Their sum is the mean of
/// `finish_hours`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TimeShares {
    pub work_hours: f64,
    /// Work that was done again.
    pub lost_hours: f64,
    /// Time of a machine without work: its start, its saves, its end.
    pub start_hours: f64,
    /// Time without a machine.
    pub waiting_hours: f64,
}

impl TimeShares {
    fn of(ran: &[Ran], work: Duration) -> Option<TimeShares> {
        let finished: Vec<&Ran> = ran.iter().filter(|ran| ran.unfinished.is_none()).collect();
        let mean = |number: fn(&Ran) -> f64| {
            finished.iter().copied().map(number).sum::<f64>() / finished.len() as f64
        };
        if finished.is_empty() {
            return None;
        }
        let (work_hours, lost_hours, machine_hours) = (
            work.as_secs_f64() / 3600.0,
            mean(|ran| ran.lost_hours),
            mean(|ran| ran.machine_hours),
        );
        let start_hours = (machine_hours - work_hours - lost_hours).max(0.0);
        let waiting_hours =
            (mean(|ran| ran.finish_hours) - work_hours - lost_hours - start_hours).max(0.0);
        Some(TimeShares { work_hours, lost_hours, start_hours, waiting_hours })
    }

    /// `22.5h to the end, on the mean: 20.0h of work, 0.3h of it again, ...`
    fn text(&self) -> String {
        let TimeShares { work_hours, lost_hours, start_hours, waiting_hours } = self;
        let all = work_hours + lost_hours + start_hours + waiting_hours;
        format!(
            "{all:.1}h to the end, on the mean: {work_hours:.1}h of work, {lost_hours:.1}h of work done again, {start_hours:.1}h of starts, saves and ends, \
             {waiting_hours:.1}h of waiting for a machine"
        )
    }
}

const UNFINISHED: [Unfinished; 5] = [
    Unfinished::Deadline,
    Unfinished::RunTime,
    Unfinished::Budget,
    Unfinished::GivenUp,
    Unfinished::Otherwise,
];

impl MarketRow {
    /// `work`: how much the job has.
    pub fn of(market: MarketChoice, ran: &[Ran], work: Duration) -> MarketRow {
        let mean = |number: fn(&Ran) -> f64| ran.iter().map(number).sum::<f64>() / ran.len() as f64;
        let finished = || ran.iter().filter(|ran| ran.unfinished.is_none());
        let ended = |by: Unfinished| ran.iter().filter(|ran| ran.unfinished == Some(by)).count();
        let share = |by: Unfinished| ended(by) as f64 / ran.len() as f64;
        let mut costs: Vec<f64> = finished().map(|ran| ran.usd).collect();
        costs.sort_by(f64::total_cmp);
        let unfinished_share = mean(|ran| f64::from(u8::from(ran.unfinished.is_some())));
        MarketRow {
            market: word(market),
            usd: Spread::of(finished(), |ran| ran.usd),
            finish_hours: Spread::of(finished(), |ran| ran.finish_hours),
            finish_parts: TimeShares::of(ran, work),
            unfinished_share,
            usd_unfinished: Spread::of(ran.iter().filter(|ran| ran.unfinished.is_some()), |ran| {
                ran.usd
            })
            .map(|usd| usd.mean),
            late_share: share(Unfinished::Deadline),
            over_run_time_share: share(Unfinished::RunTime),
            over_budget_share: share(Unfinished::Budget),
            interruptions: mean(|ran| f64::from(ran.interruptions)),
            lost_hours: mean(|ran| ran.lost_hours),
            on_demand_hours: mean(|ran| ran.on_demand_hours),
            starts: mean(|ran| f64::from(ran.starts)),
            costs,
            runs: ran.len(),
            ended: UNFINISHED
                .into_iter()
                .map(|by| (by, ended(by)))
                .filter(|(_, many)| *many > 0)
                .collect(),
        }
    }

    fn cells(&self) -> Vec<String> {
        let of = |spread: Option<Spread>, number: fn(Spread) -> f64, unit: &str| {
            let digits = if unit.is_empty() { 2 } else { 1 };
            spread.map_or_else(
                || "-".to_owned(),
                |spread| format!("{:.digits$}{unit}", number(spread)),
            )
        };
        vec![
            self.market.to_owned(),
            of(self.usd, |usd| usd.mean, ""),
            of(self.usd, |usd| usd.p50, ""),
            of(self.usd, |usd| usd.p95, ""),
            of(self.finish_hours, |finish| finish.p50, "h"),
            of(self.finish_hours, |finish| finish.p95, "h"),
            format!("{:.0}%", 100.0 * (1.0 - self.unfinished_share)),
            format!("{:.1}", self.interruptions),
            format!("{:.1}h", self.lost_hours),
            format!("{:.1}h", self.on_demand_hours),
        ]
    }

    fn unfinished(&self, play: &Play) -> Option<String> {
        let (usd, of) = (self.usd_unfinished?, self.runs);
        // Rounded: a moment from the command line is slightly nearer by now.
        let span =
            |time: Duration| Span::from_secs((time.as_secs_f64() / 60.0).round() as u64 * 60);
        let why = |by: Unfinished| {
            match by {
            // The last save and the power-off are not time to work.
            Unfinished::Deadline => match span(play.deadline.unwrap_or_default()) {
                Span::ZERO => "were ended unfinished by the deadline, which leaves no time for more than the last save".to_owned(),
                left => format!("were ended unfinished by the deadline, for which the last save begins {left} from now"),
            },
            Unfinished::RunTime => "were ended unfinished by `limits.max_runtime`, the run time of one machine".to_owned(),
            Unfinished::Budget => "were ended unfinished by `limits.budget`".to_owned(),
            Unfinished::Otherwise => "ended unfinished otherwise".to_owned(),
            Unfinished::GivenUp => format!("were given up unfinished after {}, ten times the work and two days", span(play.given_up_after())),
        }
        };
        let each: Vec<String> = self
            .ended
            .iter()
            .map(|(by, many)| format!("{many} of {of} runs {}", why(*by)))
            .collect();
        Some(format!(
            "{}: {}; they cost ${usd:.2} on the mean, which is not in the table",
            self.market,
            each.join(", ")
        ))
    }
}

const HEADINGS: [&str; 10] = [
    "market",
    "usd mean",
    "usd p50",
    "usd p95",
    "ends p50",
    "ends p95",
    "finished",
    "interrupted",
    "lost",
    "on demand",
];

/// Columns that a narrow terminal drops first; `-o json` has all.
const GIVE: Give<'_> = Give { cut: &[], go: &[2, 8, 7, 9, 5, 3] };

pub fn table(rows: &[MarketRow], width: Option<usize>) -> String {
    let cells: Vec<Vec<String>> = rows.iter().map(MarketRow::cells).collect();
    render_within(width, &HEADINGS, &cells, &[1, 2, 3, 4, 5, 6, 7, 8, 9], GIVE)
}

pub fn legend(rows: &[MarketRow], play: &Play) -> Vec<String> {
    let mut lines = vec![
        "usd and ends (hours from now) are of the runs that finished: half of them stay within p50, 19 of 20 within p95".to_owned(),
        "interrupted (times), lost (hours of work that no checkpoint held when its machine went) and on demand (hours paid) are means of all runs"
            .to_owned(),
    ];
    lines.extend(
        rows.iter().filter_map(|row| Some(format!("{}: {}", row.market, row.finish_parts?.text()))),
    );
    lines.extend(rows.iter().filter_map(|row| row.unfinished(play)));
    lines
}

/// The widest plot, also without a terminal; more columns show nothing more.
const WIDTH: usize = 64;
/// Below this, all marks overlap.
const WIDTH_MIN: usize = 20;

const LABEL: usize = 6;

/// Marks of several markets at one place.
const SEVERAL: char = '*';

/// For each tenth of the runs, the dollars within which they finished: one letter for each market,
/// cheaper to the left.
pub fn plot(rows: &[MarketRow], width: Option<usize>) -> String {
    let most =
        rows.iter().filter_map(|row| row.costs.last()).fold(0.0, |most: f64, usd| most.max(*usd));
    if most <= 0.0 {
        let has_finished = rows.iter().any(|row| !row.costs.is_empty());
        return if has_finished {
            "every run that finished cost nothing: there is nothing to draw"
        } else {
            "no run finished: there is nothing to draw"
        }
        .to_owned();
    }
    let width =
        width.map_or(WIDTH, |width| width.saturating_sub(LABEL + 1).clamp(WIDTH_MIN, WIDTH));
    let marks = |tenth: usize| {
        let mut line = vec![' '; width];
        for row in rows {
            // This many runs finished for at most this cost.
            let Some(usd) =
                (row.runs * tenth).div_ceil(10).checked_sub(1).and_then(|at| row.costs.get(at))
            else {
                continue;
            };
            let at = ((width - 1) as f64 * usd / most).round() as usize;
            line[at] = if line[at] == ' ' { row.letter() } else { SEVERAL };
        }
        format!("{:>4} |{}", format!("{}%", 10 * tenth), String::from_iter(line))
            .trim_end()
            .to_owned()
    };
    let letters: Vec<String> =
        rows.iter().map(|row| format!("{} {}", row.letter(), row.market)).collect();
    let several = if rows.len() > 1 { format!(", {SEVERAL} several") } else { String::new() };
    let mut lines = vec![format!(
        "of all runs, so many finished for at most so much: {}{several}",
        letters.join(", ")
    )];
    lines.extend((1..=10).rev().map(marks));
    lines.push(format!("     +{}", "-".repeat(width)));
    let dollars = |usd: f64| if most < 10.0 { format!("${usd:.2}") } else { format!("${usd:.0}") };
    let (half, end) = (dollars(most / 2.0), dollars(most));
    let middle = width / 2;
    lines.push(format!(
        "      {:<middle$}{half:<rest$}{end}",
        "$0",
        rest = (width - middle).saturating_sub(end.len())
    ));
    lines.join("\n")
}

impl MarketRow {
    fn letter(&self) -> char {
        self.market.chars().next().unwrap_or(SEVERAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::wrap::columns;
    use crate::market::{Usd, UsdPerHour};
    use crate::policy::market::replay::PlayLimits;

    fn play(deadline: Option<u64>) -> Play {
        let (hour, price) =
            (Duration::from_secs(3600), |usd| UsdPerHour::new(Usd::from_dollars(usd).unwrap()));
        let deadline = deadline.map(|hours| hour * hours as u32);
        Play {
            work: hour * 20,
            deadline,
            start: hour / 5,
            saves_every: hour / 6,
            begins_anew: false,
            tick: hour / 6,
            spot: price(1.0),
            on_demand: price(3.0),
            limits: PlayLimits::default(),
        }
    }

    fn ran(usd: f64, unfinished: Option<Unfinished>) -> Ran {
        Ran {
            usd,
            finish_hours: 22.5,
            unfinished,
            interruptions: 2,
            lost_hours: 0.25,
            machine_hours: 21.0,
            on_demand_hours: 1.0,
            starts: 3,
        }
    }

    const WORK: Duration = Duration::from_secs(20 * 3600);

    fn rows_ended(by: Unfinished) -> Vec<MarketRow> {
        let spot: Vec<Ran> = (0..10)
            .map(|n| if n < 4 { ran(20.0 + f64::from(n), None) } else { ran(0.0, Some(by)) })
            .collect();
        let full: Vec<Ran> = (0..10).map(|_| ran(60.6, None)).collect();
        vec![
            MarketRow::of(MarketChoice::Spot, &spot, WORK),
            MarketRow::of(MarketChoice::OnDemand, &full, WORK),
        ]
    }

    fn rows() -> Vec<MarketRow> {
        rows_ended(Unfinished::GivenUp)
    }

    #[test]
    fn run_that_never_finished_is_not_a_cheap_one() {
        let rows = rows();
        assert_eq!(
            (rows[0].usd.unwrap().mean, rows[0].unfinished_share, rows[0].usd_unfinished),
            (21.5, 0.6, Some(0.0))
        );
        assert_eq!(
            (rows[0].late_share, rows[1].usd_unfinished),
            (0.0, None),
            "without a deadline nothing is late"
        );
        let none = MarketRow::of(
            MarketChoice::Spot,
            &[ran(0.0, Some(Unfinished::Deadline)), ran(3.0, Some(Unfinished::Deadline))],
            WORK,
        );
        assert_eq!(
            (none.usd, none.finish_hours, none.late_share, none.usd_unfinished),
            (None, None, 1.0, Some(1.5))
        );
        assert!(
            table(&[none], None)
                .contains("spot           -        -        -         -         -        0%")
        );
        let said = legend(&rows, &play(None)).join("\n");
        assert!(
            said.contains("spot: 6 of 10 runs were given up unfinished after 10d 8h, ten times the work and two days; they cost $0.00"),
            "{said}"
        );
        let said = legend(&rows_ended(Unfinished::Deadline), &play(Some(30))).join("\n");
        assert!(
            said.contains("spot: 6 of 10 runs were ended unfinished by the deadline, for which the last save begins 1d 6h from now; they"),
            "{said}"
        );
        let typed =
            Play { deadline: Some(Duration::from_millis(30 * 3_600_000 - 20)), ..play(None) };
        assert!(
            legend(&rows_ended(Unfinished::Deadline), &typed)
                .join("\n")
                .contains("begins 1d 6h from now"),
            "as it was typed"
        );
        let none = Play { deadline: Some(Duration::ZERO), ..play(None) };
        assert!(
            legend(&rows_ended(Unfinished::Deadline), &none)
                .join("\n")
                .contains("which leaves no time for more than the last save")
        );
        let both = MarketRow::of(
            MarketChoice::Spot,
            &[
                ran(4.0, Some(Unfinished::Budget)),
                ran(3.0, Some(Unfinished::RunTime)),
                ran(3.0, Some(Unfinished::RunTime)),
            ],
            WORK,
        );
        assert_eq!(
            (
                both.late_share,
                (both.over_budget_share * 3.0).round(),
                (both.over_run_time_share * 3.0).round()
            ),
            (0.0, 1.0, 2.0)
        );
        let said = legend(&[both], &play(Some(30))).join("\n");
        assert!(
            said.contains("spot: 2 of 3 runs were ended unfinished by `limits.max_runtime`, the run time of one machine, 1 of 3 runs were ended unfinished by `limits.budget`"),
            "{said}"
        );
    }

    #[test]
    fn time_to_the_end_is_told_in_its_parts() {
        let waited = Ran { finish_hours: 26.5, lost_hours: 0.75, ..ran(20.0, None) };
        // An unfinished run has no end.
        let row = MarketRow::of(
            MarketChoice::Spot,
            &[ran(20.0, None), waited, ran(9.0, Some(Unfinished::Budget))],
            WORK,
        );
        let parts = row.finish_parts.unwrap();
        assert_eq!(
            parts,
            TimeShares { work_hours: 20.0, lost_hours: 0.5, start_hours: 0.5, waiting_hours: 3.5 }
        );
        let sum = parts.work_hours + parts.lost_hours + parts.start_hours + parts.waiting_hours;
        assert_eq!(sum, row.finish_hours.unwrap().mean);
        let said = legend(&[row], &play(None)).join("\n");
        let line = "spot: 24.5h to the end, on the mean: 20.0h of work, 0.5h of work done again, 0.5h of starts, saves and ends, 3.5h of waiting for a machine";
        assert!(said.lines().any(|said| said == line), "{said}");
        let none = MarketRow::of(MarketChoice::Spot, &[ran(9.0, Some(Unfinished::Budget))], WORK);
        assert_eq!(none.finish_parts, None);
        assert!(!legend(&[none], &play(None)).join("\n").contains("to the end"));
    }

    #[test]
    fn table_and_plot_fit_the_terminal() {
        for width in 40..120 {
            let shown = format!(
                "{}\n{}",
                table(&rows(), Some(width)),
                plot(&rows(), Some(width)).split_once('\n').unwrap().1
            );
            assert!(shown.lines().all(|line| columns(line) <= width), "{width}:\n{shown}");
        }
        assert!(
            table(&rows(), Some(60)).contains("FINISHED")
                && table(&rows(), Some(60)).contains("USD MEAN")
        );
    }

    #[test]
    fn plot_marks_each_market_up_to_its_finished_share() {
        let drawn = plot(&rows(), None);
        let line = |percent: &str| {
            drawn.lines().find(|line| line.trim_start().starts_with(percent)).unwrap().to_owned()
        };
        assert!(drawn.starts_with("of all runs, so many finished for at most so much: s spot, o on-demand, * several\n"), "{drawn}");
        assert!(
            line("40%").contains('s') && !line("50%").contains('s'),
            "four of ten finished: {drawn}"
        );
        assert!(line("100%").ends_with('o') && line("10%").ends_with('o'), "{drawn}");
        let same = [rows().remove(1), MarketRow { market: "auto", ..rows().remove(1) }];
        assert!(plot(&same, None).lines().nth(1).unwrap().ends_with('*'));
        let drawn = |cost: Ran| plot(&[MarketRow::of(MarketChoice::Spot, &[cost], WORK)], None);
        assert_eq!(
            drawn(ran(5.0, Some(Unfinished::Budget))),
            "no run finished: there is nothing to draw"
        );
        assert_eq!(
            drawn(ran(0.0, None)),
            "every run that finished cost nothing: there is nothing to draw"
        );
    }
}
