//! The caps of the user configuration, read anew while a process runs.
//!
//! Not here: what becomes of an error, and what the caps allow.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{ConfigError, Environment, UserConfig, load_user};
use crate::policy::purchase::spending_cap::Caps;

#[derive(Debug)]
pub struct CapsReader {
    environment: Environment,
    /// There was a file once: without it there is no cap that somebody has taken away, but a file
    /// that is being replaced, or a home folder that is not mounted.
    was_there: AtomicBool,
}

impl CapsReader {
    pub fn new(environment: Environment, user: &UserConfig) -> Self {
        CapsReader { environment, was_there: AtomicBool::new(user.path.is_some()) }
    }

    /// # Errors
    /// The file cannot be read or has errors, or it is there no longer.
    pub fn read(&self) -> Result<Caps, ConfigError> {
        let user = load_user(&self.environment)?;
        match (user.path, self.environment.user_config_path()) {
            (Some(_), _) => self.was_there.store(true, Ordering::Relaxed),
            (None, Some(path)) if self.was_there.load(Ordering::Relaxed) => {
                return Err(ConfigError::NotFound { what: "configuration", path });
            }
            (None, _) => {}
        }
        Ok(user.caps)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test writes the file that it reads")]
mod tests {
    use super::*;

    #[test]
    fn a_cap_that_is_written_later_is_read_and_a_file_that_is_gone_takes_none_away() {
        let home = tempfile::tempdir().expect("a folder");
        let path = home.path().join(".config/lamplighter/config.toml");
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("it can be made");
        let environment =
            Environment { home: Some(home.path().to_owned()), ..Environment::default() };
        let reader = CapsReader::new(
            environment.clone(),
            &load_user(&environment).expect("no file is fine"),
        );
        let per_day = |reader: &CapsReader| {
            reader.read().map(|caps| caps.usd_per_day.map(|usd| usd.to_string()))
        };
        assert_eq!(per_day(&reader).expect("there is none yet"), None);
        std::fs::write(&path, "[caps]\nusd_per_day = 5\n").expect("it can be written");
        assert_eq!(per_day(&reader).expect("it is read").as_deref(), Some("$5.00"));
        std::fs::write(&path, "[caps]\nusd_per_day = 'much'\n").expect("it can be written");
        let wrong = reader.read().expect_err("a slip is no cap").in_a_line();
        assert!(wrong.contains("config.toml:2: ") && wrong.contains("usd_per_day"), "{wrong}");
        std::fs::remove_file(&path).expect("it is there");
        assert!(matches!(reader.read(), Err(ConfigError::NotFound { .. })));
        std::fs::write(&path, "").expect("it can be written");
        assert_eq!(per_day(&reader).expect("whoever wants none says so"), None);
    }
}
