//! `lamp status`: a line for each job; unfinished ones first, the newest first in each group.

use std::io::IsTerminal as _;
use std::sync::Arc;

use clap::Args as ClapArgs;
use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use serde::Serialize;

use super::other_job_root;
use crate::app::find_job;
use crate::app::gang::gang_jobs::ranks_below;
use crate::app::gang::gang_report::GangReport;
use crate::app::gang::gang_rows::fold_gangs;
use crate::app::missing_spec::SpecGone;
use crate::app::overview::driven_here::seen_from_here;
use crate::app::overview::machine_watch::{CloudAsking, MachineWatch};
use crate::app::overview::overview::{has_aws, machine_needs, money_now, verdict_need};
use crate::app::record_errors;
use crate::app::text::{countdown, counted, local_time, waits_text};
use crate::app::view::discarded::DiscardedShown;
use crate::app::view::job_summary::Summary;
use crate::app::view::summary_text;
use crate::app::view::{kept_machines, silent_machine};
use crate::cli::apply::caps_view::{self, CapsShown};
use crate::cli::shell::job_root;
use crate::cli::{
    Context, ExitCode, Fault, Give, Stream, Style, render_table_folded, render_table_within,
};
use crate::job::{JobId, JobState, Plan, REHEARSAL};
use crate::jobdir::{self, JobDir, JobDirError};
use crate::market::{Span, Usd, UsdPerHour, elapsed};
use crate::policy::LIMIT_NEARS;
use crate::wire::{StoreHandle, Workstation};

/// Show jobs: what runs, what it costs, how it stands
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// A job: its id, the beginning of it, or its name [default: all]
    pub job: Option<String>,

    /// Finished jobs too, however many
    #[arg(short, long)]
    pub all: bool,

    /// Look again every few seconds, until Ctrl-C or the end of the job
    #[arg(short, long)]
    pub watch: bool,
}

/// The output for programs.
#[derive(Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Listing {
    jobs: Vec<Summary>,
    /// Jobs with records of a newer version, or with an attempt but no spec.
    left_out: Vec<UnreadableJob>,
    /// The user's caps and what counts against them; null without caps.
    caps: Option<CapsShown>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
struct UnreadableJob {
    #[cfg_attr(feature = "web", schema(value_type = String))]
    job: JobId,
    why: String,
}

/// Finished jobs in the table for people. More would push running jobs off the screen.
const FINISHED_SHOWN: usize = 10;

/// Columns that a narrow terminal cuts or drops: the progress is cut first, since its beginning
/// says most.
const GIVE: Give<'_> = Give { cut: &[5], go: &[2, 8, 4, 3, 5] };

/// In a pipe nothing is cut: these columns move below their row, the first ones first.
const GIVE_IN_PIPE: [usize; 6] = [5, 8, 2, 4, 3, 7];

/// On a narrower terminal, a machine is shown without its zone.
const ZONES_FROM: usize = 110;

type ReadJob = (JobDir, Result<Option<Summary>, JobDirError>, Option<SpecGone>);

