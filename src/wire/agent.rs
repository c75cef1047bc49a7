//! Wires the agent: the adapters behind its ports, for each of its roles.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::orphaned_run;
use super::rank::{self, RankWorkloads};
use crate::adapters::aws::cloudwatch_metrics::CloudWatchMeter;
use crate::adapters::aws::imds::Imds;
use crate::adapters::aws::secrets::AwsSecrets;
#[cfg(feature = "aws")]
use crate::adapters::aws::session::{AwsSession, bucket_access};
#[cfg(feature = "aws")]
use crate::adapters::aws::settings::AwsSettings;
use crate::adapters::host::files::LocalFiles;
use crate::adapters::host::poweroff::SystemPower;
use crate::adapters::host::sensor_thread::{self, SensorThread};
use crate::adapters::host::sensors::{GpuProblem, SensorOptions, system_sensors};
use crate::adapters::host::service_manager::Notify;
use crate::adapters::host::stack_dump::ProcStacks;
use crate::adapters::host::system_clock::SystemClock;
use crate::adapters::host::terminals::Terminals;
use crate::adapters::http::metrics_server::{self, Served};
use crate::adapters::local::job_workdir;
use crate::adapters::local::machine_folder::{InstanceRecord, LocalFolder};
use crate::adapters::local::machine_process;
use crate::adapters::local::metadata::LocalMetadata;
use crate::adapters::local::power::LocalPower;
use crate::adapters::rank::rank_network::RankNetwork;
use crate::adapters::store::metered::counted;
use crate::adapters::store::open;
use crate::adapters::workload::holder::main;
use crate::adapters::workload::holder::start::HolderProgram;
use crate::adapters::workload::login_environment;
use crate::adapters::workload::process::{self, WorkloadIsolation};
use crate::adapters::workload::secret_workloads::SecretWorkloads;
use crate::adapters::workload::then_command::{self, ThenCommand, ThenExit};
use crate::adapters::workload::whole_machine::WholeMachine;
use crate::adapters::workstation::{process_env, termination_signals};
use crate::agent::report::metrics_exposition::ExposedMetrics;
use crate::agent::report::open_metrics;
use crate::agent::report::retry_sender::Outbox;
use crate::agent::shutdown::deadman::SwitchFiles;
use crate::agent::startup::boot::{self, BootPorts};
use crate::agent::startup::cli::{self, Alone, BootSource, Call, RankSource, Then};
use crate::agent::startup::standalone;
use crate::agent::{Agent, AgentPorts, Folders};
use crate::job::{AttemptNo, JobId, ResolvedSpec};
use crate::jobdir::JobDir;
use crate::ports::{Clock, Files, Metadata, Meter, Nobody, Power, SensorFeed, Store, Workloads};

/// The files that `systemd/lamp-deadman.service` reads.
fn switch_files() -> SwitchFiles {
    SwitchFiles {
        deadline: "/etc/lamplighter/deadline".into(),
        alive: "/run/lamplighter/alive".into(),
    }
}

/// `lamp-agent ARGS`, or `lamp agent ARGS` with `leading = ["agent"]`: the arguments to start this
/// program again.
pub fn main(args: Vec<OsString>, leading: &[&str]) -> ExitCode {
    let leading: Vec<OsString> = leading.iter().map(OsString::from).collect();
    match cli::parse(args) {
        Ok(Call::Help) => {
            print(cli::HELP);
            ExitCode::SUCCESS
        }
        Ok(Call::Version) => {
            print(concat!("lamp-agent ", env!("CARGO_PKG_VERSION"), "\n"));
            ExitCode::SUCCESS
        }
        Ok(Call::Holder { dir, machine_pid, environment }) => {
            code(main::main(&dir, machine_pid, environment.as_deref()))
        }
        Ok(Call::Rank { source: RankSource::Local(machine), command }) => {
            in_runtime("warn", run_local_rank(machine, command))
        }
        Ok(Call::Rank { source: RankSource::JobRoot { url, region, endpoint }, command }) => {
            in_runtime("warn", run_rank(url, region, endpoint, command))
        }
        Ok(Call::Machine { dir }) => machine_process::main(&dir),
        Ok(Call::Boot(BootSource::Local(dir))) => in_runtime("info", boot_local(dir, leading)),
        Ok(Call::Boot(BootSource::Machine(then))) => {
            in_runtime("info", boot_machine(then, leading))
        }
        Ok(Call::Run(call)) => checked(call, |call| in_runtime("warn", run_alone(call, leading))),
        Ok(Call::Watch(call)) => checked(call, |call| in_runtime("info", watch_alone(call))),
        Err(error) => {
            complain(&format!("error: {error}\nhint: `lamp-agent --help` shows the words\n"));
            ExitCode::from(2)
        }
    }
}

