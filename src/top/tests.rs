//! Whole frames of made-up jobs, and what the keys do to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use jiff::Timestamp;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;

use super::frame::draw;
use super::job_sheet::job_sheet;
use super::keys::{Effect, press};
use super::model::{Dialog, Preset, TopModel, TopNews, TopScreen};
use super::open_job::OpenJob;
use super::palette::Palette;
use crate::app::analysis::gpu_history::{GpuHistory, GpuLine};
use crate::app::analysis::sample_cache::AttemptPlot;
use crate::app::analysis::startup_timeline::StartupTimeline;
use crate::app::gang::gang_report::{GangReport, RankReport, WaitCost};
use crate::app::gang::gang_rows::fold_gangs;
use crate::app::job_act::JobAct;
use crate::app::overview::gang_view::{GangView, HeatRow};
use crate::app::overview::job_sentence::{NextEnd, job_sentence};
use crate::app::overview::overview::{JobRow, Money, Need, Overview};
use crate::app::overview::usage_trend::UsageTrend;
use crate::app::view::job_summary::Summary;
use crate::app::view::plot_data::{PlotData, Series};
use crate::app::view::timeline::{Explained, ExplainedAttempt};
use crate::app::{ExitCode, Fault};
use crate::instance::GpuHealth;
use crate::job::{AttemptNo, JobState, Progress};
use crate::market::{Usd, UsdPerHour};

fn moment(secs: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + secs).expect("a moment")
}

fn summary(name: &str, state: JobState, cents: i64) -> Summary {
    let gpu = serde_json::json!({ "index": 0, "name": "A10G", "util_percent": 93.0,
        "memory_used_mib": 12_288, "memory_total_mib": 24_576, "power_watts": 141.0,
        "temperature_celsius": null });
    let progress = Progress {
        step: Some(430.0),
        total: Some(1000.0),
        secs_per_step: Some(2.0),
        ..Progress::default()
    };
    let usd = |cents: i64| Usd::from_micros(cents * 10_000);
    Summary {
        job: format!("{name}-7f3k2q"),
        name: name.to_owned(),
        instance: Some("i-1".into()),
        usd: usd(cents),
        most_usd: Some(usd(500)),
        most_job_usd: Some(usd(500)),
        usd_per_hour: Some(UsdPerHour::new(usd(100))),
        started: moment(0),
        progress: Some(progress),
        cpu_percent: Some(210.0),
        gpus: vec![serde_json::from_value(gpu).expect("a GPU")],
        checkpoints: 2,
        heartbeat_seconds: Some(4.0),
        reason: Some("the GPU works".into()),
        driven_here: Some(true),
        ..Summary::example(state)
    }
}

fn row(summary: Summary) -> JobRow {
    let next_end = (!summary.state.is_final())
        .then(|| NextEnd { at: moment(7_380), what: "its machine ends at the latest at" });
    JobRow {
        sentence: job_sentence(&summary),
        next_end,
        eta: None,
        eta_from: None,
        eta_to: None,
        summary,
    }
}

fn overview(jobs: Vec<JobRow>, needs: usize) -> Overview {
    let need = |at: usize| Need {
        job: Some(format!("lost-{at}")),
        text: "its agent is silent and its lease is over".into(),
        command: "lamp sweep".into(),
    };
    Overview {
        at: moment(0),
        money: Money {
            spent: Usd::from_micros(4_200_000),
            more_at_most: Some(Usd::from_micros(10_000_000)),
            per_hour_now: UsdPerHour::new(Usd::from_micros(1_200_000)),
            ..Money::default()
        },
        needs: (0..needs).map(need).collect(),
        jobs,
        look: None,
        costs: Vec::new(),
        machine_rows: Vec::new(),
    }
}

fn three() -> Overview {
    let jobs = vec![
        row(summary("llama-ft", JobState::Running, 42)),
        row(summary("resnet", JobState::Preparing, 900)),
        row(summary("bert", JobState::Succeeded, 10)),
    ];
    overview(jobs, 1)
}