/// # Errors
/// Fails when the job root is unreachable, or the job is missing.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let now = context.clock.now();
    let jobs = match &args.job {
        Some(text) => {
            let dir = find_job::find(&store, Some(text)).await?;
            ranks_below(&dir).await
        }
        None => jobdir::jobs(store.as_ref())
            .await
            .map_err(|error| record_errors::record_fault(&error.into()))?,
    };
    let is_one = args.job.is_some() && jobs.len() == 1;
    let read = stream::iter(jobs).map(|job| {
        let dir = JobDir::new(Arc::clone(&store), job);
        async move {
            let mut read = Summary::read(&dir, now).await;
            if let Ok(Some(summary)) = &mut read
                && args.job.is_some()
                && summary.state.is_final()
            {
                summary.discarded = DiscardedShown::read(&dir).await;
            }
            let gone = if matches!(read, Ok(None)) {
                SpecGone::of(&dir).await.ok().flatten()
            } else {
                None
            };
            (dir, read, gone)
        }
    });
    let read: Vec<ReadJob> = read.buffer_unordered(find_job::READS_IN_FLIGHT).collect().await;
    let (mut summaries, mut left_out) = (Vec::new(), Vec::new());
    let workstation = job_root::workstation(context)?;
    let mut daemon = None;
    for (dir, read, gone) in read {
        let job = dir.job().clone();
        if let Some(gone) = gone {
            let why = format!("{}: {}", gone.what(&dir), gone.meaning());
            context.printer.warn(&why);
            gone.hint(&dir).iter().for_each(|hint| context.printer.hint(hint));
            left_out.push(UnreadableJob { job, why });
            continue;
        }
        match read {
            // Only its code was uploaded.
            Ok(None) if is_one => {
                return Err(Fault::new(
                    ExitCode::NOT_FOUND,
                    format!(
                        "job `{job}` was never made: only the storage of the code that was sent bills"
                    ),
                ));
            }
            Ok(summary) => summaries
                .extend(summary.map(|summary| seen_from_here(&workstation, &mut daemon, summary))),
            // One unreadable record must not hide the other jobs.
            Err(error) => {
                match record_errors::one_job_only(&dir, &error).filter(|_| args.job.is_none()) {
                    Some(why) => {
                        context.printer.warn(format!("left out: {why}"));
                        left_out.push(UnreadableJob { job, why });
                    }
                    None => return Err(record_errors::record_fault(&error)),
                }
            }
        }
    }
    let caps = caps_view::shown(context, &store).await?;
    silent_machine::ask(&workstation, &store, &mut summaries, now).await;
    summaries.sort_by(|one, other| (other.started, &other.job).cmp(&(one.started, &one.job)));
    let rows = fold_gangs(summaries.clone(), now);
    if context.is_machine_output() {
        left_out.sort_by(|one, other| one.job.cmp(&other.job));
        context.printer.json(&Listing { jobs: rows, left_out, caps });
    } else if let (Some(_), [summary]) = (&args.job, rows.as_slice()) {
        show_one(context, summary, now);
        show_gang(context, &store, summary, now).await;
    } else if !summaries.is_empty() || left_out.is_empty() {
        show_table(context, &rows, args.all);
        if summaries.is_empty() {
            other_job_root::tell_of_the_default(context).await;
        }
        caps.iter().for_each(|caps| context.printer.note(caps.text()));
        tell_money_and_needs(context, &summaries, &store, &workstation).await;
    }
    Ok(ExitCode::SUCCESS)
}

/// The epochs of a gang and its waiting time, below the lines of its ranks.
async fn show_gang(context: &Context, store: &StoreHandle, summary: &Summary, now: Timestamp) {
    let (Some(gang), Ok(job)) = (&summary.gang, summary.job.parse()) else { return };
    gang.ranks.iter().for_each(|rank| context.printer.view_prose(2, rank.line()));
    let dir = JobDir::new(Arc::clone(store), job);
    if let Ok(Some(report)) = GangReport::read(&dir, now).await {
        let epochs = report.epochs.iter().map(|epoch| epoch.line().trim_start().to_owned());
        epochs.chain(report.time_lines()).for_each(|line| context.printer.view_prose(2, line));
    }
}

/// The money of this moment, jobs that bill without useful work, and machines that no job needs.
async fn tell_money_and_needs(
    context: &Context,
    summaries: &[Summary],
    store: &StoreHandle,
    workstation: &Workstation,
) {
    let now = context.clock.now();
    // It must answer at once, so it shows the last look of a view that stays open.
    let watch = MachineWatch::new(CloudAsking::Never);
    let look = watch.look(store, workstation, has_aws(summaries), now).await;
    let money = money_now(summaries, look.as_ref(), now);
    if money.per_hour_now > UsdPerHour::ZERO {
        context.printer.note(money.sentence());
    }
    let machines = look.iter().flat_map(|look| machine_needs(look, summaries, now));
    for need in summaries.iter().filter_map(verdict_need).chain(machines) {
        let job = need.job.map(|job| format!("{job}: ")).unwrap_or_default();
        context.printer.warn(format!("{job}{}", need.text));
        context.printer.hint(format!("`{}`", need.command));
    }
}

