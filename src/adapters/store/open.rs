//! Opens a job root: `file:///path` (a folder, `store::folder`) or `s3://bucket/prefix` (S3 or a
//! compatible store, `store::s3`).
//!
//! A folder is private to its owner. Not here: which keys there are (`jobdir::layout`), when to try
//! again (the loops).

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::aws::AwsCredentialProvider;

use super::folder::FileStore;
pub use super::s3::CredentialExpiry;
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

/// Opens a job root. A missing folder is created, readable by its owner only. A bare absolute path
/// is a folder. S3 is not called yet.
///
/// # Errors
/// If the URL has another scheme, the folder cannot be created, or settings for S3 are missing.
pub fn open(url: &str) -> Result<Arc<dyn Store>, OpenError> {
    open_with(url, &[])
}

/// Like [`open`], with settings for S3 that override the environment. Their names are the variables
/// in lower case (`aws_endpoint_url`).
///
/// # Errors
/// As [`open`], and for a setting with an unknown name.
pub fn open_with(url: &str, settings: &[(&str, &str)]) -> Result<Arc<dyn Store>, OpenError> {
    open_as(url, settings, S3Options::default(), create_folder)
}

/// Credentials and address of a bucket, from the credential chain of the workstation.
pub struct S3Access {
    /// `None`: the environment may name it.
    pub region: Option<String>,
    pub endpoint: Option<String>,
    pub credentials: Option<AwsCredentialProvider>,
    /// When the credentials expire, for links that are signed with them.
    pub ending: Option<Arc<dyn CredentialExpiry>>,
    /// The folder that records the progress of large uploads, so that a later call with the same
    /// content sends only the rest. `None`: progress is not recorded.
    pub uploads: Option<PathBuf>,
}

/// Like [`open`], with these credentials. `existing`: a missing folder is not created.
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
    let who = S3Options {
        credentials: access.credentials,
        ending: access.ending,
        uploads: access.uploads,
    };
    if existing {
        open_as(url, &settings, who, existing_folder)
    } else {
        open_as(url, &settings, who, create_folder)
    }
}

fn create_folder(path: &Path) -> Result<FileStore, OpenError> {
    FileStore::open(path).map_err(|cause| OpenError::Folder { path: path.to_owned(), cause })
}

fn existing_folder(path: &Path) -> Result<FileStore, OpenError> {
    match path.metadata() {
        Ok(found) if !found.is_dir() => Err(OpenError::NoFolder { path: path.to_owned() }),
        Err(cause) if cause.kind() == ErrorKind::NotADirectory => {
            Err(OpenError::NoFolder { path: path.to_owned() })
        }
        _ => Ok(FileStore::at(path)),
    }
}

/// Like [`open`], and returns the credentials of the S3 client, if there is one: all calls of this
/// machine share them. `uploads`: the folder that records the progress of large uploads, so that
/// they survive a crash.
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
    let store = bucket(url, settings, S3Options::default())?
        .remembering(Uploads::remembered_in(uploads.to_owned()));
    let credentials = store.credentials();
    Ok((Arc::new(store), Some(credentials)))
}

/// Like [`open`] for a reader: a missing folder is not created.
///
/// # Errors
/// As [`open`], without the one for a folder.
pub fn open_existing(url: &str) -> Result<Arc<dyn Store>, OpenError> {
    open_as(url, &[], S3Options::default(), existing_folder)
}

fn open_as(
    url: &str,
    settings: &[(&str, &str)],
    who: S3Options,
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

/// The credentials and options of a store; by default the environment has them.
#[derive(Default)]
struct S3Options {
    credentials: Option<AwsCredentialProvider>,
    ending: Option<Arc<dyn CredentialExpiry>>,
    uploads: Option<PathBuf>,
}

fn bucket(url: &str, settings: &[(&str, &str)], who: S3Options) -> Result<S3Store, OpenError> {
    let syntax = || OpenError::Syntax { url: shown(url) };
    let rest = url.strip_prefix("s3://").ok_or_else(syntax)?;
    let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    // A bucket's name has none of these. The text before an `@` may be a key or a password, which
    // would be stored with every job.
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

/// Hides a possible password: the text before the last `@`, and after a `?`, where presigned URLs
/// have their signature.
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
    fn password_in_a_job_root_is_refused_and_not_shown() {
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
    fn root_is_a_folder_or_a_bucket() {
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
