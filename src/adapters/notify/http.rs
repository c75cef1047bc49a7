//! Webhook, Slack and ntfy: one POST of JSON each.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};

use super::channel_error::ChannelError;
use super::channel_secret::hide;
use super::message::Message;
use crate::adapters::store::s3::install_crypto;
use crate::ports::causes;

/// One try. A healthy service answers within a second.
const REQUEST_MAX: Duration = Duration::from_secs(10);

/// A refusal is cut to this length.
const REFUSAL_CHARS_MAX: usize = 200;

/// ntfy shows this priority above others; 3 is normal.
const NTFY_HIGH: u8 = 4;

/// One POST.
pub struct HttpPost<'a> {
    pub url: &'a str,
    pub token: Option<&'a str>,
    /// Texts that an error must not contain, beside URL and token.
    pub secrets: &'a [&'a str],
    pub body: Value,
}

/// Slack's incoming webhooks: <https://api.slack.com/messaging/webhooks>.
pub fn slack_body(message: &Message) -> Value {
    let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    json!({ "text": format!("*{}*\n{}", escaped(&message.title), escaped(&message.text)) })
}

/// The server and the body: ntfy takes JSON at its root, with the topic in it
/// (<https://docs.ntfy.sh/publish/#publish-as-json>).
///
/// # Errors
/// The URL names no topic.
pub fn ntfy_post(url: &str, message: &Message) -> Result<(String, Value), ChannelError> {
    let trimmed = url.trim_end_matches('/');
    let split = trimmed.split_once("://").and_then(|(scheme, rest)| {
        let (server, topic) = rest.rsplit_once('/')?;
        Some((format!("{scheme}://{server}/"), topic))
    });
    let Some((server, topic)) = split else {
        let cure = "write the address with its topic, like https://ntfy.sh/my-topic";
        return Err(ChannelError::lasting("the address of ntfy names no topic", cure));
    };
    let mut body = json!({
        "topic": topic,
        "title": message.title,
        "message": message.text,
        "tags": [message.notification.kind],
    });
    if message.is_urgent {
        body["priority"] = NTFY_HIGH.into();
    }
    if let Some(link) = &message.link {
        body["click"] = link.clone().into();
    }
    Ok((server, body))
}

impl HttpPost<'_> {
    /// # Errors
    /// The service refuses, or does not answer.
    pub async fn send(&self) -> Result<(), ChannelError> {
        let named = [Some(self.url), self.token].into_iter().flatten();
        let secrets: Vec<&str> = named.chain(self.secrets.iter().copied()).collect();
        let unsent = |error: reqwest::Error| {
            let what = format!("no answer: {}", causes(&error.without_url()).join(": "));
            let cure = "check the address and the network, then `lamp notify test`";
            ChannelError::passing(hide(&what, &secrets), cure)
        };
        install_crypto();
        // A redirect could carry the message elsewhere.
        let client = Client::builder()
            .redirect(Policy::none())
            .timeout(REQUEST_MAX)
            .user_agent(concat!("lamplighter/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(unsent)?;
        let mut request = client.post(self.url).json(&self.body);
        if let Some(token) = self.token {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.map_err(unsent)?;
        if response.status().is_success() {
            return Ok(());
        }
        Err(refused(response, &secrets).await)
    }
}

async fn refused(response: Response, secrets: &[&str]) -> ChannelError {
    let status = response.status();
    let said = said(response).await;
    let said = if said.is_empty() { said } else { format!(": {said}") };
    let what = hide(&format!("the service answers {status}{said}"), secrets);
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
            ChannelError::passing(what, "the service is busy: try again later")
        }
        _ if status.is_server_error() => {
            ChannelError::passing(what, "the service has an error: try again later")
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            ChannelError::lasting(what, "check the token or the address: it gives no right to send")
        }
        _ if status.is_redirection() => {
            ChannelError::lasting(what, "write the address that it redirects to")
        }
        _ => ChannelError::lasting(what, "check the address, then `lamp notify test`"),
    }
}

/// The beginning of the answer, on one line.
async fn said(mut response: Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < 4 * REFUSAL_CHARS_MAX
        && let Ok(Some(piece)) = response.chunk().await
    {
        bytes.extend_from_slice(&piece);
    }
    let text = String::from_utf8_lossy(&bytes);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().filter(|letter| !letter.is_control()).take(REFUSAL_CHARS_MAX).collect()
}
