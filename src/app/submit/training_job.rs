//! A training job from its file and flags: what runs, on which machines, and what is said of it.
//!
//! Every mistake is found at once, with the path of its key. Not here: its packages, and the text
//! of the job file (`job_text`).

use std::collections::BTreeMap;

use super::config_yaml::{ReplicaConfig, TrainingFile, TrainingInput};
use super::gcloud_region::{aws_region, known_regions};
use super::hyperparameters::{tune_spec, unused_keys};
use super::scale_tier::{self, MachineNeed, ScaleTier, TierError, accelerator, machine_type};
use crate::app::text::without_meaning;
use crate::job::{Finding, PrimaryRole, TuneSpec};

/// A job that can be submitted.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingJob {
    pub name: String,
    pub module: String,
    pub args: Vec<String>,
    /// As the user wrote it, without a slash at its end.
    pub job_dir: Option<String>,
    /// The first role is the chief.
    pub roles: Vec<JobRole>,
    pub primary: PrimaryRole,
    pub labels: BTreeMap<String, String>,
    /// A region of AWS.
    pub region: Option<String>,
    pub run_secs_max: u64,
    pub wait_secs_max: Option<u64>,
    /// Settings without a meaning here, or with another one. Each is said once.
    pub notes: Vec<String>,
    /// The search over parameters, if it asks for one.
    pub search: Option<TuneSpec>,
    pub package_uris: Vec<String>,
}

/// Machines that run the same module.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRole {
    /// As a job file names it: `chief`, `worker`, `ps`, `evaluator`.
    pub name: &'static str,
    pub count: u32,
    pub need: MachineNeed,
}

impl TrainingJob {
    pub fn is_gang(&self) -> bool {
        self.machines() > 1
    }

    pub fn machines(&self) -> u32 {
        self.roles.iter().map(|role| role.count).sum()
    }

    /// The machine of the first role.
    pub fn need(&self) -> MachineNeed {
        self.roles[0].need
    }
}

/// The service ended a job after 7 days without a word of its own.
const RUN_SECS_MAX: u64 = 604_800;

/// The service took no shorter wait.
const WAIT_SECS_MIN: u64 = 1_800;

/// The highest priority of the service.
const PRIORITY_MAX: u32 = 1_000;

/// The job that file and flags describe.
///
/// # Errors
/// Fails with each mistake and the path of its key.
pub fn training_job(name: &str, file: &TrainingFile) -> Result<TrainingJob, Vec<Finding>> {
    let input = &file.training_input;
    let mut found = Vec::new();
    let mut notes = Vec::new();
    let roles = roles(input, &mut found);
    let region = region(input, &mut found, &mut notes);
    let module = input.python_module.clone();
    if module.is_none() {
        found.push(
            Finding::error("trainingInput.pythonModule", "is missing")
                .hint("name the module to run: `--module-name trainer.task`"),
        );
    }
    refuse_images(input, &mut found);
    let (run_secs_max, wait_secs_max) = scheduling(input, &mut found, &mut notes);
    say_runtime(input, &mut notes);
    say_without_meaning(name, file, &mut notes);
    let search = search(input, &mut found);
    if !found.is_empty() {
        return Err(found);
    }
    Ok(TrainingJob {
        name: name.to_owned(),
        module: module.unwrap_or_default(),
        args: input.args.clone().unwrap_or_default(),
        job_dir: input.job_dir.as_ref().map(|url| url.trim_end_matches('/').to_owned()),
        roles,
        primary: PrimaryRole::of_runtime(
            input.runtime_version.as_deref(),
            input.use_chief_in_tf_config,
        ),
        labels: file.labels.clone(),
        region,
        run_secs_max,
        wait_secs_max,
        notes,
        search,
        package_uris: input.package_uris.clone().unwrap_or_default(),
    })
}

fn search(input: &TrainingInput, found: &mut Vec<Finding>) -> Option<TuneSpec> {
    let (tune, mistakes) = tune_spec(input.hyperparameters.as_ref()?);
    found.extend(mistakes);
    Some(tune)
}

/// One role as the file names it.
struct RoleKeys<'a> {
    name: &'static str,
    key: &'static str,
    kind: Option<&'a str>,
    count: Option<u32>,
    config: Option<&'a ReplicaConfig>,
}

