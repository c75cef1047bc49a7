//! `GET /metrics`: the newest overview as OpenMetrics.
//!
//! An ended job stays for an hour, so that a scrape sees its end. The sums cover all jobs.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::registry::Unit;

use super::answer::{fault, problem};
use super::reads::newest;
use crate::agent::report::open_metrics::{CONTENT_TYPE, LabelText, Scrape, ratio, secs, timestamp};
use crate::app::overview::overview::{JobRow, Money, Overview};
use crate::instance::GpuStatus;
use crate::market::elapsed;
use crate::web::site::Site;

/// How long the values of an ended job stay.
const STAYS: Duration = Duration::from_secs(3600);

const MIB: f64 = 1_048_576.0;

/// Not `job`: Prometheus gives each series a label of that name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfJob {
    job_id: LabelText,
    name: LabelText,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InState {
    job_id: LabelText,
    name: LabelText,
    state: LabelText,
    verdict: LabelText,
}

/// `gpu` and `modelName` are the labels of NVIDIA's exporter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
#[expect(non_snake_case, reason = "dashboards know the label by this name")]
struct OfGpu {
    job_id: LabelText,
    name: LabelText,
    gpu: LabelText,
    modelName: LabelText,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Counted {
    state: LabelText,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct During {
    window: LabelText,
}

fn dollars() -> Unit {
    Unit::Other("dollars".to_owned())
}

fn dollars_per_hour() -> Unit {
    Unit::Other("dollars_per_hour".to_owned())
}

impl Scrape {
    /// A value of each job that has one.
    fn each(
        &mut self,
        (name, help, unit): (&str, &str, Option<Unit>),
        rows: &[&JobRow],
        value: impl Fn(&JobRow) -> Option<f64>,
    ) {
        let family = self.family(name, help, unit);
        for row in rows {
            if let Some(value) = value(row) {
                family.get_or_create(&of_job(row)).set(value);
            }
        }
    }

    /// A value of each GPU that has one.
    fn each_gpu(
        &mut self,
        (name, help, unit): (&str, &str, Option<Unit>),
        rows: &[&JobRow],
        value: impl Fn(&GpuStatus) -> Option<f64>,
    ) {
        let family = self.family(name, help, unit);
        for row in rows {
            for gpu in &row.summary.gpus {
                if let Some(value) = value(gpu) {
                    family.get_or_create(&of_gpu(row, gpu)).set(value);
                }
            }
        }
    }

    fn money(&mut self, money: &Money) {
        let help = "Cost of all jobs of the job root so far";
        self.one("lamp_spent", help, Some(dollars()), money.spent.dollars());
        let help = "Cost of the machines on this day of the calendar";
        self.one("lamp_spent_today", help, Some(dollars()), money.today.dollars());
        let help = "Cost of the machines in this month of the calendar";
        self.one("lamp_spent_month", help, Some(dollars()), money.month.dollars());
        let help = "Cost of all machines in an hour now";
        let rate = money.per_hour_now.per_hour().dollars();
        self.one("lamp_rate", help, Some(dollars_per_hour()), rate);
        if let Some(more) = money.more_at_most {
            let help = "The highest further cost of all unfinished jobs";
            self.one("lamp_more_at_most", help, Some(dollars()), more.dollars());
        }
        self.caps(money);
    }

    fn caps(&mut self, money: &Money) {
        let help = "The caps of the configuration, for an hour or for a day";
        let caps = self.family("lamp_cap", help, Some(dollars()));
        let help = "The spending that counts against each cap";
        let counted = self.family("lamp_cap_counted", help, Some(dollars()));
        let during = |window: &str| During { window: LabelText(window.to_owned()) };
        if let Some(cap) = money.caps.usd_per_hour {
            caps.get_or_create(&during("hour")).set(cap.per_hour().dollars());
        }
        if let Some(cap) = money.caps.usd_per_day {
            caps.get_or_create(&during("day")).set(cap.dollars());
        }
        if let Some(spending) = &money.counted {
            let hour = spending.usd_per_hour.per_hour().dollars();
            counted.get_or_create(&during("hour")).set(hour);
            counted.get_or_create(&during("day")).set(spending.usd_last_day.dollars());
        }
    }

    fn counts(&mut self, overview: &Overview) {
        let help = "Jobs of the job root by their state";
        let counts = self.family("lamp_jobs", help, None);
        for row in &overview.jobs {
            let state = LabelText(row.summary.state_told());
            counts.get_or_create(&Counted { state }).inc();
        }
        let help = "Things that a person should look at";
        self.one("lamp_needs", help, None, overview.needs.len() as f64);
        let help = "When the records were read";
        self.one("lamp_records", help, Some(timestamp()), secs(overview.at));
    }

    fn jobs(&mut self, rows: &[&JobRow]) {
        let help = "1 for the state of each job, with the verdict of its agent";
        let states = self.family("lamp_job_state", help, None);
        for row in rows {
            states.get_or_create(&in_state(row)).set(1.0);
        }
        let help = "What the job has cost";
        self.each(("lamp_job_cost", help, Some(dollars())), rows, |row| {
            Some(row.summary.usd.dollars())
        });
        let help = "The highest cost of the job, with all machines that may follow";
        self.each(("lamp_job_most", help, Some(dollars())), rows, |row| {
            row.summary.most_job_usd.map(|most| most.dollars())
        });
        let help = "Cost of its machine in an hour";
        self.each(("lamp_job_rate", help, Some(dollars_per_hour())), rows, |row| {
            row.summary.usd_per_hour.map(|rate| rate.per_hour().dollars())
        });
        let help = "When its next limit ends the machine or the wait";
        self.each(("lamp_job_next_end", help, Some(timestamp())), rows, |row| {
            row.next_end.as_ref().map(|end| secs(end.at))
        });
    }

    fn work(&mut self, rows: &[&JobRow], now: Timestamp) {
        let help = "The share of the work that is done, from 0 to 1";
        self.each(("lamp_job_progress", help, Some(ratio())), rows, progress);
        let help = "The age of the newest checkpoint: work that an interruption would lose";
        self.each(("lamp_job_checkpoint_age", help, Some(Unit::Seconds)), rows, |row| {
            let open = row.summary.last_checkpoint.filter(|_| is_open(row))?;
            Some(elapsed(open, now).as_secs_f64())
        });
        let help = "The time since the last report of the agent";
        self.each(("lamp_job_heartbeat_age", help, Some(Unit::Seconds)), rows, |row| {
            row.summary.heartbeat_seconds.filter(|_| is_open(row))
        });
        let help = "1: the agent has not reported for two minutes";
        self.each(("lamp_job_silent", help, None), rows, |row| {
            is_open(row).then(|| f64::from(u8::from(row.summary.silence.is_some())))
        });
        let help = "The processor use of the job, in cores";
        self.each(("lamp_job_cpu_cores", help, None), rows, |row| {
            row.summary.cpu_percent.map(|percent| percent / 100.0)
        });
    }

    fn gpus(&mut self, rows: &[&JobRow]) {
        let help = "The GPU utilisation, from 0 to 1";
        let metric = ("lamp_job_gpu_utilization", help, Some(ratio()));
        self.each_gpu(metric, rows, |gpu| gpu.util_percent.map(|percent| percent / 100.0));
        let help = "The GPU memory that is used";
        let metric = ("lamp_job_gpu_memory_used", help, Some(Unit::Bytes));
        self.each_gpu(metric, rows, |gpu| gpu.memory_used_mib.map(|mib| mib as f64 * MIB));
        let help = "The memory of the GPU";
        let metric = ("lamp_job_gpu_memory_total", help, Some(Unit::Bytes));
        self.each_gpu(metric, rows, |gpu| gpu.memory_total_mib.map(|mib| mib as f64 * MIB));
        let help = "The power of the GPU";
        let watts = Unit::Other("watts".to_owned());
        self.each_gpu(("lamp_job_gpu_power", help, Some(watts)), rows, |gpu| gpu.power_watts);
        let help = "The temperature of the GPU";
        let metric = ("lamp_job_gpu_temperature", help, Some(Unit::Celsius));
        self.each_gpu(metric, rows, |gpu| gpu.temperature_celsius);
    }
}

fn is_open(row: &JobRow) -> bool {
    !row.summary.state.is_final()
}

fn progress(row: &JobRow) -> Option<f64> {
    let progress = row.summary.progress.as_ref()?;
    let total = progress.total.filter(|total| *total > 0.0)?;
    Some((progress.step? / total).clamp(0.0, 1.0))
}

fn of_job(row: &JobRow) -> OfJob {
    OfJob { job_id: LabelText(row.summary.job.clone()), name: LabelText(row.summary.name.clone()) }
}

fn in_state(row: &JobRow) -> InState {
    let OfJob { job_id, name } = of_job(row);
    let verdict = LabelText(row.summary.verdict.clone().unwrap_or_default());
    InState { job_id, name, state: LabelText(row.summary.state_told()), verdict }
}

fn of_gpu(row: &JobRow, gpu: &GpuStatus) -> OfGpu {
    let OfJob { job_id, name } = of_job(row);
    let model = LabelText(gpu.name.clone().unwrap_or_default());
    OfGpu { job_id, name, gpu: LabelText(gpu.index.to_string()), modelName: model }
}

/// # Errors
/// None in practice: a text grows in memory.
fn written(overview: &Overview) -> Result<String, std::fmt::Error> {
    let stays =
        |row: &&JobRow| row.summary.ended.is_none_or(|ended| elapsed(ended, overview.at) <= STAYS);
    let rows: Vec<&JobRow> = overview.machine_rows.iter().filter(stays).collect();
    let mut scrape = Scrape::default();
    scrape.money(&overview.money);
    scrape.counts(overview);
    scrape.jobs(&rows);
    scrape.work(&rows, overview.at);
    scrape.gpus(&rows);
    scrape.into_text()
}

pub async fn metrics(State(site): State<Arc<Site>>) -> Response {
    let overview = match newest(&site).await {
        Ok(overview) => overview,
        // A scrape that fails is visible as `up == 0`. Old values would look new.
        Err(error) => return fault(&error),
    };
    match written(&overview) {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{JobState, Progress, Receipt};
    use crate::market::{Usd, UsdPerHour};
    use crate::policy::purchase::spending_cap::{Caps, Spending};

    /// An overview that has every value.
    fn overview() -> Overview {
        let receipt: Receipt =
            serde_json::from_str(include_str!("../../../tests/data/v1/receipt.json"))
                .expect("a receipt");
        let dollar = Usd::from_micros(1_000_000);
        let now = receipt.ended;
        let gpu = GpuStatus {
            index: 0,
            name: Some("NVIDIA A10G".to_owned()),
            util_percent: Some(50.0),
            memory_used_mib: Some(1),
            memory_total_mib: Some(2),
            power_watts: Some(150.0),
            temperature_celsius: Some(60.0),
            ..GpuStatus::default()
        };
        let mut summary = crate::app::view::job_summary::Summary::of_receipt(receipt);
        summary.state = JobState::Running;
        summary.ended = None;
        summary.name = "a \"b\"\n\\".to_owned();
        summary.usd_per_hour = Some(UsdPerHour::new(dollar));
        summary.progress =
            Some(Progress { step: Some(1.0), total: Some(4.0), ..Progress::default() });
        summary.cpu_percent = Some(250.0);
        summary.gpus = vec![gpu];
        summary.heartbeat_seconds = Some(3.0);
        summary.last_checkpoint = Some(now);
        let next_end = crate::app::overview::job_sentence::NextEnd { at: now, what: "ends" };
        let row = JobRow {
            summary,
            sentence: String::new(),
            next_end: Some(next_end),
            eta: None,
            eta_from: None,
            eta_to: None,
        };
        let money = Money {
            more_at_most: Some(dollar),
            caps: Caps { usd_per_hour: Some(UsdPerHour::new(dollar)), usd_per_day: Some(dollar) },
            counted: Some(Spending::default()),
            ..Money::default()
        };
        Overview {
            at: now,
            money,
            needs: Vec::new(),
            jobs: vec![row.clone()],
            look: None,
            costs: Vec::new(),
            machine_rows: vec![row],
        }
    }

    fn text() -> String {
        written(&overview()).expect("a text")
    }

    /// The names of metrics in a text, for example in a query.
    fn names(text: &str) -> std::collections::BTreeSet<&str> {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let words = text.split(|letter: char| !is_part(letter));
        words.filter(|word| word.starts_with("lamp_")).collect()
    }

    #[test]
    fn dashboard_and_alerts_name_only_metrics_that_exist() {
        let text = text();
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let known: Vec<&str> =
            types.map(|line| line.split(' ').next().unwrap_or_default()).collect();
        let files = [
            include_str!("../../../config/grafana/lamplighter.json"),
            include_str!("../../../config/prometheus/alerts.yml"),
        ];
        for file in files {
            let named = names(file);
            assert!(named.len() > 5, "{named:?}");
            let unknown: Vec<&&str> = named.iter().filter(|name| !known.contains(name)).collect();
            assert!(unknown.is_empty(), "{unknown:?} of {known:?}");
        }
    }

    #[test]
    fn text_is_open_metrics() {
        let text = text();
        assert!(text.ends_with("# EOF\n"), "{text}");
        let lines = [
            "lamp_job_gpu_utilization_ratio{job_id=\"digits-222222\",",
            "lamp_cap_dollars{window=\"day\"} 1.0",
            "# UNIT lamp_job_gpu_power_watts watts",
            "lamp_jobs{state=\"running\"} 1.0",
        ];
        let job = overview().jobs[0].summary.job.clone();
        for line in lines.map(|line| line.replace("digits-222222", &job)) {
            assert!(text.contains(&line), "{line} in {text}");
        }
        // A quote, a line end and a backslash of a name do not end its label.
        assert!(text.contains(r#"name="a \"b\"\n\\""#), "{text}");
    }

    #[test]
    fn dashboard_has_what_grafana_asks_for() {
        let dashboard: serde_json::Value =
            serde_json::from_str(include_str!("../../../config/grafana/lamplighter.json"))
                .expect("JSON");
        assert!(dashboard["schemaVersion"].as_u64() >= Some(36), "{dashboard}");
        assert!(dashboard["uid"].is_string() && dashboard["title"].is_string());
        let panels = dashboard["panels"].as_array().expect("panels");
        let mut ids = std::collections::BTreeSet::new();
        for panel in panels {
            assert!(ids.insert(panel["id"].as_u64().expect("an id")), "twice: {panel}");
            assert!(panel["type"].is_string() && panel["title"].is_string(), "{panel}");
            let place = &panel["gridPos"];
            let right = place["x"].as_u64().zip(place["w"].as_u64()).map(|(x, w)| x + w);
            assert!(right.is_some_and(|right| right <= 24), "{panel}");
            let targets = panel["targets"].as_array().expect("targets");
            assert!(!targets.is_empty(), "{panel}");
            for target in targets {
                assert!(target["refId"].is_string() && target["expr"].is_string(), "{panel}");
                assert_eq!(target["datasource"]["uid"], "${datasource}", "{panel}");
            }
        }
        let variables = dashboard["templating"]["list"].as_array().expect("variables");
        assert!(variables.iter().any(|variable| variable["name"] == "datasource"));
    }
}
