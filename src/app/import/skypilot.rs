//! A task of SkyPilot (`sky launch task.yaml`).

use super::gpu_words::GpuWish;
use super::imported_job::{ImportNote, ImportedJob, NotCarried, gib, span};
use super::yaml_node::{YamlNode, YamlValue};

const CARRIED: [&str; 8] =
    ["name", "workdir", "setup", "run", "envs", "secrets", "resources", "num_nodes"];

const REASONS: &[NotCarried] = &[
    (
        "file_mounts",
        "no storage is mounted: copy small files into the workdir, and fetch data in `setup`, for example with `aws s3 cp`",
    ),
    ("storage", "no storage is mounted: fetch data in `setup`"),
    ("volumes", "no volume is attached: fetch data in `setup`, and keep results by `outputs`"),
    ("service", "a job runs once: ports and replicas are left out"),
    ("inputs", "inputs are not estimated: `lamp plan` shows the cost"),
    ("outputs", "outputs are not estimated: `outputs` here names files to keep"),
    ("config", "settings of SkyPilot do not apply"),
    ("experimental", "settings of SkyPilot do not apply"),
    ("event_callback", "see `[notify] command` of the configuration"),
    ("pool", "there are no pools: each job has its own machines"),
    ("estimated", "`[limits] work` says how long the job works"),
];

const CARRIED_RESOURCES: [&str; 15] = [
    "accelerators",
    "cloud",
    "infra",
    "region",
    "use_spot",
    "disk_size",
    "instance_type",
    "image_id",
    "autostop",
    "job_recovery",
    "spot_recovery",
    "any_of",
    "ordered",
    "candidates",
    "zone",
];

/// How scripts write the folder of the workdir.
const SKY_WORKDIRS: [&str; 4] =
    ["~/sky_workdir", "$HOME/sky_workdir", "${HOME}/sky_workdir", "/root/sky_workdir"];

const RESOURCE_REASONS: &[NotCarried] = &[
    ("cpus", "the machine is chosen by its GPUs: `instance_types` names others"),
    ("memory", "the machine is chosen by its GPUs: `instance_types` names others"),
    ("disk_tier", "disks are gp3"),
    ("network_tier", "there is no choice of network"),
    ("ports", "no port is opened: `lamp ssh JOB -- -L PORT:localhost:PORT` forwards one"),
    ("accelerator_args", "there are no TPUs"),
    ("labels", "write them under [tags]"),
    ("priority", "jobs have no priority"),
];

/// One task.
pub fn read(task: &YamlNode) -> ImportedJob {
    let mut job = ImportedJob {
        name: task.text_of("name").map(str::to_owned),
        setup: task.text_of("setup").map(str::to_owned),
        script: task.text_of("run").map(str::to_owned),
        ..ImportedJob::default()
    };
    workdir(&mut job, task);
    own_folder(&mut job, task);
    for key in ["envs", "secrets"] {
        for (name, value) in task.get(key).map(YamlNode::pairs).unwrap_or_default() {
            match key {
                "secrets" => {
                    job.secrets.push(name.clone());
                    let what = "is a secret: say under [secrets] where it is";
                    job.decide(Some(value.line), name, what);
                }
                _ => job.take_env(name, value.text().filter(|text| !text.is_empty()), value.line),
            }
        }
    }
    if let Some(nodes) = task.get("num_nodes") {
        job.take_nodes("num_nodes", nodes);
    }
    if let Some(resources) = task.get("resources") {
        let chosen = chosen(&mut job, resources);
        machine(&mut job, &chosen);
        job.note_rest(&chosen, "resources.", &CARRIED_RESOURCES, RESOURCE_REASONS);
    }
    job.note_rest(task, "", &CARRIED, REASONS);
    let gpus = job.gpu_count.to_string();
    job.supply_env(&[("SKYPILOT_NUM_GPUS_PER_NODE", gpus)]);
    // Each rank of several gets its own.
    if job.nodes.is_none() {
        job.supply_env(&[
            ("SKYPILOT_NUM_NODES", "1".into()),
            ("SKYPILOT_NODE_RANK", "0".into()),
            ("SKYPILOT_NODE_IPS", "127.0.0.1".into()),
        ]);
    }
    job
}

fn workdir(job: &mut ImportedJob, task: &YamlNode) {
    let Some(node) = task.get("workdir") else { return };
    match node.text() {
        Some(text) if text.contains("://") || text.starts_with("git@") => {
            job.note(node.line, "workdir", "a repository is not shipped: clone it in `setup`")
        }
        Some(text) => job.workdir = Some(text.to_owned()),
        None => job.note(node.line, "workdir", "a repository is not shipped: clone it in `setup`"),
    }
}

/// SkyPilot has the workdir at `~/sky_workdir`. The agent names it in `LAMP_WORKDIR`.
fn own_folder(job: &mut ImportedJob, task: &YamlNode) {
    for (key, script) in [("setup", &mut job.setup), ("run", &mut job.script)] {
        let Some(text) = script else { continue };
        let mended = SKY_WORKDIRS
            .iter()
            .fold(text.clone(), |text, folder| text.replace(folder, "$LAMP_WORKDIR"));
        if mended != *text {
            *text = mended;
            let note = ImportNote {
                line: task.get(key).map(|node| node.line),
                key: key.to_owned(),
                text: "`~/sky_workdir` became `$LAMP_WORKDIR`, where the script starts".into(),
                decide: false,
            };
            job.notes.push(note);
        }
    }
}

