//! The job file of a training job, and the script that runs its module.
//!
//! ```text
//! ship/packages/*.tar.gz   installed by `setup` into .lamp-venv
//! ship/run_module.sh       the command: runs the module from the empty folder `run`
//! ```
//!
//! Not here: how the packages are made.

use std::str::FromStr;

use jiff::Timestamp;
use toml_edit::{Array, DocumentMut, Item, Table, value};

use super::scale_tier::MachineNeed;
use super::training_job::TrainingJob;
use crate::job::{ClusterJob, JOB_DIR_URL, PrimaryRole, TfCluster, TuneSpec, shell_word};
use crate::market::CloudKind;

/// The folder of the workdir that the program gets as `--job-dir`.
pub const JOB_DIR: &str = "job-dir";

/// Where the packages lie in the workdir.
pub const PACKAGES: &str = "packages";

/// The script in the workdir that runs the module.
pub const RUN_MODULE: &str = "run_module.sh";

/// The value that the program gets as `--job-dir`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobDirAs {
    /// A folder, whose files are kept.
    #[default]
    Folder,
    /// The text as it was written.
    Url,
}

impl FromStr for JobDirAs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "folder" => Ok(JobDirAs::Folder),
            "url" => Ok(JobDirAs::Url),
            _ => Err("write `folder` or `url`".to_owned()),
        }
    }
}

/// How a training job is launched.
#[derive(Clone, Copy, Debug)]
pub struct LaunchTerms {
    pub cloud: CloudKind,
    pub job_dir_as: JobDirAs,
    pub now: Timestamp,
}

/// The text of the job file. `packages`: the names of the archives.
pub fn job_file(job: &TrainingJob, packages: &[String], terms: LaunchTerms) -> String {
    let mut file = DocumentMut::new();
    file["name"] = value(&job.name);
    file["workdir"] = value("ship");
    file["command"] = value(command(job));
    file["setup"] = value(setup(packages));
    file["env"] = Item::Table(environment(job));
    if !job.labels.is_empty() {
        file["tags"] = table(job.labels.iter().map(|(key, text)| (key.as_str(), text.as_str())));
    }
    file["machine"] = Item::Table(machine(job, terms.cloud));
    file["limits"] = Item::Table(limits(job, terms.now));
    if keeps_job_dir(job, terms.job_dir_as) {
        file["outputs"] = value(Array::from_iter([format!("{JOB_DIR}/**")]));
        file["checkpoint"] = table([("path", JOB_DIR)].into_iter());
    }
    if job.is_gang() {
        file["gang"] = Item::Table(gang(job, terms.cloud));
    }
    if let Some(search) = &job.search {
        file["tune"] = tune(search);
    }
    file.to_string()
}

/// A record of a tuning has the keys of `[tune]`.
fn tune(search: &TuneSpec) -> Item {
    let written = toml_edit::ser::to_document(search);
    Item::Table(written.map(|document| document.as_table().clone()).unwrap_or_default())
}

fn keeps_job_dir(job: &TrainingJob, job_dir_as: JobDirAs) -> bool {
    job.job_dir.is_some() && job_dir_as == JobDirAs::Folder
}

fn table<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Item {
    let mut table = Table::new();
    for (key, text) in pairs {
        table[key] = value(text);
    }
    Item::Table(table)
}

/// The user's arguments. A tuning adds the values of a trial, and the script `--job-dir`.
fn command(job: &TrainingJob) -> Array {
    let words = ["sh".to_owned(), RUN_MODULE.to_owned()];
    words.into_iter().chain(job.args.iter().cloned()).collect()
}

