//! `[notify]` as it is written. Not here: what is wrong with it (`notify_settings`).

use schemars::JsonSchema;
use serde::Deserialize;

use crate::job::EventKind;

/// How the user is notified. `lamp notify test` sends a message through each channel.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NotifyFile {
    /// A program with its arguments. It has the sentence in LAMP_TEXT, the job in LAMP_JOB, and the
    /// event as one line of JSON on its standard input.
    #[schemars(extend("examples" = [["sh", "-c", "notify-send \"$LAMP_JOB\" \"$LAMP_TEXT\""]]))]
    pub command: Option<Vec<String>>,
    /// The events that are told. Without it, all but `started`.
    #[schemars(extend("examples" = [["interrupted", "idle", "ended", "attention"]]))]
    pub on: Option<Vec<EventKind>>,
    /// The text of each message. It may have `{job}`, `{event}`, `{text}`, `{cost}`, `{command}`
    /// and `{link}`.
    #[schemars(extend("examples" = ["{job}: {text} ({cost})"]))]
    pub template: Option<String>,
    /// The address of `lamp web`. Each message then has the link of its job.
    #[schemars(extend("examples" = ["http://127.0.0.1:7878"]))]
    pub page: Option<String>,
    pub webhook: Option<WebhookFile>,
    pub slack: Option<SlackFile>,
    pub ntfy: Option<NtfyFile>,
    pub email: Option<EmailFile>,
    pub desktop: Option<DesktopFile>,
}

/// Posts each event as JSON to an address of yours. Name the address once.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WebhookFile {
    /// The address.
    #[schemars(extend("examples" = ["https://example.org/hooks/lamp"]))]
    pub url: Option<String>,
    /// A file with the address.
    #[schemars(extend("examples" = ["~/.config/lamplighter/webhook-url"]))]
    pub url_file: Option<String>,
    /// An environment variable with the address.
    #[schemars(extend("examples" = ["LAMP_WEBHOOK_URL"]))]
    pub url_env: Option<String>,
}

/// Posts to a channel of Slack, through an incoming webhook. Name its address once.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SlackFile {
    /// The address of the webhook. Slack counts it as a secret.
    pub url: Option<String>,
    /// A file with the address.
    #[schemars(extend("examples" = ["~/.config/lamplighter/slack-url"]))]
    pub url_file: Option<String>,
    /// An environment variable with the address.
    #[schemars(extend("examples" = ["LAMP_SLACK_URL"]))]
    pub url_env: Option<String>,
}

/// Sends to a topic of ntfy, for phones. Name its address once.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NtfyFile {
    /// The address of the topic.
    #[schemars(extend("examples" = ["https://ntfy.sh/my-secret-topic"]))]
    pub url: Option<String>,
    /// A file with the address.
    pub url_file: Option<String>,
    /// An environment variable with the address.
    pub url_env: Option<String>,
    /// A file with the access token.
    #[schemars(extend("examples" = ["~/.config/lamplighter/ntfy-token"]))]
    pub token_file: Option<String>,
    /// An environment variable with the access token.
    #[schemars(extend("examples" = ["NTFY_TOKEN"]))]
    pub token_env: Option<String>,
}

/// Sends mails.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EmailFile {
    /// One address, or a list.
    #[schemars(extend("examples" = ["me@example.org"]))]
    pub to: Option<Recipients>,
    /// The sender.
    #[schemars(extend("examples" = ["lamp@example.org"]))]
    pub from: Option<String>,
    /// The mail server: `smtps://HOST` for TLS, `smtp://HOST:587?tls=required` for STARTTLS.
    #[schemars(extend("examples" = ["smtps://mail.example.org"]))]
    pub server: Option<String>,
    /// The login at the server.
    pub user: Option<String>,
    /// A file with the password.
    #[schemars(extend("examples" = ["~/.config/lamplighter/mail-password"]))]
    pub password_file: Option<String>,
    /// An environment variable with the password.
    #[schemars(extend("examples" = ["LAMP_MAIL_PASSWORD"]))]
    pub password_env: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Recipients {
    One(String),
    Many(Vec<String>),
}

/// Shows each message on the desktop, by `notify-send`. It has no keys.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DesktopFile {}
