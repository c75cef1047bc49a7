//! The command that starts the processes of one rank, by the engine of the gang.
//!
//! The engine is started anew in each epoch, with a fixed world, address and port. So it needs no
//! service that finds members, and the loss of rank 0 is as the loss of another rank.

use super::mpi_engine::mpirun;
use super::rank_place::{RankPlace, is_python};
use super::ray_engine::ray_command;
use crate::job::GangEngine;

/// The arguments that start this rank. `command`: what the user wrote. `None`: the first machine
/// says later how this one starts.
pub fn rank_command(
    engine: GangEngine,
    command: &[String],
    place: &RankPlace<'_>,
) -> Option<Vec<String>> {
    match engine {
        GangEngine::Torchrun => Some(torchrun(command, place)),
        GangEngine::Mpi => (place.node() == 0).then(|| mpirun(command)),
        GangEngine::Ray => Some(ray_command(command, place)),
        GangEngine::Tensorflow | GangEngine::Env => Some(command.to_vec()),
    }
}

fn torchrun(command: &[String], place: &RankPlace<'_>) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let Some((program, rest)) = command.split_first() else { return words };
    let module = ["-m".to_owned(), "torch.distributed.run".to_owned()];
    if is_python(program) {
        // Options of the interpreter stay with it: `python -u train.py`.
        let options = rest.iter().take_while(|word| word.starts_with('-') && *word != "-m").count();
        let (options, script) = rest.split_at(options);
        words.push(program.clone());
        words.extend_from_slice(options);
        words.extend(module);
        words.extend(torchrun_options(place));
        words.extend_from_slice(script);
    } else {
        words.push("python3".into());
        words.extend(module);
        words.extend(torchrun_options(place));
        if !is_script(program) {
            words.push("--no-python".into());
        }
        words.extend_from_slice(command);
    }
    words
}

fn torchrun_options(place: &RankPlace<'_>) -> Vec<String> {
    let master = place.formation.master();
    [
        ("--nnodes", place.world().to_string()),
        ("--node-rank", place.node().to_string()),
        ("--nproc-per-node", place.processes.to_string()),
        ("--rdzv-backend", "static".to_owned()),
        ("--rdzv-id", place.formation.rendezvous.clone()),
        ("--master-addr", master.host.clone()),
        ("--master-port", master.port.to_string()),
        ("--local-addr", place.host().to_owned()),
        ("--max-restarts", "0".to_owned()),
    ]
    .into_iter()
    .flat_map(|(option, value)| [option.to_owned(), value])
    .collect()
}

fn is_script(program: &str) -> bool {
    program.ends_with(".py")
}

#[cfg(test)]
mod tests {
    use super::super::rank_place::tests::formation;
    use super::*;

    fn line(engine: GangEngine, command: &[&str], rank: u32) -> String {
        let formation = formation(&[0, 2]);
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        let place = RankPlace { formation: &formation, rank, processes: 2 };
        rank_command(engine, &command, &place).unwrap().join(" ")
    }

    const OPTIONS: &str = "--nnodes 2 --node-rank 1 --nproc-per-node 2 --rdzv-backend static \
        --rdzv-id abc --master-addr 10.0.0.1 --master-port 40000 --local-addr 10.0.0.3 --max-restarts 0";

    #[test]
    fn torchrun_gets_the_world_of_this_epoch() {
        let cases: [(&[&str], String); 4] = [
            (
                &["python", "-u", "train.py", "--lr", "1"],
                format!("python -u -m torch.distributed.run {OPTIONS} train.py --lr 1"),
            ),
            (
                &["/opt/bin/python3.11", "-m", "trainer"],
                format!("/opt/bin/python3.11 -m torch.distributed.run {OPTIONS} -m trainer"),
            ),
            (&["train.py"], format!("python3 -m torch.distributed.run {OPTIONS} train.py")),
            (
                &["./train", "x"],
                format!("python3 -m torch.distributed.run {OPTIONS} --no-python ./train x"),
            ),
        ];
        for (command, expected) in cases {
            assert_eq!(line(GangEngine::Torchrun, command, 2), expected);
        }
    }

    #[test]
    fn other_engines_run_the_command_as_it_is() {
        assert_eq!(line(GangEngine::Env, &["python", "train.py"], 0), "python train.py");
        assert!(line(GangEngine::Mpi, &["./train"], 0).starts_with("mpirun "));
        let formation = formation(&[0, 2]);
        let place = RankPlace { formation: &formation, rank: 2, processes: 2 };
        assert_eq!(rank_command(GangEngine::Mpi, &["./train".into()], &place), None);
    }
}
