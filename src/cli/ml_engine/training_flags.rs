//! The flags of `jobs submit training`, as a file of the training service.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{ArgAction, Args as ClapArgs};

use crate::app::submit::config_yaml::{
    AcceleratorConfig, ReplicaConfig, TrainingFile, TrainingInput,
};
use crate::app::submit::job_text::JobDirAs;
use crate::config::{CloudWord, Dollars};

/// Submit a training job: a Python package, its module, and the machines
///
/// The package is built here, installed on the machine, and its module runs there. Words after `--`
/// are the program's.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Name of the job, which no other job of the job root may have
    pub job: String,
    /// Folder of the package, with `__init__.py`; `setup.py` beside it builds it
    #[arg(long, value_name = "FOLDER")]
    pub package_path: Option<PathBuf>,
    /// Archives to install, separated by commas
    #[arg(long, value_name = "FILE,...", value_delimiter = ',')]
    pub packages: Vec<PathBuf>,
    /// Module to run, like `trainer.task`
    #[arg(long, value_name = "MODULE")]
    pub module_name: Option<String>,
    /// Where the program saves: it gets a folder, whose files are kept with the job
    #[arg(long, value_name = "URL")]
    pub job_dir: Option<String>,
    /// A Job in YAML or JSON; flags come before it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Region of Google, mapped to the near one of AWS, or one of AWS
    #[arg(long, value_name = "REGION")]
    pub region: Option<String>,
    /// Go on until the job has ended, and print its log
    #[arg(long, conflicts_with = "is_async")]
    pub stream_logs: bool,
    /// Return at once, which is the default
    #[arg(long = "async", hide = true)]
    pub is_async: bool,
    /// Labels, which become tags: `team=vision,stage=test`
    #[arg(long, value_name = "KEY=VALUE,...", value_delimiter = ',', value_parser = label)]
    pub labels: Vec<Label>,
    #[command(flatten)]
    pub machines: TierFlags,
    #[command(flatten)]
    pub launch: LaunchFlags,
    #[command(flatten)]
    pub google: GoogleFlags,
    /// The program's own arguments
    #[arg(last = true, value_name = "ARGS")]
    pub user_args: Vec<String>,
}

/// Which machines, in the words of the training service.
#[derive(Clone, Debug, Default, ClapArgs)]
#[command(next_help_heading = "Machines")]
pub struct TierFlags {
    /// `basic`, `basic-gpu`, `standard-1`, `premium-1` or `custom`
    #[arg(long, value_name = "TIER")]
    pub scale_tier: Option<String>,
    /// Type of the first machine, like `standard_v100` or `n1-standard-8`
    #[arg(long, value_name = "TYPE")]
    pub master_machine_type: Option<String>,
    /// GPUs of the first machine: `type=nvidia-tesla-v100,count=1`
    #[arg(long, value_name = "GPUS", value_parser = accelerator)]
    pub master_accelerator: Option<AcceleratorConfig>,
    /// A container, which is refused with a way out
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["runtime_version", "python_version"])]
    pub master_image_uri: Option<String>,
    #[arg(long, value_name = "TYPE", requires = "worker_count")]
    pub worker_machine_type: Option<String>,
    #[arg(long, value_name = "N", requires = "worker_machine_type")]
    pub worker_count: Option<u32>,
    #[arg(long, value_name = "GPUS", value_parser = accelerator)]
    pub worker_accelerator: Option<AcceleratorConfig>,
    #[arg(long, value_name = "IMAGE")]
    pub worker_image_uri: Option<String>,
    #[arg(long, value_name = "TYPE", requires = "parameter_server_count")]
    pub parameter_server_machine_type: Option<String>,
    #[arg(long, value_name = "N", requires = "parameter_server_machine_type")]
    pub parameter_server_count: Option<u32>,
    #[arg(long, value_name = "GPUS", value_parser = accelerator)]
    pub parameter_server_accelerator: Option<AcceleratorConfig>,
    #[arg(long, value_name = "IMAGE")]
    pub parameter_server_image_uri: Option<String>,
    /// Whether TF_CONFIG names the first machine `chief` [default: by the runtime version]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub use_chief_in_tf_config: Option<bool>,
    /// Version of TensorFlow at the service; it is answered in a line
    #[arg(long, value_name = "VERSION")]
    pub runtime_version: Option<String>,
    /// Version of Python at the service; it is answered in a line
    #[arg(long, value_name = "VERSION")]
    pub python_version: Option<String>,
}

/// How this program launches it.
#[derive(Clone, Debug, Default, ClapArgs)]
#[command(next_help_heading = "Launch")]
pub struct LaunchFlags {
    /// `local` (this workstation) or `aws` [default: as the configuration says, else local]
    #[arg(long, value_name = "CLOUD")]
    pub cloud: Option<CloudWord>,
    /// Buy a spot machine
    #[arg(long)]
    pub spot: bool,
    /// The most that the job may cost, in dollars
    #[arg(long, value_name = "USD")]
    pub budget: Option<Dollars>,
    /// Leave a machine at AWS alone although nothing has shown lately that it ends by itself
    #[arg(long)]
    pub unproven: bool,
    /// Show the plan and what it can cost; start nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The program gets a `folder` as `--job-dir`, or the `url` as it is
    #[arg(long, value_name = "FORM", default_value = "folder")]
    pub job_dir_as: JobDirAs,
    /// Refuse versions of Python and TensorFlow that cannot be had
    #[arg(long)]
    pub strict: bool,
}

