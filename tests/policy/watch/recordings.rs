//! Recordings as they lie on disk: what is read, what is refused, and what the shipped rules say of
//! them.
//!
//! Series of other people's jobs are not in this repository. Where `LAMP_IDLE_DATA` names a folder
//! with `labels.csv`, `jobs/` and `host/`, the default rule is scored on them.

#![expect(
    clippy::disallowed_methods,
    reason = "the tests write the recordings that are read, and look for those of others"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use lamplighter::cli::replay_idle;
use lamplighter::instance::{Rates, Reading};
use lamplighter::job::{IdleSpec, StallSpec};
use lamplighter::market::Span;
use lamplighter::policy::{StallWatch, WatchAction};
use lamplighter::wire::read_series;
use serde_json::Value;
use tempfile::TempDir;

use crate::watch::script::{HOUR, MINUTE, Script};
use lamp_test_support::skipped;

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

fn read(path: &Path, host: Option<&Path>, gpus: Option<&[u32]>) -> Result<Vec<Rates>, String> {
    read_series(&[path.to_owned()], host, gpus).map_err(|error| error.to_string())
}

fn refused(content: &str) -> String {
    let folder = Folder::new();
    let path = folder.file("series.csv", content);
    read(&path, None, None).unwrap_err().replace(&path.display().to_string(), "FILE")
}

#[test]
fn row_per_gpu_becomes_an_interval_per_moment() {
    let folder = Folder::new();
    let text = "t_seconds,gpu_index,gpu_util_pct,gpu_mem_used_mib,cpu_util_pct\n0,0,5,100,\n0,1,90,200,\n30.5,0,7,100,12.5\n30.5,1,0,300,\n";
    let path = folder.file("series.csv", text);
    let all = read(&path, None, None).unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!((all[1].t_secs, all[1].interval_secs), (30.5, 30.5));
    assert_eq!(
        (&all[0].gpu_percent, &all[1].gpu_percent),
        (&Reading::Known(90.0), &Reading::Known(7.0)),
        "the busiest"
    );
    assert_eq!(all[1].gpu_memory_used_mib, Reading::Known(400.0), "together");
    assert_eq!(all[1].machine_cpu_percent, Reading::Known(12.5));
    assert!(
        all[0].machine_cpu_percent.is_unknown(),
        "an empty cell in a column that is filled elsewhere"
    );
    assert_eq!(all[0].cpu_percent, Reading::Absent, "a column that is not there");
    let second = read(&path, None, Some(&[1])).unwrap();
    assert_eq!(second[1].gpu_percent, Reading::Known(0.0), "another tenant's GPU does not count");
}

#[test]
fn host_table_joins_by_time_and_its_counters_become_rates() {
    let folder = Folder::new();
    let jobs = folder.file("jobs.csv", "t_seconds,gpu_util_pct\n0,0\n30,0\n60,0\n1000,0\n");
    let host = folder.file(
        "host.csv",
        "t_seconds,cpu_util_pct,proc_cpu_pct,disk_read_mb_cum,disk_write_mb_cum,net_recv_mb_cum,net_sent_mb_cum,gpu_power_w_total\n\
         0.4,3,9,,,10,5,100\n30.4,4,8,,,40,5,90\n60.4,5,7,,,1,5,80\n",
    );
    let series = read(&jobs, Some(&host), None).unwrap();
    assert_eq!(series[1].net_bytes_per_sec, Reading::Known(1e6));
    assert_eq!(series[2].net_bytes_per_sec, Reading::Known(0.0), "a counter that began anew");
    assert_eq!(
        (&series[1].cpu_percent_min, &series[1].gpu_power_watts),
        (&Reading::Known(8.0), &Reading::Known(90.0))
    );
    assert_eq!(
        series[1].machine_cpu_percent,
        Reading::Known(4.0),
        "where the first table has none"
    );
    assert_eq!(series[1].disk_bytes_per_sec, Reading::Absent, "never filled");
    assert!(series[3].net_bytes_per_sec.is_unknown(), "too old to speak for that moment");
}