/// Checks the `--then` command before the start: hours later, no user is there to fix a typing
/// error.
fn checked(call: Alone, go: impl FnOnce(Alone) -> ExitCode) -> ExitCode {
    let Then::Command(command) = &call.then else { return go(call) };
    match then_command::check(command) {
        Ok(()) => go(call),
        Err(problem) => {
            let meant = cli::then_meant(command)
                .map(|word| format!("did you mean `--then {word}`? "))
                .unwrap_or_default();
            complain(&format!(
                "error: --then: {problem}; nothing was started\nhint: {meant}It takes `exit`, `poweroff`, or a command for the shell\n"
            ));
            ExitCode::from(2)
        }
    }
}

/// The exit code with which `lamp` refuses.
const TAKEN: i32 = 102;

/// One thread for the loop and its senders; blocking calls use others. A call into a hung file
/// system keeps its thread for ever, and without free threads DNS lookups stop too. So the limit is
/// high.
fn in_runtime(log_default: &str, work: impl Future<Output = Result<i32, String>>) -> ExitCode {
    log_to_stderr(log_default);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(64)
        .thread_stack_size(512 * 1024)
        .build();
    let done = match runtime {
        Ok(runtime) => {
            let done = runtime.block_on(work);
            // Do not wait for a thread in a hung file system.
            runtime.shutdown_timeout(Duration::from_secs(5));
            done
        }
        Err(error) => Err(format!("cannot start: {error}")),
    };
    match done {
        Ok(status) => code(status),
        Err(problem) => {
            complain(&format!("error: {problem}\n"));
            ExitCode::FAILURE
        }
    }
}

fn log_to_stderr(default: &str) {
    let level = process_env::variable("LAMP_LOG")
        .and_then(|level| level.to_str().and_then(|level| level.parse().ok()));
    let level = level.or_else(|| default.parse().ok()).unwrap_or(tracing::Level::INFO);
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| Log)
        .with_target(false)
        .with_ansi(false);
    // It would write its own errors to standard error, and panic if that is closed.
    log.log_internal_errors(false).init();
}

/// Standard error without errors: the agent continues after EIO (terminal closed), EPIPE or ENOSPC.
struct Log;

