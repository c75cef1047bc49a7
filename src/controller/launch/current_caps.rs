//! The caps that hold at this moment: those of the start, or as they are read anew before each
//! launch that they may hold back: once, and once more where it has waited for its turn.
//!
//! A daemon runs for weeks, and whoever writes a cap meanwhile means every launch from then on. Not
//! here: where they are read (whoever starts a controller hands that in), and whether a machine may
//! be launched (`policy::purchase::spending_cap`).

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

/// What was read last, and whether it could be read since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LastRead {
    caps: Caps,
    is_stale: bool,
}

/// What a person should hear of a reading.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    /// They hold as they were read last.
    Unread(String),
    Changed,
}

impl LastRead {
    /// An error changes no cap: a file that is half written must not let a machine through.
    fn take(&mut self, read: Result<Caps, String>) -> Option<Told> {
        match read {
            Ok(caps) => {
                let is_new = caps != self.caps;
                *self = LastRead { caps, is_stale: false };
                is_new.then_some(Told::Changed)
            }
            Err(why) => (!std::mem::replace(&mut self.is_stale, true)).then_some(Told::Unread(why)),
        }
    }
}

impl CapsInForce {
    /// These, for as long as the process lives.
    pub fn fixed(caps: Caps) -> Self {
        CapsInForce { read: None, last: Mutex::new(LastRead { caps, is_stale: false }) }
    }

    /// These, until `read` says others.
    pub fn read_by(
        caps: Caps,
        read: impl Fn() -> Result<Caps, String> + Send + Sync + 'static,
    ) -> Self {
        CapsInForce { read: Some(Box::new(read)), ..CapsInForce::fixed(caps) }
    }

    /// As they were read last.
    pub fn last(&self) -> Caps {
        self.lock().caps
    }

    /// As they are now: a small read.
    pub fn anew(&self) -> Caps {
        let Some(read) = &self.read else { return self.last() };
        let read = read();
        let mut last = self.lock();
        match last.take(read) {
            Some(Told::Unread(why)) => {
                warn!("[caps] cannot be read, and what was read last goes on to hold: {why}")
            }
            Some(Told::Changed) => {
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
    fn an_error_keeps_what_was_read_last_and_is_told_once() {
        let caps = Caps { usd_per_day: Some(Usd::from_micros(5_000_000)), ..Caps::default() };
        let mut last = LastRead::default();
        assert_eq!(
            (last.take(Ok(Caps::default())), last.take(Ok(caps))),
            (None, Some(Told::Changed))
        );
        assert_eq!(
            last.take(Err("it is no TOML".into())),
            Some(Told::Unread("it is no TOML".into()))
        );
        assert_eq!((last.take(Err("it is gone".into())), last.caps), (None, caps));
        assert_eq!(
            (last.take(Ok(caps)), last.take(Ok(Caps::default()))),
            (None, Some(Told::Changed)),
            "none is none, once it is said"
        );
        assert_eq!(
            last.take(Err("again".into())),
            Some(Told::Unread("again".into())),
            "it was read in between"
        );
    }
}
