//! The result of a sweep for people: tables, residue, and regions that did not answer.

use jiff::Timestamp;

use super::stop_cost::AtStake;
use crate::account::Residue;
use crate::app::overview::found_machine::{hour, is_orphan, is_shown, is_stray, words};
use crate::app::text::counted;
use crate::cli::output::unreachable;
use crate::cli::{Context, Give, Stream, render_table_within};
use crate::controller::{Judged, SweepFindings};
use crate::instance::InstanceView;
use crate::market::{Market, Span, Usd, UsdPerHour, elapsed};

/// Prints only what was found. Programs get one document, with what was done (`Swept::tell`).
pub fn show(context: &Context, found: &SweepFindings, at_stake: &AtStake) {
    if context.is_machine_output() {
        return;
    }
    let now = context.clock.now();
    let rows: Vec<Vec<String>> = found
        .machines
        .iter()
        .filter(|judged| is_shown(judged) && !is_stray(judged))
        .map(own_row)
        .collect();
    if !rows.is_empty() {
        context.printer.line(own_table(context.printer.columns(Stream::Out), &rows));
    }
    for line in found
        .machines
        .iter()
        .filter(|judged| is_shown(judged) && is_orphan(judged))
        .filter_map(|judged| at_stake.line(judged, now))
    {
        context.printer.line(line);
    }
    show_strays(context, found);
    for left in &found.residue {
        let whose = if left.ours { "" } else { " (not ours)" };
        context.printer.line(format!(
            "left over in {}: {} {}, {}, {} a month{whose}",
            left.region, left.kind, left.id, left.detail, left.usd_per_month
        ));
    }
    unreachable::sentences(&found.unknown).iter().for_each(|unknown| context.printer.warn(unknown));
    for (place, why) in &found.unasked {
        context
            .printer
            .note(format!("{place} was not asked: this job root never had a job for it: {why}"));
    }
    let ours: Usd = found
        .residue
        .iter()
        .filter(|left| left.is_removable())
        .map(|left| left.usd_per_month)
        .sum();
    if found.residue.iter().any(Residue::is_removable) {
        context
            .printer
            .hint(format!("`lamp sweep --residue` removes what is ours: {ours} a month"));
    }
}

fn own_row(judged: &Judged) -> Vec<String> {
    let (verdict, why) = words(&judged.verdict);
    let view = &judged.view;
    vec![
        view.id.clone(),
        view.instance_type.clone(),
        view.region.to_string(),
        view.tags.job.to_string(),
        view.tags.attempt.number().to_string(),
        verdict.into(),
        why.into(),
    ]
}

/// The reason is cut first; `-o json` has it whole.
fn own_table(width: Option<usize>, rows: &[Vec<String>]) -> String {
    let headings = ["machine", "type", "region", "job", "attempt", "verdict", "why"];
    render_table_within(width, &headings, rows, &[], Give { cut: &[6], go: &[4, 1] })
}

/// Shows the machines with an unknown job, and what helps the user to recognise them.
fn show_strays(context: &Context, found: &SweepFindings) {
    let strays: Vec<&Judged> = found.machines.iter().filter(|judged| is_stray(judged)).collect();
    if strays.is_empty() {
        return;
    }
    let now = context.clock.now();
    let many = counted(strays.len() as u64, "machine");
    context.printer.line(format!("the job of {many} of yours is unknown here; a sweep never ends them, because another job root may know it:"));
    let rows: Vec<Vec<String>> = strays.iter().map(|stray| stray_row(&stray.view, now)).collect();
    context.printer.line(stray_table(context.printer.columns(Stream::Out), &rows));
}

fn stray_table(width: Option<usize>, rows: &[Vec<String>]) -> String {
    let headings = ["machine", "type", "region", "job", "age", "ends within", "$/h", "so far"];
    render_table_within(width, &headings, rows, &[4, 5, 6, 7], Give { cut: &[3], go: &[1, 2] })
}

fn stray_row(view: &InstanceView, now: Timestamp) -> Vec<String> {
    let age = elapsed(view.launched, now);
    let span = |time: std::time::Duration| Span::from_secs(time.as_secs()).to_string();
    let ends = match (view.state.bills(), view.tags.kill_at) {
        (false, _) => view.state.to_string(),
        (true, Some(kill_at)) => span(elapsed(now, kill_at)),
        (true, None) => "no cap".to_owned(),
    };
    let at_most = if view.market == Market::Spot { "<" } else { "" };
    let usd = |usd: Option<Usd>| {
        usd.map_or_else(|| "?".to_owned(), |usd| format!("{at_most}{:.2}", usd.dollars()))
    };
    let hour = hour(view);
    vec![
        view.id.clone(),
        view.instance_type.clone(),
        view.region.to_string(),
        view.tags.job.to_string(),
        span(age),
        ends,
        usd(hour.map(UsdPerHour::per_hour)),
        usd(hour.map(|hour| hour.cost_of(age))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::wrap::columns;

    #[test]
    fn stray_table_fits_80_columns_and_cuts_no_id() {
        let cells = [
            "i-0123456789abcdef0",
            "g4dn.12xlarge",
            "ap-southeast-2",
            "llama-fine-tune-7f3k2q",
            "3h 20m",
            "12d 3h",
            "<12.24",
            "<12345.67",
        ];
        let rows = [cells.map(str::to_owned).to_vec()];
        let text = stray_table(Some(80), &rows);
        assert!(
            text.lines().all(|line| columns(line) <= 80)
                && text.contains(cells[0])
                && text.contains(cells[5]),
            "{text}"
        );
        assert!(stray_table(None, &rows).contains(cells[3]), "what is piped is whole");
    }

    #[test]
    fn own_table_fits_80_columns_and_cuts_no_id() {
        let cells = [
            "i-0123456789abcdef0",
            "g5.xlarge",
            "us-east-1",
            "llama-fine-tune-7f3k2q",
            "1",
            "orphan",
            "no heartbeat for 36 min, and its lease is 30m",
        ];
        let text = own_table(Some(80), &[cells.map(str::to_owned).to_vec()]);
        assert!(text.lines().all(|line| columns(line) <= 80), "{text}");
        assert!(text.contains(cells[0]), "{text}");
    }
}
