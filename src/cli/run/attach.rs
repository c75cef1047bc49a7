//! Shows a job until it has ended: its log on stdout, its state on stderr.
//!
//! It only reads the job directory. Not here: driving the job.

use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::pin;
use std::time::Duration;

use jiff::Timestamp;

use crate::app::drive;
use crate::app::log_tail::LogTail;
use crate::app::record_errors;
use crate::app::text::waits_text;
use crate::app::view::job_summary::Summary;
use crate::app::view::summary_text;
use crate::cli::output::log_columns::LogColumns;
use crate::cli::output::log_piece::print_piece;
use crate::cli::output::printer::CLEAR;
#[cfg(feature = "top")]
use crate::cli::run::view_key::{HINT, KEYS_EVERY, ViewKey};
use crate::cli::shell::ctrl_c::LeaveSignals;
use crate::cli::shell::job_root;
use crate::cli::{Context, Fault};
use crate::controller::{Controller, JobMemory};
use crate::job::terminal_safe::one_line;
use crate::job::{AttemptNo, JobState, Receipt};
use crate::jobdir::{JobDir, JobDirError};
use crate::policy::Wishes;

/// Between two looks at a folder. Shorter reads more for nothing; longer makes the log lag.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// The same where each request costs money. Longer, and log lines come more than five seconds late.
const LOOK_EVERY_AWAY: Duration = Duration::from_millis(1500);

/// Without a terminal, an unchanged job is reported this often.
const WORD_EVERY: Duration = Duration::from_secs(60);

/// Requests such as `lamp extend` change the highest cost; each look for them at a bucket costs a
/// listing.
const WISHES_EVERY_AWAY: Duration = Duration::from_secs(30);

/// Without a terminal, a state before the work is reported after this time. At once, it would add
/// two lines to each local job, before its output.
const PASSING: Duration = Duration::from_secs(2);

const TROUBLE_EVERY: Duration = Duration::from_secs(30);

/// On a narrower terminal, the line needs its columns.
#[cfg(feature = "top")]
const HINT_FROM: usize = 50;

/// The notification command has 30 s itself. Less would cut it off; more only waits for an
/// unreachable job root.
pub const TELLING_MAX: Duration = Duration::from_secs(32);

pub fn look_every(root: &str) -> Duration {
    if root.starts_with("file:") { LOOK_EVERY } else { LOOK_EVERY_AWAY }
}

pub struct Attached<'a> {
    context: &'a Context,
    dir: &'a JobDir,
    attempts: Vec<AttemptNo>,
    tail: Option<LogTail>,
    log: bool,
    /// The log in the columns of gcloud.
    columns: Option<LogColumns>,
    /// A terminal has a live line; elsewhere there are sentences.
    terminal: bool,
    live_shown: bool,
    mid_line: bool,
    /// Log and messages go to the same terminal or file.
    is_one_place: bool,
    /// The attempt whose machine was announced last.
    moved_to: Option<u32>,
    told: Option<(JobState, Option<u32>, Option<String>)>,
    told_at: Duration,
    /// The state at the last look, and since when it is so.
    stands_since: Option<(JobState, Duration)>,
    trouble_at: Option<Duration>,
    attention: Vec<String>,
    /// The beginning of what it waits for; the numbers in the rest change with every look.
    waits: Option<String>,
    /// The requests of the user, and when they were read.
    wishes: Option<(Wishes, Duration)>,
    /// Opens the view of this job; `None`: the keys are not this program's.
    #[cfg(feature = "top")]
    view: Option<ViewKey>,
}

impl<'a> Attached<'a> {
    pub fn new(context: &'a Context, dir: &'a JobDir) -> Self {
        let terminal = std::io::stderr().is_terminal()
            && !context.is_machine_output()
            && !context.printer.is_quiet();
        Attached {
            context,
            dir,
            attempts: Vec::new(),
            tail: None,
            log: !context.is_machine_output(),
            columns: None,
            terminal,
            live_shown: false,
            mid_line: false,
            is_one_place: terminal || is_one_file(std::io::stdout(), std::io::stderr()),
            moved_to: None,
            told: None,
            told_at: Duration::ZERO,
            stands_since: None,
            trouble_at: None,
            attention: Vec::new(),
            waits: None,
            wishes: None,
            #[cfg(feature = "top")]
            view: None,
        }
    }

