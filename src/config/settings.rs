//! Layers of fragments become one complete `job::Spec`, each setting with its origin.
//!
//! The order is: flag, file, user config, default. Not here: reading a file, or judging a value
//! (`job::spec::check` and `workstation_checks`).

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;

use super::gang::{GangWords, gang_of};
use super::job_file::{CheckpointFile, JobFile};
use super::union_values::EnvValue;
use super::values::SpanOrOff;
use super::{Environment, UserConfig};
use crate::job::{
    BOOT, CheckpointSpec, Command, Finding, GangSpec, IdleSpec, InterruptionsSpec, LEASE,
    LimitsSpec, MachineSpec, OnSpec, Reaction, RetriesSpec, SETUP, SecretSource, Spec, StallSpec,
    WatchSpec,
};
use crate::market::{Span, Speeds};

/// At most one upload in ten minutes. An interruption costs half of it on average, and a checkpoint
/// of 10 GB at 1 GB/s takes less than 2 % of the time. Shorter costs uploads; longer costs work
/// that is done twice.
const CHECKPOINT_INTERVAL: Span = Span::from_secs(600);

/// Ninety seconds for a save: a spot notice comes 120 s before the end, and the upload needs the
/// rest. The cloud would cut off a longer save.
const CHECKPOINT_GRACE: Span = Span::from_secs(90);

/// The largest workdir. A larger one probably holds a data set or a virtual environment, which
/// belong in a bucket and in `setup`.
pub const WORKDIR_BYTES_MAX: u64 = 2 << 30;

/// Everything that a job is read from.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    pub flags: &'a JobFile,
    pub user: &'a UserConfig,
    pub environment: &'a Environment,
    pub current_dir: &'a Path,
    pub now: Timestamp,
}

/// Fragments in the order of their strength, with the origin of each.
#[derive(Debug)]
pub struct Layers<'a> {
    layers: Vec<(&'static str, &'a JobFile)>,
    origins: BTreeMap<String, String>,
}

impl<'a> Layers<'a> {
    pub fn new(layers: Vec<(&'static str, &'a JobFile)>) -> Self {
        Layers { layers, origins: BTreeMap::new() }
    }

    /// Where each setting came from, by its dotted path; of those asked for so far.
    pub fn into_origins(self) -> BTreeMap<String, String> {
        self.origins
    }

    /// Where a setting came from, of those asked for so far.
    pub fn origin(&self, path: &str) -> Option<&str> {
        self.origins.get(path).map(String::as_str)
    }

