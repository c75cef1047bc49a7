//! Recorded spot prices, as `lamp prices -o json` prints them: `{"histories": [{"region", "zone",
//! "instance_type", "points": [{"at", "price"}]}]}`. Other fields are ignored.

#![expect(
    clippy::disallowed_methods,
    reason = "an adapter: it reads the files that the user names"
)]

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Deserialize;

use crate::market::PriceHistory;

/// Why a recording could not be used.
#[derive(Debug, thiserror::Error)]
pub enum PriceCourseError {
    #[error("`{}` could not be read", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("`{}` holds no courses of spot prices", path.display())]
    Form {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("`{}` holds no price", path.display())]
    Empty { path: PathBuf },
    #[error("`{}` holds the courses of {} pools ({}), and a job is played in one", path.display(), pools.len(), pools.join(", "))]
    Several { path: PathBuf, pools: Vec<String> },
}

#[derive(Deserialize)]
struct PriceRecording {
    histories: Vec<PriceHistory>,
    #[serde(default)]
    source: Option<PriceOrigin>,
}

/// Where the prices come from, and when.
#[derive(Deserialize)]
struct PriceOrigin {
    #[serde(default)]
    as_of: Option<String>,
}

/// The one price history of a file, and its date if the file has one: the last price holds until
/// then.
///
/// # Errors
/// When the file cannot be read, has another form, or holds none or several.
pub fn read_prices(path: &Path) -> Result<(PriceHistory, Option<Timestamp>), PriceCourseError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| PriceCourseError::File { path: path.to_owned(), source })?;
    let recorded: PriceRecording = serde_json::from_str(&text)
        .map_err(|source| PriceCourseError::Form { path: path.to_owned(), source })?;
    let path = path.to_owned();
    let made = recorded.source.and_then(|source| source.as_of).and_then(|made| made.parse().ok());
    let courses = recorded.histories.into_iter().filter(|history| !history.points().is_empty());
    // Points in a file may be in any order.
    let mut courses: Vec<PriceHistory> = courses
        .map(|it| {
            PriceHistory::new(
                it.region.clone(),
                it.zone.clone(),
                &it.instance_type,
                it.points().to_vec(),
            )
        })
        .collect();
    let pools: Vec<String> = courses
        .iter()
        .map(|course| format!("{} in {}", course.instance_type, course.zone))
        .collect();
    match (courses.pop(), pools.len()) {
        (None, _) => Err(PriceCourseError::Empty { path }),
        (Some(course), 1) => Ok((course, made)),
        _ => Err(PriceCourseError::Several { path, pools }),
    }
}
