//! The switch of a machine of the local cloud: it ends the attempt and touches nothing else of the workstation.

use std::time::Duration;

use async_trait::async_trait;

use super::machine_folder::{LocalFolder, PowerOffRecord, STOP};
use crate::ports::{Power, PowerError, PowerOff};

/// The machine looks ten times a second, kills what is left and ends us with it. When that has not happened after this
/// long, it is not going to; shorter, and a workstation under load looks broken.
const ENDED_WITHIN: Duration = Duration::from_secs(60);

pub struct LocalPower {
    folder: LocalFolder,
}

impl LocalPower {
    pub fn new(folder: LocalFolder) -> Self {
        LocalPower { folder }
    }
}

#[async_trait]
impl Power for LocalPower {
    async fn off(&self, how: PowerOff, why: &str) -> Result<(), PowerError> {
        let how = match how {
            PowerOff::Terminate => "terminate",
            PowerOff::Stop => STOP,
        };
        let record = PowerOffRecord { how: how.to_owned(), why: why.to_owned() };
        self.folder.write("poweroff.json", &record).map_err(|error| PowerError::StillOn { what: format!("cannot write poweroff.json: {error}") })?;
        #[expect(clippy::disallowed_methods, reason = "this adapter waits for the machine to end it")]
        tokio::time::sleep(ENDED_WITHIN).await;
        Err(PowerError::StillOn { what: "the machine's process does not obey".to_owned() })
    }
}
