//! The cloud's reason for the end of a machine, in words for people.
//!
//! [`super::settlement`] finds who ended it and why.

use crate::market::CloudKind;

/// A cloud's reason for people. The local cloud uses EC2's codes, so that one rule reads both;
/// people see only its sentence.
pub fn cloud_words(cloud: CloudKind, reason: &str) -> &str {
    let code = |text: &str| text.starts_with("Client.") || text.starts_with("Server.");
    match reason.split_once(": ").filter(|(first, _)| cloud == CloudKind::Local && code(first)) {
        Some((_, sentence)) => sentence,
        None if cloud == CloudKind::Local && code(reason) => "it gave no reason",
        None => reason,
    }
}

/// The same with the meaning of its code, if known.
pub fn cloud_text(cloud: CloudKind, reason: &str) -> String {
    let said = cloud_words(cloud, reason);
    code_words(said).map_or_else(|| said.to_owned(), |words| format!("{words} ({said})"))
}

/// EC2's codes for an end, in words; `None`: an unknown code, or a sentence.
fn code_words(reason: &str) -> Option<&'static str> {
    let code = reason.split(':').next().unwrap_or(reason);
    Some(match code {
        "Client.UserInitiatedShutdown" => "somebody asked it to end the machine",
        "Client.InstanceInitiatedShutdown" => "the machine switched itself off",
        "Server.SpotInstanceTermination" | "Server.SpotInstanceShutdown" => {
            "it took the spot machine back"
        }
        "Server.InsufficientInstanceCapacity" => "there was no room for the machine",
        "Server.InternalError" => "the machine could not start, by a fault of the cloud",
        "Client.InternalError" => "the machine could not start: its disk or the key of its disk",
        "Client.VolumeLimitExceeded" => {
            "no disk could be made: the account's limit for disks is reached"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_the_cloud_has_words_and_a_sentence_stays() {
        let said = "Client.UserInitiatedShutdown: User initiated shutdown";
        assert_eq!(
            cloud_text(CloudKind::Aws, said),
            format!("somebody asked it to end the machine ({said})")
        );
        assert_eq!(cloud_text(CloudKind::Local, "exit code: 3"), "exit code: 3");
    }

    #[test]
    fn code_of_local_cloud_is_not_shown() {
        assert_eq!(cloud_words(CloudKind::Local, "Server.HostLost"), "it gave no reason");
        assert_eq!(
            cloud_words(CloudKind::Local, "Client.InstanceInitiatedShutdown: the workload ended"),
            "the workload ended"
        );
        assert_eq!(
            cloud_words(CloudKind::Aws, "Client.VolumeLimitExceeded: x"),
            "Client.VolumeLimitExceeded: x"
        );
        assert_eq!(cloud_words(CloudKind::Local, "exit code: 3"), "exit code: 3");
    }
}
