//! Which job files `lamp apply` was given: the files of a folder, or the named ones.
//!
//! Not here: what they say (`workdir`), or what follows from it (`policy::schedule::apply_diff`).

use std::path::{Path, PathBuf};

use crate::cli::{Context, ExitCode, Fault};
use crate::config::closest;

/// The job files, and whether they are a whole directory.
///
/// # Errors
/// Fails when a folder is missing, cannot be read, or is named together with files.
pub fn files_of(paths: &[PathBuf], context: &Context) -> Result<(Vec<PathBuf>, bool), Fault> {
    let here = |path: &PathBuf| context.current_dir.join(path);
    match paths {
        [only] if here(only).is_dir() => {
            let unreadable = |error: std::io::Error| {
                Fault::new(ExitCode::UNREACHABLE, format!("cannot read `{}`", only.display()))
                    .because(&error)
            };
            let entries = here(only)
                .read_dir()
                .map_err(unreadable)?
                .collect::<Result<Vec<_>, _>>()
                .map_err(unreadable)?;
            let is_job = |path: &PathBuf| {
                path.is_file()
                    && path.extension().is_some_and(|ending| ending == "toml" || ending == "json")
            };
            let is_hidden = |path: &PathBuf| {
                path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'))
            };
            let mut files: Vec<PathBuf> = entries
                .into_iter()
                .map(|entry| entry.path())
                .filter(|path| is_job(path) && !is_hidden(path))
                .collect();
            files.sort();
            Ok((files, true))
        }
        // Job files have an extension, so this was meant as a folder.
        [only] if only.extension().is_none() && !here(only).exists() => {
            Err(no_folder(only, &here(only)))
        }
        several => match several.iter().find(|path| here(path).is_dir()) {
            Some(folder) => Err(Fault::new(
                ExitCode::USAGE,
                format!("`{}` is a directory among files", folder.display()),
            )
            .hint("name one directory, or only files")),
            None => Ok((several.iter().map(here).collect(), false)),
        },
    }
}

fn no_folder(typed: &Path, path: &Path) -> Fault {
    let entries = path.parent().and_then(|beside| beside.read_dir().ok()).into_iter().flatten();
    let folders: Vec<String> = entries
        .filter_map(|entry| {
            entry.ok().filter(|entry| entry.path().is_dir())?.file_name().into_string().ok()
        })
        .collect();
    let wanted =
        path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let meant =
        closest(&wanted, folders.iter().map(String::as_str)).map(|near| typed.with_file_name(near));
    let meant =
        meant.map(|near| format!("did you mean `{}`? ", near.display())).unwrap_or_default();
    Fault::new(ExitCode::NOT_FOUND, format!("no folder `{}`", typed.display()))
        .hint(format!("{meant}`lamp apply` takes a folder of job files, or the files themselves"))
}
