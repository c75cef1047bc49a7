//! The user's own command that tells somebody: `notify-send`, a mail, a chat. The event comes as JSON on its standard input.

use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::ports::{Notification, Notifier, NotifierError};

/// A mail server may take its time; a command that takes longer hangs, and is ended.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a command for each event; `text` and `job` also in `LAMP_TEXT` and `LAMP_JOB`.
#[derive(Clone, Debug)]
pub struct NotifyCommand {
    pub argv: Vec<String>,
}

#[async_trait]
impl Notifier for NotifyCommand {
    async fn tell(&self, notification: &Notification) -> Result<(), NotifierError> {
        let Some((program, arguments)) = self.argv.split_first() else { return Ok(()) };
        // Without its arguments: the address of a chat's hook is as good as a password, and this text is logged.
        let failed = |what: String| NotifierError { what: format!("the notify command `{program}` {what}") };
        let mut command = Command::new(program);
        command.args(arguments).env("LAMP_TEXT", &notification.text).env("LAMP_JOB", notification.job.as_str());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| failed(format!("cannot be started: {error}")))?;
        let event = serde_json::to_vec(notification).expect("an event holds only strings, finite numbers and maps with string keys");
        if let Some(mut input) = child.stdin.take()
            && let Err(error) = input.write_all(&event).await
        {
            // `notify-send` reads nothing and may be gone already; its exit status says whether that was well.
            tracing::debug!("the notify command read no event: {error}");
        }
        match tokio::time::timeout(PATIENCE, child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(failed(format!("ended with {status}"))),
            Ok(Err(error)) => Err(failed(format!("cannot be waited for: {error}"))),
            Err(_) => Err(failed(format!("took longer than {} s", PATIENCE.as_secs()))),
        }
    }
}
