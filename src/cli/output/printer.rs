//! All printing: data to stdout, everything else to stderr.
//!
//! A closed pipe (`lamp logs JOB | head`) is not an error: the printer falls silent, and streaming
//! commands ask [`Printer::reader_is_gone`]. Another write error (a full disk) ends streaming too;
//! the shell asks [`Printer::unwritten`]. Not here: what to say.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use serde::Serialize;

use super::wrap::wrap;
use crate::app::text::in_local_time;
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
    /// Of the terminals; `None`: text is not fitted.
    columns_out: Option<usize>,
    columns_err: Option<usize>,
    gone: AtomicBool,
    /// Why data was not written, the first time.
    unwritten: OnceLock<std::io::ErrorKind>,
    /// Something was printed since the last question.
    spoke: AtomicBool,
    is_live: AtomicBool,
    is_stale: AtomicBool,
    /// Rows are printed, which have no place for general notes.
    has_rows: AtomicBool,
    warned: Mutex<Warned>,
    /// `--job-root` of this call, as a shell takes it.
    job_root: OnceLock<String>,
}

/// Warnings of this process, newest last. One from a command and a lower layer is printed once.
#[derive(Debug, Default)]
struct Warned {
    by_verbs: VecDeque<String>,
    /// Those that no command has repeated yet.
    traced: VecDeque<String>,
}

/// Remembered warnings. Fewer could repeat one; more would be hours old.
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

    /// `COLUMNS` of the environment: the width where no terminal tells one.
    pub fn with_columns(self, told: Option<usize>) -> Self {
        let told = told.filter(|columns| *columns >= COLUMNS_MIN);
        Printer {
            columns_out: self.columns_out.or(told),
            columns_err: self.columns_err.or(told),
            ..self
        }
    }

    pub fn format(&self) -> Format {
        self.format
    }

    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// From now on, every command in a message has this call's job root, so that it finds the same
    /// jobs.
    pub fn name_job_root(&self, said: &str) {
        // A call has one root, so a second value is ignored.
        let _ = self.job_root.set(shell_word(said));
    }

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

    pub fn has_spoken(&self) -> bool {
        self.spoke.swap(false, Ordering::Relaxed)
    }

    /// Whether stdout's reader closed the pipe; then a streaming command ends with success.
    pub fn reader_is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    pub fn line(&self, text: impl Display) {
        self.bytes(format!("{}\n", harmless(&text.to_string(), self.color_out)).as_bytes());
    }

    /// A sentence of data. On a terminal it wraps at words, and `hang` blanks indent the next
    /// lines.
    pub fn prose(&self, hang: usize, text: impl Display) {
        let text = one_line(&in_local_time(&text.to_string())).into_owned();
        self.line(self.columns_out.map_or_else(|| text.clone(), |width| wrap(&text, width, hang)));
    }

    /// The same for a view of the jobs, which fits a page also in a pipe.
    pub fn view_prose(&self, hang: usize, text: impl Display) {
        let text = one_line(&in_local_time(&text.to_string())).into_owned();
        self.line(wrap(&text, self.view_columns(), hang));
    }

    /// The width of a view of the jobs.
    pub fn view_columns(&self) -> usize {
        self.columns_out.unwrap_or(PIPE_COLUMNS)
    }

    pub fn columns(&self, stream: Stream) -> Option<usize> {
        match stream {
            Stream::Out => self.columns_out,
            Stream::Err => self.columns_err,
        }
    }

    pub fn clear_before_next(&self) {
        let is_terminal = std::io::stdout().is_terminal();
        self.is_stale.store(is_terminal && self.format == Format::Text, Ordering::Relaxed);
    }

    /// On stdout, also before output to stderr: both are the terminal.
    fn clear_screen(&self) {
        if self.is_stale.swap(false, Ordering::Relaxed) {
            let mut stdout = std::io::stdout().lock();
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

    /// Notes data that was not written, here or elsewhere.
    pub fn note_unwritten(&self, error: &std::io::Error) {
        if error.kind() != std::io::ErrorKind::BrokenPipe {
            // The first error says why.
            self.unwritten.get_or_init(|| error.kind());
        }
    }

    /// The fault of a command that succeeded, except for its output.
    pub fn unwritten(&self) -> Option<Fault> {
        let kind = self.unwritten.get()?;
        Some(
            Fault::new(
                crate::cli::ExitCode::UNREACHABLE,
                format!("the output cannot be written: {kind}"),
            )
            .meaning("what is shown of it is not all"),
        )
    }

    /// One document: pretty for `-o json`, one line for `-o jsonl`.
    pub fn json(&self, document: &impl Serialize) {
        let text = if self.format == Format::Jsonl {
            serde_json::to_string(document)
        } else {
            serde_json::to_string_pretty(document)
        };
        self.line(controls_escaped(
            &text.expect("our documents have string keys and no failing serializers"),
        ));
    }

    /// From here on rows are printed, so notes go to stderr in machine formats too.
    pub fn speak_beside_rows(&self) {
        self.has_rows.store(true, Ordering::Relaxed);
    }

    fn speaks(&self) -> bool {
        self.format == Format::Text || self.has_rows.load(Ordering::Relaxed)
    }

    /// A note for people; silent with `-q`, and in the document formats.
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

    /// A warning from a lower layer: the bare text, and the sentence with its context.
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
        self.err_line(&format!(
            "{} {}",
            self.paint(Stream::Err, Style::Hint, "hint:"),
            one_line(text)
        ));
    }

    /// A question or a live line: stderr, no newline.
    pub fn raw_err(&self, text: &str) {
        self.spoke.store(true, Ordering::Relaxed);
        self.is_live.store(
            text.rsplit_once(CLEAR)
                .is_some_and(|(_, rest)| !rest.is_empty() && !rest.ends_with('\n')),
            Ordering::Relaxed,
        );
        // Only the first is ours; a workload's text may contain one too.
        let (before, rest) =
            text.split_once(CLEAR).map_or(("", text), |(before, rest)| (before, rest));
        let clear = if rest.len() < text.len() { CLEAR } else { "" };
        self.to_err(&format!("{before}{clear}"), rest);
    }

    /// `ours` as it is, and `text` without terminal control sequences.
    fn to_err(&self, ours: &str, text: &str) {
        self.clear_screen();
        let text = format!("{ours}{}", harmless(text, self.color_err));
        // If stderr is closed, the error can be shown nowhere.
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
        self.err_line(&format!(
            "{} {}",
            self.paint(Stream::Err, Style::Bad, "error:"),
            one_line(&fault.what)
        ));
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

    /// Findings on stderr in the format of compilers, so that editors can jump to them:
    /// `job.toml:4: error: ...`.
    pub fn findings(&self, file: Option<&str>, findings: &[Finding]) {
        // With `-q`, warnings are left to `lamp check`.
        let are_all =
            !self.quiet || findings.iter().any(|finding| finding.severity == Severity::Error);
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
            text.push_str(&format!(
                "\n  {} {}",
                self.paint(stream, Style::Hint, "hint:"),
                self.in_root(&one_line(hint))
            ));
        }
        text
    }

    pub fn is_colored(&self) -> bool {
        self.color_err
    }

    /// The text in its style, if the stream shows colour. The meaning must not depend on it.
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
        let line =
            self.columns_err.map_or_else(|| line.to_owned(), |width| wrap(line, width, HANG));
        let clear = if self.is_live.swap(false, Ordering::Relaxed) { CLEAR } else { "" };
        self.spoke.store(true, Ordering::Relaxed);
        self.to_err(clear, &format!("{line}\n"));
    }
}

