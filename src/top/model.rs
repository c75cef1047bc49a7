//! The facts that the view knows, and the place of the person. All lines are functions of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::act_order::{Order, done};
use super::job_order::{JobOrder, listed};
use super::open_job::OpenJob;
use super::palette::Palette;
use crate::app::Fault;
use crate::app::overview::overview::{JobRow, Overview};
use crate::app::overview::usage_trend::UsageTrend;

/// Which screen is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopScreen {
    #[default]
    Overview,
    Job,
    Attempt,
    Gpus,
    /// The processes that use one GPU.
    Processes,
}

/// The parts that the screen of a job shows. The keys 1 to 4 choose one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    #[default]
    All,
    Plots,
    Log,
    Timeline,
}

impl Preset {
    pub const EACH: [Preset; 4] = [Preset::All, Preset::Plots, Preset::Log, Preset::Timeline];

    pub fn word(self) -> &'static str {
        match self {
            Preset::All => "all",
            Preset::Plots => "plots",
            Preset::Log => "log",
            Preset::Timeline => "timeline",
        }
    }

    pub fn next(self) -> Preset {
        match self {
            Preset::All => Preset::Plots,
            Preset::Plots => Preset::Log,
            Preset::Log => Preset::Timeline,
            Preset::Timeline => Preset::All,
        }
    }
}

/// A box over the screen, or the line at its foot.
#[derive(Clone, Debug, PartialEq)]
pub enum Dialog {
    Help,
    /// The filter is being typed; Esc restores the one before.
    Filter {
        before: String,
    },
    /// The text in the log is being typed; Esc restores the one before.
    Find {
        before: String,
    },
    /// How much time or money `extend` adds.
    Amount {
        job: String,
        typed: String,
        wrong: Option<String>,
    },
    /// The view reads what the act does, or the act is under way.
    Wait {
        text: String,
    },
    /// `sentence` says what the act does to the job and to its bill.
    Question {
        order: Order,
        sentence: String,
        typed: String,
    },
    Told {
        title: &'static str,
        text: Vec<String>,
    },
}

/// The choice that the reader must follow: job, attempt and pause.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Followed {
    pub job: Option<String>,
    pub attempt: Option<u32>,
    pub is_paused: bool,
}

#[derive(Debug)]
pub struct TopModel {
    pub now: Timestamp,
    pub job_root: String,
    pub palette: Palette,
    pub overview: Option<Arc<Overview>>,
    /// Why there is no newer overview.
    pub fault: Option<Fault>,
    pub traces: BTreeMap<String, Arc<UsageTrend>>,
    /// The records of the open job, once they are read.
    pub look: Option<Arc<OpenJob>>,
    pub look_fault: Option<Fault>,
    pub place: TopScreen,
    pub preset: Preset,
    /// The open job.
    pub opened: Option<String>,
    pub attempt: Option<u32>,
    /// The GPU that Enter opens, by its place among the GPUs.
    pub gpu: usize,
    /// The view was opened for this one job: leaving its screen ends the view.
    pub is_of_one_job: bool,
    pub selected: Option<String>,
    pub filter: String,
    /// The filters that this person keeps, also for the next time.
    pub kept_filters: Vec<String>,
    /// The log shows only lines with this text; empty: all lines.
    pub find: String,
    /// The log shows only lines that look like errors.
    pub finds_errors: bool,
    pub order: JobOrder,
    pub is_paused: bool,
    pub scroll: usize,
    pub dialog: Option<Dialog>,
}

/// The news that the view gets.
#[derive(Debug)]
pub enum TopNews {
    Overview(Result<Arc<Overview>, Fault>),
    Traces(BTreeMap<String, Arc<UsageTrend>>),
    Look {
        job: String,
        read: Result<Arc<OpenJob>, Fault>,
    },
    /// The effect that an act would have.
    Foretold {
        order: Order,
        sentence: Result<String, Fault>,
    },
    /// An act must be confirmed once more: the machine has another owner.
    Asked {
        order: Order,
        question: String,
    },
    Done {
        order: Order,
        said: Result<Vec<String>, Fault>,
    },
    /// The filters could not be written.
    NotKept(Fault),
}