impl std::io::Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        let _lost = std::io::stderr().write_all(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The agent of a machine of the local cloud.
async fn boot_local(dir: PathBuf, leading: Vec<OsString>) -> Result<i32, String> {
    let folder = LocalFolder::new(&dir);
    let record = folder
        .instance()
        .map_err(|error| format!("{} is not a machine's folder: {error}", dir.display()))?;
    let machine =
        folder.machine().map_err(|error| format!("cannot read who the machine is: {error}"))?;
    let power: Arc<dyn Power> = Arc::new(LocalPower::new(LocalFolder::new(&dir)));
    let metadata: Arc<dyn Metadata> = Arc::new(LocalMetadata::new(LocalFolder::new(&dir)));
    let work = job_workdir::claim(&folder, &record)
        .map_err(|error| format!("cannot make the work folder: {error}"))?;
    let folders = Folders { work, ..boot::folders(&dir, &process_env::cache_folder()) };
    let (store, own_network) =
        counted(job_root(&record).await.map_err(|error| with_causes(&error))?);
    let ports = BootPorts {
        clock: Arc::new(SystemClock),
        files: Arc::new(LocalFiles),
        store,
        metadata: Arc::clone(&metadata),
        power: Arc::clone(&power),
        service: Arc::new(Notify),
        nonce: process_env::nonce(&folders.state.join(boot::NONCE))
            .map_err(|error| format!("cannot write the agent's folder: {error}"))?,
    };
    let program = HolderProgram {
        exe: exe()?,
        leading,
        machine_pid: machine.map(|machine| machine.process.pid),
        environment: folder.environment(&record),
    };
    let (exe, leading) = (program.exe.clone(), program.leading.clone());
    let dir = std::path::absolute(&dir).unwrap_or(dir);
    let workloads = Arc::from(process::workloads(program, WorkloadIsolation::ProcessGroup));
    let place = vec!["--local".to_owned(), dir.to_string_lossy().into_owned()];
    let workloads = Arc::new(RankWorkloads::of(workloads, &exe, &leading, place));
    attempt(ports, folders, workloads, true, own_network, OnBox::default()).await
}

/// One rank of a gang, on a machine of the local cloud.
async fn run_local_rank(dir: PathBuf, command: Vec<String>) -> Result<i32, String> {
    let record = LocalFolder::new(&dir)
        .instance()
        .map_err(|error| format!("{} is not a machine's folder: {error}", dir.display()))?;
    let store = job_root(&record).await.map_err(|error| with_causes(&error))?;
    rank::run(store, RankNetwork::Loopback, command).await
}

/// One rank of a gang, on a launched machine. It reads the job root with the machine's role.
async fn run_rank(
    url: String,
    region: Option<String>,
    endpoint: Option<String>,
    command: Vec<String>,
) -> Result<i32, String> {
    let settings = [("aws_region", region), ("aws_endpoint_url", endpoint)];
    let settings: Vec<(&str, &str)> =
        settings.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
    let store = open::open_with(&url, &settings).map_err(|error| with_causes(&error))?;
    rank::run(store, RankNetwork::Routed, command).await
}

/// The job root of a local machine. S3 is reached with the workstation's own credential chain,
/// which renews what expires. This process is `lamp` itself, so credentials are neither passed on
/// nor written.
#[cfg(feature = "aws")]
async fn job_root(record: &InstanceRecord) -> Result<Arc<dyn Store>, open::OpenError> {
    if !record.job_root.starts_with("s3://") {
        return open::open(&record.job_root);
    }
    let said = record.aws.clone().unwrap_or_default();
    let regions = said.region.into_iter().collect();
    let settings = AwsSettings {
        profile: said.profile,
        regions,
        endpoint_url: said.endpoint_url,
        ..AwsSettings::default()
    };
    open::open_through(&record.job_root, false, bucket_access(&AwsSession::new(settings)).await)
}

/// Without AWS in this build: only the plainest settings, as for `lamp` itself.
#[cfg(not(feature = "aws"))]
async fn job_root(record: &InstanceRecord) -> Result<Arc<dyn Store>, open::OpenError> {
    open::open(&record.job_root)
}

/// The agent of a launched machine. Metadata gives its identity. `LAMP_JOB_ROOT` in
/// `/etc/lamplighter/agent.env` (without secrets) gives the job directory.
async fn boot_machine(then: Then, leading: Vec<OsString>) -> Result<i32, String> {
    let text =
        |name: &str| process_env::variable(name).map(|value| value.to_string_lossy().into_owned());
    let root = text("LAMP_JOB_ROOT")
        .ok_or("LAMP_JOB_ROOT is not set: a launched machine is told its job root there")?;
    let imds = Imds::new(text("AWS_EC2_METADATA_SERVICE_ENDPOINT").as_deref())
        .map_err(|error| format!("cannot ask the metadata service: {error}"))?;
    let folders = boot::folders(&process_env::state_folder(), &process_env::cache_folder());
    // The machine may be in another region than the bucket.
    let region = text("LAMP_JOB_ROOT_REGION");
    let settings: Vec<(&str, &str)> =
        region.iter().map(|region| ("aws_region", region.as_str())).collect();
    let (store, credentials) =
        open::open_with_credentials(&root, &settings, &folders.state.join("uploads"))
            .map_err(|error| with_causes(&error))?;
    let (store, own_network) = counted(store);
    // Without credentials or a region, no secret can be read.
    let secrets = credentials.clone().and_then(|credentials| {
        let region = text("LAMP_JOB_ROOT_REGION").or_else(|| text("AWS_REGION"))?;
        AwsSecrets::new(credentials, &region, text("AWS_ENDPOINT_URL"))
            .map_err(|error| tracing::warn!("no secret can be read: {error}"))
            .ok()
    });
    let meter = credentials.zip(text("AWS_REGION")).and_then(|(credentials, region)| {
        let endpoint = text("AWS_ENDPOINT_URL_CLOUDWATCH").or_else(|| text("AWS_ENDPOINT_URL"));
        let meter = CloudWatchMeter::new(credentials, &region, endpoint, Arc::clone(&own_network));
        meter
            .map(|meter| Arc::new(meter) as Arc<dyn Meter>)
            .map_err(|error| tracing::warn!("no measurements are published: {error}"))
            .ok()
    });
    let ports = BootPorts {
        clock: Arc::new(SystemClock),
        files: Arc::new(LocalFiles),
        store,
        metadata: Arc::new(imds),
        power: power(then.clone()),
        service: Arc::new(Notify),
        nonce: process_env::nonce(&folders.state.join(boot::NONCE))
            .map_err(|error| format!("cannot write the agent's folder: {error}"))?,
    };
    // Only a machine that lamp may power off gets a switch file.
    let is_ours = then == Then::Poweroff;
    let own_machine = is_ours && !process_env::is_container();
    let on_box = OnBox {
        switch_files: is_ours.then(switch_files),
        own_machine,
        meter,
        secrets: Some(OfSecrets {
            secrets,
            environment: process_env::state_folder().join(login_environment::FILE),
        }),
    };
    // For users who log in there.
    if is_ours {
        login_environment::keep(&process_env::state_folder()).await;
    }
    // The command's environment file, written before each start if there are secrets.
    let environment = Some(process_env::state_folder().join(login_environment::FILE));
    let program = HolderProgram { exe: exe()?, leading, machine_pid: None, environment };
    let place = [
        ("--job-root", Some(root)),
        ("--region", region),
        ("--endpoint", text("AWS_ENDPOINT_URL")),
    ];
    let place = place.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value?]));
    let (exe, leading) = (program.exe.clone(), program.leading.clone());
    let workloads = Arc::from(process::workloads(program, WorkloadIsolation::Own));
    let workloads = RankWorkloads::of(workloads, &exe, &leading, place.flatten().collect());
    attempt(ports, folders, Arc::new(workloads), is_ours, own_network, on_box).await
}