fn show_table(context: &Context, summaries: &[Summary], all: bool) {
    if summaries.is_empty() {
        let is_missing = context
            .roots
            .url
            .strip_prefix("file://")
            .is_some_and(|folder| !std::path::Path::new(folder).is_dir());
        let which = if is_missing { ", a folder that is not there yet" } else { "" };
        context.printer.note(format!("no jobs in {}{which}", context.roots.url));
        context.printer.hint(find_job::FIRST_JOB);
        return;
    }
    let mut finished = 0;
    let mut shown = Vec::new();
    let width = context.printer.view_columns();
    let (over, open): (Vec<&Summary>, Vec<&Summary>) =
        summaries.iter().partition(|summary| summary.state.is_final());
    for summary in open.into_iter().chain(over) {
        let is_over = summary.state.is_final();
        // A rehearsal has reported its result already.
        let is_rehearsed = is_over && summary.name.ends_with(REHEARSAL);
        finished += usize::from(is_over && !is_rehearsed);
        if all || !is_over || (!is_rehearsed && finished <= FINISHED_SHOWN) {
            shown.push(row(context, summary, width < ZONES_FROM));
        }
    }
    let waiting = summaries.iter().filter_map(|summary| Some((summary, summary.waiting.as_ref()?)));
    let troubles =
        summaries.iter().filter_map(|summary| Some((summary, summary.trouble.as_ref()?)));
    let left_out = summaries.len() - shown.len();
    if !shown.is_empty() {
        let headings = [
            "job", "state", "attempt", "machine", "verdict", "progress", "cost", "ends", "started",
        ];
        let table = if std::io::stdout().is_terminal() {
            render_table_within(Some(width), &headings, &shown, &[2, 6], GIVE)
        } else {
            render_table_folded(width, &headings, &shown, &[2, 6], &GIVE_IN_PIPE)
        };
        context.printer.line(table);
    }
    for (summary, waiting) in waiting {
        context.printer.note(format!(
            "{} waits for {}",
            summary.job,
            waits_text(waiting, summary.waiting_until)
        ));
    }
    let undriven: Vec<&str> = summaries
        .iter()
        .filter(|summary| summary.driven_here == Some(false))
        .map(|summary| summary.job.as_str())
        .collect();
    tell_undriven(context, &undriven);
    for summary in summaries {
        let Some(until) = summary.kept_until else { continue };
        let (job, until) = (&summary.job, local_time(until));
        context
            .printer
            .note(format!("{job} is kept until {until}: not ended as idle or stalled before"));
    }
    for summary in summaries.iter().filter(|summary| !summary.kept.is_empty()) {
        context.printer.note(kept_machines::sentence(&summary.job, &summary.kept));
    }
    for summary in summaries.iter().filter(|summary| !summary.alone) {
        if let Some(silence) = &summary.silence {
            context.printer.warn(format!(
                "{}: {}",
                summary.job,
                silence.sentence(summary.plan.as_ref())
            ));
        }
    }
    for (summary, trouble) in troubles {
        context.printer.warn(format!("{}: {trouble}", summary.job));
    }
    // For example, a running machine reports that nothing is being saved.
    let is_at_work = |summary: &&Summary| {
        matches!(summary.state, JobState::Preparing | JobState::Running | JobState::Draining)
    };
    for summary in summaries.iter().filter(is_at_work) {
        for text in summary.attention.iter().filter(|text| summary.trouble.as_ref() != Some(text)) {
            context.printer.warn(format!("{}: {text}", summary.job));
        }
    }
    if left_out > 0 {
        let told = if shown.is_empty() {
            format!("nothing runs; ended: {}", counted(left_out as u64, "job"))
        } else {
            format!("and {left_out} more that {} ended", if left_out == 1 { "has" } else { "have" })
        };
        context.printer.note(format!("{told}; `lamp status --all` shows them"));
    }
}

/// Their agents still end their machines, but relaunches and receipts need a driver.
fn tell_undriven(context: &Context, jobs: &[&str]) {
    let (which, drives) = match jobs {
        [] => return,
        [job] => (
            (*job).to_owned(),
            format!(
                "`lamp daemon --job {job} --until-done` drives it; `lamp daemon` drives all jobs"
            ),
        ),
        [first, ..] => (
            format!("{first} and {} more jobs", jobs.len() - 1),
            "`lamp daemon` drives all jobs".to_owned(),
        ),
    };
    context.printer.warn(format!("no process on this workstation drives {which}: its next machine and its receipt wait for a driver"));
    context.printer.hint(drives);
}