/// The resources with the first alternative that AWS can have.
fn chosen(job: &mut ImportedJob, resources: &YamlNode) -> YamlNode {
    let mut pairs = resources.pairs().to_vec();
    for key in ["any_of", "ordered", "candidates"] {
        let Some(list) = resources.get(key) else { continue };
        let alternatives = list.items();
        let first = alternatives.iter().find(|one| is_aws(one)).or(alternatives.first());
        let Some(first) = first else { continue };
        if alternatives.len() > 1 {
            let what = format!(
                "one of {} alternatives was taken; with `gpus = \"at least 24GiB\"` any such machine fits",
                alternatives.len()
            );
            job.note(list.line, &format!("resources.{key}"), what);
        }
        for (name, value) in first.pairs() {
            pairs.retain(|(known, _)| known != name);
            pairs.push((name.clone(), value.clone()));
        }
    }
    YamlNode { line: resources.line, value: YamlValue::Map(pairs) }
}

fn is_aws(alternative: &YamlNode) -> bool {
    cloud_of(alternative).is_none_or(|(cloud, _)| cloud == "aws")
}

/// The cloud, and the rest of `infra: aws/us-east-1/us-east-1a`.
fn cloud_of(resources: &YamlNode) -> Option<(String, Option<String>)> {
    let infra = resources.text_of("infra").or(resources.text_of("cloud"))?;
    let mut parts = infra.split('/');
    let cloud = parts.next().unwrap_or_default().to_ascii_lowercase();
    Some((cloud, parts.next().map(str::to_owned)))
}

fn machine(job: &mut ImportedJob, resources: &YamlNode) {
    let (cloud, region) = cloud_of(resources).unwrap_or_else(|| ("aws".into(), None));
    let is_aws = ["aws", "*"].contains(&cloud.as_str());
    if let Some(node) = resources.get("infra").or(resources.get("cloud")).filter(|_| !is_aws) {
        job.decide(
            Some(node.line),
            "resources.cloud",
            format!("`{cloud}` is not reached: the job buys its machine at AWS"),
        );
    }
    accelerators(job, resources);
    let region = region.or(resources.text_of("region").map(str::to_owned));
    match region.filter(|region| region != "*") {
        Some(region) if is_aws => job.regions.push(region),
        Some(region) => {
            job.note(resources.line, "resources.region", format!("`{region}` is no region of AWS"))
        }
        None => {}
    }
    if let Some(zone) = resources.get("zone") {
        job.note(zone.line, "resources.zone", "zones are chosen by price and capacity");
    }
    if let Some(node) = resources.get("instance_type") {
        match node.text() {
            Some(kind) if is_aws => job.instance_types.push(kind.to_owned()),
            _ => job.note(node.line, "resources.instance_type", "is no machine type of AWS"),
        }
    }
    if let Some(node) = resources.get("image_id") {
        match node.text().filter(|image| image.starts_with("ami-")) {
            Some(image) => job.image = Some(image.to_owned()),
            None => job.note(node.line, "resources.image_id", "the image is not used: a job runs on AWS's deep learning image; `docker run` in the command starts a container"),
        }
    }
    if resources.get("use_spot").is_some_and(YamlNode::is_true) {
        job.market = Some("spot");
    }
    disk(job, resources);
    ends(job, resources);
}

fn accelerators(job: &mut ImportedJob, resources: &YamlNode) {
    let Some(node) = resources.get("accelerators") else { return };
    let Some(wish) = GpuWish::read(node) else {
        return job.decide(Some(node.line), "resources.accelerators", "is not understood");
    };
    if wish.models.len() > 1 {
        let what = format!("`{}` was taken; the others are not carried", wish.models[0]);
        job.note(node.line, "resources.accelerators", what);
    }
    if wish.is_rounded {
        let what = format!("became {} whole GPUs", wish.count);
        job.note(node.line, "resources.accelerators", what);
    }
    job.gpu_count = wish.count;
    job.gpus = Some(wish.words());
}

fn disk(job: &mut ImportedJob, resources: &YamlNode) {
    let Some(node) = resources.get("disk_size") else { return };
    match node.text().and_then(gib) {
        Some(size) => job.disk_gib = Some(size),
        None => job.note(node.line, "resources.disk_size", "is not understood"),
    }
}

/// When the machine ends by itself, and how often the job begins again.
fn ends(job: &mut ImportedJob, resources: &YamlNode) {
    if let Some(node) = resources.get("autostop") {
        let text = node.text_of("idle_minutes").or(node.text());
        job.idle = text.and_then(|text| span(text, "m"));
        job.note(
            node.line,
            "resources.autostop",
            "the machine ends with its job; `watch.idle` ends a job that does nothing",
        );
    }
    for key in ["job_recovery", "spot_recovery"] {
        let Some(node) = resources.get(key) else { continue };
        match node.text_of("max_restarts_on_errors") {
            Some(times) => job.retries = Some(times.to_owned()),
            None => {
                let what = "an interrupted job goes on by itself: see [interruptions]";
                job.note(node.line, &format!("resources.{key}"), what);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::yaml_node::documents;
    use super::*;

    #[test]
    fn folder_of_skypilot_becomes_our_workdir_and_is_said() {
        let text = "setup: pip install -e .\nrun: |\n  cd ~/sky_workdir/lib\n  sh $HOME/sky_workdir/a.sh\n";
        let job = read(&documents(text).unwrap()[0]);
        let script = job.script.as_deref();
        assert_eq!(script, Some("cd $LAMP_WORKDIR/lib\nsh $LAMP_WORKDIR/a.sh\n"));
        assert_eq!(job.setup.as_deref(), Some("pip install -e ."));
        let keys: Vec<&str> = job.notes.iter().map(|note| note.key.as_str()).collect();
        assert_eq!(keys, ["run"]);
    }
}