    /// The log also in machine formats, which otherwise get it from `lamp logs`.
    #[must_use]
    pub fn with_log(mut self) -> Self {
        self.log = true;
        self
    }

    /// The context and the job that it follows.
    pub fn shown(&self) -> (&'a Context, &'a JobDir) {
        (self.context, self.dir)
    }

    /// The log in columns, also in machine formats.
    #[must_use]
    pub fn in_columns(mut self, columns: LogColumns) -> Self {
        self.log = true;
        self.columns = Some(columns);
        self
    }

    /// Continues the log at `tail`; `None`: from its beginning.
    #[must_use]
    pub fn from(mut self, tail: Option<LogTail>) -> Self {
        self.tail = tail;
        self
    }

    #[must_use]
    pub fn without_log(mut self) -> Self {
        self.log = false;
        self
    }

    /// Follows the job to its receipt, and drives it too: two controllers do no harm. `None`: the
    /// user left.
    ///
    /// # Errors
    /// As [`Attached::follow`], and when the job cannot be driven.
    pub async fn follow_and_drive(
        &mut self,
        controller: &Controller,
    ) -> Result<Option<Receipt>, Fault> {
        self.follow_and_drive_on(controller, JobMemory::default(), &mut LeaveSignals::listen())
            .await
    }

    /// The same with what the caller already knows about the job.
    ///
    /// # Errors
    /// As [`Attached::follow_and_drive`].
    pub async fn follow_and_drive_on(
        &mut self,
        controller: &Controller,
        memory: JobMemory,
        left: &mut LeaveSignals,
    ) -> Result<Option<Receipt>, Fault> {
        let _driving = job_root::workstation(self.context)
            .ok()
            .and_then(|workstation| workstation.lock_driving(self.dir.job().as_str()));
        #[cfg(feature = "top")]
        if self.terminal {
            self.view = ViewKey::listen();
        }
        let mut drive = pin!(controller.drive_on(self.dir.job(), memory));
        let mut driven = false;
        let ended = {
            let mut follow = pin!(self.follow());
            loop {
                tokio::select! {
                    // The display ends with what it has shown, so it decides the end.
                    receipt = &mut follow => break Some(receipt?),
                    result = &mut drive, if !driven => match result {
                        Ok(_) => driven = true,
                        Err(error) => return Err(drive::drive_fault(&error)),
                    },
                    () = left.heard() => break None,
                }
            }
        };
        self.clear();
        #[cfg(feature = "top")]
        drop(self.view.take());
        // A notification command would end with this process, so it may finish.
        let finish = async {
            match &ended {
                Some(_) if driven => {}
                Some(_) => drop(drive.await),
                None => controller.finish_telling().await,
            }
        };
        tokio::select! {
            () = finish => {}
            () = self.context.clock.sleep(TELLING_MAX) => {}
            () = left.heard() => {}
        }
        Ok(ended)
    }

    /// Follows the job to its receipt, through every failure of the job root.
    ///
    /// # Errors
    /// Fails on a record that this version does not understand.
    pub async fn follow(&mut self) -> Result<Receipt, Fault> {
        let every = look_every(&self.dir.store().url());
        loop {
            let began = self.context.clock.mono();
            match self.look().await {
                Ok(Some(receipt)) => return Ok(receipt),
                Ok(None) => self.trouble_at = None,
                Err(error @ JobDirError::Store(_)) => self.trouble(&error),
                Err(error) => return Err(record_errors::record_fault(&error)),
            }
            // The time of the look counts, so that slow answers do not delay the log.
            let took = self.context.clock.mono().saturating_sub(began);
            self.pause(every.saturating_sub(took).max(every / 5)).await;
        }
    }

    #[cfg(not(feature = "top"))]
    async fn pause(&mut self, time: Duration) {
        self.context.clock.sleep(time).await;
    }

