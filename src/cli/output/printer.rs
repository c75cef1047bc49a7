//! All printing: data to stdout, everything else to stderr.
//!
//! A reader that went away (`lamp logs JOB | head`) is not an error: the printer notes it and stays silent, and verbs that
//! stream ask [`Printer::reader_is_gone`]. Output that cannot be written for another reason (a full disk) ends the streaming too, and
//! the shell asks [`Printer::unwritten`]. What must never live here: a decision what to say.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use serde::Serialize;

use super::local_times::in_local_time;
use super::wrap::wrap;
use crate::cli::Fault;
use crate::cli::shell::args::{ColorChoice, Format};
use crate::job::terminal_safe::{controls_escaped, harmless, one_line};
use crate::job::{Finding, Severity};

#[derive(Debug)]
pub struct Printer {
    format: Format,
    quiet: bool,
    color_out: bool,
    color_err: bool,
    /// Of the terminals; `None`: there is none, and nothing is fitted.
    columns_out: Option<usize>,
    columns_err: Option<usize>,
    gone: AtomicBool,
    /// Why data was not written, the first time.
    unwritten: OnceLock<std::io::ErrorKind>,
    /// Something was printed since it was asked last.
    spoke: AtomicBool,
    /// A live line stands on the terminal.
    is_live: AtomicBool,
    /// The screen is cleared before the next output.
    is_stale: AtomicBool,
    /// Rows are printed, which have no place for what is said of all of them.
    has_rows: AtomicBool,
    warned: Mutex<Warned>,
    /// `--job-root` of this call, as a shell takes it.
    job_root: OnceLock<String>,
}

/// Warnings of this process, newest last: what a verb and a layer below it both say is said once.
#[derive(Debug, Default)]
struct Warned {
    by_verbs: VecDeque<String>,
    /// Those that no verb has said since.
    traced: VecDeque<String>,
}

/// So many are remembered. Fewer would say one of them twice; more are of another hour.
const WARNED_MAX: usize = 32;

