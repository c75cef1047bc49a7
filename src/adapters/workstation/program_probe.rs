//! Whether a short command succeeds on this workstation. Nothing that it prints is shown.

use std::collections::BTreeMap;
use std::process::Stdio;

use tokio::process::Command;

/// `false` also when the program is not there.
pub async fn succeeds(argv: &[String], env: &BTreeMap<String, String>) -> bool {
    let Some((program, arguments)) = argv.split_first() else { return false };
    let mut command = Command::new(program);
    command.args(arguments).envs(env).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().await.is_ok_and(|status| status.success())
}