/// The script runs in the workdir. The module sees an empty folder, as it did at the service.
/// There, each trial of a search had a folder below `--job-dir`.
pub fn run_module(job: &TrainingJob, job_dir_as: JobDirAs) -> String {
    let module = shell_word(&job.module);
    let trial = if job.search.is_some() && job.job_dir.is_some() {
        format!("export {JOB_DIR_URL}=\"${JOB_DIR_URL}/$CLOUD_ML_TRIAL_ID\"\n")
    } else {
        String::new()
    };
    let arguments = match (&job.job_dir, job_dir_as) {
        (None, _) => String::new(),
        (Some(_), JobDirAs::Folder) => {
            format!("mkdir -p {JOB_DIR}\nset -- \"$@\" --job-dir \"$root/{JOB_DIR}\"\n")
        }
        (Some(_), JobDirAs::Url) => format!("set -- \"$@\" --job-dir \"${JOB_DIR_URL}\"\n"),
    };
    format!(
        "# Runs the module of the job from an empty folder.\nset -e\nroot=$PWD\n{trial}{arguments}\
         mkdir -p run\ncd run\nexec \"$root/.lamp-venv/bin/python\" -m {module} \"$@\"\n"
    )
}

/// An environment of the job. It sees what the image or an active environment has, such as
/// TensorFlow.
fn setup(packages: &[String]) -> String {
    let files: Vec<String> =
        packages.iter().map(|name| shell_word(&format!("{PACKAGES}/{name}"))).collect();
    let files = files.join(" ");
    // With a builder in place, pip need not fetch one.
    format!(
        "set -e\n\
         command -v python3 >/dev/null || {{ echo 'python3 is missing on this machine'; exit 1; }}\n\
         venv='python3 -m venv --system-site-packages .lamp-venv'\n\
         # The pip of the machine serves too, and a copy of it takes seconds.\n\
         test -x .lamp-venv/bin/python || $venv --without-pip\n\
         .lamp-venv/bin/python -m pip --version >/dev/null 2>&1 || $venv\n\
         # If the python3 here is of an environment, its packages are seen too.\n\
         of=\"import sysconfig; print(sysconfig.get_path('purelib'))\"\n\
         python3 -c \"$of\" > \"$(.lamp-venv/bin/python -c \"$of\")/python-of-machine.pth\"\n\
         isolation=\n\
         if .lamp-venv/bin/python -c 'import setuptools, wheel' 2>/dev/null; then isolation=--no-build-isolation; fi\n\
         .lamp-venv/bin/python -m pip install --disable-pip-version-check --quiet $isolation {files}\n"
    )
}

fn environment(job: &TrainingJob) -> Table {
    let mut table = Table::new();
    if let Some(url) = &job.job_dir {
        table[JOB_DIR_URL] = value(url);
    }
    // The agents of a gang add its machines.
    let cluster = TfCluster {
        roles: Vec::new(),
        job: ClusterJob { job_name: job.module.clone(), args: job.args.clone() },
    };
    table["TF_CONFIG"] = value(cluster.tf_config(None));
    table
}

/// A local job runs on this workstation as it is.
fn machine(job: &TrainingJob, cloud: CloudKind) -> Table {
    let mut table = Table::new();
    table["cloud"] = value(cloud.to_string());
    if cloud == CloudKind::Local {
        return table;
    }
    add_need(&mut table, &job.need());
    if let Some(region) = &job.region {
        table["regions"] = value(Array::from_iter([region.clone()]));
    }
    table
}

/// A job that waited as long as it may must still have the time to run.
fn limits(job: &TrainingJob, now: Timestamp) -> Table {
    let mut table = Table::new();
    table["max_runtime"] = value(format!("{}s", job.run_secs_max));
    let deadline = job.wait_secs_max.and_then(|wait| {
        let secs = i64::try_from(wait.saturating_add(job.run_secs_max)).ok()?;
        now.checked_add(jiff::SignedDuration::from_secs(secs)).ok()
    });
    if let Some(deadline) = deadline {
        table["deadline"] = value(deadline.to_string());
    }
    table
}

/// Asks AWS for a machine with at least this.
fn add_need(table: &mut Table, need: &MachineNeed) {
    if let Some(gpus) = need.gpus_word() {
        table["gpus"] = value(gpus);
    } else {
        table["gpus"] = value("none");
    }
    let types = need.instance_types();
    if !types.is_empty() {
        table["instance_types"] = value(Array::from_iter(types));
    }
}