fn roles(input: &TrainingInput, found: &mut Vec<Finding>) -> Vec<JobRole> {
    let tier = match scale_tier::tier(input.scale_tier.as_deref().unwrap_or("BASIC")) {
        Ok(tier) => tier,
        Err(error) => {
            found.push(tier_finding("trainingInput.scaleTier", &error));
            return Vec::new();
        }
    };
    match tier {
        Some(tier) => roles_of_tier(input, &tier, found),
        None => roles_of_types(input, found),
    }
}

fn tier_finding(path: &str, error: &TierError) -> Finding {
    Finding::error(path, error.to_string()).hint(error.hint())
}

fn roles_of_tier(
    input: &TrainingInput,
    tier: &ScaleTier,
    found: &mut Vec<Finding>,
) -> Vec<JobRole> {
    for (key, is_said) in [
        ("masterType", input.master_type.is_some()),
        ("workerType", input.worker_type.is_some()),
        ("parameterServerType", input.parameter_server_type.is_some()),
        ("evaluatorType", input.evaluator_type.is_some()),
    ] {
        if is_said {
            let path = format!("trainingInput.{key}");
            let what = "is for scaleTier CUSTOM alone, and the job has another tier";
            found.push(
                Finding::error(&path, what)
                    .hint("write `scaleTier: CUSTOM`, or `--scale-tier custom`"),
            );
        }
    }
    let mut roles = vec![JobRole { name: "chief", count: 1, need: tier.master }];
    for (name, role) in [("worker", tier.workers), ("ps", tier.parameter_servers)] {
        roles.extend(role.map(|role| JobRole { name, count: role.count, need: role.need }));
    }
    roles
}

fn roles_of_types(input: &TrainingInput, found: &mut Vec<Finding>) -> Vec<JobRole> {
    if input.master_type.is_none() {
        let what = "is missing: scaleTier CUSTOM needs it";
        found.push(
            Finding::error("trainingInput.masterType", what).hint(
                "write `masterType: standard_v100`, or `--master-machine-type n1-standard-8`",
            ),
        );
    }
    role_keys(input).iter().filter_map(|keys| role_of(keys, found)).collect()
}

fn role_keys(input: &TrainingInput) -> [RoleKeys<'_>; 4] {
    [
        RoleKeys {
            name: "chief",
            key: "master",
            kind: input.master_type.as_deref(),
            count: Some(1),
            config: input.master_config.as_ref(),
        },
        RoleKeys {
            name: "worker",
            key: "worker",
            kind: input.worker_type.as_deref(),
            count: input.worker_count,
            config: input.worker_config.as_ref(),
        },
        RoleKeys {
            name: "ps",
            key: "parameterServer",
            kind: input.parameter_server_type.as_deref(),
            count: input.parameter_server_count,
            config: input.parameter_server_config.as_ref(),
        },
        RoleKeys {
            name: "evaluator",
            key: "evaluator",
            kind: input.evaluator_type.as_deref(),
            count: input.evaluator_count,
            config: input.evaluator_config.as_ref(),
        },
    ]
}

/// A role with a count of 0 is no role, also if it has a type.
fn role_of(keys: &RoleKeys<'_>, found: &mut Vec<Finding>) -> Option<JobRole> {
    let count = keys.count.unwrap_or(0);
    let Some(kind) = keys.kind else {
        if count > 0 && keys.key != "master" {
            let path = format!("trainingInput.{}Type", keys.key);
            let what = format!("is missing: {}Count is {count}", keys.key);
            let hint = format!("add `{}Type`, or set `{}Count: 0`", keys.key, keys.key);
            found.push(Finding::error(&path, what).hint(hint));
        }
        return None;
    };
    let mut need = match machine_type(kind) {
        Ok(need) => need,
        Err(error) => {
            found.push(tier_finding(&format!("trainingInput.{}Type", keys.key), &error));
            return None;
        }
    };
    let config = keys.config.and_then(|config| config.accelerator_config.as_ref());
    if let Some(config) = config {
        let path = format!("trainingInput.{}Config.acceleratorConfig", keys.key);
        match (config.kind.as_deref(), config.count) {
            (Some(kind), Some(count)) if count > 0 => match accelerator(kind, count) {
                Ok(gpus) => need.gpus = Some(gpus),
                Err(error) => found.push(tier_finding(&format!("{path}.type"), &error)),
            },
            (None, None) => {}
            _ => found.push(
                Finding::error(&path, "needs both `type` and `count`")
                    .hint("write `type: NVIDIA_TESLA_V100` and `count: 1`"),
            ),
        }
    }
    (count > 0).then_some(JobRole { name: keys.name, count, need })
}