/// Only a launched machine has these.
#[derive(Default)]
struct OnBox {
    switch_files: Option<SwitchFiles>,
    /// No other program uses the machine.
    own_machine: bool,
    meter: Option<Arc<dyn Meter>>,
    secrets: Option<OfSecrets>,
}

/// How a launched machine reads the secrets of its job.
struct OfSecrets {
    secrets: Option<AwsSecrets>,
    /// The environment file that the holder gives its command.
    environment: PathBuf,
}

/// A reader of the machine's journal needs the whole chain of causes.
fn with_causes(error: &dyn std::error::Error) -> String {
    std::iter::successors(error.source(), |cause| cause.source())
        .fold(error.to_string(), |told, cause| format!("{told}: {cause}"))
}

async fn attempt(
    ports: BootPorts,
    folders: Folders,
    workloads: Arc<dyn Workloads>,
    insist: bool,
    own_network: Arc<AtomicU64>,
    on_box: OnBox,
) -> Result<i32, String> {
    let Ok((attempt, outbox, memory)) = boot::boot(&ports, folders).await else { return Ok(1) };
    let (sensors, _) = sensors()?;
    let wanted = &attempt.resolved.spec.secrets;
    let workloads = match on_box.secrets.filter(|_| !wanted.is_empty()) {
        Some(of) => {
            Arc::new(SecretWorkloads::new(workloads, wanted.clone(), of.secrets, of.environment))
                as Arc<dyn Workloads>
        }
        None => workloads,
    };
    // The job matters more than its measurements: it runs without them.
    let mut told = Vec::new();
    let exposed = exposed(&attempt.resolved).await.unwrap_or_else(|problem| {
        let text = format!("{problem}; the job runs without (`watch.metrics_listen`)");
        tracing::warn!("{text}");
        told.push(text);
        None
    });
    if let Some(exposed) = &exposed {
        tracing::info!("{}", exposed.sentence());
    }
    let exposed = exposed.map(|exposed| exposed.metrics);
    let world = AgentPorts {
        sensors,
        workloads,
        metadata: Some(ports.metadata),
        power: ports.power,
        insist,
        own_network,
        switch_files: on_box.switch_files,
        own_machine: on_box.own_machine,
        meter: on_box.meter,
        exposed,
        service: ports.service,
        stacks: Arc::new(ProcStacks),
        people: if on_box.own_machine { Arc::new(Terminals::new("/")) } else { Arc::new(Nobody) },
        signals: termination_signals::none(),
    };
    let finish = Agent::new(attempt, world, outbox, memory).telling(told).run().await;
    tracing::info!(because = finish.because.word(), "the attempt is over");
    Ok(0)
}