fn remember(list: &mut VecDeque<String>, text: &str) {
    list.push_back(text.to_owned());
    if list.len() > WARNED_MAX {
        list.pop_front();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Bold,
    Dim,
    Good,
    Warning,
    Bad,
    Hint,
}

impl Printer {
    /// `no_color`: the user set `NO_COLOR`, see <https://no-color.org>.
    pub fn new(format: Format, quiet: bool, color: ColorChoice, no_color: bool) -> Self {
        let allowed = |terminal: bool| match color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => terminal && !no_color,
        };
        Printer {
            format,
            quiet,
            color_out: allowed(std::io::stdout().is_terminal()),
            color_err: allowed(std::io::stderr().is_terminal()),
            columns_out: columns_of(std::io::stdout()),
            columns_err: columns_of(std::io::stderr()),
            gone: AtomicBool::new(false),
            unwritten: OnceLock::new(),
            spoke: AtomicBool::new(false),
            is_live: AtomicBool::new(false),
            is_stale: AtomicBool::new(false),
            has_rows: AtomicBool::new(false),
            warned: Mutex::default(),
            job_root: OnceLock::new(),
        }
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether only data and errors are wanted.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// From now on each command that is named has the job root that this call was given: as typed it finds the same jobs.
    pub fn name_job_root(&self, said: &str) {
        // Only one root is ever named; a second call has nothing new to say.
        let _ = self.job_root.set(shell_word(said));
    }

    /// The text with that job root in its commands.
    pub fn in_root(&self, text: &str) -> String {
        self.job_root.get().map_or_else(|| text.to_owned(), |root| with_root(text, root))
    }

    fn fault_in_root(&self, fault: &Fault) -> Fault {
        let mut told = fault.clone();
        told.hint = fault.hint.as_deref().map(|hint| self.in_root(hint));
        told.meaning = fault.meaning.as_deref().map(|meaning| self.in_root(meaning));
        told.others = fault.others.iter().map(|other| self.fault_in_root(other)).collect();
        told
    }

    /// Whether anything was printed since this was asked last.
    pub fn has_spoken(&self) -> bool {
        self.spoke.swap(false, Ordering::Relaxed)
    }

    /// Whether stdout's reader went away; a verb that streams ends then, with success.
    pub fn reader_is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// One line of data.
    pub fn line(&self, text: impl Display) {
        self.bytes(format!("{}\n", harmless(&text.to_string(), self.color_out)).as_bytes());
    }

    /// A sentence of data: on a terminal it is broken at words, and goes on below after `hang` blanks.
    pub fn prose(&self, hang: usize, text: impl Display) {
        let text = one_line(&in_local_time(&text.to_string())).into_owned();
        self.line(self.columns_out.map_or_else(|| text.clone(), |width| wrap(&text, width, hang)));
    }

    /// Columns of the terminal that a stream goes to.
    pub fn columns(&self, stream: Stream) -> Option<usize> {
        match stream {
            Stream::Out => self.columns_out,
            Stream::Err => self.columns_err,
        }
    }

    /// The next output clears the screen. Until then the last look stays, also if the next one takes a second.
    pub fn clear_before_next(&self) {
        self.is_stale.store(self.columns_out.is_some() && self.format == Format::Text, Ordering::Relaxed);
    }

    /// To stdout, also before what goes to stderr: both are the terminal then.
    fn clear_screen(&self) {
        if self.is_stale.swap(false, Ordering::Relaxed) {
            let mut stdout = std::io::stdout().lock();
            // A terminal that is gone is noted by the output itself.
            let _ = stdout.write_all(CLEAR_SCREEN.as_bytes()).and_then(|()| stdout.flush());
        }
    }

    /// Data as it is: the workload's own log.
    pub fn bytes(&self, bytes: &[u8]) {
        self.spoke.store(true, Ordering::Relaxed);
        if self.reader_is_gone() {
            return;
        }
        self.clear_screen();
        let mut stdout = std::io::stdout().lock();
        if let Err(error) = stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            self.gone.store(true, Ordering::Relaxed);
            self.note_unwritten(&error);
        }
    }

    /// Data that was not written, by this printer or by others.
    pub fn note_unwritten(&self, error: &std::io::Error) {
        if error.kind() != std::io::ErrorKind::BrokenPipe {
            // The first says why.
            self.unwritten.get_or_init(|| error.kind());
        }
    }

    /// What became of data that could not be written, as the fault of a command that did its work else.
    pub fn unwritten(&self) -> Option<Fault> {
        let kind = self.unwritten.get()?;
        Some(Fault::new(crate::cli::ExitCode::UNREACHABLE, format!("the output cannot be written: {kind}")).meaning("what is shown of it is not all"))
    }

    /// One document: pretty for `-o json`, one line for `-o jsonl`.
    pub fn json(&self, document: &impl Serialize) {
        let text = if self.format == Format::Jsonl { serde_json::to_string(document) } else { serde_json::to_string_pretty(document) };
        self.line(controls_escaped(&text.expect("our documents have string keys and no failing serializers")));
    }

    /// From here on what is printed is rows: what must be said beside them goes to stderr also where machines read.
    pub fn speak_beside_rows(&self) {
        self.has_rows.store(true, Ordering::Relaxed);
    }

    fn speaks(&self) -> bool {
        self.format == Format::Text || self.has_rows.load(Ordering::Relaxed)
    }

    /// A sentence for people about what goes on; silent with `-q`, and where machines read a document.
    pub fn note(&self, text: impl Display) {
        if !self.quiet && self.speaks() {
            self.err_line(&self.in_root(&one_line(&in_local_time(&text.to_string()))));
        }
    }

    pub fn warn(&self, text: impl Display) {
        let text = text.to_string();
        let was_traced = {
            let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
            remember(&mut warned.by_verbs, &text);
            let at = warned.traced.iter().position(|traced| *traced == text);
            at.and_then(|at| warned.traced.remove(at)).is_some()
        };
        if self.speaks() && !was_traced {
            self.warn_line(&text);
        }
    }

    /// What a layer below has traced: the bare text, and the sentence that says what it is about.
    pub fn traced(&self, text: &str, sentence: &str) {
        {
            let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
            if warned.by_verbs.iter().any(|said| said == text) {
                return;
            }
            remember(&mut warned.traced, text);
        }
        self.warn_line(sentence);
    }

    fn warn_line(&self, text: &str) {
        let text = self.in_root(&one_line(&in_local_time(text)));
        self.err_line(&format!("{} {text}", self.paint(Stream::Err, Style::Warning, "warning:")));
    }

    pub fn hint(&self, text: impl Display) {
        if !self.quiet && self.speaks() {
            self.hint_line(&self.in_root(&text.to_string()));
        }
    }

    fn hint_line(&self, text: &str) {
        self.err_line(&format!("{} {}", self.paint(Stream::Err, Style::Hint, "hint:"), one_line(text)));
    }

    /// A question or a live line: stderr, no newline.
    pub fn raw_err(&self, text: &str) {
        self.spoke.store(true, Ordering::Relaxed);
        self.is_live.store(text.rsplit_once(CLEAR).is_some_and(|(_, rest)| !rest.is_empty() && !rest.ends_with('\n')), Ordering::Relaxed);
        // The first is ours; what a workload says may hold one too.
        let (before, rest) = text.split_once(CLEAR).map_or(("", text), |(before, rest)| (before, rest));
        let clear = if rest.len() < text.len() { CLEAR } else { "" };
        self.to_err(&format!("{before}{clear}"), rest);
    }

    /// `ours` as it is, and the text without what a terminal obeys.
    fn to_err(&self, ours: &str, text: &str) {
        self.clear_screen();
        let text = format!("{ours}{}", harmless(text, self.color_err));
        // Nobody is left to tell when stderr is gone.
        let mut stderr = std::io::stderr().lock();
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }

    pub fn fault(&self, fault: &Fault) {
        let fault = &self.fault_in_root(fault);
        if self.format != Format::Text {
            let json = serde_json::json!({ "error": fault });
            return self.to_err("", &format!("{}\n", controls_escaped(&json.to_string())));
        }
        self.findings(fault.file.as_deref(), &fault.findings);
        self.err_line(&format!("{} {}", self.paint(Stream::Err, Style::Bad, "error:"), one_line(&fault.what)));
        for cause in &fault.causes {
            self.err_line(&format!("  because: {}", one_line(cause)));
        }
        if let Some(meaning) = &fault.meaning {
            self.err_line(&one_line(meaning));
        }
        if let Some(hint) = &fault.hint {
            self.hint_line(hint);
        }
    }

    /// Findings as compilers print them, so that editors can jump to them: `job.toml:4: error: ...`. To stderr.
    pub fn findings(&self, file: Option<&str>, findings: &[Finding]) {
        // Of a file that is taken; `lamp check` has them.
        let are_all = !self.quiet || findings.iter().any(|finding| finding.severity == Severity::Error);
        for finding in findings.iter().filter(|_| are_all) {
            self.err_line(&self.finding_text(Stream::Err, file, finding));
        }
    }

    pub fn finding_text(&self, stream: Stream, file: Option<&str>, finding: &Finding) -> String {
        let (style, word) = match finding.severity {
            Severity::Error => (Style::Bad, "error:"),
            Severity::Warning => (Style::Warning, "warning:"),
        };
        let place = match (finding.file.as_deref().or(file), finding.line) {
            (Some(file), Some(line)) => format!("{file}:{line}: "),
            (Some(file), None) => format!("{file}: "),
            (None, _) => String::new(),
        };
        let said = finding.to_string();
        let (place, said) = (one_line(&place), one_line(&said));
        let mut text = format!("{place}{} {said}", self.paint(stream, style, word));
        if let Some(hint) = &finding.hint {
            text.push_str(&format!("\n  {} {}", self.paint(stream, Style::Hint, "hint:"), self.in_root(&one_line(hint))));
        }
        text
    }

    /// Whether what goes to stderr may have colour.
    pub fn is_colored(&self) -> bool {
        self.color_err
    }

    /// The text in its style where the stream shows colour. Meaning never rests on it.
    pub fn paint(&self, stream: Stream, style: Style, text: &str) -> String {
        let on = match stream {
            Stream::Out => self.color_out,
            Stream::Err => self.color_err,
        };
        if !on {
            return text.to_owned();
        }
        let code = match style {
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Good => "32",
            Style::Warning => "1;33",
            Style::Bad => "1;31",
            Style::Hint => "36",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    fn err_line(&self, line: &str) {
        let line = self.columns_err.map_or_else(|| line.to_owned(), |width| wrap(line, width, HANG));
        let clear = if self.is_live.swap(false, Ordering::Relaxed) { CLEAR } else { "" };
        self.spoke.store(true, Ordering::Relaxed);
        self.to_err(clear, &format!("{line}\n"));
    }
}

/// Takes a live line away, before another one or a sentence.
pub const CLEAR: &str = "\r\u{1b}[2K";

/// Clears a screen and goes to its first line.
const CLEAR_SCREEN: &str = "\u{1b}[H\u{1b}[2J";

/// What follows a line that was too long, to see that it belongs to it.
const HANG: usize = 2;

/// Narrower terminals do not exist; what says so does not know.
const COLUMNS_MIN: usize = 20;

fn columns_of(stream: impl AsFd + IsTerminal) -> Option<usize> {
    let size = stream.is_terminal().then(|| rustix::termios::tcgetwinsize(stream).ok())??;
    Some(usize::from(size.ws_col)).filter(|columns| *columns >= COLUMNS_MIN)
}

/// What opens a command of ours in a sentence.
const OPENS: &str = "`lamp ";

fn with_root(text: &str, root: &str) -> String {
    let mut commands = text.split(OPENS);
    let mut told = commands.next().unwrap_or_default().to_owned();
    for command in commands {
        told.push_str(OPENS);
        // It has flags already; and the agent takes none of ours.
        if !command.starts_with('-') && !command.starts_with("agent ") {
            told.push_str("--job-root ");
            told.push_str(root);
            told.push(' ');
        }
        told.push_str(command);
    }
    told
}

/// One word for a shell; what is plain stays as it was typed.
pub(crate) use crate::job::shell_word;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ExitCode;

    #[test]
    fn a_command_is_named_with_the_job_root_of_the_call() {
        let printer = Printer::new(Format::Text, false, ColorChoice::Never, true);
        let hint = "`lamp logs -f a-1` follows it, `lamp stop a-1` ends it; `lamp --help` and `aws configure` know no jobs";
        assert_eq!(printer.in_root(hint), hint);
        printer.name_job_root("my root");
        let told = "`lamp --job-root 'my root' logs -f a-1` follows it, `lamp --job-root 'my root' stop a-1` ends it; \
                    `lamp --help` and `aws configure` know no jobs";
        assert_eq!(printer.in_root(hint), told);
        let fault = printer.fault_in_root(&Fault::new(ExitCode::NOT_FOUND, "no job `x`").hint("`lamp status` lists the jobs"));
        assert_eq!(fault.hint.as_deref(), Some("`lamp --job-root 'my root' status` lists the jobs"));
    }

    #[test]
    fn a_job_root_is_quoted_only_where_a_shell_would_take_it_apart() {
        for plain in ["s3://bucket/prefix", "~/lamp-jobs", "file:///srv/a_b"] {
            assert_eq!(shell_word(plain), plain);
        }
        assert_eq!(shell_word("it's here"), r"'it'\''s here'");
        assert_eq!(shell_word("$HOME/x"), "'$HOME/x'");
    }
}