fn model(overview: Overview) -> TopModel {
    let palette = Palette { is_colored: false };
    let mut model = TopModel::new("file:///jobs".into(), palette, moment(3));
    model.hear(TopNews::Overview(Ok(Arc::new(overview))));
    let values =
        (0..60).map(|at| (!(28..40).contains(&at)).then_some(f64::from(at) * 1.5)).collect();
    let trace = UsageTrend { label: "GPU", unit: "%", values, top: 100.0 };
    model.hear(TopNews::Traces(BTreeMap::from([("llama-ft-7f3k2q".into(), Arc::new(trace))])));
    model
}

fn look(name: &str) -> OpenJob {
    let summary = summary(name, JobState::Running, 42);
    let series = |name: &'static str, unit: &'static str| Series {
        name,
        unit,
        t_secs: (0..100).map(f64::from).collect(),
        values: (0..100).map(|at| (at > 20).then_some(f64::from(at))).collect(),
    };
    OpenJob {
        job: summary.job.clone(),
        at: moment(0),
        explained: Explained {
            job: summary.job.clone(),
            state: summary.state,
            reason: None,
            waiting: None,
            waiting_until: None,
            held: None,
            discarded: None,
            requests: Vec::new(),
            market: Vec::new(),
            attempts: Vec::new(),
            setup: None,
            hard_end: None,
            alone: false,
            created: None,
        },
        summary: Some(summary),
        attempt: AttemptNo::FIRST,
        proof: None,
        plot: Arc::new(AttemptPlot {
            data: PlotData {
                began: None,
                samples: 100,
                series: vec![series("gpu_percent", "%"), series("gpu_power_watts", "W")],
            },
            ..AttemptPlot::default()
        }),
        startups: Vec::new(),
        status: None,
        gang: None,
        log: (0..60)
            .map(|at| format!("step {at} \u{1b}[31mloss\u{1b}[0m\u{1b}]0;owned\u{7}"))
            .collect(),
    }
}

/// The lines of a frame, and whether a cell has a colour.
fn frame(model: &mut TopModel, width: u16, height: u16) -> (Vec<String>, bool) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("no terminal");
    terminal.draw(|frame| draw(frame, model)).expect("it is drawn");
    let buffer = terminal.backend().buffer();
    let cells = |y: u16| (0..width).map(move |x| &buffer[(x, y)]);
    let line = |y: u16| cells(y).map(|cell| cell.symbol()).collect::<String>();
    let is_colored = (0..height).flat_map(cells).any(|cell| cell.fg != Color::Reset);
    ((0..height).map(|y| line(y).trim_end().to_owned()).collect(), is_colored)
}

fn key(model: &mut TopModel, code: KeyCode) -> Effect {
    press(model, KeyEvent::new(code, KeyModifiers::NONE))
}

fn types(model: &mut TopModel, text: &str) -> Vec<Effect> {
    text.chars().map(|letter| key(model, KeyCode::Char(letter))).collect()
}

#[test]
fn overview_fits_the_smallest_terminal() {
    let mut model = model(three());
    let (lines, is_colored) = frame(&mut model, 80, 24);
    let all = lines.join("\n");
    assert!(lines[0].starts_with("lamp top  3 jobs  by newest  read 3s ago"), "{all}");
    assert!(lines[1].starts_with("Now $1.20/h  Useful $0.00/h  Spent $4.20  At most"), "{all}");
    assert!(all.contains("Needs a person (1)\n  lost-0: its agent is silent"), "{all}");
    assert!(all.contains("\n    lamp sweep\n"), "{all}");
    let job = lines.iter().find(|line| line.starts_with("> running")).expect("the first job");
    assert!(job.contains("llama-ft") && job.contains("GPU 88%"), "{job}");
    assert!(job.contains(" 43%") && job.contains("$0.42") && job.ends_with("in 2h 2m"), "{job}");
    assert!(job.contains('·') && job.contains('▇'), "an unknown value is a dot: {job}");
    assert!(all.contains("\n    running, busy: the GPU works\n"), "{all}");
    assert!(lines[23].starts_with("? help  Enter open"), "{all}");
    assert!(!is_colored, "without colour no cell has one");
    model.palette.is_colored = true;
    let (wide, is_colored) = frame(&mut model, 120, 40);
    assert!(is_colored && wide[0].ends_with("file:///jobs"), "{wide:#?}");
}