/// Measurements that are served.
struct Exposure {
    metrics: Arc<ExposedMetrics>,
    address: SocketAddr,
}

impl Exposure {
    /// The address, and who can read it.
    fn sentence(&self) -> String {
        let address = self.address;
        let open = if address.ip().is_loopback() {
            ""
        } else {
            "; no token guards them: every host that reaches the port reads them"
        };
        format!("measurements are served at http://{address}/metrics{open}")
    }
}

/// Serves the measurements, if the job asks for it.
async fn exposed(job: &ResolvedSpec) -> Result<Option<Exposure>, String> {
    let Some(address) = job.spec.watch.metrics_listen else { return Ok(None) };
    let listener = metrics_server::listen(address.0)
        .await
        .map_err(|error| format!("cannot serve measurements at {address}: {error}"))?;
    let metrics = Arc::new(ExposedMetrics::new(job.job.as_str(), &job.spec.name));
    let address = listener.local_addr().unwrap_or(address.0);
    let newest = Arc::clone(&metrics);
    let text = Arc::new(move || newest.text().ok());
    let content_type = open_metrics::CONTENT_TYPE;
    tokio::spawn(metrics_server::serve(listener, Served { content_type, text }));
    Ok(Some(Exposure { metrics, address }))
}

fn power(then: Then) -> Arc<dyn Power> {
    match then {
        Then::Exit => Arc::new(ThenExit),
        Then::Poweroff => Arc::new(SystemPower::new()),
        Then::Command(command) => Arc::new(ThenCommand(command)),
    }
}

async fn run_alone(call: Alone, leading: Vec<OsString>) -> Result<i32, String> {
    let program = HolderProgram { exe: exe()?, leading, machine_pid: None, environment: None };
    // In a process group: the output is also written to this terminal.
    let workloads: Arc<dyn Workloads> =
        Arc::from(process::workloads(program, WorkloadIsolation::ProcessGroup));
    if !call.dry_run {
        orphaned_run::forget_old(&alone_root(&call), &*workloads).await;
    }
    stand_alone(call, workloads).await
}

async fn watch_alone(call: Alone) -> Result<i32, String> {
    stand_alone(call, Arc::new(WholeMachine)).await
}