fn gang(job: &TrainingJob, cloud: CloudKind) -> Table {
    let first = job.need();
    let differ = cloud != CloudKind::Local && job.roles.iter().any(|role| role.need != first);
    let mut gang = Table::new();
    gang["engine"] = value("tensorflow");
    // A parameter server never ends by itself: the service ends a job when its master has ended.
    gang["done"] = value("rank0");
    if job.primary != PrimaryRole::default() {
        gang["chief_name"] = value(job.primary.name());
    }
    for role in &job.roles {
        let mut table = Table::new();
        table["count"] = value(i64::from(role.count));
        if differ {
            add_need(&mut table, &role.need);
        }
        gang[role.name] = Item::Table(table);
    }
    gang
}

#[cfg(test)]
mod tests {
    use super::super::config_yaml;
    use super::super::training_job::training_job;
    use super::*;

    fn job_of(lines: &str) -> TrainingJob {
        let text = format!("trainingInput:\n  pythonModule: trainer.task\n{lines}");
        let (file, found) = config_yaml::read(&text);
        assert_eq!(found, []);
        training_job("mnist_1", &file).unwrap()
    }

    fn text_of(job: &TrainingJob, cloud: CloudKind) -> String {
        let terms = LaunchTerms {
            cloud,
            job_dir_as: JobDirAs::Folder,
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
        };
        job_file(job, &["trainer-0.1.tar.gz".to_owned()], terms)
    }

    #[test]
    fn job_file_of_a_gpu_type_asks_for_gpus_at_aws() {
        let job = job_of("  scaleTier: CUSTOM\n  masterType: standard_p100\n  region: us-east1\n");
        let text = text_of(&job, CloudKind::Aws);
        let file: DocumentMut = text.parse().unwrap();
        assert_eq!(file["machine"]["gpus"].as_str(), Some("at least 16GiB"));
        assert_eq!(file["machine"]["regions"][0].as_str(), Some("us-east-1"));
        assert_eq!(file["limits"]["max_runtime"].as_str(), Some("604800s"));
        let local: DocumentMut = text_of(&job, CloudKind::Local).parse().unwrap();
        assert!(local["machine"].get("gpus").is_none());
    }

    #[test]
    fn accelerator_asks_for_machines_with_its_cpus_and_memory() {
        let lines = "  scaleTier: CUSTOM\n  masterType: n1-highmem-64\n  masterConfig:\n    acceleratorConfig: {type: NVIDIA_TESLA_V100, count: 1}\n";
        let file: DocumentMut = text_of(&job_of(lines), CloudKind::Aws).parse().unwrap();
        assert_eq!(file["machine"]["gpus"].as_str(), Some("at least 16GiB"));
        let types = file["machine"]["instance_types"].as_array().unwrap();
        assert!(types.iter().all(|name| name.as_str() != Some("g4dn.xlarge")), "{types}");
    }

    #[test]
    fn job_dir_is_a_folder_that_is_kept() {
        let job = job_of("  jobDir: gs://bucket/checkpoint/\n  args: [--lr, '0.1']\n");
        let file: DocumentMut = text_of(&job, CloudKind::Local).parse().unwrap();
        assert_eq!(file["env"][JOB_DIR_URL].as_str(), Some("gs://bucket/checkpoint"));
        assert_eq!(file["checkpoint"]["path"].as_str(), Some("job-dir"));
        let command: Vec<&str> =
            file["command"].as_array().unwrap().iter().filter_map(|word| word.as_str()).collect();
        assert_eq!(command, ["sh", "run_module.sh", "--lr", "0.1"]);
        assert!(run_module(&job, JobDirAs::Folder).contains("--job-dir \"$root/job-dir\""));
        let as_url = run_module(&job, JobDirAs::Url);
        assert!(as_url.contains("--job-dir \"$LAMP_JOB_DIR_URL\""), "{as_url}");
    }