#[test]
fn broken_row_is_refused_with_its_line() {
    let head = "t_seconds,gpu_util_pct\n";
    assert_eq!(refused(&format!("{head}0,1\n30,x\n")), "`FILE`, line 3: `x` is not a number");
    assert_eq!(refused(&format!("{head}0,1\n\n30,NaN\n")), "`FILE`, line 4: `NaN` is not a number");
    assert_eq!(
        refused(&format!("{head}0,1\n30\n")),
        "`FILE`, line 3: 1 cells, but the header has 2"
    );
    assert_eq!(
        refused(&format!("{head}30,1\n0,1\n")),
        "`FILE`, line 3: time steps back from 30 s to 0 s"
    );
    assert_eq!(refused(&format!("{head},1\n")), "`FILE`, line 2: no time");
    assert_eq!(
        refused("seconds,gpu\n0,1\n"),
        "`FILE`, line 1: the header has no column `t_seconds`"
    );
    assert_eq!(refused(head), "`FILE` holds no samples");
    assert_eq!(refused(""), "`FILE`, line 1: the header has no column `t_seconds`");
    assert!(
        refused("{\"t_secs\": 0}\n{\"t_secs\": \n").starts_with("`FILE`, line 2: not a sample")
    );
    assert_eq!(
        refused("{\"t_secs\": 5}\n{\"t_secs\": 0}\n"),
        "`FILE`, line 2: time steps back to 0 s"
    );
}

#[test]
fn bytes_that_are_not_text_are_refused_with_their_line() {
    let folder = Folder::new();
    let path = folder.file("series.csv", b"t_seconds,gpu_util_pct\n0,1\n\xff\n");
    assert!(read(&path, None, None).unwrap_err().ends_with("line 3: not text (UTF-8)"));
}

#[test]
fn own_samples_read_back_plain_and_compressed_in_several_files() {
    let folder = Folder::new();
    let script = Script::live().work(HOUR).quiet(10.0 * MINUTE);
    let lines = |series: &[Rates]| -> String {
        series.iter().map(|rates| format!("{}\n", serde_json::to_string(rates).unwrap())).collect()
    };
    let (first, second) = script.series.split_at(100);
    let plain = folder.file("0001.jsonl", lines(first));
    let packed =
        folder.file("0002.jsonl.zst", zstd::encode_all(lines(second).as_bytes(), 3).unwrap());
    let series = read_series(&[plain.clone(), packed.clone()], None, None).unwrap();
    assert_eq!(series, script.series);
    let backwards = read_series(&[packed, plain], None, None).unwrap_err().to_string();
    assert!(backwards.contains("before the end of the file before it"), "{backwards}");
}

#[test]
fn replay_says_what_the_agent_would_have_said() {
    let script = Script::live().work(30.0 * MINUTE).quiet(10.0 * MINUTE).work(MINUTE);
    let replayed = replay_idle(&script.series, &IdleSpec::default(), &StallSpec::default());
    let words: Vec<(&str, &str)> = replayed
        .changes
        .iter()
        .map(|change| (change.rule, change.verdict.standing.word()))
        .collect();
    assert_eq!(words, [("idle", "starting"), ("idle", "busy"), ("idle", "idle"), ("idle", "busy")]);
    let stop = replayed.first_stop().unwrap();
    assert_eq!(Some(stop.t_secs), script.idle().stop_at());
    let json = stop.to_json();
    for (key, value) in [
        ("t_seconds", Value::from(2100.0)),
        ("verdict", "idle".into()),
        ("action", "stop".into()),
        ("quiet_secs", 300.0.into()),
    ] {
        assert_eq!(json[key], value, "{key}");
    }
    assert!(json["reason"].as_str().unwrap().starts_with("idle: nothing for 5m"));
}

#[test]
fn stall_stands_over_an_idle_verdict() {
    let hang = |rates: &mut Rates| {
        (rates.gpu_percent, rates.progress_marks) = (Reading::Known(100.0), Reading::Known(0.0))
    };
    let step = |rates: &mut Rates| rates.progress_marks = Reading::Known(1.0);
    let series = Script::live().phase(HOUR, step).phase(HOUR, hang).series;
    let replayed = replay_idle(&series, &IdleSpec::default(), &StallSpec::default());
    let last = replayed.changes.last().unwrap();
    assert_eq!((last.rule, last.to_json()["action"].as_str().unwrap()), ("stall", "restart"));
}

