//! Finds errors of a gang in a job file, and keys that this version cannot obey yet.
//!
//! Not here: whether the cloud sells as many machines (`policy::purchase`).

use super::gang_role::GangRole;
use super::gang_spec::{GangEngine, GangSpec, NODES_MAX};
use super::member_specs::machine_kinds;
use crate::job::{Command, Finding, MachineSpec, MarketChoice, Spec};
use crate::market::{Arch, CloudKind, Span};

/// The shortest wait for a member. Below it, an agent that starts late is taken for missing.
const JOIN_MIN: Span = Span::from_secs(10);

/// All findings of a gang; none for a job of one machine.
pub fn check_gang(spec: &Spec, found: &mut Vec<Finding>) {
    let Some(gang) = &spec.gang else { return };
    check_size(gang, found);
    check_roles(gang, found);
    check_engine(gang, &spec.command, found);
    check_times(gang, found);
    check_place(spec, found);
    check_processors(gang, spec, found);
}

fn check_size(gang: &GangSpec, found: &mut Vec<Finding>) {
    if gang.nodes.max > NODES_MAX {
        found.push(
            Finding::error("nodes", format!("{} is more than {NODES_MAX}", gang.nodes))
                .hint(format!("at most {NODES_MAX} machines make one job")),
        );
    }
}

fn check_roles(gang: &GangSpec, found: &mut Vec<Finding>) {
    for role in gang.roles.iter().filter(|role| role.count == 0) {
        let path = format!("gang.{}.count", role.role.word());
        found.push(Finding::error(&path, "is 0").hint("leave the role out"));
    }
    let single = [GangRole::Chief, GangRole::Head, GangRole::Evaluator];
    for role in gang.roles.iter().filter(|role| single.contains(&role.role) && role.count > 1) {
        let path = format!("gang.{}.count", role.role.word());
        found.push(
            Finding::error(&path, format!("is {}", role.count)).hint("there is at most one of it"),
        );
    }
    let odd = [GangRole::Chief, GangRole::Ps, GangRole::Evaluator];
    if gang.engine == GangEngine::Torchrun
        && let Some(role) = gang.roles.iter().find(|role| odd.contains(&role.role))
    {
        let path = format!("gang.{}", role.role.word());
        found.push(
            Finding::error(&path, "is a role that torchrun does not know")
                .hint("set `engine = \"tensorflow\"` or `engine = \"env\"` in [gang]"),
        );
    }
}

fn check_engine(gang: &GangSpec, command: &Command, found: &mut Vec<Finding>) {
    match gang.engine {
        GangEngine::Torchrun => check_torchrun(command, found),
        GangEngine::Mpi => refuse_starter(command, &["mpirun", "mpiexec", "orterun"], found),
        GangEngine::Ray => refuse_starter(command, &["ray"], found),
        GangEngine::Tensorflow | GangEngine::Env => {}
    }
}

/// The engine starts the command, so the command must not start the engine.
fn refuse_starter(command: &Command, starters: &[&str], found: &mut Vec<Finding>) {
    let Command::Args(args) = command else { return };
    let program = args.first().and_then(|program| program.rsplit('/').next());
    if let Some(program) = program.filter(|program| starters.contains(program)) {
        let what = format!("starts `{program}` itself, and lamp starts it on all machines");
        found.push(
            Finding::error("command", what)
                .hint("write what the engine runs: command = [\"python3\", \"train.py\"]"),
        );
    }
}

/// torchrun starts a script, so its command must be a list of words.
fn check_torchrun(command: &Command, found: &mut Vec<Finding>) {
    let Command::Args(args) = command else {
        found.push(
            Finding::error("command", "is a text for the shell, and torchrun starts a script")
                .hint("write it as a list: command = [\"python\", \"train.py\"]"),
        );
        return;
    };
    let is_python = args.first().is_some_and(|program| {
        program.rsplit('/').next().is_some_and(|name| name.starts_with("python"))
    });
    if is_python && args.iter().skip(1).any(|word| word == "-c") {
        found.push(
            Finding::error("command", "has `python -c`, which torchrun cannot start")
                .hint("put the code into a file, or set `engine = \"env\"` in [gang]"),
        );
    }
    if args.iter().any(|word| word == "torchrun" || word == "torch.distributed.run") {
        found.push(
            Finding::error("command", "starts torchrun itself, and lamp starts it for each rank")
                .hint("leave torchrun out: command = [\"python\", \"train.py\"]"),
        );
    }
}

fn check_times(gang: &GangSpec, found: &mut Vec<Finding>) {
    for (path, time) in [("gang.join", gang.join), ("gang.hold", gang.hold)] {
        if time < JOIN_MIN {
            found.push(
                Finding::error(path, format!("{time} is too short"))
                    .hint(format!("a member needs at least {JOIN_MIN} to start")),
            );
        }
    }
}

/// All roles have one image and one set of files, which suit one kind of processor.
fn check_processors(gang: &GangSpec, spec: &Spec, found: &mut Vec<Finding>) {
    let arch = |machine: &MachineSpec| {
        let mut all = machine.instance_types.iter().map(|name| Arch::of_type_name(name));
        let first = all.next()??;
        all.all(|other| other == Some(first)).then_some(first)
    };
    let kinds = machine_kinds(gang, &spec.machine);
    let known: Vec<(GangRole, Arch)> =
        kinds.iter().filter_map(|(role, machine, _)| Some((*role, arch(machine)?))).collect();
    let Some(((first, one), rest)) = known.split_first() else { return };
    let Some((role, other)) = rest.iter().find(|(_, other)| other != one) else { return };
    let path = format!("gang.{}.instance_types", role.word());
    let what = format!("have {other} processors, and [gang.{}] has {one}", first.word());
    found.push(Finding::error(&path, what).hint("name types of one processor for all roles"));
}

/// Where gangs can run in this version.
fn check_place(spec: &Spec, found: &mut Vec<Finding>) {
    if spec.machine.cloud == CloudKind::Aws && spec.machine.market == MarketChoice::Auto {
        found.push(Finding::error("machine.market", "cannot be `auto` for several machines").hint(
            "`--spot` or `--on-demand` names one: the ranks would change the market one by one",
        ));
    }
    if spec.on.may_stop() {
        found.push(
            Finding::error(
                "on",
                "`stop` keeps a machine, and a gang does not continue on kept machines",
            )
            .hint("leave out `stop`: the gang continues from its checkpoint"),
        );
    }
}
