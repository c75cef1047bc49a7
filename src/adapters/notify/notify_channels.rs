//! All channels of a user as one `Notifier`: each gets each message, with a limit on tries.

#![expect(
    clippy::disallowed_methods,
    reason = "an adapter waits for a service in real time, beside the driving of jobs"
)]

use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;

use super::channel::Channel;
use super::channel_error::ChannelError;
use super::message::Message;
use crate::job::{EventKind, NotifySpec};
use crate::ports::{Notification, Notifier, NotifierError};

/// The pauses before the second and the third try. All three end within two minutes, because a
/// `lamp run` waits for its last message. Longer pauses help only in a longer outage.
const PAUSES: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(15)];

/// One try. A mail has several steps of ten seconds each, and a command ends itself after 30 s.
const TRY_MAX: Duration = Duration::from_secs(33);

#[derive(Clone, Debug)]
pub struct NotifyChannels {
    spec: NotifySpec,
    channels: Vec<Channel>,
    pauses: Vec<Duration>,
}

impl NotifyChannels {
    pub fn new(spec: &NotifySpec) -> Self {
        let channels = spec.channels.iter().cloned().map(Channel::new).collect();
        NotifyChannels { spec: spec.clone(), channels, pauses: PAUSES.to_vec() }
    }

    pub fn channels(&self) -> &[Channel] {
        &self.channels
    }

    pub fn message(&self, notification: &Notification) -> Message {
        Message::of(notification, &self.spec)
    }

    /// Tries once.
    ///
    /// # Errors
    /// As [`Channel::send`], or no answer in time.
    pub async fn try_once(channel: &Channel, message: &Message) -> Result<(), ChannelError> {
        tokio::time::timeout(TRY_MAX, channel.send(message)).await.unwrap_or_else(|_| {
            let what = format!("no answer within {} s", TRY_MAX.as_secs());
            Err(ChannelError::passing(what, "check the address and the network"))
        })
    }

    async fn send(&self, channel: &Channel, message: &Message) -> Result<(), ChannelError> {
        let mut pauses = self.pauses.iter();
        loop {
            let Err(error) = Self::try_once(channel, message).await else { return Ok(()) };
            let Some(pause) = pauses.next().filter(|_| error.may_pass) else { return Err(error) };
            tracing::debug!("the channel `{}` is tried again: {error}", channel.name());
            tokio::time::sleep(*pause).await;
        }
    }
}

#[async_trait]
impl Notifier for NotifyChannels {
    fn wants(&self, kind: EventKind) -> bool {
        self.spec.on.contains(&kind)
    }

