//! How to find out whether a machine has the engine, before anything waits for its ranks.

use super::rank_place::interpreter;
use crate::job::GangEngine;

/// Open MPI is one of several programs with this name.
const IS_OPEN_MPI: &str = "mpirun --version 2>/dev/null | grep -q 'Open MPI'";

/// A command that succeeds where the engine is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineProbe {
    pub argv: Vec<String>,
    /// A sentence for a machine where the command fails.
    pub missing: String,
    /// How to install it.
    pub hint: &'static str,
}

/// `None`: the engine needs no program. `command`: what the user wrote.
pub fn engine_probe(engine: GangEngine, command: &[String]) -> Option<EngineProbe> {
    match engine {
        GangEngine::Mpi => Some(EngineProbe {
            argv: ["sh", "-c", IS_OPEN_MPI].map(str::to_owned).into(),
            missing: "`mpirun` of Open MPI is not installed".to_owned(),
            hint: "`apt-get install openmpi-bin` installs it; `setup` can do that on each machine",
        }),
        GangEngine::Ray => Some(module_probe(
            "ray",
            command,
            "`pip install ray` installs it; `setup` can do that on each machine",
        )),
        GangEngine::Torchrun => Some(torch_probe(command)),
        GangEngine::Tensorflow | GangEngine::Env => None,
    }
}

/// torchrun has `--local-addr` since version 2. The file is read, because an import takes seconds.
const IS_TORCH_2: &str = "\
import importlib.util as u, os, re, sys
spec = u.find_spec('torch')
file = spec and spec.origin and os.path.join(os.path.dirname(spec.origin), 'version.py')
text = open(file).read() if file and os.path.exists(file) else ''
found = re.search(r\"__version__ = '(\\d+)\", text)
sys.exit(not spec or bool(found) and int(found[1]) < 2)
";

fn torch_probe(command: &[String]) -> EngineProbe {
    let python = interpreter(command);
    EngineProbe {
        argv: [python, "-c", IS_TORCH_2].map(str::to_owned).into(),
        missing: format!("the Python of `{python}` has no package `torch` of version 2 or later"),
        hint: "`pip install torch` installs it; `setup` can do that on each machine",
    }
}

fn module_probe(module: &str, command: &[String], hint: &'static str) -> EngineProbe {
    let python = interpreter(command);
    let code = format!("import importlib.util as u, sys; sys.exit(not u.find_spec('{module}'))");
    EngineProbe {
        argv: vec![python.to_owned(), "-c".to_owned(), code],
        missing: format!("the Python of `{python}` has no package `{module}`"),
        hint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_is_looked_for_where_the_command_runs() {
        let command = ["/v/bin/python3".to_owned(), "train.py".to_owned()];
        let probe = engine_probe(GangEngine::Ray, &command).unwrap();
        assert_eq!(probe.argv[0], "/v/bin/python3");
        assert_eq!(probe.missing, "the Python of `/v/bin/python3` has no package `ray`");
        assert_eq!(
            engine_probe(GangEngine::Torchrun, &["train.py".into()]).unwrap().argv[0],
            "python3"
        );
        assert_eq!(engine_probe(GangEngine::Env, &command), None);
    }
}
