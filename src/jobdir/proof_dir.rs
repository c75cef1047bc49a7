//! Typed access to the proofs of a job root: that machines of an account end when nobody watches them.
//!
//! ```text
//!   proofs/<account>/<region>.json     whoever makes a proof, overwritten
//! ```
//! The newest counts, whatever it says. Two that prove at once each write a whole one. What must never live here: how long a
//! proof holds (`policy::account::shutdown_proof`).

use std::sync::Arc;

use bytes::Bytes;
use futures::future::try_join_all;

use super::job_dir::{JobDirError, read, unless_damaged};
use super::layout;
use super::record::encode;
use crate::job::Proof;
use crate::ports::Store;

/// The keys of the proofs of all accounts, for whoever is still asking which one this is.
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

    /// The newest of a region; one that cannot be read is as good as none, and another is made.
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

    /// The newest of each region that has one of these keys, all asked for at once: a handful, one for each region that somebody uses.
    ///
    /// # Errors
    /// As [`ProofDir::newest`].
    pub async fn among(&self, keys: &[String]) -> Result<Vec<Proof>, JobDirError> {
        let ours = layout::proofs(&self.account);
        let regions = keys.iter().filter_map(|key| key.strip_prefix(&ours)?.strip_suffix(".json"));
        let found = try_join_all(regions.map(|region| self.newest(region))).await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Overwrites the one before. A record of a newer version is left alone.
    ///
    /// # Errors
    /// As any write of a record, and when a newer version wrote what is there.
    pub async fn put(&self, proof: &Proof) -> Result<(), JobDirError> {
        self.newest(&proof.region).await?;
        let key = layout::proof(&self.account, &proof.region);
        Ok(self.store.put(&key, Bytes::from(encode(proof))).await?)
    }
}
