//! Where job roots live: `file:///path` (a folder) or `s3://bucket/prefix`.
//!
//! ```text
//!   open(url) ──> FileStore    a folder, private to its owner (object_file.rs)
//!            └──> S3Store      S3 and what speaks like it   (object_s3.rs)
//! ```
//! Not here: which keys there are (`jobdir::layout`), when to try again (the loops).

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::aws::AwsCredentialProvider;

use super::folder::FileStore;
pub use super::s3::Ending;
use super::s3::S3Store;
pub use super::s3::install_crypto;
use super::s3_multipart::Uploads;
use crate::ports::Store;

/// Why a job root cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("`{url}` is not a job root, write file:///path or s3://bucket/prefix")]
    Syntax { url: String },
    #[error("cannot create the job root `{path}`")]
    Folder {
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    #[error("`{path}` cannot be the job root: it, or what it is below, is a file")]
    NoFolder { path: PathBuf },
    #[error("cannot use `{url}`")]
    Settings {
        url: String,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Opens a job root; a folder that is not there is created, readable by its owner only. A bare
/// absolute path is a folder. Nothing is asked of S3 yet.
///
/// # Errors
/// When the URL is of neither kind, the folder cannot be created, or the settings for S3 are not
/// complete.
pub fn open(url: &str) -> Result<Arc<dyn Store>, OpenError> {
    open_with(url, &[])
}

/// Like [`open`], with settings for S3 that win over the environment, by their names there in lower
/// case (`aws_endpoint_url`).
///
/// # Errors
/// As [`open`], and when a setting has a name that nobody knows.
pub fn open_with(url: &str, settings: &[(&str, &str)]) -> Result<Arc<dyn Store>, OpenError> {
    open_as(url, settings, Who::default(), made)
}

/// Who we are to S3, and where the bucket is: what the ordinary chain of the workstation says.
pub struct S3Access {
    /// `None`: the environment may say.
    pub region: Option<String>,
    pub endpoint: Option<String>,
    pub credentials: Option<AwsCredentialProvider>,
    /// When they end, for what is signed with them.
    pub ending: Option<Arc<dyn Ending>>,
    /// Where it is remembered how far large files are, so that who packs the same once more sends
    /// what has not arrived. `None`: nowhere.
    pub uploads: Option<PathBuf>,
}

/// Like [`open`], as somebody. `existing`: a folder that is not there is not made.
///
/// # Errors
/// As [`open`].
pub fn open_through(
    url: &str,
    existing: bool,
    access: S3Access,
) -> Result<Arc<dyn Store>, OpenError> {
    let said = [
        ("aws_region", access.region.as_deref()),
        ("aws_endpoint_url", access.endpoint.as_deref()),
    ];
    let settings: Vec<(&str, &str)> =
        said.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let who =
        Who { credentials: access.credentials, ending: access.ending, uploads: access.uploads };
    if existing { open_as(url, &settings, who, there) } else { open_as(url, &settings, who, made) }
}

fn made(path: &Path) -> Result<FileStore, OpenError> {
    FileStore::open(path).map_err(|cause| OpenError::Folder { path: path.to_owned(), cause })
}

fn there(path: &Path) -> Result<FileStore, OpenError> {
    match path.metadata() {
        Ok(found) if !found.is_dir() => Err(OpenError::NoFolder { path: path.to_owned() }),
        Err(cause) if cause.kind() == ErrorKind::NotADirectory => {
            Err(OpenError::NoFolder { path: path.to_owned() })
        }
        _ => Ok(FileStore::at(path)),
    }
}

/// Like [`open`], with the credentials that the store signs with, if it does: one client holds them
/// for everything that this machine may call. `uploads`: where it is remembered how far large files
/// are, over a crash.
///
/// # Errors
/// As [`open_with`].
pub fn open_with_credentials(
    url: &str,
    settings: &[(&str, &str)],
    uploads: &Path,
) -> Result<(Arc<dyn Store>, Option<AwsCredentialProvider>), OpenError> {
    if !url.starts_with("s3://") {
        return Ok((open(url)?, None));
    }
    let store = bucket(url, settings, Who::default())?
        .remembering(Uploads::remembered_in(uploads.to_owned()));
    let credentials = store.credentials();
    Ok((Arc::new(store), Some(credentials)))
}

/// Like [`open`], for whoever wants what is there: a folder that is not there is not made.
///
/// # Errors
/// As [`open`], but for the folder.
pub fn open_existing(url: &str) -> Result<Arc<dyn Store>, OpenError> {
    open_as(url, &[], Who::default(), there)
}

fn open_as(
    url: &str,
    settings: &[(&str, &str)],
    who: Who,
    folder: impl Fn(&Path) -> Result<FileStore, OpenError>,
) -> Result<Arc<dyn Store>, OpenError> {
    let syntax = || OpenError::Syntax { url: shown(url) };
    if let Some(path) = url.strip_prefix("file://").or_else(|| url.starts_with('/').then_some(url))
    {
        let path = Path::new(path);
        if !path.is_absolute() {
            return Err(syntax());
        }
        return Ok(Arc::new(folder(path)?));
    }
    Ok(Arc::new(bucket(url, settings, who)?))
}

/// Nobody in particular: the environment says.
#[derive(Default)]
struct Who {
    credentials: Option<AwsCredentialProvider>,
    ending: Option<Arc<dyn Ending>>,
    uploads: Option<PathBuf>,
}

fn bucket(url: &str, settings: &[(&str, &str)], who: Who) -> Result<S3Store, OpenError> {
    let syntax = || OpenError::Syntax { url: shown(url) };
    let rest = url.strip_prefix("s3://").ok_or_else(syntax)?;
    let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    // No bucket has such a name. What stands before an `@` is a key or a password, which would be
    // kept with every job.
    if name.is_empty() || name.contains(['@', ':']) || url.contains('?') {
        return Err(syntax());
    }
    let wrong = |cause| OpenError::Settings { url: url.to_owned(), cause: Box::new(cause) };
    let known = settings
        .iter()
        .map(|(name, value)| Ok((name.parse()?, *value)))
        .collect::<Result<Vec<_>, _>>()
        .map_err(wrong)?;
    let store =
        S3Store::open(name, prefix.trim_matches('/'), &known, who.credentials).map_err(wrong)?;
    let store =
        who.uploads.map(Uploads::of_packed_files).into_iter().fold(store, S3Store::remembering);
    Ok(who.ending.into_iter().fold(store, S3Store::ending))
}

/// Without what may be a password: whatever stands before the last `@`, and after a `?`, where
/// presigned URLs have their signature.
fn shown(url: &str) -> String {
    let (scheme, rest) =
        url.split_once("://").map_or(("", url), |(scheme, rest)| (&url[..scheme.len() + 3], rest));
    let rest =
        rest.rsplit_once('@').map_or_else(|| rest.to_owned(), |(_, rest)| format!("***@{rest}"));
    let rest = rest.split_once('?').map_or_else(|| rest.clone(), |(rest, _)| format!("{rest}?***"));
    format!("{scheme}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_job_root_is_refused_and_not_shown() {
        for (url, told) in [
            ("s3://key:hunter2@bucket/jobs", "s3://***@bucket/jobs"),
            ("https://me:hunter2@host/a?b=hunter2", "https://***@host/a?***"),
            ("s3://bucket/jobs?X-Amz-Signature=hunter2", "s3://bucket/jobs?***"),
            ("me:hunter2@host", "***@host"),
            ("s3://me@hunter2@x", "s3://***@x"),
        ] {
            let error = open(url).err().expect("it is none").to_string();
            assert_eq!(
                error,
                format!("`{told}` is not a job root, write file:///path or s3://bucket/prefix")
            );
        }
    }

    #[test]
    fn a_root_is_a_folder_or_a_bucket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        assert_eq!(
            open(&format!("file://{}", path.display())).unwrap().url(),
            format!("file://{}", path.display())
        );
        assert_eq!(
            open(path.to_str().unwrap()).unwrap().url(),
            format!("file://{}", path.display())
        );
        for wrong in ["", "relative/path", "file://relative", "gs://bucket", "s3://"] {
            assert!(matches!(open(wrong), Err(OpenError::Syntax { .. })), "{wrong}");
        }
        assert!(matches!(open("file:///proc/nothing/here"), Err(OpenError::Folder { .. })));
    }
}
