//! The words that choose jobs: `state:running machine:g5 cost>5 llama`.

use crate::app::view::job_summary::Summary;
use crate::app::view::machine::MachineShown;
use crate::market::{Catalog, Usd};

/// All terms must fit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFilter {
    terms: Vec<Term>,
    /// Terms that were not understood. They choose nothing.
    pub unknown: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Term {
    /// `open` and `ended` are states too.
    State(String),
    Verdict(String),
    Machine(String),
    Market(String),
    CostAbove(Usd),
    CostBelow(Usd),
    /// In the name or in the id.
    Name(String),
}

/// For people, beside the field.
pub const EXAMPLE: &str = "state:running verdict:idle machine:g5 market:spot cost>5 name";

impl JobFilter {
    pub fn parse(text: &str) -> JobFilter {
        let mut filter = JobFilter::default();
        for word in text.split_whitespace() {
            match term(&word.to_lowercase()) {
                Some(term) => filter.terms.push(term),
                None => filter.unknown.push(word.to_owned()),
            }
        }
        filter
    }

    pub fn fits(&self, summary: &Summary) -> bool {
        self.terms.iter().all(|term| term.fits(summary))
    }
}

fn term(word: &str) -> Option<Term> {
    let usd = |text: &str| Usd::from_dollars(text.trim_start_matches('$').parse().ok()?).ok();
    if let Some(least) = word.strip_prefix("cost>") {
        return usd(least).map(Term::CostAbove);
    }
    if let Some(most) = word.strip_prefix("cost<") {
        return usd(most).map(Term::CostBelow);
    }
    match word.split_once(':') {
        None => Some(Term::Name(word.to_owned())),
        Some(("state", word)) => Some(Term::State(word.to_owned())),
        Some(("verdict", word)) => Some(Term::Verdict(word.to_owned())),
        Some(("machine" | "gpu", word)) => Some(Term::Machine(word.to_owned())),
        Some(("market", word)) => Some(Term::Market(word.to_owned())),
        Some(("name" | "job", word)) => Some(Term::Name(word.to_owned())),
        Some(_) => None,
    }
}

impl Term {
    fn fits(&self, summary: &Summary) -> bool {
        let machine = summary.machine.as_ref();
        let has = |text: &str, word: &str| text.to_lowercase().contains(word);
        match self {
            Term::State(word) if word == "open" => !summary.state.is_final(),
            Term::State(word) if word == "ended" => summary.state.is_final(),
            Term::State(word) => {
                summary.state.word() == word
                    || summary.state_told() == *word
                    || summary.silence.as_ref().is_some_and(|silence| silence.state() == word)
            }
            Term::Verdict(word) => summary.verdict.as_ref().is_some_and(|verdict| verdict == word),
            Term::Machine(word) => {
                let has_gpu = |gpu: &crate::instance::GpuStatus| {
                    gpu.name.as_ref().is_some_and(|name| has(name, word))
                };
                machine.is_some_and(|machine| has(&machine.instance_type, word))
                    || summary.gpus.iter().any(has_gpu)
                    || planned_gpu(summary).is_some_and(|model| has(model, word))
            }
            Term::Market(word) => {
                machine.is_some_and(|machine| machine.market.to_string() == *word)
            }
            Term::CostAbove(least) => summary.usd > *least,
            Term::CostBelow(most) => summary.usd < *most,
            Term::Name(word) => has(&summary.name, word) || has(&summary.job, word),
        }
    }
}

/// The GPU model of its offer, else of its machine type. A machine that boots or has ended reports
/// no GPU.
fn planned_gpu(summary: &Summary) -> Option<&str> {
    let offer = summary.plan.as_ref().map(|plan| &plan.offer);
    let of_type = |machine: &MachineShown| {
        Catalog::shipped().machine_type(&machine.instance_type)?.gpu_model.as_deref()
    };
    offer
        .and_then(|offer| offer.gpu_model.as_deref())
        .or_else(|| summary.machine.as_ref().and_then(of_type))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JobState;

    #[test]
    fn gpu_word_finds_jobs_that_boot_or_have_ended() {
        let text = include_str!("../../../tests/data/v1/plan.json");
        let plan: crate::job::Plan = serde_json::from_str(text).expect("a plan");
        let machine = Some(MachineShown::from(&plan));
        let boots = Summary { plan: Some(plan), ..Summary::example(JobState::Provisioning) };
        let ended = Summary { machine, ..Summary::example(JobState::Succeeded) };
        for summary in [boots, ended] {
            assert!(JobFilter::parse("gpu:A10G").fits(&summary), "{summary:?}");
            assert!(!JobFilter::parse("gpu:H100").fits(&summary));
        }
        let none = Summary::example(JobState::Succeeded);
        assert!(!JobFilter::parse("gpu:A10G").fits(&none));
    }

    #[test]
    fn words_are_terms_and_what_is_not_understood_is_named() {
        let filter = JobFilter::parse("State:Running cost>$2.5 llama color:red cost>x");
        let usd = Usd::from_dollars(2.5).expect("a sum");
        let terms =
            vec![Term::State("running".into()), Term::CostAbove(usd), Term::Name("llama".into())];
        assert_eq!(filter.terms, terms);
        assert_eq!(filter.unknown, ["color:red", "cost>x"]);
        assert_eq!(JobFilter::parse("  "), JobFilter::default());
    }
}
