//! Ray over a gang: the first machine is the head and runs the command, the others join it.
//!
//! A token of the epoch keeps programs of other people out.

use std::collections::BTreeMap;

use super::rank_place::{RankPlace, interpreter, variables};

/// The program of one machine, for the Python that has Ray.
const RAY_RANK: &str = include_str!("ray_rank.py");

/// The command that makes this rank a machine of the cluster.
pub fn ray_command(command: &[String], place: &RankPlace<'_>) -> Vec<String> {
    let role = if place.node() == 0 { "head" } else { "worker" };
    let world = place.world().to_string();
    let address = ray_address(place);
    let words = [interpreter(command), "-c", RAY_RANK, role, &address, place.host(), &world];
    words.into_iter().map(str::to_owned).chain(command.iter().cloned()).collect()
}

/// `RAY_ADDRESS` is for the user's command alone: with it, `ray start` joins and makes no head.
pub fn ray_environment(place: &RankPlace<'_>) -> BTreeMap<String, String> {
    variables([
        ("RAY_AUTH_MODE", "token".to_owned()),
        ("RAY_AUTH_TOKEN", place.formation.rendezvous.clone()),
        ("RAY_USAGE_STATS_ENABLED", "0".to_owned()),
    ])
}

fn ray_address(place: &RankPlace<'_>) -> String {
    let master = place.formation.master();
    format!("{}:{}", master.host, master.port)
}

#[cfg(test)]
mod tests {
    use super::super::rank_place::tests::formation;
    use super::*;

    #[test]
    fn first_machine_is_the_head_and_has_the_command() {
        let formation = formation(&[0, 2]);
        let words = |rank: u32, command: &[&str]| {
            let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
            let mut words =
                ray_command(&command, &RankPlace { formation: &formation, rank, processes: 1 });
            words.remove(2);
            words.join(" ")
        };
        assert_eq!(
            words(0, &["/v/bin/python", "train.py"]),
            "/v/bin/python -c head 10.0.0.1:40000 10.0.0.1 2 /v/bin/python train.py"
        );
        assert_eq!(words(2, &["./train"]), "python3 -c worker 10.0.0.1:40000 10.0.0.3 2 ./train");
        let place = RankPlace { formation: &formation, rank: 0, processes: 1 };
        assert_eq!(ray_environment(&place)["RAY_AUTH_TOKEN"], "abc");
    }
}