fn region(
    input: &TrainingInput,
    found: &mut Vec<Finding>,
    notes: &mut Vec<String>,
) -> Option<String> {
    let word = input.region.as_deref()?;
    let Some(near) = aws_region(word) else {
        found.push(
            Finding::error("trainingInput.region", format!("`{word}` is no region that is known"))
                .hint(format!("there are {}, and the regions of AWS", known_regions())),
        );
        return None;
    };
    if near != word {
        notes.push(format!("region {word} is {near} at AWS"));
    }
    Some(near.to_owned())
}

fn refuse_images(input: &TrainingInput, found: &mut Vec<Finding>) {
    let configs = [
        ("masterConfig", &input.master_config),
        ("workerConfig", &input.worker_config),
        ("parameterServerConfig", &input.parameter_server_config),
        ("evaluatorConfig", &input.evaluator_config),
    ];
    for (key, config) in configs {
        let Some(config) = config else { continue };
        if config.image_uri.is_some() {
            let path = format!("trainingInput.{key}.imageUri");
            let what = "is a container, and this command runs packages";
            let hint = "`lamp run --cloud aws -- docker run IMAGE` starts a container on a machine";
            found.push(Finding::error(&path, what).hint(hint));
        }
    }
}

/// The longest run and the longest wait, in seconds.
fn scheduling(
    input: &TrainingInput,
    found: &mut Vec<Finding>,
    notes: &mut Vec<String>,
) -> (u64, Option<u64>) {
    let Some(scheduling) = &input.scheduling else { return (RUN_SECS_MAX, None) };
    let mut read = |key: &str, text: Option<&str>| {
        let text = text?;
        let secs = text.strip_suffix('s').and_then(|number| number.parse::<f64>().ok());
        if secs.is_none_or(|secs| !secs.is_finite() || secs < 1.0) {
            let path = format!("trainingInput.scheduling.{key}");
            let what = format!("is `{text}`, and seconds are expected, like `7200s`");
            found.push(Finding::error(&path, what));
        }
        secs.map(|secs| secs as u64)
    };
    let run = read("maxRunningTime", scheduling.max_running_time.as_deref());
    let wait = read("maxWaitTime", scheduling.max_wait_time.as_deref());
    if wait.is_some_and(|wait| wait < WAIT_SECS_MIN) {
        let what = format!("is shorter than {WAIT_SECS_MIN}s, the shortest that the service took");
        found.push(Finding::error("trainingInput.scheduling.maxWaitTime", what));
    }
    if let Some(priority) = scheduling.priority {
        if priority > PRIORITY_MAX {
            let what = format!("is above {PRIORITY_MAX}, the highest priority");
            found.push(Finding::error("trainingInput.scheduling.priority", what));
        }
        notes.push(
            "scheduling.priority has no meaning here: jobs do not wait for each other".into(),
        );
    }
    (run.unwrap_or(RUN_SECS_MAX), wait)
}

/// Whether something was asked for that this program cannot give: `--strict` refuses it.
pub fn has_versions(input: &TrainingInput) -> bool {
    input.runtime_version.is_some() || input.python_version.is_some()
}

fn say_runtime(input: &TrainingInput, notes: &mut Vec<String>) {
    let asked = [
        input.runtime_version.as_ref().map(|version| format!("runtime version {version}")),
        input.python_version.as_ref().map(|version| format!("Python {version}")),
    ];
    let asked: Vec<String> = asked.into_iter().flatten().collect();
    if asked.is_empty() {
        return;
    }
    notes.push(format!(
        "{} cannot be had: it runs with the Python of the machine, and with the TensorFlow that \
         setup.py asks for, else with that of the machine",
        asked.join(" with ")
    ));
}

fn say_without_meaning(name: &str, file: &TrainingFile, notes: &mut Vec<String>) {
    let input = &file.training_input;
    let is_some = [
        ("network", input.network.is_some()),
        ("serviceAccount", input.service_account.is_some()),
        ("encryptionConfig", input.encryption_config.is_some()),
        ("enableWebAccess", input.enable_web_access.is_some()),
    ];
    notes.extend(without_meaning(&is_some));
    notes.extend(of_no_use(&unused_settings(input)));
    let of_custom = of_no_use(&unused_machines(input));
    notes.extend(
        of_custom
            .map(|said| format!("{said}: a role with a type takes it, under scaleTier CUSTOM")),
    );
    if file.job_id.as_deref().is_some_and(|id| id != name) {
        notes.push("jobId has no meaning here: the command names the job".into());
    }
    notes.extend(input.hyperparameters.as_ref().and_then(|file| of_no_use(&unused_keys(file))));
}

