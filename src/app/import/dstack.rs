//! A task, a service or a development environment of dstack (`.dstack.yml`).

use super::gpu_words::GpuWish;
use super::imported_job::{ImportedJob, NotCarried, gib, span};
use super::yaml_node::{YamlNode, YamlValue};

const CARRIED: [&str; 18] = [
    "type",
    "name",
    "commands",
    "env",
    "resources",
    "spot_policy",
    "max_duration",
    "max_price",
    "regions",
    "instance_types",
    "nodes",
    "setup",
    "init",
    "stop_duration",
    "utilization_policy",
    "schedule",
    "backends",
    "working_dir",
];

const REASONS: &[NotCarried] = &[
    (
        "image",
        "the image is not used: a job runs on AWS's deep learning image; `docker run` in the command starts a container",
    ),
    ("docker", "the image of AWS has docker"),
    (
        "python",
        "the Python of the machine is used: `setup` can install another, for example with uv",
    ),
    ("nvcc", "the image of AWS has CUDA: `[machine] cuda` checks its version"),
    ("ports", "no port is opened: `lamp ssh JOB -- -L PORT:localhost:PORT` forwards one"),
    ("port", "no port is opened: `lamp ssh JOB -- -L PORT:localhost:PORT` forwards one"),
    ("files", "the folder of the job file is shipped as a whole"),
    ("repos", "the folder of the job file is shipped as a whole: clone others in `setup`"),
    ("volumes", "no volume is attached: fetch data in `setup`, and keep results by `outputs`"),
    ("ide", "no editor is installed: `lamp ssh` opens a shell on the machine"),
    ("inactivity_duration", "`[on] in_use` keeps a machine while a person types there"),
    (
        "idle_duration",
        "the machine ends with its job: `[on] success = \"keep 30m\"` keeps it longer",
    ),
    (
        "retry",
        "an interrupted job goes on by itself: see [interruptions]; `[retries] max` restarts a failed command",
    ),
    ("replicas", "a job has no replicas"),
    ("scaling", "the number of machines does not follow the load"),
    ("gateway", "a job has no address"),
    ("auth", "a job has no address"),
    ("model", "a job has no address"),
    ("https", "a job has no address"),
    ("fleets", "each job has its own machine"),
    ("creation_policy", "each job has its own machine"),
    ("reservation", "reservations are not used"),
    ("privileged", "the command runs without a container"),
    ("registry_auth", "no image is pulled"),
    ("priority", "jobs have no priority"),
    ("shell", "the commands run in bash"),
    ("tags", "write them under [tags]"),
];

const RESOURCE_REASONS: &[NotCarried] = &[
    ("cpu", "the machine is chosen by its GPUs: `instance_types` names others"),
    ("memory", "the machine is chosen by its GPUs: `instance_types` names others"),
    ("shm_size", "the command runs without a container: /dev/shm is half of the memory"),
];

/// Says what a configuration of another type is.
pub fn not_a_job(document: &YamlNode) -> Option<&'static str> {
    match document.text_of("type") {
        Some("fleet") => Some("a fleet: each job here has its own machine"),
        Some("volume") => Some("a volume: no volume is attached to jobs"),
        Some("gateway") => Some("a gateway: jobs have no address"),
        _ => None,
    }
}

pub fn read(document: &YamlNode) -> ImportedJob {
    let mut job =
        ImportedJob { name: document.text_of("name").map(str::to_owned), ..ImportedJob::default() };
    commands(&mut job, document);
    env(&mut job, document);
    machine(&mut job, document);
    ends(&mut job, document);
    if let Some(nodes) = document.get("nodes") {
        job.take_nodes("nodes", nodes);
    }
    job.note_rest(document, "", &CARRIED, REASONS);
    let gpus = job.gpu_count.to_string();
    job.supply_env(&[("DSTACK_GPUS_PER_NODE", gpus.clone())]);
    // Each rank of several gets its own.
    if job.nodes.is_none() {
        job.supply_env(&[
            ("DSTACK_NODES_NUM", "1".into()),
            ("DSTACK_NODE_RANK", "0".into()),
            ("DSTACK_GPUS_NUM", gpus),
            ("DSTACK_MASTER_NODE_IP", "127.0.0.1".into()),
        ]);
    }
    job
}

/// Each command must succeed, as with dstack.
fn commands(job: &mut ImportedJob, document: &YamlNode) {
    let lines = |key: &str| document.get(key).map(YamlNode::texts).unwrap_or_default();
    let script =
        |lines: Vec<String>| (!lines.is_empty()).then(|| format!("set -e\n{}\n", lines.join("\n")));
    let setup: Vec<String> = lines("setup").into_iter().chain(lines("init")).collect();
    job.setup = (!setup.is_empty()).then(|| setup.join("\n"));
    job.script = script(lines("commands"));
    if let Some(folder) = document.get("working_dir") {
        job.note(folder.line, "working_dir", "commands begin in the shipped folder: add a `cd`");
    }
    let kind = document.text_of("type").unwrap_or("task");
    if let Some(node) = document.get("type").filter(|_| kind != "task") {
        let what = match kind {
            "service" => "a service becomes a job without an address",
            _ => {
                "a development environment becomes a job: `lamp ssh` opens a shell there, and `watch.idle` ends it"
            }
        };
        job.note(node.line, "type", what);
    }
}

