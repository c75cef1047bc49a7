//! How the user is notified: the events and the channels.
//!
//! Not here: the sending (`adapters::notify`), and when an event happens (`controller::notify`).

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;

/// The event that a message tells. The words are an interface: `[notify] on`, and `kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[cfg_attr(feature = "lamp", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// The command of the job runs for the first time.
    Started,
    /// The cloud took the machine, or it was lost.
    Interrupted,
    /// The command runs again on another machine.
    Resumed,
    /// The command makes no progress.
    Stalled,
    /// The machine ends soon, because nothing uses it.
    Idle,
    /// The job is over and nothing bills.
    Ended,
    /// A person should look.
    Attention,
    /// A cap on the cost of all jobs holds a launch back.
    Cap,
    /// A machine runs that no job needs.
    Orphan,
    /// A GPU machine runs that `lamp` did not launch.
    Foreign,
}

impl EventKind {
    pub const ALL: [EventKind; 10] = [
        EventKind::Started,
        EventKind::Interrupted,
        EventKind::Resumed,
        EventKind::Stalled,
        EventKind::Idle,
        EventKind::Ended,
        EventKind::Attention,
        EventKind::Cap,
        EventKind::Orphan,
        EventKind::Foreign,
    ];

    pub const fn word(self) -> &'static str {
        match self {
            EventKind::Started => "started",
            EventKind::Interrupted => "interrupted",
            EventKind::Resumed => "resumed",
            EventKind::Stalled => "stalled",
            EventKind::Idle => "idle",
            EventKind::Ended => "ended",
            EventKind::Attention => "attention",
            EventKind::Cap => "cap",
            EventKind::Orphan => "orphan",
            EventKind::Foreign => "foreign",
        }
    }

    /// Whether a user gets it without asking. The user has just started the job, so `started` is
    /// no news.
    pub fn is_default(self) -> bool {
        self != EventKind::Started
    }
}

/// All settings of `[notify]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifySpec {
    pub on: BTreeSet<EventKind>,
    /// The text of each message, with placeholders. `None`: the text of the event.
    pub template: Option<String>,
    /// The address of `lamp web`, for links.
    pub page: Option<String>,
    pub channels: Vec<ChannelSpec>,
}

impl Default for NotifySpec {
    fn default() -> Self {
        let on = EventKind::ALL.into_iter().filter(|kind| kind.is_default()).collect();
        NotifySpec { on, template: None, page: None, channels: Vec::new() }
    }
}

/// One way to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelSpec {
    /// The program with its arguments gets the event as JSON on its standard input.
    Command(Vec<String>),
    Webhook {
        url: ChannelSecret,
    },
    Slack {
        url: ChannelSecret,
    },
    /// The URL ends with the topic.
    Ntfy {
        url: ChannelSecret,
        token: Option<ChannelSecret>,
    },
    Email(EmailSpec),
    Desktop,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmailSpec {
    pub to: Vec<String>,
    pub from: String,
    /// `smtps://host`, or `smtp://host:587?tls=required`. It has no password.
    pub server: String,
    pub user: Option<String>,
    pub password: Option<ChannelSecret>,
}

/// A text that must not be shown. Each URL counts as one: who knows it can send messages.
#[derive(Clone, PartialEq, Eq)]
pub enum ChannelSecret {
    /// Written in the configuration.
    Written(String),
    File(PathBuf),
    /// The name of an environment variable.
    Variable(String),
}

impl fmt::Debug for ChannelSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChannelSecret::Written(_) => f.write_str("Written(..)"),
            ChannelSecret::File(path) => write!(f, "File({path:?})"),
            ChannelSecret::Variable(name) => write!(f, "Variable({name:?})"),
        }
    }
}
