//! All jobs of a job root at one moment: the money, what needs a person, and each job.
//!
//! ```text
//! list ─> each job: receipt (memory, index) | summary ─> money, needs, rows
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::driven_here::seen_from_here;
use super::ended_index::EndedIndex;
use super::eta::Eta;
use super::job_sentence::{NextEnd, job_sentence};
use super::machine_watch::{CloudAsking, CloudLook, MachineWatch, UnneededKind, UnneededMachine};
use crate::app::find_job::READS_IN_FLIGHT;
use crate::app::gang::gang_rows::fold_gangs;
use crate::app::missing_spec::SpecGone;
use crate::app::text::{self, in_local_time, local_time};
use crate::app::view::cost_bound::Limited;
use crate::app::view::costs::{self, CostRow};
use crate::app::view::job_summary::Summary;
use crate::app::view::{kept_machines, silent_machine};
use crate::app::{Fault, drive, record_errors};
use crate::instance::GpuStatus;
use crate::job::{JobId, JobState, LeavingFate, Receipt};
use crate::jobdir::{self, JobDir, JobDirError};
use crate::market::{Span, Usd, UsdPerHour, elapsed};
use crate::policy::purchase::spending_cap::{Caps, Spending};
use crate::wire::{StoreHandle, Workstation};

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Overview {
    /// When the records were read.
    pub at: Timestamp,
    pub money: Money,
    pub needs: Vec<Need>,
    /// Unfinished jobs first, the newest first in each group.
    pub jobs: Vec<JobRow>,
    /// The last look at the clouds, for machines that no job needs. Null: there was none.
    pub look: Option<CloudLook>,
    #[serde(skip)]
    pub costs: Vec<CostRow>,
    /// A row for each machine: here the ranks of a gang stand one by one.
    #[serde(skip)]
    pub machine_rows: Vec<JobRow>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Money {
    /// By all jobs of this job root.
    pub spent: Usd,
    /// The highest further cost of the unfinished jobs and unneeded machines. Null: one of them has
    /// no limit.
    pub more_at_most: Option<Usd>,
    /// The job or machine that makes most of it. Null: nothing can cost more.
    pub most_by: Option<LargestCost>,
    /// The rate of the jobs' machines and of unneeded machines.
    pub per_hour_now: UsdPerHour,
    /// The part of it whose machines do useful work now.
    pub useful_per_hour: UsdPerHour,
    /// On this day of the calendar, here.
    pub today: Usd,
    pub month: Usd,
    /// A machine is silent, or the exact end of its bill is unknown.
    pub estimated: bool,
    pub caps: Caps,
    /// The spending that counts against the caps. Null: there is no cap, or it is unknown.
    pub counted: Option<Spending>,
}

impl Money {
    /// `now $3.02/h, of it $1.01/h useful; spent $4.20, at most $14.20`
    pub fn sentence(&self) -> String {
        let about = if self.estimated { "about " } else { "" };
        let most = match self.more_at_most {
            Some(more) => format!("at most {}", (self.spent + more).rounded_up()),
            None => {
                let job = self.most_by.as_ref().map(|by| format!(" for {}", by.id));
                format!("no limit{}", job.unwrap_or_default())
            }
        };
        let (now, useful) = (self.per_hour_now, self.useful_per_hour);
        format!("now {now}, of it {useful} useful; spent {about}{}, {most}", self.spent)
    }
}

/// The job or unneeded machine with the highest possible further cost, or without a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct LargestCost {
    /// The id of the job, or of the machine.
    pub id: String,
    /// It is a machine that no job needs. Its cost so far counts too.
    pub is_machine: bool,
    /// Null: it has no limit, or the price of the machine is unknown.
    pub usd: Option<Usd>,
    /// Its run time begins again with each machine that follows an interruption or a failure.
    pub each_machine: bool,
}

impl LargestCost {
    /// `train-222222 can cost $12.00 more, as its run time begins again with each machine`
    pub fn sentence(&self) -> String {
        let id = &self.id;
        match (self.usd, self.is_machine) {
            (None, true) => format!("the machine {id} has no end, or its price is unknown"),
            (None, false) => format!("{id} has no limit; `limits.budget` sets one"),
            (Some(usd), true) => format!("the machine {id} can cost {}", usd.rounded_up()),
            (Some(usd), false) => {
                let again = ", as its run time begins again with each machine; `limits.budget` \
                             limits them all";
                let why = if self.each_machine { again } else { "" };
                format!("{id} can cost {} more{why}", usd.rounded_up())
            }
        }
    }
}