fn env(job: &mut ImportedJob, document: &YamlNode) {
    let Some(node) = document.get("env") else { return };
    for item in node.items() {
        let Some(text) = item.text() else { continue };
        match text.split_once('=') {
            Some((name, value)) => job.take_env(name.trim(), Some(value), item.line),
            None => job.take_env(text.trim(), None, item.line),
        }
    }
    for (name, value) in node.pairs() {
        job.take_env(name, value.text(), value.line);
    }
}

fn machine(job: &mut ImportedJob, document: &YamlNode) {
    if let Some(resources) = document.get("resources") {
        gpu(job, resources);
        disk(job, resources);
        job.note_rest(resources, "resources.", &["gpu", "disk"], RESOURCE_REASONS);
    }
    let backends = document.get("backends");
    let is_aws = backends.is_none_or(|list| list.texts().iter().any(|name| name == "aws"));
    if let Some(list) = backends.filter(|_| !is_aws) {
        let what = "AWS is not among them: the job buys its machine at AWS";
        job.decide(Some(list.line), "backends", what);
    }
    for (key, into) in [("regions", &mut job.regions), ("instance_types", &mut job.instance_types)]
    {
        if is_aws {
            into.extend(document.get(key).map(YamlNode::texts).unwrap_or_default());
        }
    }
    for key in ["regions", "instance_types"] {
        if let Some(node) = document.get(key).filter(|_| !is_aws) {
            job.note(node.line, key, "is not of AWS");
        }
    }
    market(job, document);
}

fn gpu(job: &mut ImportedJob, resources: &YamlNode) {
    let Some(node) = resources.get("gpu") else { return };
    let Some(wish) = GpuWish::read(node) else {
        if node.text() != Some("0") {
            job.decide(Some(node.line), "resources.gpu", "is not understood");
        }
        return;
    };
    if wish.models.len() > 1 {
        let what = format!("`{}` was taken; the others are not carried", wish.models[0]);
        job.note(node.line, "resources.gpu", what);
    }
    if wish.is_rounded {
        job.note(node.line, "resources.gpu", format!("became {} GPUs", wish.count));
    }
    if wish.models.is_empty() && wish.memory_gib.is_none() {
        let what = "any model fits: name one, or a memory like \"at least 24GiB\"";
        job.decide(Some(node.line), "resources.gpu", what);
    }
    job.gpu_count = wish.count;
    job.gpus = Some(wish.words());
}

fn disk(job: &mut ImportedJob, resources: &YamlNode) {
    let Some(node) = resources.get("disk") else { return };
    match node.text_of("size").or(node.text()).and_then(gib) {
        Some(size) => job.disk_gib = Some(size),
        None => job.note(node.line, "resources.disk", "is not understood"),
    }
}

fn market(job: &mut ImportedJob, document: &YamlNode) {
    let policy = document.get("spot_policy");
    match policy.and_then(YamlNode::text) {
        Some("spot") => job.market = Some("spot"),
        Some("auto") => {
            job.market = Some("spot");
            let what =
                "became spot; `market = \"auto\"` takes the cheaper market that meets a deadline";
            job.decide(policy.map(|node| node.line), "spot_policy", what);
        }
        _ => {}
    }
    let Some(price) = document.get("max_price") else { return };
    match price.text().filter(|_| job.market.is_some()) {
        Some(text) => job.max_price = Some(text.to_owned()),
        None => job.note(
            price.line,
            "max_price",
            "is for spot machines here: `[limits] budget` limits the cost of the job",
        ),
    }
}

fn ends(job: &mut ImportedJob, document: &YamlNode) {
    job.max_runtime = document.text_of("max_duration").and_then(|text| span(text, "s"));
    job.grace = document.text_of("stop_duration").and_then(|text| span(text, "s"));
    if let Some(policy) = document.get("utilization_policy") {
        job.idle = policy.text_of("time_window").and_then(|text| span(text, "s"));
        job.idle_gpu_percent = policy.text_of("min_gpu_utilization").map(str::to_owned);
    }
    if let Some(schedule) = document.get("schedule") {
        let crons = schedule.get("cron").map(YamlNode::texts).unwrap_or_default();
        if crons.len() > 1 || matches!(schedule.value, YamlValue::Null) {
            job.note(schedule.line, "schedule", "a job has one `cron`");
        }
        job.cron = crons.into_iter().next();
    }
}