async fn stand_alone(call: Alone, workloads: Arc<dyn Workloads>) -> Result<i32, String> {
    let (mut feed, problem) = sensors()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let work = process_env::current_folder()
        .map_err(|error| format!("cannot tell the current folder: {error}"))?;
    if call.dry_run {
        let sample = feed
            .sample(&crate::ports::Scope {
                whole_machine: true,
                workdir: work,
                ..Default::default()
            })
            .await;
        print(&standalone::describe(&call, sample.as_ref(), problem.get().as_deref()));
        return Ok(0);
    }
    if call.then == Then::Poweroff && !process_env::is_root() {
        return Err(
            "only root may power this machine off\nhint: run it with `sudo`, or name a command that may: --then 'sudo systemctl poweroff'".into()
        );
    }
    let power = power(call.then.clone());
    let root = alone_root(&call);
    let mut resolved = standalone::resolved(&call, clock.now(), process_env::random());
    let exposed = exposed(&resolved).await?;
    if let Some(exposed) = &exposed {
        complain(&format!("{}\n", exposed.sentence()));
    }
    let exposed = exposed.map(|exposed| exposed.metrics);
    let named = call
        .name
        .as_ref()
        .map(|name| (name, root.join("names").join(JobId::from_name(name, [0; 6]).as_str())));
    let named = match named.map(|(name, file)| (name, process_env::lock(&file), file)) {
        None => None,
        Some((_, Ok(Some(held)), _)) => Some(held),
        Some((name, Ok(None), file)) => {
            let said = LocalFiles
                .read(&file)
                .ok()
                .flatten()
                .map_or(String::new(), |said| String::from_utf8_lossy(&said).into_owned());
            complain(&format!("error: {}\n", standalone::taken(name, &said, &root)));
            return Ok(TAKEN);
        }
        Some((_, Err(error), file)) => {
            return Err(format!("cannot write {}: {error}", file.display()));
        }
    };
    let abandoned = orphaned_run::find(&root, &call.argv, &work, &*workloads, &*clock).await;
    let outbox = alone_outbox(&root, &clock, abandoned.as_ref().unwrap_or(&resolved.job))?;
    // Held until this process ends: other agents see that this run is watched.
    let _watched = process_env::lock(&orphaned_run::lock(&outbox.state))
        .map_err(|error| format!("cannot write {}: {error}", outbox.state.display()))?;
    if let Some(job) = abandoned {
        complain(&format!(
            "lamp-agent: `{job}` still runs, and the agent that watched it is gone: watching it again\n"
        ));
        resolved.job = job;
    } else {
        standalone::record(&outbox, &resolved).await.map_err(|error| {
            format!("cannot write the run's records below {}: {error}", root.display())
        })?;
    }
    if let Some(named) = &named
        && let Err(error) = process_env::sign(named, resolved.job.as_str())
    {
        tracing::warn!("the name of this run is not written down: {error}");
    }
    let memory = boot::remember(&outbox);
    let attempt = standalone::attempt(
        &resolved,
        memory.started,
        &work,
        &outbox.state,
        &process_env::cache_folder(),
    );
    let world = AgentPorts {
        sensors: feed,
        workloads,
        metadata: None,
        power,
        insist: call.then == Then::Poweroff,
        own_network: Arc::default(),
        switch_files: None,
        own_machine: false,
        meter: None,
        exposed,
        service: Arc::new(Notify),
        stacks: Arc::new(ProcStacks),
        people: Arc::new(Nobody),
        signals: termination_signals::count()
            .map_err(|error| format!("cannot listen for signals: {error}"))?,
    };
    let finish = Agent::new(attempt, world, outbox, memory).run().await;
    complain(&standalone::last_words(&finish, &root, &resolved.job));
    Ok(standalone::exit_code(&finish))
}

/// Where stand-alone runs keep their records.
fn alone_root(call: &Alone) -> PathBuf {
    call.state.clone().unwrap_or_else(|| process_env::state_folder().join("agent"))
}

fn alone_outbox(
    root: &Path,
    clock: &Arc<dyn Clock>,
    job: &crate::job::JobId,
) -> Result<Outbox, String> {
    let root = std::path::absolute(root).map_err(|error| error.to_string())?;
    let files: Arc<dyn Files> = Arc::new(LocalFiles);
    files
        .create_folder(&root)
        .map_err(|error| format!("cannot create {}: {error}", root.display()))?;
    let store =
        open::open(&format!("file://{}", root.display())).map_err(|error| error.to_string())?;
    let state = root.join("runs").join(job.as_str());
    Ok(Outbox {
        dir: JobDir::new(store, job.clone()),
        attempt: AttemptNo::FIRST,
        clock: Arc::clone(clock),
        files,
        state,
    })
}

fn sensors() -> Result<(Box<dyn SensorFeed>, GpuProblem), String> {
    let mut options = SensorOptions::default();
    if let Some(library) = process_env::variable("LAMP_NVML_LIBRARY") {
        options.nvml_library = library.into();
    }
    let sensors = system_sensors(&options);
    let problem = sensors.gpu_problem_watch();
    let thread = SensorThread::start(Box::new(sensors), sensor_thread::PATIENCE)
        .map_err(|error| format!("cannot start the sensors' thread: {error}"))?;
    Ok((Box::new(thread), problem))
}

fn exe() -> Result<PathBuf, String> {
    process_env::exe().map_err(|error| format!("cannot tell which program this is: {error}"))
}

fn code(status: i32) -> ExitCode {
    ExitCode::from(u8::try_from(status).unwrap_or(1))
}

/// Data that the user asked for. A closed pipe is not an error.
fn print(text: &str) {
    use std::io::Write as _;
    let _closed = std::io::stdout().write_all(text.as_bytes());
}

fn complain(text: &str) {
    use std::io::Write as _;
    let _closed = std::io::stderr().write_all(text.as_bytes());
}
