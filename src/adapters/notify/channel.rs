//! One channel: its name, where it leads to, and one try to send.

use serde_json::Value;

use super::channel_error::ChannelError;
use super::channel_secret::{host_of, read, source};
use super::http::{HttpPost, ntfy_post, slack_body};
use super::message::Message;
use super::{desktop, email};
use crate::adapters::workstation::notify_command::NotifyCommand;
use crate::job::{ChannelSecret, ChannelSpec};
use crate::ports::Notifier as _;

#[derive(Clone, Debug)]
pub struct Channel {
    spec: ChannelSpec,
}

impl Channel {
    pub fn new(spec: ChannelSpec) -> Self {
        Channel { spec }
    }

    /// The name of its table, which `lamp notify test` takes.
    pub fn name(&self) -> &'static str {
        match self.spec {
            ChannelSpec::Command(_) => "command",
            ChannelSpec::Webhook { .. } => "webhook",
            ChannelSpec::Slack { .. } => "slack",
            ChannelSpec::Ntfy { .. } => "ntfy",
            ChannelSpec::Email(_) => "email",
            ChannelSpec::Desktop => "desktop",
        }
    }

    /// Where it leads to, without a secret.
    pub fn shown(&self) -> String {
        match &self.spec {
            // Its arguments may hold an address that is a secret.
            ChannelSpec::Command(argv) => match argv.as_slice() {
                [program] => program.clone(),
                [program, ..] => format!("{program} ..."),
                [] => String::new(),
            },
            ChannelSpec::Webhook { url } | ChannelSpec::Slack { url } => source(url),
            ChannelSpec::Ntfy { url, .. } => source(url),
            ChannelSpec::Email(spec) => {
                format!("{} by {}", spec.to.join(", "), host_of(&spec.server))
            }
            ChannelSpec::Desktop => "notify-send".to_owned(),
        }
    }

    /// Whether its secrets can be read. Sends nothing.
    ///
    /// # Errors
    /// A file or a variable is missing.
    pub fn check(&self) -> Result<(), ChannelError> {
        let secrets = match &self.spec {
            ChannelSpec::Command(_) | ChannelSpec::Desktop => [None, None],
            ChannelSpec::Webhook { url } | ChannelSpec::Slack { url } => [Some(url), None],
            ChannelSpec::Ntfy { url, token } => [Some(url), token.as_ref()],
            ChannelSpec::Email(spec) => [spec.password.as_ref(), None],
        };
        secrets.into_iter().flatten().try_for_each(|secret| read(secret).map(drop))
    }

    /// Tries once.
    ///
    /// # Errors
    /// A setting is wrong, or the service refuses or does not answer.
    pub async fn send(&self, message: &Message) -> Result<(), ChannelError> {
        match &self.spec {
            ChannelSpec::Command(argv) => by_command(argv, message).await,
            ChannelSpec::Webhook { url } => post(url, message.json()).await,
            ChannelSpec::Slack { url } => post(url, slack_body(message)).await,
            ChannelSpec::Ntfy { url, token } => by_ntfy(url, token.as_ref(), message).await,
            ChannelSpec::Email(spec) => email::send(spec, message).await,
            ChannelSpec::Desktop => desktop::send(message).await,
        }
    }
}

/// A command may have sent the message before it failed, so it is not tried again.
async fn by_command(argv: &[String], message: &Message) -> Result<(), ChannelError> {
    let command = NotifyCommand { argv: argv.to_vec() };
    command.tell(&message.notification).await.map_err(|error| {
        ChannelError::lasting(
            error.what,
            "run the command by hand, with LAMP_TEXT and LAMP_JOB set",
        )
    })
}

async fn post(url: &ChannelSecret, body: Value) -> Result<(), ChannelError> {
    HttpPost { url: &read(url)?, token: None, secrets: &[], body }.send().await
}

async fn by_ntfy(
    url: &ChannelSecret,
    token: Option<&ChannelSecret>,
    message: &Message,
) -> Result<(), ChannelError> {
    let (url, token) = (read(url)?, token.map(read).transpose()?);
    let (server, body) = ntfy_post(&url, message)?;
    // A person who knows the topic can read its messages. The server may repeat the topic.
    HttpPost { url: &server, token: token.as_deref(), secrets: &[&url], body }.send().await
}
