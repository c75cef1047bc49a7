//! The receipts of ended jobs in the user's cache folder, so that a new view reads only the rest.
//!
//! A receipt never changes, and a job that is deleted is listed no more. The index is never the
//! truth: it is read once at the start of a view, and may be deleted, torn or old.
//!
//! ```text
//! one file for each job root and version:   receipt JSON, a line each
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::job::{JobId, Receipt};
use crate::wire::{append_cached, read_cached};

/// With fewer lines, starting a thread costs more than it saves.
const LINES_A_THREAD: usize = 50;

/// The file of one job root.
#[derive(Debug, PartialEq)]
pub struct EndedIndex {
    file: String,
}

impl EndedIndex {
    /// Another version of this program may know other fields, so it has another file.
    pub fn of(job_root: &str) -> EndedIndex {
        let root = hex::encode(&Sha256::digest(job_root.trim_end_matches('/'))[..8]);
        EndedIndex { file: format!("ended-{}-{root}.jsonl", env!("CARGO_PKG_VERSION")) }
    }

    pub fn read(&self) -> BTreeMap<JobId, Arc<Receipt>> {
        decoded(&read_cached(&self.file))
    }

    /// Without a cache folder, the next view reads the records.
    pub fn add(&self, receipts: &[Arc<Receipt>]) {
        if receipts.is_empty() {
            return;
        }
        if let Err(error) = append_cached(&self.file, &encoded(receipts)) {
            tracing::debug!("the index of ended jobs is not kept: {error}");
        }
    }
}

/// Begins with a line feed, so that a torn line before it spoils only itself.
fn encoded(receipts: &[Arc<Receipt>]) -> Vec<u8> {
    let mut lines = vec![b'\n'];
    for receipt in receipts {
        let Ok(line) = serde_json::to_vec(receipt.as_ref()) else { continue };
        lines.extend(line);
        lines.push(b'\n');
    }
    lines
}

/// On all cores: a person waits for the first look.
fn decoded(text: &[u8]) -> BTreeMap<JobId, Arc<Receipt>> {
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let decode = |lines: &[&[u8]]| -> Vec<(JobId, Arc<Receipt>)> {
        let receipts = lines.iter().filter_map(|line| serde_json::from_slice::<Receipt>(line).ok());
        receipts.map(|receipt| (receipt.job.clone(), Arc::new(receipt))).collect()
    };
    std::thread::scope(|scope| {
        let parts = lines.chunks(lines.len().div_ceil(cores).max(LINES_A_THREAD));
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || decode(part))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_index_keeps_the_other_receipts() {
        let receipt = |job: &str| {
            let mut receipt: Receipt =
                serde_json::from_str(include_str!("../../../tests/data/v1/receipt.json")).unwrap();
            receipt.job = job.parse().unwrap();
            Arc::new(receipt)
        };
        let (one, two, three) = (receipt("a-222222"), receipt("b-222222"), receipt("c-222222"));
        let mut lines = encoded(&[Arc::clone(&one), Arc::clone(&two)]);
        lines.truncate(lines.len() - 20);
        lines.extend(encoded(&[Arc::clone(&three)]));
        let read = decoded(&lines);
        let jobs: Vec<&Arc<Receipt>> = read.values().collect();
        assert_eq!(jobs, [&one, &three]);
        assert_ne!(EndedIndex::of("file:///a"), EndedIndex::of("file:///b"));
        assert_eq!(EndedIndex::of("file:///a"), EndedIndex::of("file:///a/"));
    }
}