pub const CLEAR: &str = "\r\u{1b}[2K";

const CLEAR_SCREEN: &str = "\u{1b}[H\u{1b}[2J";

/// The indent of the rest of a long line.
const HANG: usize = 2;

/// Where no width is known, as in a pipe.
const PIPE_COLUMNS: usize = 80;

/// A smaller value is wrong: no terminal is this narrow.
const COLUMNS_MIN: usize = 20;

fn columns_of(stream: impl AsFd + IsTerminal) -> Option<usize> {
    let size = stream.is_terminal().then(|| rustix::termios::tcgetwinsize(stream).ok())??;
    Some(usize::from(size.ws_col)).filter(|columns| *columns >= COLUMNS_MIN)
}

/// The start of a `lamp` command in a sentence.
const OPENS: &str = "`lamp ";

fn with_root(text: &str, root: &str) -> String {
    let mut commands = text.split(OPENS);
    let mut told = commands.next().unwrap_or_default().to_owned();
    for command in commands {
        told.push_str(OPENS);
        // It has flags already, or is `lamp agent`, which takes no such flag.
        if !command.starts_with('-') && !command.starts_with("agent ") {
            told.push_str("--job-root ");
            told.push_str(root);
            told.push(' ');
        }
        told.push_str(command);
    }
    told
}

pub(crate) use crate::job::shell_word;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ExitCode;

    #[test]
    fn command_is_named_with_the_job_root_of_the_call() {
        let printer = Printer::new(Format::Text, false, ColorChoice::Never, true);
        let hint = "`lamp logs -f a-1` follows it, `lamp stop a-1` ends it; `lamp --help` and `aws configure` know no jobs";
        assert_eq!(printer.in_root(hint), hint);
        printer.name_job_root("my root");
        let told = "`lamp --job-root 'my root' logs -f a-1` follows it, `lamp --job-root 'my root' stop a-1` ends it; \
                    `lamp --help` and `aws configure` know no jobs";
        assert_eq!(printer.in_root(hint), told);
        let fault = printer.fault_in_root(
            &Fault::new(ExitCode::NOT_FOUND, "no job `x`").hint("`lamp status` lists the jobs"),
        );
        assert_eq!(
            fault.hint.as_deref(),
            Some("`lamp --job-root 'my root' status` lists the jobs")
        );
    }

    #[test]
    fn job_root_is_quoted_only_where_a_shell_would_take_it_apart() {
        for plain in ["s3://bucket/prefix", "~/lamp-jobs", "file:///srv/a_b"] {
            assert_eq!(shell_word(plain), plain);
        }
        assert_eq!(shell_word("it's here"), r"'it'\''s here'");
        assert_eq!(shell_word("$HOME/x"), "'$HOME/x'");
    }
}
