//! The token of the page (`lamp web`): a file of the state folder that only its owner can read.

use std::io;
use std::path::Path;

use super::private_files;

const FILE: &str = "web-token";

/// Shorter ones were cut off.
const LETTERS: usize = 64;

/// The token of this workstation. The first call makes it.
///
/// # Errors
/// When the state folder cannot be used, or others can read the file.
pub fn page_token(state: &Path) -> io::Result<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let file = state.join(FILE);
    #[expect(clippy::disallowed_methods, reason = "a file of our own")]
    match std::fs::read_to_string(&file) {
        Ok(token) if token.trim().len() == LETTERS => {
            let mode = std::fs::metadata(&file)?.permissions().mode();
            if mode & 0o077 == 0 {
                return Ok(token.trim().to_owned());
            }
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => private_files::folder(state)?,
        Err(error) => return Err(error),
    }
    // Others may have read it: a new file has a new token, and only its owner can read it.
    let new = state.join(format!("{FILE}.{}", std::process::id()));
    let token = random_token();
    private_files::write(&new, &token)?;
    std::fs::rename(&new, &file)?;
    Ok(token)
}

/// 244 random bits, as hexadecimal digits.
#[expect(clippy::disallowed_methods, reason = "the adapter that draws them")]
pub fn random_token() -> String {
    [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()].map(|drawn| drawn.simple().to_string()).concat()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn token_stays_until_others_can_read_it() {
        let state = tempfile::tempdir().expect("a folder");
        let folder = state.path().join("lamplighter");
        let first = page_token(&folder).expect("a token");
        assert_eq!(
            (first.len(), page_token(&folder).expect("the token")),
            (LETTERS, first.clone())
        );
        let file = folder.join(FILE);
        let mode = || std::fs::metadata(&file).expect("a file").permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("a mode");
        assert_ne!(page_token(&folder).expect("a new token"), first);
        assert_eq!(mode(), 0o600);
    }
}