/// Flags about things of Google. They are accepted, and said to mean nothing.
#[derive(Clone, Debug, Default, ClapArgs)]
#[command(next_help_heading = "Accepted without effect")]
pub struct GoogleFlags {
    #[arg(long, value_name = "BUCKET")]
    pub staging_bucket: Option<String>,
    #[arg(long, value_name = "ACCOUNT")]
    pub service_account: Option<String>,
    #[arg(long, value_name = "NETWORK")]
    pub network: Option<String>,
    #[arg(long, value_name = "KEY")]
    pub kms_key: Option<String>,
    #[arg(long, action = ArgAction::SetTrue)]
    pub enable_web_access: bool,
}

#[derive(Clone, Debug)]
pub struct Label {
    pub key: String,
    pub text: String,
}

fn label(text: &str) -> Result<Label, String> {
    let (key, text) = text.split_once('=').ok_or("write `KEY=VALUE`")?;
    Ok(Label { key: key.to_owned(), text: text.to_owned() })
}

fn accelerator(text: &str) -> Result<AcceleratorConfig, String> {
    let teach = "write `type=nvidia-tesla-v100,count=1`";
    let mut config = AcceleratorConfig::default();
    for pair in text.split(',') {
        match pair.split_once('=').ok_or(teach)? {
            ("type", kind) => config.kind = Some(kind.to_owned()),
            ("count", count) => config.count = Some(count.parse().map_err(|_| teach)?),
            _ => return Err(teach.to_owned()),
        }
    }
    // The service took one without a count.
    config.count.get_or_insert(1);
    Ok(config)
}

fn replica(
    image: Option<&String>,
    accelerator: Option<&AcceleratorConfig>,
) -> Option<ReplicaConfig> {
    let config = ReplicaConfig {
        image_uri: image.cloned(),
        accelerator_config: accelerator.cloned(),
        ..ReplicaConfig::default()
    };
    (config != ReplicaConfig::default()).then_some(config)
}

impl Args {
    /// The flags as a file. They come before the file of `--config`.
    pub fn as_file(&self) -> TrainingFile {
        let (machines, google) = (&self.machines, &self.google);
        let labels: BTreeMap<String, String> =
            self.labels.iter().map(|label| (label.key.clone(), label.text.clone())).collect();
        let training_input = TrainingInput {
            scale_tier: machines.scale_tier.clone(),
            master_type: machines.master_machine_type.clone(),
            worker_type: machines.worker_machine_type.clone(),
            parameter_server_type: machines.parameter_server_machine_type.clone(),
            worker_count: machines.worker_count,
            parameter_server_count: machines.parameter_server_count,
            master_config: replica(
                machines.master_image_uri.as_ref(),
                machines.master_accelerator.as_ref(),
            ),
            worker_config: replica(
                machines.worker_image_uri.as_ref(),
                machines.worker_accelerator.as_ref(),
            ),
            parameter_server_config: replica(
                machines.parameter_server_image_uri.as_ref(),
                machines.parameter_server_accelerator.as_ref(),
            ),
            python_module: self.module_name.clone(),
            args: (!self.user_args.is_empty()).then(|| self.user_args.clone()),
            region: self.region.clone(),
            job_dir: self.job_dir.clone(),
            runtime_version: machines.runtime_version.clone(),
            python_version: machines.python_version.clone(),
            network: google.network.clone(),
            service_account: google.service_account.clone(),
            encryption_config: google.kms_key.clone().map(serde_json::Value::String),
            enable_web_access: google.enable_web_access.then_some(true),
            use_chief_in_tf_config: machines.use_chief_in_tf_config,
            ..TrainingInput::default()
        };
        TrainingFile { job_id: None, labels, training_input }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn line_of_the_tutorial_is_a_file() {
        let words = "x mnist --job-dir gs://b/c --runtime-version 1.8 --module-name trainer.task --package-path ./trainer --region us-east1 --labels a=b,c=d --config trainer/config.yaml -- --train-file gs://b";
        let line = Line::try_parse_from(words.split(' ')).unwrap();
        let file = line.args.as_file();
        assert_eq!(file.training_input.job_dir.as_deref(), Some("gs://b/c"));
        assert_eq!(file.training_input.args.unwrap(), ["--train-file", "gs://b"]);
        assert_eq!(file.labels["c"], "d");
    }

    #[test]
    fn type_and_count_come_in_pairs() {
        let line = |words: &str| Line::try_parse_from(words.split(' ')).is_ok();
        assert!(!line("x job --worker-count 2"));
        assert!(line("x job --worker-count 2 --worker-machine-type standard"));
        assert!(line("x job --master-accelerator type=nvidia-tesla-k80,count=2"));
        assert!(!line("x job --master-accelerator nvidia"));
        assert!(!line("x job --master-image-uri i --runtime-version 1.8"));
    }
}