    fn pick<T>(&mut self, path: &str, get: impl Fn(&'a JobFile) -> Option<T>) -> Option<T> {
        let found =
            self.layers.iter().find_map(|(origin, layer)| get(layer).map(|value| (*origin, value)));
        let origin = found.as_ref().map_or("default", |(origin, _)| origin);
        self.origins.insert(path.to_owned(), origin.to_owned());
        found.map(|(_, value)| value)
    }

    pub fn name(&mut self) -> Option<String> {
        self.pick("name", |file| file.name.clone())
    }

    pub fn workdir(&mut self) -> Option<(String, bool)> {
        let workdir = self.pick("workdir", |file| file.workdir.clone())?;
        Some((workdir, self.origins["workdir"] == "flag"))
    }

    pub fn says_command(&self) -> bool {
        self.layers.iter().any(|(_, layer)| layer.command.is_some())
    }

    pub fn workdir_bytes_max(&mut self) -> u64 {
        self.pick("workdir_max", |file| file.workdir_max.clone())
            .map_or(WORKDIR_BYTES_MAX, |bytes| bytes.0)
    }

    /// Allowed in any layer is allowed.
    pub fn secrets_allowed(&self) -> Vec<String> {
        self.layers
            .iter()
            .flat_map(|(_, layer)| layer.secrets_allowed.clone().unwrap_or_default())
            .collect()
    }

    /// The whole spec, and what only the merging shows to be wrong. A missing command is empty
    /// here; `job::spec::check` says so.
    pub fn spec(&mut self, name: String) -> (Spec, Vec<Finding>) {
        let mut found = Vec::new();
        let machine = self.machine();
        let spec = Spec {
            name,
            command: self
                .pick("command", |file| file.command.clone())
                .map_or(Command::Args(Vec::new()), |word| word.0),
            setup: self.pick("setup", |file| file.setup.clone()).map(|word| word.0),
            env: self.merged("env", |file| file.env.as_ref()),
            secrets: self.secrets(),
            tags: self.merged("tags", |file| file.tags.as_ref()),
            outputs: self.pick("outputs", |file| file.outputs.clone()).unwrap_or_default(),
            watch: self.watch(),
            limits: self.limits(),
            checkpoint: self.checkpoint(&mut found),
            on: self.on(&mut found),
            retries: self.retries(),
            interruptions: self.interruptions(),
            gang: self.gang(&machine, &mut found),
            machine,
        };
        (spec, found)
    }

    /// Merged name by name: `--env SEED=2` changes one variable of the file's.
    fn merged(
        &mut self,
        table: &str,
        of: impl Fn(&JobFile) -> Option<&BTreeMap<String, EnvValue>>,
    ) -> BTreeMap<String, String> {
        let mut merged = BTreeMap::new();
        for (origin, layer) in self.layers.iter().rev() {
            for (name, value) in of(layer).into_iter().flatten() {
                merged.insert(name.clone(), value.0.clone());
                self.origins.insert(format!("{table}.{name}"), (*origin).to_owned());
            }
        }
        merged
    }

    /// Merged name by name, as `env`.
    fn secrets(&mut self) -> BTreeMap<String, SecretSource> {
        let mut merged = BTreeMap::new();
        for (origin, layer) in self.layers.iter().rev() {
            for (name, word) in layer.secrets.iter().flatten() {
                merged.insert(name.clone(), word.0.clone());
                self.origins.insert(format!("secrets.{name}"), (*origin).to_owned());
            }
        }
        merged
    }

    fn machine(&mut self) -> MachineSpec {
        let default = MachineSpec::default();
        let mut at = Section { layers: self, table: "machine", of: |file| file.machine.as_ref() };
        MachineSpec {
            cloud: at.pick("cloud", |m| m.cloud.clone()).map_or(default.cloud, |word| word.0),
            gpus: at.pick("gpus", |m| m.gpus.clone()).map_or(default.gpus, |word| word.0),
            cuda: at.pick("cuda", |m| m.cuda.clone()).map(|word| word.0),
            instance_types: at
                .pick("instance_types", |m| m.instance_types.clone())
                .unwrap_or(default.instance_types),
            regions: at.pick("regions", |m| m.regions.clone()).unwrap_or(default.regions),
            image: at.pick("image", |m| m.image.clone()).unwrap_or(default.image),
            disk_gib: at.pick("disk", |m| m.disk.clone()).map_or(default.disk_gib, |word| word.0),
            market: at.pick("market", |m| m.market.clone()).map_or(default.market, |word| word.0),
            max_price: at
                .pick("max_price", |m| m.max_price.clone())
                .map_or(default.max_price, |word| word.0),
            fallback_cost: at
                .pick("fallback_cost", |m| m.fallback_cost.clone())
                .map_or(default.fallback_cost, |word| word.0),
            speed: at.pick("speed", |m| m.speed.clone()).map_or(default.speed, Speeds::new),
            usd_per_hour: at
                .pick("usd_per_hour", |m| m.usd_per_hour.clone())
                .map_or(default.usd_per_hour, |word| word.0),
        }
    }

    fn watch(&mut self) -> WatchSpec {
        let default = WatchSpec::default();
        let mut at = Section { layers: self, table: "watch", of: |file| file.watch.as_ref() };
        let said = at.pick("idle", |w| w.idle.clone());
        // If the user asks for a short window, a longer default grace would override it.
        let said_short = said
            .as_ref()
            .and_then(|word| word.0)
            .filter(|window| Some(*window) < default.idle.window);
        let grace_default =
            said_short.map_or(default.idle.grace, |window| window.min(default.idle.grace));
        let window = or_off(said, default.idle.window);
        let idle = IdleSpec {
            window,
            gpu_percent: at
                .pick("idle_gpu_percent", |w| w.idle_gpu_percent)
                .unwrap_or(default.idle.gpu_percent),
            cpu_percent: at
                .pick("idle_cpu_percent", |w| w.idle_cpu_percent)
                .unwrap_or(default.idle.cpu_percent),
            io_bytes_per_sec: at
                .pick("idle_io", |w| w.idle_io.clone())
                .map_or(default.idle.io_bytes_per_sec, |word| word.0),
            grace: at
                .pick("idle_grace", |w| w.idle_grace.clone())
                .map_or(grace_default, |word| word.0),
        };
        let stall = StallSpec {
            window: or_off(at.pick("stall", |w| w.stall.clone()), default.stall.window),
            steps: at.pick("stall_steps", |w| w.stall_steps).unwrap_or(default.stall.steps),
            restarts_max: at
                .pick("stall_restarts", |w| w.stall_restarts)
                .unwrap_or(default.stall.restarts_max),
        };
        WatchSpec {
            idle,
            stall,
            gpus: at.pick("gpus", |w| w.gpus.clone()).map_or(default.gpus, |word| word.0),
            log_pattern: at.pick("log_pattern", |w| w.log_pattern.clone()),
            done_marker: at.pick("done_marker", |w| w.done_marker.clone()),
            terminal: at.pick("terminal", |w| w.terminal).unwrap_or(default.terminal),
            term_grace: at
                .pick("grace", |w| w.grace.clone())
                .map_or(default.term_grace, |word| word.0),
            metrics: at.pick("metrics", |w| w.metrics).unwrap_or(default.metrics),
            metrics_listen: at
                .pick("metrics_listen", |w| w.metrics_listen.clone())
                .map(|word| word.0),
            alarm: at.pick("alarm", |w| w.alarm.clone()).map_or(default.alarm, |word| word.0),
        }
    }

    fn limits(&mut self) -> LimitsSpec {
        let mut at = Section { layers: self, table: "limits", of: |file| file.limits.as_ref() };
        LimitsSpec {
            max_runtime: at.pick("max_runtime", |l| l.max_runtime.clone()).map(|word| word.0),
            budget: at.pick("budget", |l| l.budget.clone()).map(|word| word.0),
            deadline: at.pick("deadline", |l| l.deadline.clone()).map(|word| word.0),
            work: at.pick("work", |l| l.work.clone()).map(|word| word.0),
            setup: at.pick("setup", |l| l.setup.clone()).map_or(SETUP, |word| word.0),
            lease: at.pick("lease", |l| l.lease.clone()).map_or(LEASE, |word| word.0),
            boot: at.pick("boot", |l| l.boot.clone()).map_or(BOOT, |word| word.0),
        }
    }

    fn checkpoint(&mut self, found: &mut Vec<Finding>) -> Option<CheckpointSpec> {
        let wanted = self.layers.iter().any(|(_, layer)| {
            layer.checkpoint.as_ref().is_some_and(|table| *table != CheckpointFile::default())
        });
        let empty = !wanted && self.layers.iter().any(|(_, layer)| layer.checkpoint.is_some());
        let mut at =
            Section { layers: self, table: "checkpoint", of: |file| file.checkpoint.as_ref() };
        let path = at.pick("path", |c| c.path.clone()).filter(|path| !path.is_empty());
        if (wanted || empty) && path.is_none() {
            let hint = "say which folder the script saves to: path = \"checkpoints\"";
            found.push(Finding::error("checkpoint.path", "is missing").hint(hint));
        }
        if !wanted {
            return None;
        }
        Some(CheckpointSpec {
            path: path.unwrap_or_default(),
            interval: at
                .pick("interval", |c| c.interval.clone())
                .map_or(CHECKPOINT_INTERVAL, |word| word.0),
            signal: at.pick("signal", |c| c.signal.clone()),
            grace: at.pick("grace", |c| c.grace.clone()).map_or(CHECKPOINT_GRACE, |word| word.0),
        })
    }

    fn on(&mut self, found: &mut Vec<Finding>) -> OnSpec {
        let default = OnSpec::default();
        let mut at = Section { layers: self, table: "on", of: |file| file.on.as_ref() };
        let in_use =
            at.pick("in_use", |on| on.in_use.clone()).map_or(default.in_use, |word| word.0);
        if !matches!(in_use, Reaction::Keep(_) | Reaction::Terminate) {
            found.push(
                Finding::error(
                    "on.in_use",
                    "is how long a machine is kept for whoever works on it",
                )
                .hint("write \"keep 30m\", or \"terminate\""),
            );
        }
        OnSpec {
            success: at
                .pick("success", |on| on.success.clone())
                .map_or(default.success, |word| word.0),
            failure: at
                .pick("failure", |on| on.failure.clone())
                .map_or(default.failure, |word| word.0),
            idle: at.pick("idle", |on| on.idle.clone()).map_or(default.idle, |word| word.0),
            stall: at.pick("stall", |on| on.stall.clone()).map_or(default.stall, |word| word.0),
            in_use,
        }
    }

    fn retries(&mut self) -> RetriesSpec {
        let mut at = Section { layers: self, table: "retries", of: |file| file.retries.as_ref() };
        RetriesSpec {
            max: at.pick("max", |r| r.max).unwrap_or_default(),
            exit_codes: at.pick("exit_codes", |r| r.exit_codes.clone()).unwrap_or_default(),
            delay: at.pick("delay", |r| r.delay.clone()).map_or(Span::ZERO, |word| word.0),
        }
    }

    fn interruptions(&mut self) -> InterruptionsSpec {
        let mut at = Section {
            layers: self,
            table: "interruptions",
            of: |file| file.interruptions.as_ref(),
        };
        let max = at.pick("max", |i| i.max.clone());
        max.map_or_else(InterruptionsSpec::default, |word| InterruptionsSpec { max: word.0 })
    }
}

impl Layers<'_> {
    fn gang(&mut self, machine: &MachineSpec, found: &mut Vec<Finding>) -> Option<Box<GangSpec>> {
        let nodes = self.pick("nodes", |file| file.nodes.clone()).map(|word| word.0);
        let tables = self.layers.iter().filter_map(|(_, layer)| layer.gang.as_ref()).collect();
        gang_of(&GangWords { nodes, tables, machine }, found).map(Box::new)
    }
}

