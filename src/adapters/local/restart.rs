//! Starts a stopped machine of the local cloud again, or gives it up.
//!
//! Not here: the records of a machine (`local::machine_folder`).

#![expect(clippy::disallowed_methods, reason = "it is a cloud: it has a clock")]

use std::io;

use jiff::Timestamp;

use super::cloud::{ID_PREFIX, LocalCloud, failed};
use super::machine_folder::InstanceRecord;
use crate::adapters::workload::holder::records::boot_id;
use crate::job::Plan;
use crate::ports::CloudError;

impl LocalCloud {
    pub(crate) fn record(&self, plan: &Plan, instance: &str) -> InstanceRecord {
        InstanceRecord {
            instance: instance.to_owned(),
            tags: plan.tags.clone(),
            launched: Timestamp::now(),
            client_token: plan.client_token.clone(),
            job_root: self.job_root.clone(),
            boot_id: boot_id(),
            usd_per_hour: plan.offer.price,
            agent: self.agent.clone(),
            aws: self.aws.clone(),
        }
    }

    /// Boots a stopped machine again, for the attempt of this plan.
    pub(crate) fn start_again(&self, instance: &str, plan: &Plan) -> Result<(), CloudError> {
        let act = "start a stopped machine";
        let folder = self.folder(instance);
        let kept = folder.instance().map_err(|cause| failed(act, cause))?;
        if kept.job_root != self.job_root || kept.client_token != plan.client_token {
            return Err(CloudError::Invalid {
                what: format!("{instance} is not the machine of this plan"),
            });
        }
        if folder.ended().map_err(|cause| failed(act, cause))?.is_some_and(|ended| !ended.stopped) {
            return Err(CloudError::Invalid {
                what: format!("{instance} has ended for good: there is nothing to start"),
            });
        }
        let record = self.record(plan, instance);
        match folder.begin_again(&record) {
            Ok(true) => self.spawn_or_end(&folder, &record).map_err(|cause| failed(act, cause)),
            Ok(false) => Ok(()),
            Err(cause) => Err(failed(act, cause)),
        }
    }

    /// Ends a stopped machine of this job root for good.
    pub(crate) fn give_up(&self, instance: &str) -> io::Result<()> {
        let folder = self.folder(instance);
        let named = instance.starts_with(ID_PREFIX)
            && !instance.contains('/')
            && folder.path("instance.json").exists();
        if named && folder.instance()?.job_root == self.job_root {
            folder.give_up("Client.UserInitiatedShutdown: terminated by its owner")?;
        }
        Ok(())
    }
}