    /// Waits for the next look, and for the key of the view meanwhile.
    #[cfg(feature = "top")]
    async fn pause(&mut self, time: Duration) {
        let Some(view) = &self.view else { return self.context.clock.sleep(time).await };
        let end = self.context.clock.mono() + time;
        loop {
            let left = end.saturating_sub(self.context.clock.mono());
            self.context.clock.sleep(left.min(KEYS_EVERY)).await;
            if view.is_pressed() {
                break;
            }
            if left <= KEYS_EVERY {
                return;
            }
        }
        let shown = view.show(self.context, self.dir).await;
        // The line was cleared with the screen before the view.
        self.clear();
        if let Err(fault) = shown {
            self.make_room();
            self.context.printer.warn(fault.sentence());
        }
    }

    /// The live line has its hint where there is room.
    fn hint(&self) -> Option<&'static str> {
        #[cfg(feature = "top")]
        return self.view.as_ref().map(|_| HINT).filter(|_| terminal_width() >= HINT_FROM);
        #[cfg(not(feature = "top"))]
        None
    }

    async fn look(&mut self) -> Result<Option<Receipt>, JobDirError> {
        // Read before the log, so that no output before the receipt is missed.
        if let Some(receipt) = self.dir.receipt().await? {
            if self.log {
                self.print_log(&self.dir.attempts().await?).await?;
                self.print_last_line();
            }
            self.make_room();
            return Ok(Some(receipt));
        }
        let (dir, wishes, now) = (self.dir, self.wishes().await?, self.context.clock.now());
        // In parallel: the job's state takes more requests, and the log must not wait for it.
        let known = self.attempts.clone();
        let (summary, printed) =
            tokio::join!(Summary::under_way(dir, &wishes, now), self.print_log(&known));
        printed?;
        let Some(summary) = summary? else { return Ok(None) };
        // Attempts are numbered from one, so the last number gives them all.
        let attempts: Vec<AttemptNo> =
            (1..=summary.attempt.unwrap_or(0)).map(AttemptNo::new).collect();
        if attempts.len() > known.len() {
            self.print_log(&attempts).await?;
            self.attempts = attempts;
        }
        self.tell(&summary);
        Ok(None)
    }

    /// The requests so far, as `lamp status` reads them.
    async fn wishes(&mut self) -> Result<Wishes, JobDirError> {
        let now = self.context.clock.mono();
        let every = if self.dir.store().is_folder() { Duration::ZERO } else { WISHES_EVERY_AWAY };
        if let Some((wishes, _)) =
            self.wishes.as_ref().filter(|(_, read)| now.saturating_sub(*read) < every)
        {
            return Ok(wishes.clone());
        }
        let wishes = match self.dir.requests().await {
            Err(error) if !error.is_damage() => return Err(error),
            requests => Wishes::of(&requests.unwrap_or_default()),
        };
        self.wishes = Some((wishes.clone(), now));
        Ok(wishes)
    }

    async fn print_log(&mut self, attempts: &[AttemptNo]) -> Result<(), JobDirError> {
        if !self.log {
            return Ok(());
        }
        loop {
            let Some(tail) = &mut self.tail else {
                let Some(first) = attempts.first() else { return Ok(()) };
                self.tail = Some(LogTail::new(*first));
                continue;
            };
            let bytes = tail.next(self.dir).await?;
            let next = attempts.iter().copied().find(|attempt| *attempt > tail.attempt);
            if !bytes.is_empty() {
                let attempt = tail.attempt;
                let arrived = match self.columns {
                    Some(_) => tail.arrived(self.dir).await?,
                    None => None,
                };
                self.clear();
                self.print(attempt, arrived, &bytes);
            } else if let Some(next) = next {
                self.next_attempt(next);
            } else {
                return Ok(());
            }
        }
    }

    fn print(&mut self, attempt: AttemptNo, arrived: Option<Timestamp>, bytes: &[u8]) {
        let Some(columns) = &mut self.columns else {
            print_piece(self.context, attempt, bytes);
            self.mid_line = bytes.last() != Some(&b'\n');
            return;
        };
        let at = arrived.unwrap_or_else(|| self.context.clock.now());
        columns.lines(at, bytes).iter().for_each(|line| self.context.printer.line(line));
    }

    /// The end of a log may lack its line end.
    fn print_last_line(&mut self) {
        let now = self.context.clock.now();
        let last = self.columns.as_mut().and_then(|columns| columns.last(now));
        last.iter().for_each(|line| self.context.printer.line(line));
    }

    fn next_attempt(&mut self, next: AttemptNo) {
        self.tail = Some(LogTail::new(next));
        self.print_last_line();
        self.make_room();
        self.context.printer.note(format!("--- attempt {} ---", next.number()));
    }

    fn tell(&mut self, summary: &Summary) {
        for attention in summary
            .attention
            .iter()
            .filter(|text| !self.attention.contains(text))
            .cloned()
            .collect::<Vec<_>>()
        {
            self.make_room();
            self.context.printer.warn(&attention);
            self.attention.push(attention);
        }
        let waits =
            summary.waiting.as_deref().map(|why| why.split(": ").next().unwrap_or(why).to_owned());
        if let Some(why) = summary.waiting.as_deref().filter(|_| waits != self.waits) {
            self.make_room();
            self.context.printer.note(format!(
                "{} waits for {}",
                summary.job,
                waits_text(why, summary.waiting_until)
            ));
        }
        self.waits = waits;
        if let Some(moved) = summary.moved.as_ref().filter(|_| summary.attempt != self.moved_to) {
            self.make_room();
            self.context.printer.note(moved);
            self.moved_to = summary.attempt;
        }
        let now = self.context.clock.mono();
        let stands = (
            summary.state,
            summary.attempt,
            summary
                .verdict
                .clone()
                .or_else(|| summary.held.as_ref().map(|held| held.until.to_string())),
        );
        let changed = self.told.as_ref() != Some(&stands);
        let since = match self.stands_since {
            Some((state, since)) if state == summary.state => since,
            _ => now,
        };
        self.stands_since = Some((summary.state, since));
        if !self.terminal && is_passing(summary.state) && now.saturating_sub(since) < PASSING {
            return;
        }
        if self.terminal {
            self.make_room();
            let hint = self.hint().map(|hint| format!("  {hint}")).unwrap_or_default();
            let width = terminal_width() - 1 - hint.len();
            let line = summary_text::line(summary, self.context.clock.now(), width) + &hint;
            self.context.printer.raw_err(&format!("{CLEAR}{}", one_line(&line)));
            self.live_shown = true;
        } else if changed || now.saturating_sub(self.told_at) >= WORD_EVERY {
            self.make_room();
            self.context.printer.note(summary_text::line(
                summary,
                self.context.clock.now(),
                usize::MAX,
            ));
            self.told_at = now;
        }
        self.told = Some(stands);
    }

    /// Clears the live line, and ends an open log line, before a sentence.
    fn make_room(&mut self) {
        self.clear();
        if std::mem::take(&mut self.mid_line) && self.is_one_place {
            self.context.printer.raw_err("\n");
        }
    }

    fn clear(&mut self) {
        if self.live_shown {
            self.context.printer.raw_err(CLEAR);
            self.live_shown = false;
        }
    }

    fn trouble(&mut self, error: &JobDirError) {
        let now = self.context.clock.mono();
        if self.trouble_at.is_none_or(|at| now.saturating_sub(at) >= TROUBLE_EVERY) {
            self.trouble_at = Some(now);
            self.make_room();
            self.context.printer.warn(format!("{error}; the job goes on, trying again"));
        }
    }
}

/// A state before the work, which a workstation leaves within a second.
fn is_passing(state: JobState) -> bool {
    matches!(state, JobState::Submitted | JobState::Provisioning | JobState::Preparing)
}

fn is_one_file(one: impl AsFd, other: impl AsFd) -> bool {
    let of = |stream: BorrowedFd<'_>| {
        rustix::fs::fstat(stream).ok().map(|stat| (stat.st_dev, stat.st_ino))
    };
    of(one.as_fd()).is_some_and(|file| of(other.as_fd()) == Some(file))
}

/// Columns of the terminal on stderr; 80 when unknown. The last one stays free: some terminals wrap
/// there.
fn terminal_width() -> usize {
    rustix::termios::tcgetwinsize(std::io::stderr())
        .map(|size| usize::from(size.ws_col))
        .ok()
        .filter(|columns| *columns > 10)
        .unwrap_or(80)
}
