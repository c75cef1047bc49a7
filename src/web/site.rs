//! What all pages share: where the records are, who may look, and the newest overview.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _, Shared};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::job::job_look::JobLooks;
use crate::app::analysis::sample_cache::SampleCache;
use crate::app::costs::details::CostReader;
use crate::app::job_act::ActPlace;
use crate::app::overview::machine_watch::{CloudAsking, CloudLook};
use crate::app::overview::overview::{Overview, OverviewReader, look_interval};
use crate::app::overview::usage_trend::UsageTrends;
use crate::app::prices::pool_prices::PoolPrices;
use crate::app::prices::price_memory::PriceMemory;
use crate::app::tune::importance::ImportanceReader;
use crate::app::{ExitCode, Fault};
use crate::market::Span;
use crate::wire::{
    ClockHandle, StoreHandle, TuneEngine, Workstation, random_token, store_of_server,
};

pub struct Site {
    pub store: StoreHandle,
    pub workstation: Workstation,
    pub clock: ClockHandle,
    /// The configuration has errors, so no process is started with it.
    pub is_misread: bool,
    /// The names and addresses by which a browser may reach this site.
    pub hosts: Vec<String>,
    pub cookie: String,
    token: String,
    /// The code of the printed link, until it is used.
    code: Mutex<Option<String>>,
    reader: OverviewReader,
    looks_at_all: Mutex<Looked>,
    pub trends: UsageTrends,
    pub samples: SampleCache,
    pub looks: JobLooks,
    pub parts: DrawnParts,
    pub costs: CostReader,
    pub prices: PriceMemory,
    pub pool_prices: PoolPrices,
    pub importance: ImportanceReader,
    /// When the last look that a program asked for ended. Held while the clouds are asked.
    pub cloud_look: tokio::sync::Mutex<Option<(Timestamp, CloudLook)>>,
}

/// The newest overview, its age, and why there is no newer one.
#[derive(Clone, Default)]
pub struct Newest {
    pub overview: Option<Arc<Overview>>,
    pub fault: Option<Fault>,
    pub age: Duration,
}

/// The last look at all jobs, and the one under way. Its times are monotonic: the wall clock may
/// jump.
#[derive(Default)]
struct Looked {
    overview: Option<Arc<Overview>>,
    fault: Option<Fault>,
    /// When the overview was asked for.
    read: Duration,
    /// When the newest look began.
    began: Option<Duration>,
    under_way: Option<PendingLook>,
}

/// Ends when a look has ended.
type PendingLook = Shared<BoxFuture<'static, ()>>;

/// A page that knows something shows it after this time. A longer one holds the page up.
const PAGE_PATIENCE: Duration = Duration::from_secs(2);

/// A page that knows nothing waits so long, and so does a program: old values could mislead it.
const FIRST_PATIENCE: Duration = Duration::from_secs(20);

/// A job root that is silent for so long is reported. A bucket with many jobs needs some seconds.
const SILENT: Duration = Duration::from_secs(10);

/// A look that takes longer is given up, and the next one begins. A bucket with 10,000 new jobs
/// takes half as long.
const LOOK_PATIENCE: Duration = Duration::from_secs(60);

impl Site {
    /// # Errors
    /// Fails when the state folder cannot be used, or a thread is refused.
    pub fn new(
        store: StoreHandle,
        workstation: Workstation,
        clock: ClockHandle,
        is_misread: bool,
    ) -> std::io::Result<Site> {
        Ok(Site {
            token: workstation.page_token()?,
            code: Mutex::new(Some(random_token())),
            store: store_of_server(store)?,
            workstation,
            clock,
            is_misread,
            hosts: Vec::new(),
            cookie: String::new(),
            reader: OverviewReader::new(CloudAsking::Beside),
            looks_at_all: Mutex::default(),
            trends: UsageTrends::default(),
            samples: SampleCache::default(),
            looks: JobLooks::default(),
            parts: DrawnParts::default(),
            costs: CostReader::default(),
            prices: PriceMemory::default(),
            pool_prices: PoolPrices::default(),
            importance: ImportanceReader::new(TuneEngine::new(None)),
            cloud_look: tokio::sync::Mutex::default(),
        })
    }

