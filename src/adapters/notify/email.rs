//! Mails, through the user's own server.

use std::time::Duration;

use lettre::message::Mailbox;
use lettre::message::header::ContentType;
use lettre::transport::smtp::Error as SmtpError;
use lettre::transport::smtp::authentication::Credentials;
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Message as Mail, Tokio1Executor};

use super::channel_error::ChannelError;
use super::channel_secret::{hide, read};
use super::message::Message;
use crate::adapters::store::s3::install_crypto;
use crate::job::EmailSpec;
use crate::ports::causes;

/// One command of the protocol. A server that delays answers to deter spam needs some seconds.
const COMMAND_MAX: Duration = Duration::from_secs(10);

type Transport = AsyncSmtpTransport<Tokio1Executor>;

/// # Errors
/// The settings are wrong, or the server refuses or does not answer.
pub async fn send(spec: &EmailSpec, message: &Message) -> Result<(), ChannelError> {
    let mail = mail(spec, message)?;
    let password = spec.password.as_ref().map(read).transpose()?;
    let secrets: Vec<&str> = password.as_deref().into_iter().collect();
    install_crypto();
    let wrong = |error: SmtpError| {
        let what = hide(
            &format!("the server's address is wrong: {}", causes(&error).join(": ")),
            &secrets,
        );
        ChannelError::lasting(what, "write smtps://HOST, or smtp://HOST:587?tls=required")
    };
    let mut transport = Transport::from_url(&spec.server).map_err(wrong)?;
    if let Some((user, password)) = spec.user.clone().zip(password.clone()) {
        transport = transport.credentials(Credentials::new(user, password));
    }
    let sent = transport.timeout(Some(COMMAND_MAX)).build().send(mail).await;
    sent.map(drop).map_err(|error| unsent(&error, &secrets))
}

fn mail(spec: &EmailSpec, message: &Message) -> Result<Mail, ChannelError> {
    let mut mail = Mail::builder()
        .from(address(&spec.from)?)
        .subject(format!("lamp: {}", message.title))
        .header(ContentType::TEXT_PLAIN);
    for to in &spec.to {
        mail = mail.to(address(to)?);
    }
    mail.body(format!("{}\n", message.text)).map_err(|error| {
        ChannelError::lasting(format!("no mail can be made: {error}"), "check `to` and `from`")
    })
}

fn address(text: &str) -> Result<Mailbox, ChannelError> {
    text.parse().map_err(|error| {
        let what = format!("`{text}` is no mail address: {error}");
        ChannelError::lasting(what, "write an address like me@example.org")
    })
}

fn unsent(error: &SmtpError, secrets: &[&str]) -> ChannelError {
    let what = hide(&causes(error).join(": "), secrets);
    if error.is_permanent() {
        return ChannelError::lasting(
            format!("the mail server refuses: {what}"),
            "check `user`, the password, and whether the server takes mails from `from`",
        );
    }
    if error.is_tls() {
        let cure = "check whether the server speaks TLS at once (smtps://) or after STARTTLS (smtp://HOST:587?tls=required)";
        return ChannelError::lasting(format!("no secure connection: {what}"), cure);
    }
    ChannelError::passing(
        format!("the mail server does not take it: {what}"),
        "check `server` and the network, then `lamp notify test email`",
    )
}