fn of_no_use(keys: &[String]) -> Option<String> {
    let given: Vec<(&str, bool)> = keys.iter().map(|key| (key.as_str(), true)).collect();
    without_meaning(&given)
}

/// Settings of a role that nothing here obeys.
fn unused_settings(input: &TrainingInput) -> Vec<String> {
    let mut unused = Vec::new();
    for RoleKeys { key, config, .. } in role_keys(input) {
        let Some(config) = config else { continue };
        let given = [
            ("containerCommand", config.container_command.is_some()),
            ("containerArgs", config.container_args.is_some()),
            ("diskConfig", config.disk_config.is_some()),
            ("tpuTfVersion", config.tpu_tf_version.is_some()),
        ];
        let given = given.iter().filter(|(_, is_given)| *is_given);
        unused.extend(given.map(|(name, _)| format!("{key}Config.{name}")));
    }
    unused
}

/// Counts and accelerators of roles that the job does not have. A role with a count and without a
/// type is a mistake under CUSTOM.
fn unused_machines(input: &TrainingInput) -> Vec<String> {
    let tier = scale_tier::tier(input.scale_tier.as_deref().unwrap_or("BASIC"));
    let is_custom = matches!(tier, Ok(None));
    let mut unused = Vec::new();
    for RoleKeys { key, kind, count, config, .. } in role_keys(input) {
        let is_counted = key != "master" && count.is_some_and(|count| count > 0);
        if !is_custom && is_counted {
            unused.push(format!("{key}Count"));
        }
        let has_accelerator = config.is_some_and(|config| config.accelerator_config.is_some());
        if has_accelerator && !(is_custom && kind.is_some()) {
            unused.push(format!("{key}Config.acceleratorConfig"));
        }
    }
    unused
}

#[cfg(test)]
mod tests {
    use super::super::config_yaml;
    use super::*;

    fn job_of(text: &str) -> Result<TrainingJob, Vec<String>> {
        let (file, found) = config_yaml::read(text);
        assert_eq!(found, []);
        training_job("x", &file).map_err(|found| {
            found
                .iter()
                .map(|one| format!("{one} / {}", one.hint.as_deref().unwrap_or("-")))
                .collect()
        })
    }

    fn with(lines: &str) -> Result<TrainingJob, Vec<String>> {
        job_of(&format!("trainingInput:\n  pythonModule: trainer.task\n{lines}"))
    }

    #[test]
    fn second_tutorial_is_a_gang_of_thirteen() {
        let lines = "  scaleTier: CUSTOM\n  masterType: complex_model_m_gpu\n  workerType: complex_model_m_gpu\n  parameterServerType: large_model\n  workerCount: 9\n  parameterServerCount: 3\n";
        let job = with(lines).unwrap();
        let roles: Vec<String> =
            job.roles.iter().map(|role| format!("{} {}", role.name, role.count)).collect();
        assert_eq!(roles, ["chief 1", "worker 9", "ps 3"]);
        assert_eq!(job.need().gpus_word().as_deref(), Some("4 x 12GiB"));
        assert!(job.is_gang());
    }

    #[test]
    fn third_tutorial_is_one_machine() {
        let lines = "  pythonVersion: \"3.5\"\n  scaleTier: CUSTOM\n  masterType: standard_p100\n  workerType: standard_p100\n  parameterServerType: large_model\n  workerCount: 0\n  parameterServerCount: 0\n";
        let job = with(lines).unwrap();
        assert_eq!((job.machines(), job.is_gang()), (1, false));
        assert!(job.notes.iter().any(|note| note.contains("Python 3.5 cannot be had")));
        assert_eq!(job.run_secs_max, 604_800);
    }

