//! Traces of lower layers, on the terminal.
//!
//! ```text
//!   a daemon, a function, -v, machine output  ──> log lines: time, level, fields
//!   a person with one command                 ──> `warning:` and the sentence
//! ```
//!
//! Not here: what is traced.

use std::fmt::{Debug, Write as _};
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::cli::Printer;

/// A library's warning comes back as an error and is reported once, so its own traces need `-vv`.
/// `person`: the printer for our warnings.
pub fn print(verbose: u8, colored: bool, person: Option<Arc<Printer>>) {
    let level = match verbose {
        0 => Level::WARN,
        1 => Level::INFO,
        _ => Level::DEBUG,
    };
    let others = if verbose > 1 { LevelFilter::from_level(level) } else { LevelFilter::OFF };
    let ours = Targets::new().with_target(env!("CARGO_CRATE_NAME"), level).with_default(others);
    match person {
        Some(printer) => tracing_subscriber::registry().with(InOurVoice(printer)).with(ours).init(),
        None => {
            let printed = tracing_subscriber::fmt()
                .with_max_level(level)
                .with_writer(std::io::stderr)
                .with_target(false)
                .with_ansi(colored);
            // The reader may close the pipe, but the jobs must still be driven.
            let printed = printed.log_internal_errors(false);
            printed.finish().with(ours).init();
        }
    }
}

struct InOurVoice(Arc<Printer>);

impl<S: Subscriber> Layer<S> for InOurVoice {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        // Lower levels need `-v`.
        if *event.metadata().level() > Level::WARN {
            return;
        }
        let mut said = LogFields::default();
        event.record(&mut said);
        self.0.traced(&said.message, &said.sentence());
    }
}

#[derive(Debug, Default)]
struct LogFields {
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl Visit for LogFields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text
        } else {
            self.fields.push((field.name(), text))
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

impl LogFields {
    /// The message, and its fields if it does not name them: `cannot clear what is left of it
    /// (machine i-1)`.
    fn sentence(&self) -> String {
        let mut about = String::new();
        for (name, value) in
            self.fields.iter().filter(|(_, value)| !self.message.contains(value.as_str()))
        {
            let comma = if about.is_empty() { "" } else { ", " };
            write!(about, "{comma}{name} {value}").expect("a String takes everything");
        }
        if about.is_empty() { self.message.clone() } else { format!("{} ({about})", self.message) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Collects sentences as the printer would get them.
    #[derive(Clone, Default)]
    struct Heard(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Heard {
        fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
            let mut said = LogFields::default();
            event.record(&mut said);
            self.0.lock().unwrap().push(said.sentence());
        }
    }

    #[test]
    fn trace_is_a_sentence_and_names_what_it_is_about_once() {
        let heard = Heard::default();
        tracing::subscriber::with_default(
            tracing_subscriber::registry().with(heard.clone()),
            || {
                tracing::warn!("the plain one");
                tracing::warn!(job = %"digits-1", machine = "i-1", "cannot clear what is left");
                tracing::warn!(job = %"digits-1", "digits-1 is left alone");
            },
        );
        let said = heard.0.lock().unwrap().clone();
        assert_eq!(
            said,
            [
                "the plain one",
                "cannot clear what is left (job digits-1, machine i-1)",
                "digits-1 is left alone"
            ]
        );
    }
}
