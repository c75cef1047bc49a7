//! Lists the channels of `[notify]` without their secrets, and sends a test message through each.

use futures::future::join_all;
use jiff::Timestamp;
use serde::Serialize;

use crate::app::{ExitCode, Fault};
use crate::job::NotifySpec;
use crate::wire::{NotifyChannel, Workstation};

/// All of `[notify]`. The field names are an interface.
#[derive(Debug, Serialize)]
pub struct NotifyView {
    /// The events that are told.
    pub on: Vec<&'static str>,
    pub channels: Vec<ChannelView>,
}

#[derive(Debug, Serialize)]
pub struct ChannelView {
    pub channel: &'static str,
    /// Where it leads to, without a secret.
    pub to: String,
}

/// The result of one test message. The field names are an interface.
#[derive(Debug, Serialize)]
pub struct ChannelTested {
    pub channel: &'static str,
    pub to: String,
    pub delivered: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The step by which the user mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cure: Option<String>,
}

/// The settings of `[notify]` for people.
pub fn view(spec: &NotifySpec) -> NotifyView {
    let channels = spec.channels.iter().cloned().map(NotifyChannel::new);
    NotifyView {
        on: spec.on.iter().map(|kind| kind.word()).collect(),
        channels: channels
            .map(|channel| ChannelView { channel: channel.name(), to: channel.shown() })
            .collect(),
    }
}

/// Sends a test message through all channels, or through one. Tries each once.
///
/// # Errors
/// Fails when no channel is set up, or the name is unknown.
pub async fn test(
    workstation: &Workstation,
    only: Option<&str>,
    now: Timestamp,
) -> Result<Vec<ChannelTested>, Fault> {
    let channels: Vec<NotifyChannel> =
        workstation.notify.channels.iter().cloned().map(NotifyChannel::new).collect();
    if channels.is_empty() {
        return Err(no_channel());
    }
    let is_asked = |channel: &&NotifyChannel| only.is_none_or(|only| channel.name() == only);
    let asked: Vec<&NotifyChannel> = channels.iter().filter(is_asked).collect();
    if asked.is_empty() {
        let known: Vec<String> =
            channels.iter().map(|channel| format!("`{}`", channel.name())).collect();
        let what = format!("the channel `{}` is not set up", only.unwrap_or_default());
        let hint = format!("set up: {}; `lamp notify` lists them", known.join(", "));
        return Err(Fault::new(ExitCode::NOT_FOUND, what).hint(hint));
    }
    let tested = asked.into_iter().map(|channel| async move {
        let error = workstation.test_channel(channel, now).await.err();
        ChannelTested {
            channel: channel.name(),
            to: channel.shown(),
            delivered: error.is_none(),
            error: error.as_ref().map(|error| error.what.clone()),
            cure: error.map(|error| error.cure),
        }
    });
    Ok(join_all(tested).await)
}

fn no_channel() -> Fault {
    Fault::new(ExitCode::NOT_FOUND, "the configuration has no channel in [notify]")
        .meaning("jobs run and end as before, and `lamp status` shows what happens")
        .hint("write `[notify.ntfy]` with `url = \"https://ntfy.sh/YOUR-TOPIC\"` into ~/.config/lamplighter/config.toml")
}
