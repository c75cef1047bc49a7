//! Typed access to the shutdown proofs of a job root: machines of an account end without
//! supervision.
//!
//! ```text
//!   proofs/<account>/<region>.json     overwritten by each prover
//! ```
//! The newest proof counts, whatever its result. Two provers at once each write a complete record.
//! How long a proof is valid does not belong here (`policy::account::shutdown_proof`).

use std::sync::Arc;

use bytes::Bytes;
use futures::future::try_join_all;

use super::error::{JobDirError, unless_damaged};
use super::job_dir::read;
use super::layout;
use super::record::encode;
use crate::job::Proof;
use crate::ports::Store;

/// The keys of the proofs of all accounts, for a caller that does not know its account yet.
///
/// # Errors
/// When the store does not answer.
pub async fn proof_keys(store: &dyn Store) -> Result<Vec<String>, JobDirError> {
    keys(store, layout::PROOFS).await
}

async fn keys(store: &dyn Store, under: &str) -> Result<Vec<String>, JobDirError> {
    Ok(store.list(under).await?.into_iter().map(|meta| meta.key).collect())
}

/// The proofs of one account. Cheap to clone.
#[derive(Clone)]
pub struct ProofDir {
    store: Arc<dyn Store>,
    account: String,
}

impl ProofDir {
    pub fn new(store: Arc<dyn Store>, account: &str) -> Self {
        ProofDir { store, account: account.to_owned() }
    }

    /// The newest proof of a region. A damaged one counts as none, and a new one is made.
    ///
    /// # Errors
    /// When the store does not answer, or a newer version wrote it.
    pub async fn newest(&self, region: &str) -> Result<Option<Proof>, JobDirError> {
        let key = layout::proof(&self.account, region);
        unless_damaged(read(&*self.store, &key).await)
    }

    /// The newest of each region.
    ///
    /// # Errors
    /// As [`ProofDir::newest`].
    pub async fn all(&self) -> Result<Vec<Proof>, JobDirError> {
        self.among(&keys(&*self.store, &layout::proofs(&self.account)).await?).await
    }

    /// The newest of each region that has one of these keys. All are read at once, since they are
    /// few: one for each region in use.
    ///
    /// # Errors
    /// As [`ProofDir::newest`].
    pub async fn among(&self, keys: &[String]) -> Result<Vec<Proof>, JobDirError> {
        let ours = layout::proofs(&self.account);
        let regions = keys.iter().filter_map(|key| key.strip_prefix(&ours)?.strip_suffix(".json"));
        let found = try_join_all(regions.map(|region| self.newest(region))).await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Overwrites the previous proof, but not a record of a newer version.
    ///
    /// # Errors
    /// As any write of a record, and when a newer version wrote the record.
    pub async fn put(&self, proof: &Proof) -> Result<(), JobDirError> {
        self.newest(&proof.region).await?;
        let key = layout::proof(&self.account, &proof.region);
        Ok(self.store.put(&key, Bytes::from(encode(proof))).await?)
    }
}