/// Something that a person should look at.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Need {
    pub job: Option<String>,
    pub text: String,
    /// The command that mends it.
    pub command: String,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct JobRow {
    pub summary: Summary,
    pub sentence: String,
    pub next_end: Option<NextEnd>,
    /// When its progress is complete at the pace so far.
    pub eta: Option<Timestamp>,
    /// The same at the speed of its faster and of its slower recent steps.
    pub eta_from: Option<Timestamp>,
    pub eta_to: Option<Timestamp>,
}

impl Overview {
    /// For an overview without needs: how far that is known.
    pub fn calm_text(&self) -> &'static str {
        match &self.look {
            Some(look) if look.has_aws => "Nothing needs a person.",
            Some(_) => {
                "No job needs a person. AWS was not asked for machines, as nothing here uses it; \
                 `lamp sweep --dry-run` asks."
            }
            None => {
                "No job needs a person. Nobody asked for machines without a job; \
                 `lamp sweep --dry-run` asks."
            }
        }
    }
}

impl JobRow {
    /// `done about 2026-01-02 14:20`
    pub fn eta_text(&self) -> Option<String> {
        let eta = Eta { at: self.eta?, range: self.eta_from.zip(self.eta_to) };
        Some(eta.text())
    }
}

/// Reads overviews. A receipt never changes, so each is read once.
#[derive(Default)]
pub struct OverviewReader {
    watch: MachineWatch,
    ended: Mutex<EndedReceipts>,
}

/// The receipts that were read, here or by an earlier view of this user.
#[derive(Default)]
struct EndedReceipts {
    known: BTreeMap<JobId, Arc<Receipt>>,
    /// Not in the index yet.
    new: Vec<Arc<Receipt>>,
    index: Option<EndedIndex>,
}

/// One job as it was read.
enum JobRead {
    Job(Box<Summary>, Option<Arc<Receipt>>),
    Need(Need),
    Nothing,
}

/// Between two looks at a folder. A person notices more.
const EVERY: Duration = Duration::from_secs(2);

/// The same for a bucket, where each look costs money.
const EVERY_AWAY: Duration = Duration::from_secs(10);

/// The time between two looks of a view that stays open.
pub fn look_interval(store: &StoreHandle) -> Duration {
    if store.is_folder() { EVERY } else { EVERY_AWAY }
}

impl OverviewReader {
    pub fn new(asking: CloudAsking) -> OverviewReader {
        OverviewReader { watch: MachineWatch::new(asking), ..OverviewReader::default() }
    }