#[test]
fn gang_is_one_row_with_its_ranks_when_selected() {
    let mut first = summary("g", JobState::Running, 42);
    let rank = Summary { job: "g-r1-7f3k2q".into(), ..first.clone() };
    first.name = "g".into();
    let rows = fold_gangs(vec![first, rank], moment(0));
    let mut model = model(overview(rows.into_iter().map(row).collect(), 0));
    let (lines, _) = frame(&mut model, 100, 24);
    let all = lines.join("\n");
    assert_eq!(lines.iter().filter(|line| line.contains("running ")).count(), 1, "{all}");
    assert!(all.contains("$0.84"), "the money of both: {all}");
    assert!(all.contains("      rank 1: running, busy, step 430, GPU 93%, $0.42"), "{all}");
}

#[test]
fn job_of_a_gang_shows_how_busy_each_rank_was() {
    let values = vec![Some(0.0), None, Some(99.0)];
    let trend = Arc::new(UsageTrend { label: "GPU", unit: "%", values, top: 100.0 });
    let rank = |rank: u32| RankReport {
        rank,
        role: "worker",
        job: format!("g-r{rank}-7f3k2q").parse().expect("an id"),
        state: "running".into(),
        attempts: 1,
        usd: Usd::ZERO,
        usd_per_hour: None,
        ended: None,
    };
    let report = GangReport {
        ranks: vec![rank(1), rank(2)],
        epochs: Vec::new(),
        end: None,
        same_output: false,
        failed_rank: None,
        total_usd: Usd::ZERO,
        assembly: WaitCost::default(),
        held: WaitCost::default(),
        tail: WaitCost::default(),
    };
    let gang = Some(GangView { report, heat: vec![HeatRow { rank: 1, trend }] });
    let mut model = model(three());
    model.look = Some(Arc::new(OpenJob { gang, ..look("g") }));
    let sheet = job_sheet(&model, model.look.as_ref().expect("it is open"), 100);
    let text: Vec<String> = sheet.lines.iter().map(ToString::to_string).collect();
    let line = text.iter().find(|line| line.starts_with("rank 1")).expect("a line");
    assert!(line.starts_with("rank 1  _·█") && line.contains(" running, "), "{text:#?}");
    assert!(text.iter().any(|line| line.starts_with("rank 2")), "{text:#?}");
}

#[test]
fn selection_stays_in_view_and_with_its_job() {
    let jobs = (0..40).map(|at| row(summary(&format!("job{at:02}"), JobState::Running, 40 - at)));
    let mut model = model(overview(jobs.collect(), 5));
    key(&mut model, KeyCode::End);
    let (lines, _) = frame(&mut model, 80, 24);
    assert!(lines.iter().any(|line| line.starts_with("> running") && line.contains("job39")));
    key(&mut model, KeyCode::Up);
    assert_eq!(model.current_job().as_deref(), Some("job38-7f3k2q"));
    // The order changes, the selection does not.
    for _ in 0..4 {
        key(&mut model, KeyCode::Char('s'));
        assert_eq!(model.current_job().as_deref(), Some("job38-7f3k2q"));
    }
    key(&mut model, KeyCode::Home);
    let (lines, _) = frame(&mut model, 80, 24);
    assert!(lines[1].starts_with("Now "), "the money is shown with the first job: {lines:#?}");
    assert!(lines.join("\n").contains("  2 more: `lamp top --once` shows all"), "{lines:#?}");
}