/// What the agent measured beside an NVIDIA H100 (tests/README.md), judged by its GPU alone: as if
/// the processor had rested.
#[test]
fn what_a_real_card_gave_is_judged_as_it_was_there() {
    let seconds = |secs| Some(Span::from_secs(secs));
    let idle = IdleSpec { window: seconds(15), grace: Span::ZERO, ..IdleSpec::default() };
    let hasty = StallSpec { window: seconds(5), restarts_max: 0, ..StallSpec::default() };
    let judged = |name: &str, stall: &StallSpec, gpu: bool| {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/gpu/{name}.jsonl.zst"));
        let mut series = read(&path, None, None).unwrap();
        assert!(
            series.len() > 20 && series.iter().all(|rates| rates.gpu_percent.known().is_some()),
            "{name}"
        );
        for rates in &mut series {
            (rates.cpu_percent, rates.machine_cpu_percent) =
                (Reading::Known(0.0), Reading::Known(0.0));
            if !gpu {
                (rates.gpu_percent, rates.gpu_memory_percent) =
                    (Reading::Known(0.0), Reading::Known(0.0));
            }
        }
        let replayed = replay_idle(&series, &idle, stall);
        let told = replayed
            .changes
            .iter()
            .find(|change| change.to_json()["action"] == "notify")
            .map(|change| (change.rule, change.t_secs));
        (replayed.first_stop().map(|change| (change.rule, change.t_secs)), told)
    };
    let never = StallSpec { window: None, ..StallSpec::default() };
    assert_eq!(
        judged("bursts", &never, true).0,
        None,
        "a fifteenth of a second of work each second"
    );
    assert!(
        judged("bursts", &never, false).0.is_some_and(|(rule, _)| rule == "idle"),
        "which nothing but the GPU shows"
    );
    let (held, _) = judged("held", &never, true);
    assert!(
        held.is_some_and(|(rule, at)| rule == "idle" && (60.0..70.0).contains(&at)),
        "memory that is held is no work: {held:?}"
    );
    let (ended, told) = judged("hang", &hasty, true);
    assert!(
        told.is_some_and(|(rule, at)| rule == "stall" && (15.0..25.0).contains(&at)),
        "busy without a step: {told:?}"
    );
    assert_eq!(ended, None, "it never had a rhythm");
}

/// A recorded job with its label.
struct Labelled {
    id: String,
    gpus: Option<Vec<u32>>,
    end_secs: f64,
    work_end_secs: f64,
    slack_secs: f64,
    tail: bool,
    /// When the first and the last step were logged, and how many were.
    progress: Option<(f64, f64, f64)>,
}

/// Where the recordings are; `None`, with a word, where nobody has them.
fn recorded() -> Option<PathBuf> {
    let data = std::env::var_os("LAMP_IDLE_DATA").map(PathBuf::from);
    if data.is_none() {
        skipped(
            "data",
            "LAMP_IDLE_DATA names no recorded jobs, which are other people's and not in this repository (docs/policies.md)",
        );
    }
    data
}

/// The target of the default rule: no false stop, six of seven forgotten machines, found within
/// twelve minutes.
#[test]
fn the_default_rule_on_recorded_jobs() {
    let Some(data) = recorded() else { return };
    let (mut cut, mut delays, mut tails) = (String::new(), Vec::new(), 0);
    for job in labelled(&data) {
        let host = data.join("host").join(format!("{}.csv", job.id));
        let path = data.join("jobs").join(format!("{}.csv", job.id));
        let series =
            read(&path, host.is_file().then_some(host.as_path()), job.gpus.as_deref()).unwrap();
        let stop = replay_idle(&series, &IdleSpec::default(), &StallSpec::default())
            .first_stop()
            .map(|change| change.t_secs);
        tails += usize::from(job.tail);
        let useful_until = if job.tail { job.work_end_secs } else { job.end_secs };
        match stop {
            Some(stop) if stop < useful_until - job.slack_secs => {
                write!(cut, " {}", job.id).unwrap()
            }
            Some(stop) if job.tail => delays.push(stop - job.work_end_secs),
            _ => {}
        }
    }
    delays.sort_by(f64::total_cmp);
    let middle = delays.len() / 2;
    let median = if delays.len().is_multiple_of(2) {
        (delays[middle - 1] + delays[middle]) / 2.0
    } else {
        delays[middle]
    };
    assert_eq!(cut, "", "stopped by mistake");
    assert!(delays.len() + 1 >= tails, "{} of {tails} forgotten machines found", delays.len());
    assert!(median <= 12.0 * MINUTE, "found after {median} s");
}