    /// # Errors
    /// Fails when the job root is unreachable.
    pub async fn read(
        &self,
        store: &StoreHandle,
        workstation: &Workstation,
        now: Timestamp,
    ) -> Result<Overview, Fault> {
        let jobs = jobdir::jobs(store.as_ref())
            .await
            .map_err(|error| record_errors::record_fault(&error.into()))?;
        self.ended().open_index(store);
        let found: Vec<Result<JobRead, Fault>> = stream::iter(jobs)
            .map(|job| self.job(JobDir::new(Arc::clone(store), job), now))
            .buffer_unordered(READS_IN_FLIGHT)
            .collect()
            .await;
        self.ended().keep_new();
        let (mut summaries, mut needs, mut costs) = (Vec::new(), Vec::new(), Vec::new());
        let zone = TimeZone::system();
        let today = now.to_zoned(zone.clone()).date();
        let mut daemon = None;
        for found in found {
            match found? {
                JobRead::Nothing => {}
                JobRead::Need(need) => needs.push(need),
                JobRead::Job(summary, receipt) => {
                    let summary = seen_from_here(workstation, &mut daemon, *summary);
                    match receipt {
                        Some(receipt) => {
                            costs.extend(costs::rows(&receipt, &zone));
                            needs.extend(leftovers(&receipt));
                        }
                        None => costs.extend(costs::rows_under_way(&summary, now, &zone)),
                    }
                    summaries.push(summary);
                }
            }
        }
        silent_machine::ask(workstation, store, &mut summaries, now).await;
        let is_open = |summary: &Summary| !summary.state.is_final();
        summaries.sort_by(|one, other| {
            (is_open(other), other.started, &other.job).cmp(&(is_open(one), one.started, &one.job))
        });
        let look = self.watch.look(store, workstation, has_aws(&summaries), now).await;
        let rows = fold_gangs(summaries.clone(), now);
        needs.extend(summaries.iter().flat_map(needs_of));
        needs.extend(rows.iter().filter_map(gang_need));
        needs.extend(failed_need(&rows, now));
        needs.extend(look.iter().flat_map(|look| machine_needs(look, &summaries, now)));
        needs.extend(unanswered_need(&self.watch));
        // One unreadable record must not hide the jobs.
        let counted = counted(workstation, store).await.unwrap_or_else(|fault| {
            needs.push(uncounted_need(&fault));
            None
        });
        needs.sort_by(|one, other| one.job.cmp(&other.job));
        let money = Money {
            caps: workstation.caps.anew(),
            counted,
            today: sum_of(&costs, |day| day == today),
            month: sum_of(&costs, |day| day.first_of_month() == today.first_of_month()),
            ..money_now(&summaries, look.as_ref(), now)
        };
        costs.sort_by(|one, other| {
            (other.day, &one.job, one.attempt).cmp(&(one.day, &other.job, other.attempt))
        });
        let jobs = rows.into_iter().map(|summary| row(summary, now)).collect();
        let machine_rows = summaries.into_iter().map(|summary| row(summary, now)).collect();
        Ok(Overview { at: now, money, needs, jobs, look, costs, machine_rows })
    }

    async fn job(&self, dir: JobDir, now: Timestamp) -> Result<JobRead, Fault> {
        match self.read_job(&dir, now).await {
            Ok(found) => Ok(found),
            // One unreadable record must not hide the other jobs.
            Err(error) => match record_errors::one_job_only(&dir, &error) {
                Some(why) => Ok(JobRead::Need(Need {
                    text: format!("left out: {why}"),
                    command: format!("lamp status {}", dir.job()),
                    job: Some(dir.job().to_string()),
                })),
                None => Err(record_errors::record_fault(&error)),
            },
        }
    }

    async fn read_job(&self, dir: &JobDir, now: Timestamp) -> Result<JobRead, JobDirError> {
        let known = self.ended().known.get(dir.job()).cloned();
        let receipt = match known {
            Some(receipt) => Some(receipt),
            None => dir.receipt().await?.map(Arc::new).inspect(|receipt| {
                self.ended().add(Arc::clone(receipt));
            }),
        };
        if let Some(receipt) = receipt {
            let summary = Summary::ended(dir, Receipt::clone(&receipt)).await?;
            return Ok(JobRead::Job(Box::new(summary), Some(receipt)));
        }
        if let Some(summary) = Summary::open(dir, now).await? {
            return Ok(JobRead::Job(Box::new(summary), None));
        }
        let Some(gone) = SpecGone::of(dir).await? else { return Ok(JobRead::Nothing) };
        let job = dir.job();
        Ok(JobRead::Need(Need {
            text: format!("{}: {}", gone.what(dir), gone.meaning()),
            command: if gone.may_run() {
                format!("lamp stop {job}")
            } else {
                format!("lamp explain {job}")
            },
            job: Some(job.to_string()),
        }))
    }

    fn ended(&self) -> MutexGuard<'_, EndedReceipts> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EndedReceipts {
    /// The first look reads the index. A view has one job root.
    fn open_index(&mut self, store: &StoreHandle) {
        let url = store.url();
        // A store in memory is another one in the next process.
        if self.index.is_none() && !url.starts_with("memory:") {
            let index = EndedIndex::of(&url);
            self.known = index.read();
            self.index = Some(index);
        }
    }

    fn add(&mut self, receipt: Arc<Receipt>) {
        self.known.insert(receipt.job.clone(), Arc::clone(&receipt));
        self.new.push(receipt);
    }

