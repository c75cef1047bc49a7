//! What all pages share: where the records are, who may look, and the newest overview.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::job::job_look::JobLooks;
use crate::app::Fault;
use crate::app::analysis::sample_cache::SampleCache;
use crate::app::costs::details::CostReader;
use crate::app::job_act::ActPlace;
use crate::app::overview::machine_watch::CloudAsking;
use crate::app::overview::overview::{Overview, OverviewReader, look_interval};
use crate::app::overview::usage_trend::UsageTrends;
use crate::app::prices::price_memory::PriceMemory;
use crate::market::elapsed;
use crate::wire::{Clock, Store, Workstation, random_token};

pub struct Site {
    pub store: Store,
    pub workstation: Workstation,
    pub clock: Clock,
    /// The configuration has errors, so no process is started with it.
    pub is_misread: bool,
    /// The names and addresses by which a browser may reach this site.
    pub hosts: Vec<String>,
    pub cookie: String,
    token: String,
    /// The code of the printed link, until it is used.
    code: Mutex<Option<String>>,
    reader: OverviewReader,
    newest: tokio::sync::Mutex<Newest>,
    pub trends: UsageTrends,
    pub samples: SampleCache,
    pub looks: JobLooks,
    pub costs: CostReader,
    pub prices: PriceMemory,
}

/// The newest overview, and why there is no newer one.
#[derive(Clone, Default)]
pub struct Newest {
    pub overview: Option<Arc<Overview>>,
    pub fault: Option<Fault>,
    looked: Option<Timestamp>,
}

impl Site {
    /// # Errors
    /// Fails when the state folder cannot be used.
    pub fn new(
        store: Store,
        workstation: Workstation,
        clock: Clock,
        is_misread: bool,
    ) -> std::io::Result<Site> {
        Ok(Site {
            token: workstation.page_token()?,
            code: Mutex::new(Some(random_token())),
            store,
            workstation,
            clock,
            is_misread,
            hosts: Vec::new(),
            cookie: String::new(),
            reader: OverviewReader::new(CloudAsking::Beside),
            newest: tokio::sync::Mutex::default(),
            trends: UsageTrends::default(),
            samples: SampleCache::default(),
            looks: JobLooks::default(),
            costs: CostReader::default(),
            prices: PriceMemory::default(),
        })
    }

    /// A browser sends the cookies of one port to all ports, so the port is in the name.
    #[must_use]
    pub fn reached_at(mut self, hosts: Vec<String>, port: u16) -> Site {
        (self.hosts, self.cookie) = (hosts, format!("lamp_{port}"));
        self
    }

    pub fn link(&self) -> String {
        let code = self.code().clone().unwrap_or_default();
        let host = self.hosts.first().map(String::as_str).unwrap_or_default();
        format!("http://{host}/enter?code={code}")
    }

    /// The token for the right code, once.
    pub fn exchange(&self, code: &str) -> Option<String> {
        let mut kept = self.code();
        let is_right = kept.as_deref().is_some_and(|kept| same(kept, code));
        is_right.then(|| {
            *kept = None;
            self.token.clone()
        })
    }

    pub fn is_token(&self, said: &str) -> bool {
        same(&self.token, said)
    }

    /// The word in each form, so that another page cannot send one.
    pub fn form_token(&self) -> String {
        hex::encode(Sha256::digest(format!("form {}", self.token)))
    }

    pub fn is_form_token(&self, said: &str) -> bool {
        same(&self.form_token(), said)
    }

    pub fn act_place(&self) -> ActPlace {
        ActPlace {
            store: Arc::clone(&self.store),
            workstation: self.workstation.clone(),
            clock: Arc::clone(&self.clock),
            is_misread: self.is_misread,
        }
    }

    /// Between two looks.
    pub fn every(&self) -> Duration {
        look_interval(&self.store)
    }

    /// All pages share one look, which is as old as [`Site::every`] at most.
    pub async fn overview(&self) -> Newest {
        let mut newest = self.newest.lock().await;
        let now = self.clock.now();
        if newest.looked.is_none_or(|looked| elapsed(looked, now) >= self.every()) {
            match self.reader.read(&self.store, &self.workstation, now).await {
                Ok(overview) => {
                    (newest.overview, newest.fault) = (Some(Arc::new(overview)), None);
                }
                // The last look stays, with its age.
                Err(fault) => newest.fault = Some(fault),
            }
            newest.looked = Some(now);
        }
        newest.clone()
    }

    fn code(&self) -> MutexGuard<'_, Option<String>> {
        self.code.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compares digests, so that the time says nothing about the secret.
fn same(one: &str, other: &str) -> bool {
    Sha256::digest(one) == Sha256::digest(other)
}