    #[test]
    fn search_becomes_a_tune_table_and_each_trial_has_its_own_url() {
        let job = job_of(
            "  jobDir: gs://bucket/checkpoint\n  hyperparameters:\n    goal: MINIMIZE\n    maxTrials: 4\n    params:\n    - {parameterName: lr, type: DOUBLE, minValue: 0.001, maxValue: 0.1, scaleType: UNIT_LOG_SCALE}\n    - {parameterName: opt, type: CATEGORICAL, categoricalValues: [adam, sgd]}\n",
        );
        let file: DocumentMut = text_of(&job, CloudKind::Local).parse().unwrap();
        let tune = &file["tune"];
        assert_eq!(tune["goal"].as_str(), Some("minimize"));
        assert_eq!(tune["trials"].as_integer(), Some(4));
        assert_eq!(tune["params"]["lr"]["scale"].as_str(), Some("log"));
        assert_eq!(tune["params"]["opt"]["values"][1].as_str(), Some("sgd"));
        assert!(tune.get("budget").is_none());
        let script = run_module(&job, JobDirAs::Url);
        assert!(script.contains("$LAMP_JOB_DIR_URL/$CLOUD_ML_TRIAL_ID"), "{script}");
    }

    #[test]
    fn roles_become_a_gang() {
        let job = job_of("  scaleTier: STANDARD_1\n");
        let file: DocumentMut = text_of(&job, CloudKind::Aws).parse().unwrap();
        assert_eq!(file["gang"]["worker"]["count"].as_integer(), Some(4));
        assert_eq!(file["gang"]["ps"]["count"].as_integer(), Some(3));
        assert_eq!(file["gang"]["done"].as_str(), Some("rank0"), "servers wait for ever");
        let config = file["env"]["TF_CONFIG"].as_str().unwrap();
        assert!(TfCluster::program_alone(config).is_some(), "the agents add the machines");
    }

    #[test]
    fn chief_of_an_old_runtime_is_named_master() {
        let name_of = |lines: &str| {
            let job = job_of(&format!("  scaleTier: STANDARD_1\n{lines}"));
            let file: DocumentMut = text_of(&job, CloudKind::Local).parse().unwrap();
            file["gang"].get("chief_name").and_then(Item::as_str).map(str::to_owned)
        };
        assert_eq!(name_of("  runtimeVersion: '1.8'\n").as_deref(), Some("master"));
        assert_eq!(name_of("  useChiefInTfConfig: false\n").as_deref(), Some("master"));
        assert_eq!(name_of("  runtimeVersion: '1.8'\n  useChiefInTfConfig: true\n"), None);
        assert_eq!(name_of("  runtimeVersion: '2.1'\n"), None);
    }

    /// The second configuration of the tutorials.
    #[test]
    fn roles_have_the_machines_of_their_types() {
        let lines = "  scaleTier: CUSTOM\n  masterType: complex_model_m_gpu\n  workerType: complex_model_m_gpu\n  parameterServerType: large_model\n  workerCount: 9\n  parameterServerCount: 3\n";
        let job = job_of(lines);
        let file: DocumentMut = text_of(&job, CloudKind::Aws).parse().unwrap();
        assert_eq!(file["machine"]["gpus"].as_str(), Some("4 x 12GiB"));
        let ps = &file["gang"]["ps"];
        assert_eq!((ps["count"].as_integer(), ps["gpus"].as_str()), (Some(3), Some("none")));
        assert_eq!(ps["instance_types"][0].as_str(), Some("r6i.2xlarge"));
        let worker = &file["gang"]["worker"];
        assert_eq!(
            (worker["count"].as_integer(), worker["gpus"].as_str()),
            (Some(9), Some("4 x 12GiB"))
        );
        let here: DocumentMut = text_of(&job, CloudKind::Local).parse().unwrap();
        assert!(here["gang"]["ps"].get("instance_types").is_none());
    }

    #[test]
    fn longest_wait_becomes_a_deadline() {
        let lines = "  scheduling:\n    maxRunningTime: 3600s\n    maxWaitTime: 7200s\n";
        let file: DocumentMut = text_of(&job_of(lines), CloudKind::Aws).parse().unwrap();
        assert_eq!(file["limits"]["deadline"].as_str(), Some("2026-01-01T03:00:00Z"));
    }
}