    #[test]
    fn mistakes_are_told_at_once_with_their_paths() {
        let lines = "  scaleTier: CUSTOM\n  workerCount: 2\n  evaluatorType: cloud_tpu\n  region: us-centrl1\n  masterConfig:\n    imageUri: gcr.io/x\n  scheduling:\n    maxRunningTime: 2h\n    maxWaitTime: 60s\n";
        let said = with(lines).unwrap_err();
        for path in [
            "trainingInput.masterType",
            "trainingInput.workerType",
            "trainingInput.evaluatorType",
            "trainingInput.region",
            "trainingInput.masterConfig.imageUri",
            "trainingInput.scheduling.maxRunningTime",
            "trainingInput.scheduling.maxWaitTime",
        ] {
            assert_eq!(said.iter().filter(|one| one.contains(path)).count(), 1, "{path}: {said:?}");
        }
        let said = job_of("trainingInput:\n  scaleTier: BASIC_TPU\n").unwrap_err();
        assert!(said[0].contains("TPU") && said[1].contains("--module-name"), "{said:?}");
        let said = with("  masterType: standard\n").unwrap_err();
        assert!(said[0].contains("CUSTOM"), "{said:?}");
    }

    #[test]
    fn search_may_have_several_machines_a_trial() {
        let search = "  hyperparameters:\n    params:\n    - {parameterName: a, type: INTEGER, minValue: 1, maxValue: 3}\n";
        assert_eq!(with(search).unwrap().search.map(|tune| tune.params.len()), Some(1));
        let job = with(&format!("  scaleTier: STANDARD_1\n{search}")).unwrap();
        assert!(job.search.is_some() && job.is_gang(), "{job:?}");
    }

    #[test]
    fn accelerators_need_a_type_and_a_count() {
        let lines = "  scaleTier: CUSTOM\n  masterType: n1-standard-8\n  masterConfig:\n    acceleratorConfig:\n      type: NVIDIA_TESLA_V100\n";
        let said = with(lines).unwrap_err();
        assert!(said[0].contains("masterConfig.acceleratorConfig"), "{said:?}");
        let job = with(&format!("{lines}      count: 2\n")).unwrap();
        assert_eq!(job.need().gpus_word().as_deref(), Some("2 x 16GiB"));
    }

    #[test]
    fn what_means_nothing_is_said_once() {
        let lines = "  network: x\n  serviceAccount: y\n  region: us-central1\n  scheduling:\n    maxRunningTime: 7200s\n    maxWaitTime: 1800s\n    priority: 3\n";
        let job = with(lines).unwrap();
        assert_eq!((job.run_secs_max, job.wait_secs_max), (7_200, Some(1_800)));
        let notes = job.notes.join("\n");
        assert!(notes.contains("network, serviceAccount have no meaning here"), "{notes}");
        assert!(notes.contains("us-central1 is us-east-2 at AWS"), "{notes}");
    }

    #[test]
    fn machine_keys_that_nothing_obeys_are_said() {
        let lines = "  workerCount: 2\n  evaluatorCount: 0\n  masterConfig:\n    acceleratorConfig: {type: NVIDIA_TESLA_V100, count: 1}\n    diskConfig: {bootDiskSizeGb: 500}\n  workerConfig:\n    containerArgs: [a]\n    tpuTfVersion: '1.15'\n";
        let notes = with(lines).unwrap().notes.join("\n");
        for said in [
            "masterConfig.diskConfig, workerConfig.containerArgs, workerConfig.tpuTfVersion have no meaning here",
            "masterConfig.acceleratorConfig, workerCount have no meaning here: a role with a type takes it",
        ] {
            assert!(notes.contains(said), "{notes}");
        }
        let custom = "  scaleTier: CUSTOM\n  masterType: standard\n  workerConfig:\n    acceleratorConfig: {type: NVIDIA_TESLA_V100, count: 1}\n";
        let notes = with(custom).unwrap().notes.join("\n");
        assert!(notes.contains("workerConfig.acceleratorConfig has no meaning here"), "{notes}");
        let with_id = "jobId: other\ntrainingInput:\n  pythonModule: trainer.task\n";
        let notes = job_of(with_id).unwrap().notes.join("\n");
        assert!(notes.contains("jobId has no meaning here"), "{notes}");
        let of_this_name = with_id.replace("other", "x");
        assert_eq!(job_of(&of_this_name).unwrap().notes, [""; 0]);
        let search = "  hyperparameters:\n    params:\n    - {parameterName: a, type: CATEGORICAL, categoricalValues: [x, y], minValue: 1, scaleType: UNIT_LOG_SCALE}\n";
        let notes = with(search).unwrap().notes.join("\n");
        let said = "hyperparameters.params[0].minValue, hyperparameters.params[0].scaleType have no meaning here";
        assert!(notes.contains(said), "{notes}");
    }
}