    /// The pages of tunings ask this process.
    #[must_use]
    pub fn asking(mut self, engine: TuneEngine) -> Site {
        self.importance = ImportanceReader::new(engine);
        self
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

    /// What a page shows: all pages share one look, which is as old as [`Site::every`] if the job
    /// root answers.
    pub async fn overview(self: &Arc<Self>) -> Newest {
        let knows = self.looked().overview.is_some();
        self.overview_within(if knows { PAGE_PATIENCE } else { FIRST_PATIENCE }).await
    }

    /// The same for a program, which waits longer.
    pub async fn overview_for_program(self: &Arc<Self>) -> Newest {
        self.overview_within(FIRST_PATIENCE).await
    }

    async fn overview_within(self: &Arc<Self>, patience: Duration) -> Newest {
        if let Some(look) = self.look() {
            // A look goes on when its page has given up.
            tokio::select! { () = look => {} () = self.clock.sleep(patience) => {} }
        }
        self.newest()
    }

    fn newest(&self) -> Newest {
        let looked = self.looked();
        let now = self.clock.mono();
        let under_way = looked.under_way.as_ref().filter(|look| look.peek().is_none());
        let silent = under_way.and(looked.began).map(|began| now.saturating_sub(began));
        Newest {
            overview: looked.overview.clone(),
            fault: silent
                .filter(|silent| *silent >= SILENT)
                .map(silence)
                .or_else(|| looked.fault.clone()),
            age: now.saturating_sub(looked.read),
        }
    }

    /// The look under way, or a new one. `None`: the last one is new enough.
    fn look(self: &Arc<Self>) -> Option<PendingLook> {
        let mut looked = self.looked();
        if let Some(look) = looked.under_way.as_ref().filter(|look| look.peek().is_none()) {
            return Some(look.clone());
        }
        let now = self.clock.mono();
        if looked.began.is_some_and(|began| now.saturating_sub(began) < self.every()) {
            return None;
        }
        let site = Arc::clone(self);
        let task = tokio::spawn(async move {
            let read = tokio::select! {
                read = site.reader.read(&site.store, &site.workstation, site.clock.now()) => read,
                () = site.clock.sleep(LOOK_PATIENCE) => Err(silence(LOOK_PATIENCE)),
            };
            let mut looked = site.looked();
            // Its waiters may have left, so it is not asked whether it has ended.
            looked.under_way = None;
            match read {
                Ok(overview) => {
                    (looked.overview, looked.fault) = (Some(Arc::new(overview)), None);
                    looked.read = now;
                }
                // The last overview stays, with its age.
                Err(fault) => looked.fault = Some(fault),
            }
        });
        let look = task.map(|_| ()).boxed().shared();
        (looked.under_way, looked.began) = (Some(look.clone()), Some(now));
        Some(look)
    }

    /// After an act, the next page looks anew.
    pub fn look_again(&self) {
        self.parts.forget();
        self.looked().began = None;
    }

    fn looked(&self) -> MutexGuard<'_, Looked> {
        self.looks_at_all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn code(&self) -> MutexGuard<'_, Option<String>> {
        self.code.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn silence(silent: Duration) -> Fault {
    let silent = Span::from_secs(silent.as_secs());
    Fault::new(ExitCode::UNREACHABLE, format!("the job root has not answered for {silent}"))
        .meaning("what runs goes on, and its machines end by their own limits")
        .hint("`lamp doctor` shows whether the job root can be reached")
}

/// Compares digests, so that the time says nothing about the secret.
fn same(one: &str, other: &str) -> bool {
    Sha256::digest(one) == Sha256::digest(other)
}

/// The newest part of each address, for all its open pages.
#[derive(Default)]
pub struct DrawnParts(Mutex<BTreeMap<String, (Duration, Arc<str>)>>);

impl DrawnParts {
    /// A part that is not older than `every`; else `draw` makes a new one. `now` is monotonic.
    pub async fn of(
        &self,
        address: &str,
        now: Duration,
        every: Duration,
        draw: impl Future<Output = String>,
    ) -> Arc<str> {
        let known = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, (drawn, _)| now.saturating_sub(*drawn) < every);
            all.get(address).map(|(_, part)| Arc::clone(part))
        };
        if let Some(part) = known {
            return part;
        }
        // A carriage return would end the line of the event.
        let part: Arc<str> = draw.await.replace('\r', "&#13;").into();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A slow drawing must not take the place of a newer one.
        if all.get(address).is_none_or(|(drawn, _)| *drawn <= now) {
            all.insert(address.to_owned(), (now, Arc::clone(&part)));
        }
        part
    }

    fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pages_of_one_address_share_a_drawing_until_it_is_old() {
        let parts = DrawnParts::default();
        let every = Duration::from_secs(2);
        let of = async |address: &str, millis: u64, drawn: &str| {
            let now = Duration::from_millis(millis);
            parts.of(address, now, every, async { drawn.to_owned() }).await.to_string()
        };
        assert_eq!(of("/live?q=", 0, "first").await, "first");
        assert_eq!(of("/live?q=", 1_999, "second").await, "first");
        assert_eq!(of("/live?q=a", 1_999, "another\rpage").await, "another&#13;page");
        assert_eq!(of("/live?q=", 2_000, "third").await, "third");
        assert_eq!(parts.0.lock().unwrap().len(), 2, "old parts are dropped");
    }
}