    fn keep_new(&mut self) {
        let new = std::mem::take(&mut self.new);
        if let Some(index) = &self.index {
            index.add(&new);
        }
    }
}

fn row(summary: Summary, now: Timestamp) -> JobRow {
    let eta = Eta::of(&summary, now);
    let (eta_from, eta_to) = eta.and_then(|eta| eta.range).unzip();
    JobRow {
        sentence: job_sentence(&summary),
        next_end: NextEnd::of(&summary),
        eta: eta.map(|eta| eta.at),
        eta_from,
        eta_to,
        summary,
    }
}

/// Whether a machine of it bills now, as far as the records show.
fn bills(summary: &Summary) -> bool {
    let is_gone = summary.silence.as_ref().is_some_and(|silence| silence.state() == "gone");
    let has_machine = !matches!(summary.state, JobState::Submitted | JobState::Interrupted);
    !summary.state.is_final() && has_machine && summary.waiting.is_none() && !is_gone
}

fn sum_of(costs: &[CostRow], fits: impl Fn(Date) -> bool) -> Usd {
    costs.iter().filter(|row| fits(row.day)).map(|row| row.usd).sum()
}

/// A job here has, or had, a machine that is not this workstation.
pub fn has_aws<'a>(summaries: impl IntoIterator<Item = &'a Summary>) -> bool {
    let mut machines = summaries.into_iter().filter_map(|summary| summary.machine.as_ref());
    machines.any(|machine| !machine.is_here())
}

/// The money of this moment; not what the days cost.
pub fn money_now(summaries: &[Summary], look: Option<&CloudLook>, now: Timestamp) -> Money {
    let open = || summaries.iter().filter(|summary| !summary.state.is_final());
    let rate = |is_counted: &dyn Fn(&Summary) -> bool| -> Usd {
        let counted = summaries.iter().filter(|summary| bills(summary) && is_counted(summary));
        counted.filter_map(|summary| summary.usd_per_hour).map(UsdPerHour::per_hour).sum()
    };
    let current = look.filter(|look| look.is_current(now));
    let unneeded = || unneeded(current, summaries);
    let unneeded_rate: Usd =
        unneeded().filter_map(|one| one.usd_per_hour).map(UsdPerHour::per_hour).sum();
    // The ranks of a gang are one job.
    let open = open().filter(|summary| !summary.alone).cloned().collect();
    let jobs = fold_gangs(open, now).into_iter().map(|job| further_cost(&job));
    let machines = unneeded().map(|one| LargestCost {
        id: one.id.clone(),
        is_machine: true,
        usd: one.usd_so_far(now).zip(one.more_at_most(now)).map(|(far, more)| far + more),
        each_machine: false,
    });
    let costs: Vec<LargestCost> = jobs.chain(machines).collect();
    Money {
        spent: summaries.iter().map(|summary| summary.usd).sum(),
        more_at_most: costs.iter().try_fold(Usd::ZERO, |sum, cost| Some(sum + cost.usd?)),
        most_by: costs
            .into_iter()
            .filter(|cost| cost.usd != Some(Usd::ZERO))
            .max_by_key(|cost| (cost.usd.is_none(), cost.usd)),
        per_hour_now: UsdPerHour::new(rate(&|_| true) + unneeded_rate),
        useful_per_hour: UsdPerHour::new(rate(&is_useful)),
        estimated: summaries
            .iter()
            .any(|summary| summary.usd_estimated || summary.usd_unheard > Usd::ZERO)
            || unneeded().next().is_some(),
        ..Money::default()
    }
}

/// The most that an unfinished job can still cost.
fn further_cost(summary: &Summary) -> LargestCost {
    let most = summary.most_job_usd.or(summary.most_usd);
    LargestCost {
        id: summary.job.clone(),
        is_machine: false,
        usd: most.map(|most| (most - summary.usd).max(Usd::ZERO)),
        each_machine: summary.limited == Limited::EachMachine
            && summary.most_job_usd > summary.most_usd,
    }
}

/// It works now, by its agent. A machine that starts or is silent is not counted.
fn is_useful(summary: &Summary) -> bool {
    let is_busy = summary.verdict.as_deref() == Some("busy");
    is_busy && summary.state == JobState::Running && !summary.is_quiet
}

