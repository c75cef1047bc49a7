//! Variables that tell a framework that a launcher started it as one of several ranks.
//!
//! `torchrun`, `mpirun` and `srun` set them for the processes that they start. A plain command that
//! finds them acts as one rank of many. Lightning waits for the other ranks, Hugging Face uses one
//! GPU of eight, Ultralytics fails.

/// Read by torch, Lightning and accelerate.
const NAMES: [&str; 13] = [
    "RANK",
    "LOCAL_RANK",
    "GLOBAL_RANK",
    "NODE_RANK",
    "GROUP_RANK",
    "ROLE_RANK",
    "ROLE_NAME",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
];

/// Set by torchrun, Open MPI, PMI and PMIx, MPICH, MVAPICH, Slurm, LSF, Flux and Cray.
const PREFIXES: [&str; 15] = [
    "TORCHELASTIC_",
    "OMPI_",
    "PMI_",
    "PMIX_",
    "PRTE_",
    "HYDI_",
    "MPI_LOCAL",
    "MV2_COMM_WORLD_",
    "SLURM_",
    "SLURMD_",
    "SRUN_",
    "JSM_NAMESPACE_",
    "LSB_",
    "FLUX_",
    "PALS_",
];

/// Whether this variable says that a launcher started the process.
pub fn is_launchers(name: &str) -> bool {
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_names_are_known_from_others() {
        for name in [
            "RANK",
            "LOCAL_RANK",
            "WORLD_SIZE",
            "LOCAL_WORLD_SIZE",
            "GROUP_RANK",
            "MASTER_ADDR",
            "MASTER_PORT",
            "NODE_RANK",
            "TORCHELASTIC_RUN_ID",
            "OMPI_COMM_WORLD_RANK",
            "PMI_RANK",
            "PMIX_RANK",
            "SLURM_PROCID",
            "SLURM_JOB_ID",
        ] {
            assert!(is_launchers(name), "{name}");
        }
        for name in [
            "PATH",
            "RANKING",
            "SKYPILOT_NODE_RANK",
            "DSTACK_NODE_RANK",
            "HYDRA_FULL_ERROR",
            "CUDA_VISIBLE_DEVICES",
            "OMP_NUM_THREADS",
        ] {
            assert!(!is_launchers(name), "{name}");
        }
    }
}