#[test]
fn filter_and_order_choose_the_rows() {
    let mut model = model(three());
    let names = |model: &TopModel| -> Vec<String> {
        model.rows().iter().map(|row| row.summary.name.clone()).collect()
    };
    key(&mut model, KeyCode::Char('s'));
    assert_eq!(names(&model), ["resnet", "llama-ft", "bert"], "by cost");
    key(&mut model, KeyCode::Char('/'));
    types(&mut model, "state:open cost<5");
    assert_eq!(names(&model), ["llama-ft"]);
    let (lines, _) = frame(&mut model, 80, 24);
    assert!(lines[23].starts_with("/state:open cost<5_"), "{lines:#?}");
    key(&mut model, KeyCode::Enter);
    assert!(frame(&mut model, 80, 24).0[0].contains("1 job  by cost  filter state:open cost<5"));
    key(&mut model, KeyCode::Char('/'));
    types(&mut model, " color:red");
    assert!(frame(&mut model, 80, 24).0.join("\n").contains("The filter does not know color:red"));
    key(&mut model, KeyCode::Esc);
    assert_eq!(model.filter, "state:open cost<5", "Esc restores the filter before");
}

#[test]
fn kept_filters_come_again_in_turn_and_are_forgotten() {
    let mut model = model(three());
    model.kept_filters = vec!["bert".into()];
    assert_eq!(key(&mut model, KeyCode::Char('F')), Effect::Nothing, "there is no filter to keep");
    key(&mut model, KeyCode::Char('/'));
    types(&mut model, "state:open");
    key(&mut model, KeyCode::Enter);
    let both = vec!["bert".to_owned(), "state:open".to_owned()];
    assert_eq!(key(&mut model, KeyCode::Char('F')), Effect::KeepFilters(both));
    assert!(frame(&mut model, 80, 24).0[0].contains("  kept filter state:open"));
    let mut shown = Vec::new();
    for _ in 0..3 {
        key(&mut model, KeyCode::Char('f'));
        shown.push(model.filter.clone());
    }
    assert_eq!(shown, ["", "bert", "state:open"]);
    let one = vec!["bert".to_owned()];
    assert_eq!(key(&mut model, KeyCode::Char('F')), Effect::KeepFilters(one));
}

#[test]
fn job_screen_has_its_views_and_shows_the_log_as_plain_text() {
    let mut model = model(three());
    key(&mut model, KeyCode::Enter);
    assert_eq!(model.watched().job.as_deref(), Some("llama-ft-7f3k2q"));
    assert!(frame(&mut model, 80, 24).0.join("\n").contains("Reading the records of the job"));
    // The view does not show the records of another job as this job's.
    model.hear(TopNews::Look { job: "bert-7f3k2q".into(), read: Ok(Arc::new(look("bert"))) });
    assert!(model.look.is_none());
    let job = "llama-ft-7f3k2q".to_owned();
    model.hear(TopNews::Look { job, read: Ok(Arc::new(look("llama-ft"))) });
    for (width, height) in [(80, 24), (120, 40)] {
        let (lines, _) = frame(&mut model, width, height);
        let all = lines.join("\n");
        assert!(lines[1].starts_with("running, busy: the GPU works"), "{all}");
        assert!(all.contains("\nCost        $0.42 of at most $5.00, $1.00/h"), "{all}");
        assert!(all.contains("\nUsage       GPU 93% 12.0/24.0 GiB, CPU 210%"), "{all}");
        assert!(all.contains("\nGPU power     ····"), "{all}");
        assert!(all.contains(" 99 W at most 99 W"), "{all}");
    }
    key(&mut model, KeyCode::Char('3'));
    let (lines, _) = frame(&mut model, 80, 24);
    assert_eq!(lines[22], "step 59 loss", "the end of the log, as text: {lines:#?}");
    key(&mut model, KeyCode::PageUp);
    assert_eq!(frame(&mut model, 80, 24).0[22], "step 49 loss");
    key(&mut model, KeyCode::Char('/'));
    types(&mut model, "step 4");
    assert!(frame(&mut model, 80, 24).0[23].starts_with("/step 4_"));
    key(&mut model, KeyCode::Enter);
    let found = frame(&mut model, 80, 24).0.join("\n");
    assert!(found.contains("11 of its last 60 lines have `step 4`"), "{found}");
    assert!(found.contains("step 49 loss") && !found.contains("step 50"), "{found}");
    key(&mut model, KeyCode::Char('e'));
    assert!(frame(&mut model, 80, 24).0.join("\n").contains("0 of its last 60 lines"));
    key(&mut model, KeyCode::Tab);
    assert_eq!(model.preset, Preset::Timeline);
    key(&mut model, KeyCode::Enter);
    let attempt = frame(&mut model, 80, 24).0.join("\n");
    assert!(attempt.contains("The job has no attempt yet"), "{attempt}");
    key(&mut model, KeyCode::Enter);
    let gpus = frame(&mut model, 80, 24).0.join("\n");
    assert!(gpus.contains("  memory  [###############---------------] 12 GiB of 24 GiB"), "{gpus}");
    assert!(gpus.contains("141 W") && gpus.contains("temperature unknown"), "{gpus}");
    key(&mut model, KeyCode::Enter);
    let processes = frame(&mut model, 80, 24).0.join("\n");
    assert!(processes.contains("lamp ssh llama-ft-7f3k2q -- nvidia-smi"), "{processes}");
    (0..3).for_each(|_| drop(key(&mut model, KeyCode::Esc)));
    key(&mut model, KeyCode::Esc);
    assert_eq!(model.place, TopScreen::Overview);
    assert_eq!(key(&mut model, KeyCode::Char('q')), Effect::Quit);
}