/// The unneeded machines of this user that the jobs do not count already.
fn unneeded<'a>(
    look: Option<&'a CloudLook>,
    summaries: &'a [Summary],
) -> impl Iterator<Item = &'a UnneededMachine> {
    look.into_iter().flat_map(CloudLook::ours).filter(|one| !is_counted(one, summaries))
}

/// A job that is under way here counts its machine, also if its agent is silent.
fn is_counted(one: &UnneededMachine, summaries: &[Summary]) -> bool {
    // Before the first heartbeat the records do not name the machine.
    let has_it = |summary: &Summary| match summary.instance.as_deref() {
        Some(id) => id == one.id,
        None => one.job.as_deref() == Some(summary.job.as_str()),
    };
    summaries.iter().any(|summary| bills(summary) && has_it(summary))
}

/// The machines of the last look at the clouds that a person must decide on.
pub fn machine_needs(look: &CloudLook, summaries: &[Summary], now: Timestamp) -> Vec<Need> {
    let machines = look.machines.iter().filter(|one| !is_counted(one, summaries));
    machines.map(|one| machine_need(one, look.at, now)).chain(unknown_needs(look)).collect()
}

/// The places that did not answer. The same fault in many regions is told once.
fn unknown_needs(look: &CloudLook) -> impl Iterator<Item = Need> {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for unknown in &look.unknown {
        let (place, fault) = unknown.split_at(unknown.find([',', ':']).unwrap_or(unknown.len()));
        places.entry(fault).or_default().push(place);
    }
    places.into_iter().map(|(fault, places)| {
        let others = match places.len() - 1 {
            0 => String::new(),
            others => format!(" and in {others} more regions"),
        };
        Need {
            job: None,
            text: format!("machines there are unknown: {}{others}{fault}", places[0]),
            command: cure_in(fault),
        }
    })
}

/// The command of AWS that a fault names as its cure, as for a session that is over. Without one,
/// the same question asked again shows all that is known.
fn cure_in(fault: &str) -> String {
    let mut quoted = fault.split('`').skip(1).step_by(2);
    let cure = quoted.find(|command| command.starts_with("aws "));
    cure.unwrap_or("lamp sweep --dry-run").to_owned()
}

/// Tells a person that the clouds did not answer.
fn unanswered_need(watch: &MachineWatch) -> Option<Need> {
    let fault = watch.fault()?;
    let text = format!("machines that no job needs are unknown: {fault}");
    Some(Need { job: None, text, command: cure_in(&fault) })
}

fn machine_need(one: &UnneededMachine, seen: Timestamp, now: Timestamp) -> Need {
    let rate =
        one.usd_per_hour.map_or_else(|| "at an unknown price".to_owned(), |hour| hour.to_string());
    let so_far = one.usd_so_far(seen).map(|usd| format!(", {usd} so far")).unwrap_or_default();
    let end = match one.ends {
        Some(at) => format!("ends at {} at the latest", local_time(at)),
        None => "has no end".to_owned(),
    };
    let what = match one.kind {
        UnneededKind::Orphan => "no job needs",
        UnneededKind::Stray => "has no job here",
        UnneededKind::Foreign => "is not of `lamp`",
    };
    let age = Span::from_secs(elapsed(seen, now).as_secs());
    Need {
        job: one.job.clone().filter(|_| one.kind == UnneededKind::Orphan),
        text: in_local_time(&format!(
            "{} {} in {} {what}, and it bills {rate}{so_far}: {}; it {end} (seen {age} ago)",
            one.instance_type, one.id, one.region, one.why
        ))
        .into_owned(),
        command: one.command(),
    }
}

/// Tells a person that the caps cannot be compared with the costs, so nothing is launched.
fn uncounted_need(fault: &Fault) -> Need {
    let text = format!("what counts against the caps is unknown: {}", fault.sentence());
    Need { job: None, text, command: "lamp status".to_owned() }
}

async fn counted(
    workstation: &Workstation,
    store: &StoreHandle,
) -> Result<Option<Spending>, Fault> {
    if workstation.caps.last().are_none() {
        return Ok(None);
    }
    let controller = drive::controller(workstation, store)?;
    let spending = controller.spending().await;
    spending.map(Some).map_err(|error| record_errors::record_fault(&error))
}

