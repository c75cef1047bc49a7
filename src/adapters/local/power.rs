//! Power for a machine of the local cloud: it ends the attempt and leaves the workstation alone.

use std::io::ErrorKind;
use std::time::Duration;

use async_trait::async_trait;

use super::job_workdir;
use super::machine_folder::{LocalFolder, PowerOffRecord, STOP};
use crate::ports::{Power, PowerError, PowerOff};

/// The machine sees the request within 0.1 s and kills the agent too. If this takes longer, it has
/// failed. A shorter limit reports a loaded workstation as broken.
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
        let write = || self.folder.write("poweroff.json", &record);
        let written = match write() {
            Err(error) if error.kind() == ErrorKind::StorageFull && record.how != STOP => {
                job_workdir::empty(&self.folder).and_then(|()| write())
            }
            written => written,
        };
        written.map_err(|error| PowerError::StillOn {
            what: format!("cannot write poweroff.json: {error}"),
        })?;
        #[expect(
            clippy::disallowed_methods,
            reason = "this adapter waits for the machine to end it"
        )]
        tokio::time::sleep(ENDED_WITHIN).await;
        Err(PowerError::StillOn { what: "the machine's process does not obey".to_owned() })
    }
}
