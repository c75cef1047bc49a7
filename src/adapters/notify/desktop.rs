//! The desktop, by `notify-send`.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::channel_error::ChannelError;
use super::message::Message;

/// It only hands the message to the desktop. Longer, and there is no desktop.
const SHOW_MAX: Duration = Duration::from_secs(10);

const PROGRAM: &str = "notify-send";

/// # Errors
/// The program is missing, or finds no desktop.
pub async fn send(message: &Message) -> Result<(), ChannelError> {
    send_by(PROGRAM, message).await
}

async fn send_by(program: &str, message: &Message) -> Result<(), ChannelError> {
    let no_desktop = "run `lamp daemon` in your desktop session, or choose another channel";
    // The text may hold simple markup.
    let text = message.text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let urgency = if message.is_urgent { "critical" } else { "normal" };
    let mut command = Command::new(program);
    command.args(["--app-name=lamp", &format!("--urgency={urgency}"), "--"]);
    command.args([&message.title, &text]).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let shown = match tokio::time::timeout(SHOW_MAX, command.output()).await {
        Ok(Ok(shown)) => shown,
        Ok(Err(error)) => {
            let what = format!("`{program}` cannot be started: {error}");
            return Err(ChannelError::lasting(what, "install it: `apt install libnotify-bin`"));
        }
        Err(_) => {
            let what = format!("`{program}` took longer than {} s", SHOW_MAX.as_secs());
            return Err(ChannelError::lasting(what, no_desktop));
        }
    };
    if shown.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&shown.stderr);
    let said: String = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let said: String = said.chars().filter(|letter| !letter.is_control()).take(200).collect();
    let what = format!("`{program}` ended with {}: {said}", shown.status);
    Err(ChannelError::lasting(what, no_desktop))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test reads what its command wrote")]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::adapters::notify::notify_channels::tests::notification;
    use crate::job::NotifySpec;

    #[tokio::test]
    async fn desktop_gets_title_and_text_without_markup() {
        let folder = tempfile::tempdir().expect("a folder");
        let (program, seen) = (folder.path().join("notify-send"), folder.path().join("seen"));
        let script = format!("#!/bin/sh\nprintf '%s\\n' \"$@\" > {}\n", seen.display());
        std::fs::write(&program, script).expect("it can be written");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("it can");
        let mut told = notification("attention");
        told.text = "<b>loss</b> & more".into();
        let message = Message::of(&told, &NotifySpec::default());
        send_by(&program.display().to_string(), &message).await.expect("it is shown");
        let seen = std::fs::read_to_string(seen).expect("it ran");
        assert!(seen.starts_with("--app-name=lamp\n--urgency=critical\n--\ndigits: attention\n"));
        assert!(seen.contains("&lt;b&gt;loss&lt;/b&gt; &amp; more"), "{seen}");
        let missing = send_by("/nowhere/notify-send", &message).await.expect_err("it is missing");
        assert!(missing.cure.contains("libnotify-bin") && !missing.may_pass, "{missing:?}");
    }
}