    async fn tell(&self, notification: &Notification) -> Result<(), NotifierError> {
        let message = self.message(notification);
        let sent = join_all(self.channels.iter().map(|channel| self.send(channel, &message)));
        let failed = self.channels.iter().zip(sent.await).filter_map(|(channel, sent)| {
            let error = sent.err()?;
            Some(format!("channel `{}`: {error}; to do: {}", channel.name(), error.cure))
        });
        let failed: Vec<String> = failed.collect();
        if failed.is_empty() { Ok(()) } else { Err(NotifierError { what: failed.join("; ") }) }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::Value;
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::job::{ChannelSecret, ChannelSpec, EmailSpec, JobId};

    pub fn notification(kind: &'static str) -> Notification {
        let job = JobId::from_name("digits", [0; 6]);
        Notification {
            format: 1,
            name: "digits".into(),
            at: jiff::Timestamp::UNIX_EPOCH,
            kind,
            text: "nothing used the machine for 10m".into(),
            command: Some(format!("lamp extend {job} 1h")),
            usd: Some("$1.50".parse().expect("a sum")),
            receipt: None,
            job,
        }
    }

    /// A request as it came over the wire.
    #[derive(Clone, Debug)]
    struct SeenRequest {
        head: String,
        body: Value,
    }

    /// A server of HTTP that gives these answers in turn, and then the last again.
    struct HttpServer {
        port: u16,
        seen: Arc<Mutex<Vec<SeenRequest>>>,
    }

    impl HttpServer {
        async fn start(answers: &'static [&'static str]) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let port = listener.local_addr().expect("it has one").port();
            let seen = Arc::new(Mutex::new(Vec::new()));
            let noted = Arc::clone(&seen);
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let at = noted.lock().expect("no test panics with it").len();
                    let answer = answers[at.min(answers.len() - 1)];
                    let request = answer_one(stream, answer).await;
                    noted.lock().expect("no test panics with it").push(request);
                }
            });
            HttpServer { port, seen }
        }

        fn seen(&self) -> Vec<SeenRequest> {
            self.seen.lock().expect("no test panics with it").clone()
        }

        fn url(&self, path: &str) -> ChannelSecret {
            ChannelSecret::Written(format!("http://127.0.0.1:{}/{path}", self.port))
        }
    }

    async fn answer_one(stream: TcpStream, answer: &str) -> SeenRequest {
        let mut stream = BufReader::new(stream);
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await.expect("a request");
            if line.trim().is_empty() {
                break;
            }
            if let Some(said) = line.to_lowercase().strip_prefix("content-length:") {
                length = said.trim().parse().expect("a number");
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.expect("the body");
        let (status, said) = answer.split_once('|').expect("status|text");
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{said}",
            said.len()
        );
        stream.write_all(answer.as_bytes()).await.expect("it listens");
        SeenRequest { head, body: serde_json::from_slice(&body).expect("JSON") }
    }

    fn channels(channel: ChannelSpec) -> NotifyChannels {
        let spec = NotifySpec {
            page: Some("http://127.0.0.1:7878".into()),
            channels: vec![channel],
            ..NotifySpec::default()
        };
        NotifyChannels { pauses: vec![Duration::ZERO; PAUSES.len()], ..NotifyChannels::new(&spec) }
    }

    #[tokio::test]
    async fn webhook_gets_the_event_as_json_once() {
        let server = HttpServer::start(&["204 No Content|"]).await;
        let told = notification("idle");
        channels(ChannelSpec::Webhook { url: server.url("hook") })
            .tell(&told)
            .await
            .expect("it is told");
        let seen = server.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        assert!(seen[0].head.starts_with("POST /hook HTTP/1.1"), "{seen:?}");
        let body = &seen[0].body;
        assert_eq!((&body["format"], &body["kind"]), (&1.into(), &"idle".into()));
        assert_eq!(body["usd"], 1.5);
        assert_eq!(body["command"], format!("lamp extend {} 1h", told.job));
        assert_eq!(body["link"], format!("http://127.0.0.1:7878/job/{}", told.job));
    }

    #[tokio::test]
    async fn slack_gets_escaped_text() {
        let server = HttpServer::start(&["200 OK|ok"]).await;
        let mut told = notification("attention");
        told.text = "<!channel> a & b".into();
        channels(ChannelSpec::Slack { url: server.url("services/T/B/X") })
            .tell(&told)
            .await
            .expect("it is told");
        let text = server.seen()[0].body["text"].as_str().expect("a text").to_owned();
        assert!(text.starts_with("*digits: attention*\n&lt;!channel&gt; a &amp; b\n"), "{text}");
    }

    #[tokio::test]
    async fn ntfy_gets_topic_title_priority_link_and_token() {
        let server = HttpServer::start(&["200 OK|{}"]).await;
        let folder = tempfile::tempdir().expect("a folder");
        let token = folder.path().join("token");
        std::fs::write(&token, "tk_secret\n").expect("it can be written");
        let (url, token) = (server.url("my-topic"), Some(ChannelSecret::File(token)));
        channels(ChannelSpec::Ntfy { url, token })
            .tell(&notification("idle"))
            .await
            .expect("it is told");
        let SeenRequest { head, body } = server.seen().remove(0);
        assert!(head.starts_with("POST / HTTP/1.1"), "{head}");
        assert!(head.contains("authorization: Bearer tk_secret"), "{head}");
        assert_eq!((&body["topic"], &body["priority"]), (&"my-topic".into(), &4.into()));
        assert_eq!((&body["title"], &body["tags"][0]), (&"digits: idle".into(), &"idle".into()));
        assert!(body["click"].as_str().is_some_and(|link| link.contains("/job/digits")), "{body}");
    }

    #[tokio::test]
    async fn busy_service_is_tried_three_times_and_a_refusal_once() {
        let busy = HttpServer::start(&["503 Service Unavailable|busy"]).await;
        let told = notification("ended");
        let error = channels(ChannelSpec::Webhook { url: busy.url("hook") }).tell(&told).await;
        assert!(error.expect_err("it is busy").what.contains("503"));
        assert_eq!(busy.seen().len(), 3);
        let again = HttpServer::start(&["503 Service Unavailable|busy", "200 OK|ok"]).await;
        channels(ChannelSpec::Webhook { url: again.url("hook") }).tell(&told).await.expect("told");
        assert_eq!(again.seen().len(), 2);
        let refuses = HttpServer::start(&["404 Not Found|no_service"]).await;
        let error = channels(ChannelSpec::Slack { url: refuses.url("services") }).tell(&told).await;
        assert!(error.expect_err("it refuses").what.contains("404 Not Found: no_service"));
        assert_eq!(refuses.seen().len(), 1);
    }

    #[tokio::test]
    async fn no_error_has_an_address_or_a_token() {
        let folder = tempfile::tempdir().expect("a folder");
        let token = folder.path().join("token");
        std::fs::write(&token, "tk_secret\n").expect("it can be written");
        let token = || Some(ChannelSecret::File(token.clone()));
        // It repeats all that it was sent, and nothing listens at the other port.
        let echo = HttpServer::start(&["401 Unauthorized|secret-topic tk_secret"]).await;
        let nobody = ChannelSecret::Written("http://127.0.0.1:9/secret-topic".into());
        for url in [echo.url("secret-topic"), nobody] {
            let told = notification("ended");
            for channel in [
                ChannelSpec::Ntfy { url: url.clone(), token: token() },
                ChannelSpec::Webhook { url: url.clone() },
            ] {
                let name = format!("{channel:?}");
                let error = channels(channel).tell(&told).await.expect_err("nobody was told");
                let text = format!("{error} {error:?} {name}");
                let is_webhook = name.starts_with("Webhook");
                assert!(!text.contains("secret-topic"), "{text}");
                assert!(is_webhook || !text.contains("tk_secret"), "{text}");
            }
        }
    }

    /// Speaks enough of SMTP for one mail, and gives the password and the mail.
    async fn smtp_server(takes_login: bool) -> (u16, tokio::task::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("it has one").port();
        let serving = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("a client");
            let mut stream = BufReader::new(stream);
            let (mut lines, mut is_data) = (Vec::new(), false);
            stream.write_all(b"220 test ESMTP\r\n").await.expect("it listens");
            loop {
                let mut line = String::new();
                if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                    return lines;
                }
                let line = line.trim_end().to_owned();
                lines.push(line.clone());
                let answer = match line.split(' ').next().unwrap_or_default() {
                    "." if is_data => {
                        is_data = false;
                        "250 taken"
                    }
                    _ if is_data => continue,
                    "EHLO" => "250-test\r\n250 AUTH PLAIN",
                    "AUTH" if takes_login => "235 welcome",
                    "AUTH" => "535 wrong password hunter2-secret",
                    "DATA" => {
                        is_data = true;
                        "354 go on"
                    }
                    "QUIT" => "221 bye",
                    _ => "250 ok",
                };
                stream.write_all(format!("{answer}\r\n").as_bytes()).await.expect("it listens");
            }
        });
        (port, serving)
    }

    fn email(port: u16, password: ChannelSecret) -> ChannelSpec {
        ChannelSpec::Email(EmailSpec {
            to: vec!["me@example.org".into()],
            from: "Lamp <lamp@example.org>".into(),
            server: format!("smtp://127.0.0.1:{port}"),
            user: Some("me".into()),
            password: Some(password),
        })
    }

    #[tokio::test]
    async fn mail_goes_to_the_server_with_login_subject_and_text() {
        let folder = tempfile::tempdir().expect("a folder");
        let password = folder.path().join("password");
        std::fs::write(&password, "hunter2-secret\n").expect("it can be written");
        let (port, serving) = smtp_server(true).await;
        channels(email(port, ChannelSecret::File(password.clone())))
            .tell(&notification("idle"))
            .await
            .expect("it is told");
        let lines = serving.await.expect("the server ends");
        let has = |wanted: &str| lines.iter().any(|line| line == wanted);
        // `\0me\0hunter2-secret`, as RFC 4616 has it.
        assert!(has("AUTH PLAIN AG1lAGh1bnRlcjItc2VjcmV0"), "{lines:?}");
        assert!(has("MAIL FROM:<lamp@example.org>") && has("RCPT TO:<me@example.org>"));
        assert!(has("Subject: lamp: digits: idle"), "{lines:?}");
        assert!(has("nothing used the machine for 10m") && has("cost so far: $1.50"), "{lines:?}");

        let (port, _serving) = smtp_server(false).await;
        let error = channels(email(port, ChannelSecret::File(password)))
            .tell(&notification("idle"))
            .await
            .expect_err("it refuses");
        assert!(error.what.contains("refuses") && !error.what.contains("hunter2"), "{error}");
    }
}
