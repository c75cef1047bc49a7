//! The user's notification command: `notify-send`, a mail, a chat. It gets the event as JSON on its
//! standard input.

use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::job::terminal_safe::{controls_escaped, harmless, one_line};
use crate::ports::{Notification, Notifier, NotifierError};

/// A mail server may be slow. A command that takes longer hangs, and is ended.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a command for each event; `text` and `job` also in `LAMP_TEXT` and `LAMP_JOB`.
#[derive(Clone, Debug)]
pub struct NotifyCommand {
    pub argv: Vec<String>,
}

#[async_trait]
impl Notifier for NotifyCommand {
    async fn tell(&self, notification: &Notification) -> Result<(), NotifierError> {
        self.tell_within(notification, PATIENCE).await
    }
}

impl NotifyCommand {
    async fn tell_within(
        &self,
        notification: &Notification,
        patience: Duration,
    ) -> Result<(), NotifierError> {
        let Some((program, arguments)) = self.argv.split_first() else { return Ok(()) };
        // Without the arguments, because this text is logged: a chat hook's address is a secret.
        let failed =
            |what: String| NotifierError { what: format!("the notify command `{program}` {what}") };
        let mut command = Command::new(program);
        // A chat or terminal may show it raw. Text of a workload or a file name must not control
        // them.
        let text = one_line(&harmless(&notification.text, false)).into_owned();
        command.args(arguments).env("LAMP_TEXT", &text).env("LAMP_JOB", notification.job.as_str());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true);
        let mut child =
            command.spawn().map_err(|error| failed(format!("cannot be started: {error}")))?;
        let event = serde_json::to_string(&Notification { text, ..notification.clone() });
        let event =
            event.expect("an event holds only strings, finite numbers and maps with string keys");
        // One timeout for both: a command may never read its event.
        let ran = async {
            if let Some(mut input) = child.stdin.take()
                && let Err(error) = input.write_all(controls_escaped(&event).as_bytes()).await
            {
                // `notify-send` reads nothing and may have ended; its exit status says whether it
                // worked.
                tracing::debug!("the notify command read no event: {error}");
            }
            child.wait().await
        };
        match tokio::time::timeout(patience, ran).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(failed(format!("ended with {status}"))),
            Ok(Err(error)) => Err(failed(format!("cannot be waited for: {error}"))),
            Err(_) => Err(failed(format!("took longer than {} s", patience.as_secs()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JobId;

    /// It times out although it never reads the event, which is larger than a pipe's buffer.
    #[tokio::test]
    async fn command_that_reads_nothing_is_ended_after_its_time() {
        let notification = Notification {
            format: 1,
            job: JobId::from_name("digits", [0; 6]),
            name: "long ".repeat(40_000),
            at: jiff::Timestamp::UNIX_EPOCH,
            kind: "ended",
            text: "it has ended".into(),
            command: None,
            usd: None,
            receipt: None,
        };
        let command = NotifyCommand { argv: vec!["sleep".into(), "1000".into()] };
        let told = command.tell_within(&notification, Duration::from_secs(1));
        let told = tokio::time::timeout(Duration::from_secs(60), told)
            .await
            .expect("its time is a second");
        assert!(told.expect_err("nobody was told").to_string().contains("took longer than 1 s"));
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "the test reads what its command wrote")]
    async fn command_is_told_no_control_character_and_one_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let notification = Notification {
            format: 1,
            job: JobId::from_name("digits", [0; 6]),
            name: "digits".into(),
            at: jiff::Timestamp::UNIX_EPOCH,
            kind: "attention",
            text: "cannot send `a\u{1b}]0;owned\u{7}\nlamp: all is well`\u{202e}".into(),
            command: None,
            usd: None,
            receipt: None,
        };
        let script = format!(
            "printf %s \"$LAMP_TEXT\" > {0}/text; cat > {0}/event",
            folder.path().display()
        );
        let command = NotifyCommand { argv: ["sh", "-c", &script].map(str::to_owned).to_vec() };
        command.tell(&notification).await.expect("told");
        for file in ["text", "event"] {
            let told = std::fs::read_to_string(folder.path().join(file)).expect("written");
            assert!(
                told.contains("a^[]0;owned^G^Jlamp: all is well")
                    && !told.contains(|c: char| c.is_control() || c == '\u{202e}'),
                "{told:?}"
            );
        }
    }
}
