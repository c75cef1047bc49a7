//! Open MPI over a gang: `mpirun` runs on the first machine, and the others start what it asks for.
//!
//! ```text
//!   mpirun ── runs START_PROGRAM with HOST and COMMAND ──> a file ──> start-<rank>.json
//!     ──> the rank of HOST runs COMMAND, the daemon of Open MPI ──> it calls mpirun back
//! ```
//! So no machine needs an SSH server or a key. Each process has the environment of its own rank.

use std::collections::BTreeMap;

use super::rank_place::{RankPlace, variables};

/// `mpirun` calls this in place of ssh: it leaves the command in the folder of this file.
pub const START_PROGRAM: &str = "#!/bin/sh
folder=$(dirname \"$0\") && host=$1 && shift &&
printf '%s' \"$*\" >\"$folder/$host.part\" && mv \"$folder/$host.part\" \"$folder/$host.start\"
";

/// The name of that file.
pub const START_FILE: &str = "start-program";

/// The ending of the name of a file with a command; before it stands the host.
pub const START_ENDING: &str = ".start";

/// The list of machines for `mpirun`.
pub const HOSTFILE: &str = "hostfile";

/// Runs the user's command in the folder of its own machine.
const IN_OWN_FOLDER: &str = "cd \"${LAMP_WORKDIR:-.}\" && exec \"$@\"";

/// The command of the first machine.
pub fn mpirun(command: &[String]) -> Vec<String> {
    let words = ["mpirun", "sh", "-c", IN_OWN_FOLDER, "lamp"].map(String::from);
    words.into_iter().chain(command.iter().cloned()).collect()
}

/// Its settings. `folder` has the two files above.
pub fn mpi_environment(place: &RankPlace<'_>, folder: &str) -> BTreeMap<String, String> {
    let mut env = variables([
        ("OMPI_MCA_orte_default_hostfile", format!("{folder}/{HOSTFILE}")),
        ("OMPI_MCA_plm_rsh_agent", format!("sh {folder}/{START_FILE}")),
        // All daemons start from the first machine, and stay children of their ranks.
        ("OMPI_MCA_plm_rsh_no_tree_spawn", "1".to_owned()),
        ("OMPI_MCA_orte_leave_session_attached", "1".to_owned()),
        // The agent runs as root on a machine that is there for this job alone.
        ("OMPI_ALLOW_RUN_AS_ROOT", "1".to_owned()),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1".to_owned()),
    ]);
    if let Some(interface) = common_interface(place) {
        env.extend(variables([
            ("OMPI_MCA_btl_tcp_if_include", interface.clone()),
            ("OMPI_MCA_oob_tcp_if_include", interface),
        ]));
    }
    env
}

/// The hostfile of `mpirun`, which takes the first machine for its own.
pub fn mpi_hostfile(place: &RankPlace<'_>) -> String {
    let members = place.formation.members.iter().enumerate();
    let line = |(node, member): (usize, &crate::job::GangReady)| {
        let host = if node == 0 { "localhost" } else { &member.host };
        let slots = member.gpus.filter(|gpus| *gpus > 0).unwrap_or(1);
        format!("{host} slots={slots}\n")
    };
    members.map(line).collect()
}

/// `mpirun` gives one setting to all machines.
fn common_interface(place: &RankPlace<'_>) -> Option<String> {
    let mut all = place.formation.members.iter().map(|member| member.interface.as_ref());
    let first = all.next().flatten()?;
    all.all(|other| other == Some(first)).then(|| first.clone())
}

#[cfg(test)]
mod tests {
    use super::super::rank_place::tests::formation;
    use super::*;

    #[test]
    fn mpirun_starts_one_process_a_slot_on_each_machine() {
        let mut formation = formation(&[1, 2]);
        formation.members[1].gpus = Some(4);
        let place = RankPlace { formation: &formation, rank: 1, processes: 1 };
        assert_eq!(mpi_hostfile(&place), "localhost slots=1\n10.0.0.3 slots=4\n");
        let env = mpi_environment(&place, "/m/mpi");
        assert_eq!(env["OMPI_MCA_plm_rsh_agent"], "sh /m/mpi/start-program");
        assert_eq!(env["OMPI_MCA_btl_tcp_if_include"], "ens5");
        let command = mpirun(&["python3".to_owned(), "train.py".to_owned()]);
        assert_eq!(command[0], "mpirun");
        assert_eq!(command[command.len() - 2..], ["python3", "train.py"]);
    }

    #[test]
    fn interface_is_left_to_mpi_where_machines_differ() {
        let mut formation = formation(&[0, 1]);
        formation.members[1].interface = Some("eth0".into());
        let place = RankPlace { formation: &formation, rank: 0, processes: 1 };
        assert!(!mpi_environment(&place, "/m").contains_key("OMPI_MCA_btl_tcp_if_include"));
    }
}