#[test]
fn act_says_first_what_it_does() {
    let mut model = model(three());
    let Effect::Foretell(order) = key(&mut model, KeyCode::Char('S')) else {
        panic!("no question")
    };
    let sentence = "it saves no checkpoint; the machine costs $1.00/h until it is gone".to_owned();
    model.hear(TopNews::Foretold { order: order.clone(), sentence: Ok(sentence.clone()) });
    let shown = frame(&mut model, 80, 24).0.join("\n");
    assert!(shown.contains("It saves no checkpoint; the machine costs $1.00/h"), "{shown}");
    assert!(shown.contains("The same: lamp stop llama-ft-7f3k2q"), "{shown}");
    assert_eq!(types(&mut model, "xS"), [Effect::Nothing, Effect::Nothing]);
    assert_eq!(key(&mut model, KeyCode::Char('y')), Effect::CarryOut(order.clone()));
    // Another owner's machine is asked about once more.
    model.hear(TopNews::Asked { order: order.clone(), question: "it is of ann".into() });
    let Effect::CarryOut(again) = key(&mut model, KeyCode::Char('y')) else { panic!("no act") };
    assert!(again.is_confirmed);
    model.hear(TopNews::Done { order: again, said: Ok(vec!["asked it to stop".into()]) });
    assert!(frame(&mut model, 80, 24).0.join("\n").contains("asked it to stop"));
    key(&mut model, KeyCode::Enter);
    assert_eq!(model.dialog, None);
    // A question that was left stays away when its sentence comes late.
    key(&mut model, KeyCode::Char('S'));
    key(&mut model, KeyCode::Esc);
    model.hear(TopNews::Foretold { order, sentence: Ok(sentence) });
    assert_eq!(model.dialog, None);
}