fn row(context: &Context, summary: &Summary, narrow: bool) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    vec![
        summary.job.clone(),
        context.printer.paint(Stream::Out, style(summary), &state_text(summary)),
        or_dash(summary.attempt.map(|attempt| attempt.to_string())),
        or_dash(summary.machine.as_ref().map(|machine| machine.cell(narrow))),
        or_dash(gang_verdict(summary).or_else(|| summary_text::verdict_text(summary))),
        or_dash(progress(summary)),
        match (summary.alone, summary.usd_unheard > Usd::ZERO || summary.state.is_final()) {
            (true, _) => "-".into(),
            (false, true) => summary_text::spent_text(summary),
            (false, false) => summary.usd.to_string(),
        },
        or_dash(
            summary
                .ends
                .first()
                .map(|end| format!("{}, {}", countdown(end.at, context.clock.now()), end.what)),
        ),
        local_time(summary.started),
    ]
}

/// `3 ranks, busy`
fn gang_verdict(summary: &Summary) -> Option<String> {
    let gang = summary.gang.as_ref()?;
    let verdict = gang.verdict.iter().map(|verdict| format!(", {verdict}"));
    Some(format!("{} ranks{}", gang.ranks.len(), verdict.collect::<String>()))
}

/// A rehearsal that resumed was cancelled because it was complete.
fn state_text(summary: &Summary) -> String {
    let is_played = summary.state == JobState::Cancelled && summary.attempt > Some(1);
    let asked = match &summary.end_asked {
        None if is_played && summary.name.ends_with(REHEARSAL) => ", rehearsed",
        Some(asked) if asked.wish == "cancel" => ", to cancel",
        Some(_) => ", to stop",
        None => "",
    };
    format!("{}{asked}", state_word(summary))
}

/// The progress. A silent machine's remaining time is unknown.
fn progress(summary: &Summary) -> Option<String> {
    let text = summary.progress.as_ref().and_then(summary_text::progress_text)?;
    let is_known = |part: &&str| summary.silence.is_none() || !part.ends_with(" left");
    Some(text.split(", ").filter(is_known).collect::<Vec<_>>().join(", "))
}

/// The machine's state now. A silent machine's records are from its last heartbeat.
fn state_word(summary: &Summary) -> String {
    summary
        .silence
        .as_ref()
        .map_or_else(|| summary.state_told(), |silence| silence.state().to_owned())
}

fn style(summary: &Summary) -> Style {
    match summary.state {
        _ if summary.silence.is_some() => Style::Warning,
        JobState::Succeeded | JobState::Running => Style::Good,
        JobState::Failed => Style::Bad,
        JobState::Interrupted
        | JobState::Held
        | JobState::Stopped
        | JobState::Cancelled
        | JobState::Ended => Style::Warning,
        _ => Style::Bold,
    }
}

fn how_to_end(summary: &Summary) -> String {
    let follows = format!("`lamp logs -f {}` follows it", summary.job);
    match summary.end_asked.as_ref().map(|asked| asked.wish) {
        None => format!("{follows}, `lamp stop {}` ends it", summary.job),
        Some("stop") => {
            format!(
                "{follows}; it ends once it has saved, and `lamp cancel {}` ends it sooner, without what it has not saved yet",
                summary.job
            )
        }
        Some(_) => follows,
    }
}

/// By when a requested machine must report, and what happens otherwise.
fn unheard_until(plan: &Plan, is_wanted: bool) -> String {
    let by = plan.created.saturating_add(plan.boot.duration()).unwrap_or(Timestamp::MAX);
    let then = if is_wanted { ", and another takes its place" } else { "" };
    format!(
        "has not said a word yet; without one by about {} (`limits.boot`) its machine is ended{then}",
        local_time(by)
    )
}