impl TopModel {
    pub fn new(job_root: String, palette: Palette, now: Timestamp) -> TopModel {
        TopModel {
            now,
            job_root,
            palette,
            overview: None,
            fault: None,
            traces: BTreeMap::new(),
            look: None,
            look_fault: None,
            place: TopScreen::Overview,
            preset: Preset::All,
            opened: None,
            attempt: None,
            gpu: 0,
            is_of_one_job: false,
            selected: None,
            filter: String::new(),
            kept_filters: Vec::new(),
            find: String::new(),
            finds_errors: false,
            order: JobOrder::Newest,
            is_paused: false,
            scroll: 0,
            dialog: None,
        }
    }

    /// The view of one job, without the overview.
    #[must_use]
    pub fn of_job(mut self, job: String) -> TopModel {
        (self.opened, self.place, self.is_of_one_job) = (Some(job), TopScreen::Job, true);
        self
    }

    pub fn rows(&self) -> Vec<&JobRow> {
        self.overview
            .as_deref()
            .map(|overview| listed(overview, &self.filter, self.order))
            .unwrap_or_default()
    }

    /// The place of the selected job among the rows: the selection follows the job.
    pub fn selected_at(&self) -> usize {
        let is_selected = |row: &&JobRow| Some(&row.summary.job) == self.selected.as_ref();
        self.rows().iter().position(is_selected).unwrap_or(0)
    }

    /// The job that an act or Enter is about.
    pub fn current_job(&self) -> Option<String> {
        match self.place {
            TopScreen::Overview => {
                self.rows().get(self.selected_at()).map(|row| row.summary.job.clone())
            }
            _ => self.opened.clone(),
        }
    }

    /// The records of the open job, unless they are of another one.
    pub fn open_look(&self) -> Option<&OpenJob> {
        self.look.as_deref().filter(|look| Some(&look.job) == self.opened.as_ref())
    }

    pub fn watched(&self) -> Followed {
        let is_open = self.place != TopScreen::Overview;
        Followed {
            job: self.opened.clone().filter(|_| is_open),
            attempt: self.attempt.filter(|_| is_open),
            is_paused: self.is_paused,
        }
    }

    pub fn hear(&mut self, news: TopNews) {
        match news {
            // A paused view stands still; answers to a question still come.
            TopNews::Overview(_) | TopNews::Traces(_) | TopNews::Look { .. } if self.is_paused => {}
            TopNews::Overview(Ok(overview)) => {
                (self.overview, self.fault) = (Some(overview), None);
            }
            // The last look stays, with its age.
            TopNews::Overview(Err(fault)) => self.fault = Some(fault),
            TopNews::Traces(traces) => self.traces = traces,
            TopNews::Look { job, read } if Some(&job) == self.opened.as_ref() => match read {
                Ok(look) => (self.look, self.look_fault) = (Some(look), None),
                Err(fault) => self.look_fault = Some(fault),
            },
            TopNews::Look { .. } => {}
            TopNews::Foretold { order, sentence } => self.foretold(order, sentence),
            TopNews::Asked { order, question } => {
                let order = Order { is_confirmed: true, ..order };
                let typed = String::new();
                self.dialog = Some(Dialog::Question { order, sentence: question, typed });
            }
            TopNews::Done { order, said } => {
                self.dialog = Some(match said {
                    Ok(text) => Dialog::Told { title: done(order.act), text },
                    Err(fault) => told_fault("Nothing was recorded", &fault),
                });
            }
            TopNews::NotKept(fault) => self.dialog = Some(told_fault("Not kept", &fault)),
        }
    }

    fn foretold(&mut self, order: Order, sentence: Result<String, Fault>) {
        // The person has left the question meanwhile.
        if !matches!(self.dialog, Some(Dialog::Wait { .. })) {
            return;
        }
        self.dialog = Some(match sentence {
            Ok(sentence) => Dialog::Question { order, sentence, typed: String::new() },
            Err(fault) => told_fault("Not possible", &fault),
        });
    }
}

fn told_fault(title: &'static str, fault: &Fault) -> Dialog {
    Dialog::Told { title, text: fault_lines(fault) }
}

/// The lines of a fault: the event, its meaning, and the command that mends it.
pub fn fault_lines(fault: &Fault) -> Vec<String> {
    let hint = fault.hint.as_ref().map(|hint| format!("hint: {hint}"));
    [Some(fault.sentence()), fault.meaning.clone(), hint].into_iter().flatten().collect()
}
