//! The message that every channel formats: pure, from the event and the settings.

use jiff::Timestamp;
use serde_json::Value;

use crate::job::terminal_safe::{harmless, one_line};
use crate::job::{EventKind, JobId, NotifySpec, RECORD_FORMAT, Receipt};
use crate::market::Span;
use crate::ports::Notification;

/// A longer text is cut: ntfy takes 4096 bytes, and Slack 4000 letters.
const TEXT_CHARS_MAX: usize = 1500;

#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// `digits: interrupted`.
    pub title: String,
    /// The whole text, with cost, command and link.
    pub text: String,
    pub link: Option<String>,
    /// Whether a person should act soon.
    pub is_urgent: bool,
    pub notification: Notification,
}

impl Message {
    pub fn of(notification: &Notification, spec: &NotifySpec) -> Self {
        // A chat or terminal may show it raw. Text of a workload must not control them.
        let safe = |text: &str| one_line(&harmless(text, false)).into_owned();
        let mut notification = notification.clone();
        notification.text = safe(&cut(&notification.text));
        notification.name = safe(&notification.name);
        let link = spec.page.as_ref().map(|page| match notification.kind {
            kind if kind == EventKind::Foreign.word() => format!("{page}/machines"),
            _ => format!("{page}/job/{}", notification.job),
        });
        let text = match &spec.template {
            Some(template) => fill(template, &notification, link.as_deref()),
            None => whole_text(&notification, link.as_deref()),
        };
        let urgent = [EventKind::Attention, EventKind::Idle, EventKind::Stalled, EventKind::Orphan];
        Message {
            title: format!("{}: {}", notification.name, notification.kind),
            text,
            link,
            is_urgent: urgent.iter().any(|kind| kind.word() == notification.kind),
            notification,
        }
    }

    /// A message that tells of no job.
    pub fn test(spec: &NotifySpec, at: Timestamp) -> Self {
        let job = JobId::from_name("test", [0; 6]);
        let notification = Notification {
            format: RECORD_FORMAT,
            job,
            name: "lamp notify".to_owned(),
            at,
            kind: "test",
            text: "this is a test message of `lamp notify test`: the channel works".to_owned(),
            command: None,
            usd: None,
            receipt: None,
        };
        Message::of(&notification, &NotifySpec { page: None, ..spec.clone() })
    }

    /// The event as JSON, with the link.
    pub fn json(&self) -> Value {
        let event = serde_json::to_value(&self.notification);
        let mut event =
            event.expect("an event holds only strings, finite numbers and maps with string keys");
        event["title"] = self.title.clone().into();
        event["message"] = self.text.clone().into();
        event["link"] = self.link.clone().into();
        event
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

fn whole_text(notification: &Notification, link: Option<&str>) -> String {
    let command = notification.command.as_ref().map(|command| format!("to type: {command}"));
    let cost = notification.usd.map(|usd| format!("cost so far: {usd}"));
    let cost = cost.filter(|_| notification.receipt.is_none());
    let total = notification.receipt.as_ref().map(bill);
    let lines = [cost, total, command, link.map(str::to_owned)];
    let lines = lines.into_iter().flatten();
    std::iter::once(notification.text.clone()).chain(lines).collect::<Vec<_>>().join("\n")
}

/// The receipt in one line.
fn bill(receipt: &Receipt) -> String {
    let span = |secs: f64| Span::from_secs(secs.max(0.0).round() as u64);
    format!(
        "cost: {}, attempts: {}, useful {}, idle {}",
        receipt.total_usd,
        receipt.attempts.len(),
        span(receipt.useful_seconds),
        span(receipt.idle_seconds)
    )
}

/// The template in one pass: a text with a placeholder in it is not filled again.
fn fill(template: &str, notification: &Notification, link: Option<&str>) -> String {
    let cost = notification.usd.map(|usd| usd.to_string()).unwrap_or_default();
    let values = [
        ("{job}", notification.job.as_str()),
        ("{event}", notification.kind),
        ("{text}", &notification.text),
        ("{cost}", &cost),
        ("{command}", notification.command.as_deref().unwrap_or_default()),
        ("{link}", link.unwrap_or_default()),
    ];
    let (mut filled, mut rest) = (String::new(), template);
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        let known = values.iter().find(|(name, _)| rest.starts_with(name));
        let (name, value) = known.unwrap_or(&("{", "{"));
        filled.push_str(value);
        rest = &rest[name.len()..];
    }
    filled + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::notify::notify_channels::tests::notification;

    #[test]
    fn text_has_cost_command_and_link_and_no_control_character() {
        let spec = NotifySpec { page: Some("http://here:1".into()), ..NotifySpec::default() };
        let mut told = notification("idle");
        told.text = "idle\u{1b}]0;x\u{7}\nsecond".into();
        let message = Message::of(&told, &spec);
        let job = told.job.as_str();
        let lines: Vec<&str> = message.text.lines().collect();
        assert_eq!(lines[1], "cost so far: $1.50");
        assert_eq!(lines[2], format!("to type: lamp extend {job} 1h"));
        assert_eq!(lines[3], format!("http://here:1/job/{job}"));
        assert!(!lines[0].contains(char::is_control), "{message:?}");
        assert!(message.is_urgent && message.title == "digits: idle");
        assert_eq!(message.json()["kind"], "idle");
    }

    #[test]
    fn template_is_filled_once() {
        let template = Some("{event} of {job}: {text} {cost} [{command}] {x}".to_owned());
        let spec = NotifySpec { template, ..NotifySpec::default() };
        let mut told = notification("ended");
        (told.text, told.command) = ("it said {cost}".into(), None);
        let text = Message::of(&told, &spec).text;
        assert_eq!(text, format!("ended of {}: it said {{cost}} $1.50 [] {{x}}", told.job));
    }
}
