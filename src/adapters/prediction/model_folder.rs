//! The files of a model folder. Not here: what they mean (`app::models::model_format`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A file of a model folder, its path relative to the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderFile {
    pub path: String,
    pub bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum ModelFolderError {
    #[error("there is no folder `{}`", .0.display())]
    Missing(PathBuf),
    #[error("`{}` is a file, not the folder of a model", .0.display())]
    IsFile(PathBuf),
    #[error("cannot read `{}`", .path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("`{}` is a link to a folder", .0.display())]
    FolderLink(PathBuf),
    #[error("the name of `{}` is no text", .0.display())]
    Name(PathBuf),
    #[error("`{}` has more than {FILES_MAX} files", .0.display())]
    TooMany(PathBuf),
}

/// More files are a data set. The record of a version names each file.
const FILES_MAX: usize = 10_000;

/// All files below a folder, ordered by path.
///
/// # Errors
/// When the folder cannot be read, or holds what cannot be kept.
pub fn model_files(folder: &Path) -> Result<Vec<FolderFile>, ModelFolderError> {
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(ModelFolderError::IsFile(folder.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(ModelFolderError::Missing(folder.to_owned()));
        }
        Err(source) => return Err(ModelFolderError::Read { path: folder.to_owned(), source }),
    }
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        read_folder(folder, &next, &mut files, &mut folders)?;
        if files.len() > FILES_MAX {
            return Err(ModelFolderError::TooMany(folder.to_owned()));
        }
    }
    files.sort_unstable_by(|left, right| left.path.cmp(&right.path));
    Ok(files)
}

fn read_folder(
    root: &Path,
    folder: &Path,
    files: &mut Vec<FolderFile>,
    folders: &mut Vec<PathBuf>,
) -> Result<(), ModelFolderError> {
    let unreadable = |source| ModelFolderError::Read { path: folder.to_owned(), source };
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let path = entry.path();
        let unreadable = |source| ModelFolderError::Read { path: path.clone(), source };
        let found = fs::metadata(&path).map_err(unreadable)?;
        if found.is_dir() && entry.file_type().map_err(unreadable)?.is_symlink() {
            return Err(ModelFolderError::FolderLink(path));
        }
        if found.is_dir() {
            folders.push(path);
        } else if found.is_file() {
            let below = path.strip_prefix(root).ok().and_then(Path::to_str);
            let below = below.ok_or_else(|| ModelFolderError::Name(path.clone()))?;
            files.push(FolderFile { path: below.to_owned(), bytes: found.len() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test makes a folder")]
    fn folder_is_read_in_order_and_a_folder_link_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("variables")).unwrap();
        fs::write(folder.path().join("variables/index"), "12").unwrap();
        fs::write(folder.path().join("saved_model.pb"), "1").unwrap();
        let files = model_files(folder.path()).unwrap();
        let told: Vec<(&str, u64)> =
            files.iter().map(|file| (file.path.as_str(), file.bytes)).collect();
        assert_eq!(told, [("saved_model.pb", 1), ("variables/index", 2)]);
        std::os::unix::fs::symlink("/", folder.path().join("root")).unwrap();
        assert!(matches!(model_files(folder.path()), Err(ModelFolderError::FolderLink(_))));
        let file = folder.path().join("saved_model.pb");
        assert!(matches!(model_files(&file), Err(ModelFolderError::IsFile(_))));
    }
}