/// One table of all layers.
struct Section<'l, 'a, S> {
    layers: &'l mut Layers<'a>,
    table: &'static str,
    of: fn(&'a JobFile) -> Option<&'a S>,
}

impl<'a, S> Section<'_, 'a, S> {
    fn pick<T>(&mut self, key: &str, get: impl Fn(&'a S) -> Option<T>) -> Option<T> {
        let of = self.of;
        self.layers.pick(&format!("{}.{key}", self.table), |file| of(file).and_then(&get))
    }
}

fn or_off(said: Option<SpanOrOff>, default: Option<Span>) -> Option<Span> {
    said.map_or(default, |word| word.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::decode::decode;
    use crate::config::document::Source;
    use std::path::Path;

    fn file(text: &str) -> JobFile {
        let (file, found) = decode(&Source::parse(Path::new("job.toml"), text).unwrap());
        assert_eq!(found, []);
        file
    }

    #[test]
    fn stronger_layer_wins_key_by_key_and_is_remembered() {
        let flags = file("limits.budget = 3\nenv.SEED = 2");
        let job = file(
            "command = 'x'\nlimits.budget = 5\nlimits.max_runtime = '2h'\nenv = { SEED = 1, MODE = 'a' }",
        );
        let user = file("limits.max_runtime = '1h'\nmachine.cloud = 'aws'");
        let mut layers =
            Layers::new(vec![("flag", &flags), ("file", &job), ("user config", &user)]);
        let (spec, found) = layers.spec("x".into());
        let origins = layers.into_origins();
        assert_eq!(found, []);
        assert_eq!(spec.limits.budget.unwrap().dollars(), 3.0);
        assert_eq!(spec.limits.max_runtime, Some(Span::from_secs(7200)));
        assert_eq!(
            spec.env,
            BTreeMap::from([("MODE".into(), "a".into()), ("SEED".into(), "2".into())])
        );
        for (path, origin) in [
            ("limits.budget", "flag"),
            ("limits.max_runtime", "file"),
            ("machine.cloud", "user config"),
            ("machine.market", "default"),
            ("env.SEED", "flag"),
            ("env.MODE", "file"),
        ] {
            assert_eq!(origins[path], origin, "{path}");
        }
    }

    #[test]
    fn short_idle_window_is_meant() {
        let spec = |text: &str| Layers::new(vec![("file", &file(text))]).spec("x".into()).0;
        assert_eq!(spec("watch.idle = '1m'").watch.idle.grace, Span::from_secs(60));
        assert_eq!(spec("watch.idle = '1h'").watch.idle.grace, Span::from_secs(900));
        assert_eq!(
            spec("watch.idle = '1m'\nwatch.idle_grace = '5m'").watch.idle.grace,
            Span::from_secs(300)
        );
        assert_eq!(spec("watch.idle = 'off'").watch.idle.window, None);
    }

    #[test]
    fn checkpoint_table_needs_its_folder() {
        let found = |text: &str| Layers::new(vec![("file", &file(text))]).spec("x".into()).1;
        assert_eq!(found("[checkpoint]\ninterval = '1m'")[0].path, "checkpoint.path");
        assert_eq!(found("[checkpoint]")[0].path, "checkpoint.path");
        assert_eq!(found("name = 'x'"), []);
        assert_eq!(found("[checkpoint]\npath = 'c'"), []);
    }

    #[test]
    fn nothing_said_is_the_specs_own_default() {
        let (spec, _) = Layers::new(vec![]).spec("x".into());
        assert_eq!(spec.machine, MachineSpec::default());
        assert_eq!(spec.watch, WatchSpec::default());
        assert_eq!(spec.on, OnSpec::default());
        assert_eq!(spec.interruptions, InterruptionsSpec::default());
    }
}
