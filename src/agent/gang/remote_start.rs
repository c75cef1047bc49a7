//! The first machine starts the engine on the other machines, through the job directory.
//!
//! Not here: what the engine asks for (`policy::gang::mpi_engine`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::rank_state::RankState;
use crate::job::{Formation, GangEngine, RECORD_FORMAT, RankStart};
use crate::policy::gang::mpi_engine::{
    HOSTFILE, START_ENDING, START_FILE, START_PROGRAM, mpi_environment, mpi_hostfile,
};
use crate::policy::gang::rank_place::RankPlace;

/// The engine of the first machine may end after those that it started. A rank that failed waits
/// this long for its reason, which is the reason of the gang.
pub(super) const FIRST_TELLS_WITHIN: Duration = Duration::from_secs(10);

impl RankState {
    /// Writes what `mpirun` needs, and returns its settings. Empty for other engines.
    pub(super) fn prepare_mpi(&self, place: &RankPlace<'_>) -> BTreeMap<String, String> {
        if self.gang.engine != GangEngine::Mpi {
            return BTreeMap::new();
        }
        let folder = self.starts_folder(place.formation);
        let _old = self.ports.files.remove(&folder);
        let hostfile = mpi_hostfile(place);
        for (name, text) in [(START_FILE, START_PROGRAM), (HOSTFILE, &hostfile)] {
            if let Err(error) = self.ports.files.replace(&folder.join(name), text.as_bytes()) {
                self.say(format!("cannot write {name} for mpirun: {error}"));
            }
        }
        mpi_environment(place, &folder.to_string_lossy())
    }

    /// Passes on what `mpirun` asked the other machines to start.
    pub(super) async fn pass_on_starts(&self, formation: &Formation) {
        if self.gang.engine != GangEngine::Mpi || formation.node_of(self.rank()) != Some(0) {
            return;
        }
        let folder = self.starts_folder(formation);
        for (name, _) in self.ports.files.list(&folder).unwrap_or_default() {
            let Some(host) = name.strip_suffix(START_ENDING) else { continue };
            let path = folder.join(&name);
            let Some(member) = formation.members.iter().find(|member| member.host == host) else {
                self.say(format!("mpirun asks for the machine {host}, which is not in the gang"));
                let _gone = self.ports.files.remove(&path);
                continue;
            };
            if let Some(start) = self.read_start(&path, member.rank) {
                self.insist("a start", || self.dir.create_start(formation.epoch, &start)).await;
                let _gone = self.ports.files.remove(&path);
            }
        }
    }

    /// The command of this rank, if the first machine has said it.
    pub(super) async fn own_start(&self, formation: &Formation) -> Option<Vec<String>> {
        let start = self.dir.start(formation.epoch, self.rank()).await.ok().flatten()?;
        Some(vec!["sh".to_owned(), "-c".to_owned(), start.command])
    }

    fn read_start(&self, path: &Path, rank: u32) -> Option<RankStart> {
        let bytes = self.ports.files.read(path).ok().flatten()?;
        let command = String::from_utf8(bytes).ok()?;
        Some(RankStart { format: RECORD_FORMAT, rank, command, at: self.now() })
    }

    fn starts_folder(&self, formation: &Formation) -> PathBuf {
        self.paths.hostfile.with_file_name(format!("mpi-{}", formation.epoch))
    }
}