/// Its leftovers in the cloud, by its receipt, besides what the user keeps.
fn leftovers(receipt: &Receipt) -> Vec<Need> {
    let left = receipt.left.iter().filter(|left| left.fate == LeavingFate::Left);
    left.map(|left| Need {
        job: Some(receipt.job.to_string()),
        text: format!(
            "{} {} in {} was still there when the job had ended ({}{})",
            left.kind,
            left.id,
            left.region,
            left.detail,
            kept_machines::a_month(left.usd_per_month)
        ),
        command: "lamp sweep".to_owned(),
    })
    .collect()
}

/// A gang that hangs, idles or has a slow rank, which no rank sees on its own.
fn gang_need(row: &Summary) -> Option<Need> {
    let text = row.gang.as_ref()?.reason.clone()?;
    Some(Need { job: Some(row.job.clone()), text, command: format!("lamp explain {}", row.job) })
}

fn needs_of(summary: &Summary) -> Vec<Need> {
    let job = &summary.job;
    let need = |text: String, command: String| Need { job: Some(job.clone()), text, command };
    let mut needs = Vec::new();
    if !summary.kept.is_empty() {
        let text = kept_machines::sentence(job, &summary.kept);
        needs.push(need(text, format!("lamp cancel {job}")));
    }
    if summary.state.is_final() {
        return needs;
    }
    if summary.driven_here == Some(false) {
        let text =
            "it needs a process on this workstation that relaunches it and writes its receipt";
        needs.push(need(text.to_owned(), format!("lamp daemon --job {job} --until-done")));
    }
    if let Some(silence) = summary.silence.as_ref().filter(|_| !summary.alone) {
        let text = silence.sentence(summary.plan.as_ref());
        let is_lost = silence.state() == "lost";
        let command = if is_lost { "lamp sweep".to_owned() } else { format!("lamp logs {job}") };
        needs.push(need(text, command));
    }
    // Nothing launches it until a person does something.
    let is_stuck = summary.waiting_until.is_none() && summary.tried_again.is_none();
    let needs_quota = summary.waits_for_quota();
    if let Some(why) = summary.waiting.as_ref().filter(|_| is_stuck || needs_quota) {
        // It prints the request for a higher quota.
        let quota = needs_quota.then(|| "lamp doctor".to_owned());
        let command = quota.unwrap_or_else(|| format!("lamp explain {job}"));
        needs.push(need(format!("it waits: {why}"), command));
    }
    needs.extend(verdict_need(summary));
    let is_told = |text: &&String| !summary.watch_sentences.contains(text);
    let attention = summary.attention.iter().filter(is_told);
    needs.extend(attention.map(|text| need(text.clone(), format!("lamp explain {job}"))));
    needs.extend(memory_need(summary));
    needs
}

/// A GPU whose memory is damaged: its results may be wrong. Xid errors are in `attention`.
fn memory_need(summary: &Summary) -> Option<Need> {
    let is_damaged = |gpu: &&GpuStatus| gpu.health.remap_failed == Some(true);
    // Only a cloud has another machine.
    let is_away = summary.machine.as_ref().is_some_and(|machine| !machine.is_here());
    let gpu = summary.gpus.iter().find(is_damaged).filter(|_| is_away)?;
    let job = &summary.job;
    Some(Need {
        job: Some(job.clone()),
        text: format!(
            "GPU {}: a memory row could not be replaced; `lamp start {job}` then continues on \
             another machine",
            gpu.index
        ),
        command: format!("lamp stop {job}"),
    })
}

/// A failure is news for this long. After that, few people still want to mend it.
const FAILED_SHOWN: SignedDuration = SignedDuration::from_hours(24);