fn show_one(context: &Context, summary: &Summary, now: Timestamp) {
    let line =
        |key: &str, value: String| context.printer.view_prose(12, format!("{key:<12}{value}"));
    line("job", summary.job.clone());
    match &summary.silence {
        Some(silence) => line(
            "state",
            format!("{}: {} at its last heartbeat", silence.state(), summary.state.word()),
        ),
        None => line("state", summary.state_told()),
    }
    if let Some(attempt) = summary.attempt {
        line(
            "attempt",
            format!(
                "{attempt}{}",
                summary.instance.as_ref().map(|id| format!(" on {id}")).unwrap_or_default()
            ),
        );
    }
    if let Some(machine) = &summary.machine {
        line("machine", machine.line());
    }
    if summary.alone {
        line("run by", "the agent alone, without a controller".into());
    }
    if let Some(before) = &summary.before {
        line("before", before.clone());
    }
    if let Some(plan) = summary.plan.as_ref().filter(|_| summary.is_unheard()) {
        line("its agent", unheard_until(plan, summary.end_asked.is_none()));
    }
    let (verdict, because) = summary_text::judged(summary);
    if let Some(verdict) = verdict {
        line("verdict", verdict);
    }
    if let Some(because) = because.filter(|_| summary.silence.is_none()) {
        line("because", because);
    }
    if let Some(asked) = &summary.end_asked {
        line(
            "was asked",
            format!(
                "to {}, by {} {} ago",
                asked.wish,
                asked.by,
                Span::from_secs(elapsed(asked.at, now).as_secs())
            ),
        );
    }
    if let Some(held) = &summary.held {
        line("held", held.text());
    }
    if let Some(waiting) = &summary.waiting {
        line("waits for", waits_text(waiting, summary.waiting_until));
    }
    if let Some(progress) = progress(summary) {
        line("progress", progress);
    }
    if let Some(usage) = summary_text::usage_text(summary).filter(|_| summary.silence.is_none()) {
        line("usage", usage);
    }
    line("cost", summary_text::money_text(summary));
    line("checkpoints", summary.checkpoints.to_string());
    if let Some(seconds) =
        summary.heartbeat_seconds.filter(|_| summary.silence.is_none() || summary.alone)
    {
        line("heartbeat", format!("{} ago", Span::from_secs(seconds as u64)));
    }
    line("started", local_time(summary.started));
    if let Some(until) = summary.kept_until {
        line("kept until", format!("{}: not ended as idle or stalled before", local_time(until)));
    }
    for (at, end) in summary.ends.iter().enumerate() {
        let condition = end.condition.map(|text| format!(", {text}")).unwrap_or_default();
        let (left, time) = (countdown(end.at, now), local_time(end.at));
        let key = if at == 0 { "ends" } else { "" };
        line(key, format!("{}{condition}: {left}, {time}", end.what));
    }
    if let Some(ended) = summary.ended {
        line("ended", local_time(ended));
    }
    for thing in &summary.kept {
        line(
            "keeps",
            format!(
                "{} {} in {}: {}{}",
                thing.kind,
                thing.id,
                thing.region,
                thing.detail,
                kept_machines::a_month(thing.usd_per_month)
            ),
        );
    }
    if let Some(gone) = &summary.discarded {
        line("discarded", gone.text());
    }
    if summary.driven_here == Some(false) {
        line(
            "driven by",
            format!(
                "no process on this workstation: `lamp daemon --job {} --until-done` drives it",
                summary.job
            ),
        );
    }
    if let Some(silence) = &summary.silence
        && !summary.alone
    {
        line("attention", silence.sentence(summary.plan.as_ref()));
    }
    if let Some(verdict) = gang_verdict(summary) {
        line("gang", verdict);
    }
    for attention in &summary.attention {
        line("attention", attention.clone());
    }
    if !summary.kept.is_empty() {
        context.printer.hint(kept_machines::hint(&summary.job));
    }
    if summary.alone && !summary.state.is_final() {
        context.printer.hint(format!(
            "`lamp logs -f {}` follows it; Ctrl-C where it was started ends it",
            summary.job
        ));
    } else if !summary.state.is_final() {
        if summary.reason.as_deref().is_some_and(|reason| reason.contains(LIMIT_NEARS)) {
            context.printer.hint(format!(
                "`lamp extend {0} 2h` gives it more time, `lamp extend {0} --budget 5` more money",
                summary.job
            ));
        }
        context.printer.hint(how_to_end(summary));
    }
}
