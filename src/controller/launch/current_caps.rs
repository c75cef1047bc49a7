//! The caps in force: read again before each launch that they may hold back, and once more after a
//! wait for the turn. A daemon runs for weeks, and a cap that the user changes meanwhile holds for
//! every later launch. `policy::purchase::spending_cap` decides about a launch.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::{info, warn};

use crate::policy::purchase::spending_cap::Caps;

/// Reads them, or says why it cannot.
type Read = Box<dyn Fn() -> Result<Caps, String> + Send + Sync>;

/// Shared by the controllers of one process: what one of them has read holds for all.
#[derive(Default)]
pub struct CapsInForce {
    read: Option<Read>,
    last: Mutex<LastRead>,
}

/// The last caps that could be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LastRead {
    caps: Caps,
    is_stale: bool,
}

/// News for the user after a read.
#[derive(Debug, PartialEq, Eq)]
enum CapsNews {
    /// The caps cannot be read, so the last ones hold.
    Unread(String),
    Changed,
}

impl LastRead {
    /// An error changes no cap: a file that is half written must not let a machine through.
    fn take(&mut self, read: Result<Caps, String>) -> Option<CapsNews> {
        match read {
            Ok(caps) => {
                let is_new = caps != self.caps;
                *self = LastRead { caps, is_stale: false };
                is_new.then_some(CapsNews::Changed)
            }
            Err(why) => {
                (!std::mem::replace(&mut self.is_stale, true)).then_some(CapsNews::Unread(why))
            }
        }
    }
}

impl CapsInForce {
    /// These, until the process ends.
    pub fn fixed(caps: Caps) -> Self {
        CapsInForce { read: None, last: Mutex::new(LastRead { caps, is_stale: false }) }
    }

    /// These, until `read` gives others.
    pub fn read_by(
        caps: Caps,
        read: impl Fn() -> Result<Caps, String> + Send + Sync + 'static,
    ) -> Self {
        CapsInForce { read: Some(Box::new(read)), ..CapsInForce::fixed(caps) }
    }

    /// The caps at the last read.
    pub fn last(&self) -> Caps {
        self.lock().caps
    }

    /// The caps now: a small read.
    pub fn anew(&self) -> Caps {
        let Some(read) = &self.read else { return self.last() };
        let read = read();
        let mut last = self.lock();
        match last.take(read) {
            Some(CapsNews::Unread(why)) => {
                warn!("[caps] cannot be read, and what was read last goes on to hold: {why}")
            }
            Some(CapsNews::Changed) => {
                info!("[caps] of the configuration says otherwise now, and holds from here on")
            }
            None => {}
        }
        last.caps
    }

    fn lock(&self) -> MutexGuard<'_, LastRead> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::market::Usd;

    #[test]
    fn read_error_keeps_the_caps_and_is_logged_once() {
        let caps = Caps { usd_per_day: Some(Usd::from_micros(5_000_000)), ..Caps::default() };
        let mut last = LastRead::default();
        assert_eq!(
            (last.take(Ok(Caps::default())), last.take(Ok(caps))),
            (None, Some(CapsNews::Changed))
        );
        assert_eq!(
            last.take(Err("it is no TOML".into())),
            Some(CapsNews::Unread("it is no TOML".into()))
        );
        assert_eq!((last.take(Err("it is gone".into())), last.caps), (None, caps));
        assert_eq!(
            (last.take(Ok(caps)), last.take(Ok(Caps::default()))),
            (None, Some(CapsNews::Changed)),
            "none is none, once it is said"
        );
        assert_eq!(
            last.take(Err("again".into())),
            Some(CapsNews::Unread("again".into())),
            "it was read in between"
        );
    }
}
