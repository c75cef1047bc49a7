//! Reads the secrets of the channels at each message, and keeps them out of errors.

#![expect(clippy::disallowed_methods, reason = "reads the files that the configuration names")]

use super::channel_error::ChannelError;
use crate::adapters::workstation::process_env;
use crate::job::ChannelSecret;

/// A secret is a line. A longer file is something else.
const BYTES_MAX: u64 = 4096;

/// Shorter parts occur in words, and hiding them would make an error unreadable.
const PART_CHARS_MIN: usize = 6;

pub const HIDDEN: &str = "[hidden]";

/// The secret, without spaces around it.
///
/// # Errors
/// The file or the variable is missing, empty or no text.
pub fn read(secret: &ChannelSecret) -> Result<String, ChannelError> {
    let text = match secret {
        ChannelSecret::Written(text) => text.clone(),
        ChannelSecret::File(path) => {
            let shown = path.display();
            let unread = |why: String| {
                let cure = format!("write it to {shown}, readable by you alone (`chmod 600`)");
                ChannelError::lasting(format!("cannot read {shown}: {why}"), cure)
            };
            let meta = std::fs::metadata(path).map_err(|error| unread(error.to_string()))?;
            if meta.len() > BYTES_MAX {
                return Err(unread(format!("it is larger than {BYTES_MAX} bytes")));
            }
            std::fs::read_to_string(path).map_err(|error| unread(error.to_string()))?
        }
        ChannelSecret::Variable(name) => {
            let value = process_env::variable(name).and_then(|value| value.into_string().ok());
            value.ok_or_else(|| {
                let cure = format!(
                    "set {name} where `lamp` runs; for the daemon, in `Environment=` of its unit"
                );
                ChannelError::lasting(format!("the environment variable {name} is not set"), cure)
            })?
        }
    };
    let text = text.trim().to_owned();
    if text.is_empty() || text.contains(['\n', '\r']) {
        let cure = "write the secret alone, as one line";
        return Err(ChannelError::lasting("a secret is empty, or has several lines", cure));
    }
    Ok(text)
}

/// The text without these secrets, and without the parts of a secret URL.
pub fn hide(text: &str, secrets: &[&str]) -> String {
    let mut hidden = text.to_owned();
    for secret in secrets {
        hidden = hidden.replace(secret, HIDDEN);
        let path = secret.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
        let Some((_, path)) = path else { continue };
        let parts = path.split(['/', '?', '&', '=']);
        for part in parts.filter(|part| part.chars().count() >= PART_CHARS_MIN) {
            hidden = hidden.replace(part, HIDDEN);
        }
    }
    hidden
}

/// The host of a URL, for people: the rest may be a secret.
pub fn host_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let place = rest.split(['/', '?', '#']).next().unwrap_or_default();
    place.rsplit('@').next().unwrap_or_default().to_owned()
}

/// Where a secret comes from, for people.
pub fn source(secret: &ChannelSecret) -> String {
    match secret {
        ChannelSecret::Written(url) => format!("{}/...", host_of(url)),
        ChannelSecret::File(path) => format!("the address in {}", path.display()),
        ChannelSecret::Variable(name) => format!("the address in ${name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_read_from_its_file_and_a_missing_one_says_where() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let secret = ChannelSecret::File(path.clone());
        let error = read(&secret).expect_err("there is none");
        assert!(error.what.contains("token") && error.cure.contains("chmod 600"), "{error:?}");
        std::fs::write(&path, " tk_abc\n").expect("it can be written");
        assert_eq!(read(&secret), Ok("tk_abc".to_owned()));
        let error = read(&ChannelSecret::Variable("LAMP_NO_SUCH_VARIABLE".into()));
        assert!(error.expect_err("it is not set").what.contains("LAMP_NO_SUCH_VARIABLE"));
    }

    #[test]
    fn neither_a_secret_nor_a_part_of_its_path_stays_in_a_text() {
        let url = "https://hooks.slack.com/services/T0000/B0000000/XXXXsecret";
        let text = format!("no service at {url}, /services/T0000/B0000000/XXXXsecret");
        let hidden = hide(&text, &[url, "tk_abc"]);
        assert!(!hidden.contains("XXXXsecret") && !hidden.contains("B0000000"), "{hidden}");
        assert_eq!(hide("token tk_abc is bad", &["tk_abc"]), "token [hidden] is bad");
        assert_eq!(source(&ChannelSecret::Written(url.into())), "hooks.slack.com/...");
        assert_eq!(host_of("https://me:pass@ntfy.sh/topic"), "ntfy.sh");
    }
}
