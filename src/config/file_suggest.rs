//! Which job file was meant by the path of one that is not there.
//!
//! It looks at the names in that one folder. Not here: a job file that is taken in place of
//! another.

use std::path::{Path, PathBuf};

use super::ConfigError;
use super::key_suggest::closest;

/// Files of other tools with the same endings.
const OF_OTHERS: [&str; 5] =
    ["Cargo.toml", "pyproject.toml", "package.json", "package-lock.json", "tsconfig.json"];

/// Where a job file is not there, with what is.
pub fn with_near(error: ConfigError) -> ConfigError {
    match error {
        ConfigError::NotFound { what: "job file", path } => {
            let (meant, others) = beside(&path);
            ConfigError::NoJobFile { path, meant, others }
        }
        other => other,
    }
}

/// The job file whose name is near, and all of that folder.
fn beside(path: &Path) -> (Option<PathBuf>, Vec<PathBuf>) {
    let Some(folder) = path.parent() else { return (None, Vec::new()) };
    let entries = folder.read_dir().into_iter().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| is_job(folder, name))
        .collect();
    names.sort();
    // All end alike: by the whole name each would be like every other.
    let wanted =
        path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let near = closest(&wanted, names.iter().map(|name| stem(name)));
    let meant = near
        .and_then(|near| names.iter().find(|name| stem(name) == near))
        .map(|name| folder.join(name));
    (meant, names.iter().map(|name| folder.join(name)).collect())
}

fn is_job(folder: &Path, name: &str) -> bool {
    let is_one =
        Path::new(name).extension().is_some_and(|ending| ending == "toml" || ending == "json");
    is_one && !name.starts_with('.') && !OF_OTHERS.contains(&name) && folder.join(name).is_file()
}

fn stem(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test writes the files that it looks for")]
mod tests {
    use super::*;

    #[test]
    fn missing_file_suggests_the_near_name_and_lists_job_files_only() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        for name in ["lamp.toml", "sweep-lr.json", "pyproject.toml", ".hidden.toml", "notes.txt"] {
            std::fs::write(folder.path().join(name), "").expect("the folder is writable");
        }
        let of = |name: &str| {
            let (meant, others) = beside(&folder.path().join(name));
            let name = |path: PathBuf| {
                path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
            };
            (meant.map(name), others.into_iter().map(name).collect::<Vec<_>>())
        };
        let all = || vec!["lamp.toml".to_owned(), "sweep-lr.json".to_owned()];
        assert_eq!(of("lampp.toml"), (Some("lamp.toml".into()), all()));
        assert_eq!(of("lamp.yaml"), (Some("lamp.toml".into()), all()));
        assert_eq!(of("sweep_lr.toml"), (Some("sweep-lr.json".into()), all()));
        assert_eq!(of("digits.toml"), (None, all()));
        assert_eq!(of("nowhere/lamp.toml"), (None, Vec::new()));
    }
}
