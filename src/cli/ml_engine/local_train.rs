//! `lamp local train`: the module of a package here, without a job.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use crate::app::submit::local_train::{self, LocalCluster, LocalTrainRequest};
use crate::app::submit::user_python::UserPython;
use crate::cli::{Context, ExitCode, Fault};
use crate::job::PrimaryRole;

/// Run the module of a package on this workstation, without a job
///
/// Ends with the program's own exit code. Words after `--` are the program's; `--job-dir` follows
/// them.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Module to run, like `trainer.task`
    #[arg(long, value_name = "MODULE")]
    pub module_name: String,
    /// Folder of the package; the module runs in the folder above it [default: the current folder]
    #[arg(long, value_name = "FOLDER")]
    pub package_path: Option<PathBuf>,
    /// Where the program saves: it gets this word
    #[arg(long, value_name = "PATH")]
    pub job_dir: Option<String>,
    /// Run a program for each role, joined by TF_CONFIG
    #[arg(long)]
    pub distributed: bool,
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub worker_count: u32,
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub parameter_server_count: u32,
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub evaluator_count: u32,
    /// First port of the programs
    #[arg(long, value_name = "PORT", default_value_t = 27_182)]
    pub start_port: u16,
    /// The program's own arguments
    #[arg(last = true, value_name = "ARGS")]
    pub user_args: Vec<String>,
}

/// # Errors
/// Fails when the package or Python is missing.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let python = UserPython::find(&context.environment)?;
    let given = args.package_path.clone().unwrap_or_default();
    let package = context.current_dir.join(&given).canonicalize().map_err(|error| {
        Fault::new(ExitCode::NOT_FOUND, format!("there is no package folder `{}`", given.display()))
            .because(&error)
            .meaning("nothing was started")
            .hint("`--package-path` names the folder of the package, as `./trainer`")
    })?;
    let request = LocalTrainRequest {
        module: args.module_name.clone(),
        package,
        args: args.user_args.clone(),
        job_dir: args.job_dir.clone(),
        cluster: args.distributed.then(|| cluster(args, &python)),
    };
    let plan = local_train::plan(&request)?;
    local_train::run(&plan, &python).await
}

/// The installed TensorFlow names the primary.
fn cluster(args: &Args, python: &UserPython) -> LocalCluster {
    let is_old = python.version_of("tensorflow").is_some_and(|version| version.starts_with("1."));
    LocalCluster {
        primary: if is_old { PrimaryRole::Master } else { PrimaryRole::Chief },
        workers: args.worker_count,
        parameter_servers: args.parameter_server_count,
        evaluators: args.evaluator_count,
        start_port: args.start_port,
    }
}