/// The jobs that failed lately, newest first in one need. A later job of the same name is the
/// person's answer.
fn failed_need(rows: &[Summary], now: Timestamp) -> Option<Need> {
    let is_news = |ended: Timestamp| now.duration_since(ended) < FAILED_SHOWN;
    let is_answered = |failed: &Summary| {
        rows.iter().any(|row| row.name == failed.name && Some(row.started) > failed.ended)
    };
    let mut failed: Vec<&Summary> = rows
        .iter()
        .filter(|row| row.state == JobState::Failed && row.ended.is_some_and(is_news))
        .filter(|row| !is_answered(row))
        .collect();
    failed.sort_by_key(|row| std::cmp::Reverse(row.ended));
    let newest = failed.first()?;
    let others = match failed.len() - 1 {
        0 => String::new(),
        others => {
            format!("; {} failed in the last 24 hours", text::counted(others as u64, "more job"))
        }
    };
    let why = newest.reason.as_deref().unwrap_or("it failed");
    Some(Need {
        job: Some(newest.job.clone()),
        text: format!("{}: {why}{others}", newest.state_told()),
        command: format!("lamp logs {}", newest.job),
    })
}

/// A machine that bills without useful work, and what ends it or lets it run on.
pub fn verdict_need(summary: &Summary) -> Option<Need> {
    let job = &summary.job;
    let need = |text: String, command: String| Need { job: Some(job.clone()), text, command };
    let reason = summary.reason.as_deref().unwrap_or("no progress");
    match summary.verdict.as_deref() {
        // The reason begins with the verdict.
        Some(word @ ("stalled" | "idle")) => {
            let why = reason.strip_prefix(&format!("{word}: ")).unwrap_or(reason);
            let bills = summary.usd_per_hour.map(|rate| format!("; it bills {rate}"));
            let look = if word == "idle" {
                String::new()
            } else {
                format!("; `lamp logs {job}` shows its output")
            };
            let text = format!("{word}: {why}{}{look}", bills.unwrap_or_default());
            Some(need(text, format!("lamp stop {job}")))
        }
        _ => {
            let end = summary.watch_end.as_ref().filter(|end| end.is_soon())?;
            let command = format!("lamp extend {job} --keep 1h");
            Some(need(format!("{reason}; {} {}", end.policy.what(), local_time(end.at)), command))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Refusal;

    #[test]
    fn used_up_quota_needs_a_person_and_scarcity_does_not() {
        let waits = |refusal: Refusal| Summary {
            waiting: Some(format!("a machine: {refusal}")),
            tried_again: Some(Timestamp::UNIX_EPOCH),
            refusal: Some(refusal),
            ..Summary::example(JobState::Provisioning)
        };
        let [need] = needs_of(&waits(Refusal::Quota)).try_into().expect("one need");
        assert_eq!(need.text, "it waits: a machine: the quota is used up");
        assert_eq!(need.command, "lamp doctor");
        assert_eq!(needs_of(&waits(Refusal::Capacity)), []);
    }

    #[test]
    fn stall_is_one_need_and_none_once_it_works_again() {
        let told = ["stalled: no step for 10m", "stalled: stacks were written down"];
        let stalled = Summary {
            verdict: Some("stalled".into()),
            reason: Some("stalled: no step for 10m".into()),
            attention: [told[0], told[1], "the disk is full"].map(str::to_owned).into(),
            watch_sentences: told.map(str::to_owned).into(),
            ..Summary::example(JobState::Running)
        };
        let [stall, disk] = needs_of(&stalled).try_into().expect("two needs");
        assert_eq!(stall.command, "lamp stop example-222222");
        assert!(stall.text.starts_with("stalled: no step for 10m"), "{}", stall.text);
        assert!(stall.text.contains("`lamp logs example-222222`"), "{}", stall.text);
        assert_eq!(disk.text, "the disk is full");
        let kept = Summary { verdict: Some("busy".into()), ..stalled };
        assert_eq!(needs_of(&kept), [disk], "kept by a person, or it works again");
    }

    #[test]
    fn failure_is_news_for_a_day_or_until_its_job_runs_again() {
        let at = |hours: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours);
        let failed = |job: &str, name: &str, ended: i64| Summary {
            job: job.into(),
            name: name.into(),
            started: at(0),
            ended: Some(at(ended)),
            reason: Some("exit code 1".into()),
            ..Summary::example(JobState::Failed)
        };
        let rows = [failed("a-2", "a", 1), failed("b-2", "b", 2)];
        let need = failed_need(&rows, at(3)).expect("a need");
        assert_eq!((need.job.as_deref(), need.command.as_str()), (Some("b-2"), "lamp logs b-2"));
        assert_eq!(need.text, "failed: exit code 1; 1 more job failed in the last 24 hours");
        assert_eq!(failed_need(&rows, at(27)), None, "a day later");
        let again =
            Summary { started: at(3), name: "b".into(), ..Summary::example(JobState::Running) };
        let need = failed_need(&[rows[0].clone(), rows[1].clone(), again], at(4));
        assert_eq!(need.and_then(|need| need.job).as_deref(), Some("a-2"), "`b` runs again");
    }

    #[test]
    fn largest_possible_cost_names_its_job() {
        let usd = |text: &str| text.parse::<Usd>().expect("money");
        let job = |job: &str, most: Option<Usd>| Summary {
            job: job.into(),
            usd: usd("$1"),
            most_usd: most,
            most_job_usd: most.map(|most| most + most),
            limited: Limited::EachMachine,
            ..Summary::example(JobState::Running)
        };
        let jobs = [job("a", Some(usd("$4"))), job("b", Some(usd("$2")))];
        let money = money_now(&jobs, None, Timestamp::UNIX_EPOCH);
        let said = money.most_by.as_ref().expect("a job").sentence();
        assert!(said.starts_with("a can cost $7.00 more, as its run time begins again"), "{said}");
        let endless = [jobs[0].clone(), job("c", None)];
        let money = money_now(&endless, None, Timestamp::UNIX_EPOCH);
        assert!(money.sentence().ends_with("no limit for c"), "{}", money.sentence());
        assert_eq!(money_now(&[], None, Timestamp::UNIX_EPOCH).most_by, None);
    }

    #[test]
    fn overview_without_needs_says_whether_aws_was_asked() {
        let calm = |has_aws: Option<bool>| {
            let look = has_aws.map(|has_aws| CloudLook {
                at: Timestamp::UNIX_EPOCH,
                machines: Vec::new(),
                unknown: Vec::new(),
                has_aws,
            });
            let (money, needs, jobs) = (Money::default(), Vec::new(), Vec::new());
            let (at, costs, machine_rows) = (Timestamp::UNIX_EPOCH, Vec::new(), Vec::new());
            Overview { at, money, needs, jobs, look, costs, machine_rows }.calm_text()
        };
        assert_eq!(calm(Some(true)), "Nothing needs a person.");
        assert!(calm(Some(false)).contains("AWS was not asked"));
        assert!(calm(None).contains("Nobody asked"));
    }

    #[test]
    fn session_that_is_over_has_the_command_to_sign_in() {
        let over = ": the session is over; sign in again, as with `aws sso login --profile x`";
        assert_eq!(cure_in(over), "aws sso login --profile x");
        assert_eq!(cure_in(": no answer; see `lamp doctor`"), "lamp sweep --dry-run");
    }

    #[test]
    fn same_fault_in_many_regions_is_one_need() {
        let unknown =
            ["a, what is left over: no answer", "b, what is left over: no answer", "c: no"];
        let look = CloudLook {
            at: Timestamp::UNIX_EPOCH,
            machines: Vec::new(),
            unknown: unknown.map(str::to_owned).into(),
            has_aws: true,
        };
        let texts: Vec<String> = unknown_needs(&look).map(|need| need.text).collect();
        let there = "machines there are unknown: ";
        assert_eq!(
            texts,
            [
                format!("{there}a and in 1 more regions, what is left over: no answer"),
                format!("{there}c: no")
            ]
        );
    }

    #[test]
    fn what_a_receipt_left_behind_needs_a_person() {
        let mut receipt: Receipt =
            serde_json::from_str(include_str!("../../../tests/data/v1/receipt.json"))
                .expect("a receipt");
        receipt.left.clear();
        assert_eq!(leftovers(&receipt), []);
        let left = serde_json::json!({ "kind": "volume", "id": "vol-1", "region": "us-east-1",
            "detail": "100 GiB", "usd_per_month": 8.0, "fate": "left" });
        receipt.left.push(serde_json::from_value(left).expect("a leftover"));
        let [need] = leftovers(&receipt).try_into().expect("one need");
        assert!(need.text.contains("volume vol-1 in us-east-1"), "{}", need.text);
        assert!(need.text.contains("$8.00 a month") && need.command == "lamp sweep");
    }
}