#[test]
fn cancel_is_typed_and_extend_takes_time_or_money() {
    let mut model = model(three());
    let Effect::Foretell(order) = key(&mut model, KeyCode::Char('C')) else {
        panic!("no question")
    };
    model.hear(TopNews::Foretold { order, sentence: Ok("its work is lost".into()) });
    types(&mut model, "y");
    assert_eq!(key(&mut model, KeyCode::Enter), Effect::Nothing, "`y` is not enough");
    key(&mut model, KeyCode::Backspace);
    types(&mut model, "cancel");
    let Effect::CarryOut(order) = key(&mut model, KeyCode::Enter) else { panic!("no act") };
    assert_eq!(order.act, JobAct::Cancel);
    model.dialog = None;
    key(&mut model, KeyCode::Char('E'));
    types(&mut model, "soon");
    assert_eq!(key(&mut model, KeyCode::Enter), Effect::Nothing);
    assert!(frame(&mut model, 80, 24).0.join("\n").contains("`soon` is not understood"));
    (0..4).for_each(|_| drop(key(&mut model, KeyCode::Backspace)));
    types(&mut model, "$5");
    let Effect::Foretell(order) = key(&mut model, KeyCode::Enter) else { panic!("no question") };
    let command = order.command();
    assert_eq!(command.as_deref(), Some("lamp extend llama-ft-7f3k2q --budget 5"));
}

#[test]
fn last_look_stays_with_its_age_and_a_pause_stands_still() {
    let mut model = model(three());
    let fault = Fault::new(ExitCode::UNREACHABLE, "the job root does not answer");
    model.hear(TopNews::Overview(Err(fault.clone())));
    model.now = moment(90);
    let shown = frame(&mut model, 80, 24).0.join("\n");
    assert!(shown.contains("the job root does not answer"), "{shown}");
    assert!(shown.contains("What follows is 1m 30s old.") && shown.contains("llama-ft"), "{shown}");
    key(&mut model, KeyCode::Char('p'));
    model.hear(TopNews::Overview(Ok(Arc::new(overview(Vec::new(), 0)))));
    assert_eq!(model.rows().len(), 3);
    assert!(model.watched().is_paused && frame(&mut model, 80, 24).0[0].contains("PAUSED"));
    // Before the first look, nothing is said about jobs.
    let mut unread = TopModel::new("file:///jobs".into(), model.palette, moment(0));
    assert!(frame(&mut unread, 80, 24).0.join("\n").contains("Reading the records"));
    unread.hear(TopNews::Overview(Err(fault)));
    let shown = frame(&mut unread, 80, 24).0.join("\n");
    assert!(shown.contains("Whether jobs run is not known"), "{shown}");
}

#[test]
fn view_of_one_job_ends_where_it_began() {
    let palette = Palette { is_colored: false };
    let model = TopModel::new("file:///jobs".into(), palette, moment(3));
    let mut model = model.of_job("llama-ft-7f3k2q".into());
    assert_eq!(model.watched().job.as_deref(), Some("llama-ft-7f3k2q"));
    model.hear(TopNews::Look {
        job: "llama-ft-7f3k2q".into(),
        read: Ok(Arc::new(look("llama-ft"))),
    });
    let (lines, _) = frame(&mut model, 80, 24);
    assert!(lines[23].ends_with("q to the log"), "{lines:#?}");
    key(&mut model, KeyCode::Enter);
    assert_eq!(key(&mut model, KeyCode::Esc), Effect::Nothing);
    assert_eq!(key(&mut model, KeyCode::Esc), Effect::Quit);
}

#[test]
fn error_key_finds_all_words_of_failing_programs() {
    let mut model = model(three());
    let mut open = look("llama-ft");
    open.log = ["step 1", "CUDA out of memory", "Killed", "step 2"].map(str::to_owned).to_vec();
    (model.place, model.opened) = (TopScreen::Job, Some(open.job.clone()));
    model.look = Some(Arc::new(open));
    key(&mut model, KeyCode::Char('e'));
    let shown = frame(&mut model, 80, 24).0.join("\n");
    assert!(shown.contains("2 of its last 4 lines look like errors"), "{shown}");
    assert!(shown.contains("\nKilled") && !shown.contains("step 2"), "{shown}");
    key(&mut model, KeyCode::Char('/'));
    assert!(frame(&mut model, 80, 24).0.join("\n").contains("step 2"), "a text replaces it");
}

