//! The mistakes in a `[tune]` table, all at once.

use std::collections::BTreeMap;

use super::trial_command::{has_places, variable};
use crate::job::{
    Command, EarlyStop, Finding, MarketChoice, ParamScale, Reaction, Spec, TuneAlgorithm,
    TuneParam, TuneSpec,
};
use crate::market::CloudKind;

/// More would fill the lists of jobs, and no search over so many values ends.
const TRIALS_MAX: u32 = 10_000;

/// The most that run at once: each is a job with its own machine.
const PARALLEL_MAX: u32 = 1000;

/// The findings of a tuning without its job.
pub fn check_search(tune: &TuneSpec) -> Vec<Finding> {
    let mut found = Vec::new();
    check_numbers(tune, &mut found);
    if tune.params.is_empty() {
        let finding = Finding::error("tune.params", "is missing: a tuning needs a parameter");
        found.push(finding.hint("like [tune.params.lr] with type = \"float\", min and max"));
    }
    for (name, param) in &tune.params {
        check_name(name, &tune.params, &mut found);
        check_param(name, param, &mut found);
    }
    if tune.algorithm == TuneAlgorithm::Grid && tune.combinations().is_none() {
        let finding =
            Finding::error("tune.algorithm", "is `grid`, and a parameter is a range of floats");
        found.push(finding.hint("make it `discrete` with `values`, or choose `tpe` or `random`"));
    }
    found
}

/// The findings of a tuning and the job of its trials.
pub fn check(tune: &TuneSpec, spec: &Spec) -> Vec<Finding> {
    let mut found = check_search(tune);
    if spec.gang.is_some() && tune.early_stop == EarlyStop::PausingAsha {
        let what = "is `pausing-asha`, and a trial of several machines cannot pause";
        found.push(Finding::error("tune.early_stop", what).hint("write `asha`"));
    }
    if tune.reuse {
        found.extend(check_reuse(tune, spec));
    }
    if let Command::Shell(line) = &spec.command
        && !has_places(&spec.command, tune.params.keys())
        && line.contains(['|', ';', '&', '\n', '>'])
    {
        let name = tune.params.keys().next().map_or("lr", String::as_str);
        let finding = Finding::error("command", "does not say where the values of a trial go");
        found.push(finding.hint(format!("write `--{name}={{{name}}}` where the program takes it")));
    }
    if tune.early_stop == EarlyStop::PausingAsha && spec.checkpoint.is_none() {
        let finding = Finding::error(
            "tune.early_stop",
            "is `pausing-asha`, and a paused trial has no checkpoint to go on from",
        );
        found.push(finding.hint("add [checkpoint] with `path`, or write `asha`"));
    }
    if tune.budget.is_some()
        && spec.limits.budget.is_none()
        && spec.limits.max_runtime.is_none()
        && spec.limits.deadline.is_none()
    {
        let finding = Finding::error("tune.budget", "needs a limit of each trial");
        found.push(finding.hint("set `max_runtime` or `budget` in [limits]"));
    }
    found
}

/// A spot machine cannot be stopped. A trial that pauses or has several machines keeps no machine.
fn check_reuse(tune: &TuneSpec, spec: &Spec) -> Option<Finding> {
    let finding = |what: &str| Finding::error("tune.reuse", what);
    if spec.gang.is_some() {
        return Some(finding("is set, and a trial has several machines").hint("leave it out"));
    }
    if tune.early_stop == EarlyStop::PausingAsha {
        let what = "is set, and `early_stop` is `pausing-asha`";
        return Some(finding(what).hint("write `asha`, or leave `reuse` out"));
    }
    if spec.on.success != Reaction::Terminate {
        let what = "is set, and `on.success` says what happens to the machine";
        return Some(finding(what).hint("leave one of them out"));
    }
    let is_spot = spec.machine.market != MarketChoice::OnDemand;
    (spec.machine.cloud != CloudKind::Local && is_spot).then(|| {
        finding("is set, and a spot machine cannot be stopped")
            .hint("write `market = \"on-demand\"` in [machine]")
    })
}

fn check_numbers(tune: &TuneSpec, found: &mut Vec<Finding>) {
    if tune.metric.trim().is_empty() {
        found.push(Finding::error("tune.metric", "is empty"));
    }
    if tune.trials == 0 || tune.trials > TRIALS_MAX {
        found.push(Finding::error("tune.trials", format!("is not between 1 and {TRIALS_MAX}")));
    }
    if tune.parallel == 0 || tune.parallel > PARALLEL_MAX {
        let message = format!("is not between 1 and {PARALLEL_MAX}");
        found.push(Finding::error("tune.parallel", message));
    }
    if tune.failed == Some(0) {
        let finding = Finding::error("tune.failed", "is 0: no trial could start");
        found.push(finding.hint("leave it out: then half of the trials may fail"));
    }
}

fn check_name(name: &str, all: &BTreeMap<String, TuneParam>, found: &mut Vec<Finding>) {
    let path = format!("tune.params.{name}");
    let is_plain = name.chars().all(|sign| sign.is_ascii_alphanumeric() || "_-.".contains(sign));
    if !is_plain || !name.starts_with(|sign: char| sign.is_ascii_alphabetic() || sign == '_') {
        let finding = Finding::error(&path, "is no name of a flag");
        found.push(finding.hint("use letters, digits, `_`, `-` and `.`, a letter first"));
    }
    let other =
        all.keys().find(|other| *other < &name.to_owned() && variable(other) == variable(name));
    if let Some(other) = other {
        let message = format!("has the variable `{}`, as `{other}` has", variable(name));
        found.push(Finding::error(&path, message));
    }
}

fn check_param(name: &str, param: &TuneParam, found: &mut Vec<Finding>) {
    let path = |key: &str| format!("tune.params.{name}.{key}");
    match param {
        TuneParam::Float { min, max, scale } => {
            check_range(name, *min, *max, *scale, found);
        }
        TuneParam::Int { min, max, scale } => {
            check_range(name, *min as f64, *max as f64, *scale, found);
        }
        TuneParam::Categorical { values } => {
            let mut sorted = values.clone();
            sorted.sort_unstable();
            sorted.dedup();
            check_values(&path("values"), values.len(), sorted.len(), found);
        }
        TuneParam::Discrete { values } => {
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            sorted.dedup();
            check_values(&path("values"), values.len(), sorted.len(), found);
            if values.iter().any(|value| !value.is_finite()) {
                found.push(Finding::error(&path("values"), "has a value that is not finite"));
            }
        }
    }
}

fn check_range(name: &str, min: f64, max: f64, scale: ParamScale, found: &mut Vec<Finding>) {
    let path = |key: &str| format!("tune.params.{name}.{key}");
    if !min.is_finite() || !max.is_finite() {
        found.push(Finding::error(&path("min"), "or `max` is not finite"));
    } else if min > max {
        found.push(Finding::error(&path("min"), format!("is {min}, above `max`, {max}")));
    } else if scale != ParamScale::Linear && min <= 0.0 {
        let finding = Finding::error(&path("scale"), format!("needs a `min` above 0, not {min}"));
        found.push(finding.hint("use `scale = \"linear\"`, or another `min`"));
    }
}

fn check_values(path: &str, count: usize, different: usize, found: &mut Vec<Finding>) {
    if count == 0 {
        found.push(Finding::error(path, "is empty"));
    } else if different < count {
        found.push(Finding::error(path, "has a value twice"));
    }
}