/// The stall rule on the progress that recorded jobs logged, of which the first time, the last and
/// the number are known: so the marks are put at even distances. Nothing else that the agent would
/// see of a job (its log, its checkpoints) is in them.
#[test]
fn stall_rule_on_recorded_progress() {
    let Some(data) = recorded() else { return };
    let (mut judged, mut ended, mut told, mut tails, mut found) =
        (0, String::new(), 0, 0, String::new());
    for job in labelled(&data) {
        let Some((first, last, number)) = job.progress else { continue };
        let path = data.join("jobs").join(format!("{}.csv", job.id));
        let mut series = read(&path, None, job.gpus.as_deref()).unwrap();
        let every = (last - first) / f64::max(number - 1.0, 1.0);
        // Marks up to a moment.
        let marks = |t: f64| {
            if t < first {
                0.0
            } else {
                ((t.min(last) - first) / every.max(1e-9)).floor().min(number - 1.0) + 1.0
            }
        };
        for rates in &mut series {
            rates.progress_marks =
                Reading::Known(marks(rates.t_secs) - marks(rates.t_secs - rates.interval_secs));
        }
        let mut watch = StallWatch::new(&StallSpec::default());
        let verdicts: Vec<(f64, WatchAction)> =
            series.iter().map(|rates| (rates.t_secs, watch.step(rates, 0).action)).collect();
        let act = |rung| verdicts.iter().find(|(_, action)| *action >= rung).map(|(t, _)| *t);
        let useful_until = if job.tail { job.work_end_secs } else { job.end_secs };
        judged += 1;
        tails += usize::from(job.tail);
        told += usize::from(
            act(WatchAction::Notify).is_some_and(|t| t < useful_until - job.slack_secs),
        );
        match act(WatchAction::Restart) {
            Some(t) if t < useful_until - job.slack_secs => {
                write!(ended, " {} at {t} of {}, {number} marks up to {last}", job.id, job.end_secs)
                    .unwrap()
            }
            Some(t) if job.tail => {
                write!(found, " {} after {:.0} s", job.id, t - job.work_end_secs).unwrap()
            }
            _ => {}
        }
    }
    println!(
        "{judged} jobs judged, {told} told of while they worked, restarted:{ended}; of {tails} that were forgotten, restarted:{found}"
    );
    assert!(judged > 100, "{judged} recordings have progress");
    // One that logged a single step and worked on for three hours.
    assert!(ended.matches(" at ").count() <= 1, "restarted by mistake:{ended}");
}

fn labelled(data: &Path) -> Vec<Labelled> {
    let text = std::fs::read_to_string(data.join("labels.csv")).unwrap();
    let mut rows = text.lines().map(cells);
    let names = rows.next().unwrap();
    let column = |name: &str| names.iter().position(|column| column == name).unwrap();
    let (id, gpus, end, work_end, sample, label) = (
        column("job_id"),
        column("job_gpus"),
        column("series_end_s"),
        column("work_end_s"),
        column("sample_interval_s"),
        column("label"),
    );
    let (first, last, steps) =
        (column("first_progress_s"), column("last_progress_s"), column("n_progress"));
    rows.filter(|row| row[label] == "active_to_end" || row[label] == "idle_tail")
        .map(|row| {
            let indices: Option<Vec<u32>> = row[gpus]
                .split([' ', ';', ','])
                .filter(|word| !word.is_empty())
                .map(|word| word.parse().ok())
                .collect();
            Labelled {
                id: row[id].clone(),
                gpus: indices.filter(|indices| !indices.is_empty()),
                end_secs: row[end].parse().unwrap(),
                work_end_secs: row[work_end].parse().unwrap_or(0.0),
                slack_secs: row[sample].parse().unwrap_or(30.0),
                tail: row[label] == "idle_tail",
                progress: match [first, last, steps].map(|column| row[column].parse::<f64>().ok()) {
                    [Some(first), Some(last), Some(steps)] if steps > 0.0 => {
                        Some((first, last, steps))
                    }
                    _ => None,
                },
            }
        })
        .filter(|job| job.end_secs >= 900.0)
        .collect()
}

/// The cells of a line; those in quotes may hold commas.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            other => cells.last_mut().unwrap().push(other),
        }
    }
    cells
}