#[test]
fn attempt_tells_its_checkpoint_and_a_start_that_ended() {
    let mut model = model(three());
    let mut open = look("llama-ft");
    let checkpoint = serde_json::json!({ "number": 7, "attempt": 1, "created": moment(0),
        "step": 430.0, "bytes": 1 });
    let resumed = serde_json::json!({ "seq": 1, "at": moment(0), "kind": "resumed",
        "checkpoint": checkpoint });
    open.explained.attempts = vec![ExplainedAttempt {
        attempt: AttemptNo::FIRST,
        plan: None,
        settled: None,
        instance: None,
        reasons: Vec::new(),
        idle_cost: None,
        idle_at: None,
        events: vec![serde_json::from_value(resumed).expect("an event")],
    }];
    let start = StartupTimeline {
        attempt: AttemptNo::FIRST,
        phases: Vec::new(),
        secs: 90.0,
        is_complete: false,
    };
    open.startups = vec![start];
    (model.place, model.opened) = (TopScreen::Attempt, Some(open.job.clone()));
    model.look = Some(Arc::new(open));
    let shown = frame(&mut model, 80, 24).0.join("\n");
    assert!(shown.contains("Began from  checkpoint 7 (step 430)"), "{shown}");
    assert!(shown.contains("Up to the first work: 1m 30s until its end"), "{shown}");
}

#[test]
fn every_size_is_drawn() {
    let mut model = model(three());
    let all = [TopScreen::Job, TopScreen::Attempt, TopScreen::Gpus, TopScreen::Processes];
    for place in [TopScreen::Overview].into_iter().chain(all) {
        model.place = place;
        model.opened = Some("llama-ft-7f3k2q".into());
        model.look = Some(Arc::new(look("llama-ft")));
        for dialog in [None, Some(Dialog::Help)] {
            model.dialog = dialog;
            for (width, height) in [(1, 1), (2, 2), (10, 3), (39, 10), (300, 90)] {
                frame(&mut model, width, height);
            }
        }
    }
}

#[test]
fn job_and_gpu_screens_have_the_figures_ahead_and_errors() {
    let mut model = model(three());
    let mut open = look("llama-ft");
    let summary = open.summary.as_mut().expect("it has one");
    summary.gpus[0].clock_mhz = Some(1410.0);
    summary.gpus[0].xids = vec![79];
    summary.gpus[0].ecc_uncorrected = Some(2);
    summary.gpus[0].health = GpuHealth {
        driver: Some("550.54.15".into()),
        cuda: Some("12.4".into()),
        rows_remapped: Some(3),
        pcie_received_bytes_per_sec: Some(1.2e9),
        ..GpuHealth::default()
    };
    let recent = vec![GpuLine { gpu: 0, values: vec![None, Some(0.0), Some(100.0)] }];
    let memory = Series {
        name: "machine_memory_percent",
        unit: "%",
        t_secs: vec![0.0],
        values: vec![Some(91.0)],
    };
    open.plot = Arc::new(AttemptPlot {
        data: PlotData { series: vec![memory], ..open.plot.data.clone() },
        gpus: GpuHistory { recent, ..GpuHistory::default() },
        ..AttemptPlot::default()
    });
    let text = |sheet: super::sheet::Sheet| -> String {
        sheet.lines.iter().map(|line| format!("{line}\n")).collect()
    };
    let job = text(job_sheet(&model, &open, 100));
    assert!(job.contains("Memory      91 % of the machine's memory is in use"), "{job}");
    // 570 steps of two seconds, at a dollar an hour.
    assert!(job.contains("To the end  $0.32 in 19m, by its progress"), "{job}");
    model.gpu = 0;
    let gpu = text(super::gpu_sheet::gpu_sheet(&model, &open, 100));
    for words in [
        "clock 1410 MHz",
        "Xid 79; 2 uncorrected memory errors",
        "  1 hour  · █",
        "PCIe    in 1.2 GB/s, out unknown",
        "3 memory rows replaced",
        "Driver 550.54.15, CUDA up to 12.4",
    ] {
        assert!(gpu.contains(words), "{words}: {gpu}");
    }
}
