//! A training job of ML Engine, later AI Platform Training (`config.yaml`).

use super::imported_job::{ImportedJob, NotCarried, span};
use super::yaml_node::YamlNode;

const CARRIED: [&str; 8] = [
    "scaleTier",
    "masterType",
    "masterConfig",
    "args",
    "pythonModule",
    "scheduling",
    "hyperparameters",
    "region",
];

const REASONS: &[NotCarried] = &[
    ("packageUris", "packages are not fetched from Google: the folder of the job file is shipped"),
    ("runtimeVersion", "install TensorFlow in `setup`: there is no runtime version"),
    ("pythonVersion", "the Python of the machine is used: `setup` can install another"),
    ("jobDir", "save into the checkpoint folder of [checkpoint], or name files in `outputs`"),
    ("workerType", "is not carried: [gang.worker] can name `instance_types`"),
    ("workerCount", "is not carried: `count` in [gang.worker] says how many"),
    ("workerConfig", "is not carried: [gang.worker] can name `instance_types`"),
    ("parameterServerType", "is not carried: [gang.ps] can name `instance_types`"),
    ("parameterServerCount", "is not carried: `count` in [gang.ps] says how many"),
    ("parameterServerConfig", "is not carried: [gang.ps] can name `instance_types`"),
    ("evaluatorType", "is not carried: [gang.evaluator] can name `instance_types`"),
    ("evaluatorCount", "is not carried: `count` in [gang.evaluator] says how many"),
    ("evaluatorConfig", "is not carried: [gang.evaluator] can name `instance_types`"),
    ("useChiefInTfConfig", "with several machines, [gang.chief] makes a chief"),
    ("encryptionConfig", "keys of Google do not apply"),
    ("serviceAccount", "accounts of Google do not apply"),
    ("network", "networks of Google do not apply"),
];

/// Google's machine types with GPUs: type, GPUs at AWS that are at least as fast, what they were.
const MACHINE_TYPES: &[(&str, &str, &str)] = &[
    ("standard_gpu", "T4:1", "one K80"),
    ("complex_model_m_gpu", "T4:4", "four K80"),
    ("complex_model_l_gpu", "T4:8", "eight K80"),
    ("standard_p100", "V100:1", "one P100"),
    ("complex_model_m_p100", "V100:4", "four P100"),
    ("standard_v100", "V100:1", ""),
    ("large_model_v100", "V100:1", ""),
    ("complex_model_m_v100", "V100:4", ""),
    ("complex_model_l_v100", "V100:8", ""),
];

pub fn read(document: &YamlNode) -> ImportedJob {
    let mut job = ImportedJob {
        name: document.text_of("jobId").map(str::to_owned),
        ..ImportedJob::default()
    };
    let reasons = [("labels", "write them under [tags]")];
    job.note_rest(document, "", &["jobId", "trainingInput"], &reasons);
    let Some(input) = document.get("trainingInput") else { return job };
    machine(&mut job, input);
    command(&mut job, input);
    if let Some(scheduling) = input.get("scheduling") {
        job.max_runtime = scheduling.text_of("maxRunningTime").and_then(|text| span(text, "s"));
        job.note_rest(scheduling, "trainingInput.scheduling.", &["maxRunningTime"], &[]);
    }
    if let Some(region) = input.get("region") {
        job.decide(
            Some(region.line),
            "trainingInput.region",
            "is a region of Google: name one of AWS in `regions`, or none",
        );
    }
    if let Some(search) = input.get("hyperparameters") {
        hyperparameters(&mut job, search);
    }
    job.note_rest(input, "trainingInput.", &CARRIED, REASONS);
    job
}

fn machine(job: &mut ImportedJob, input: &YamlNode) {
    let tier = input.get("scaleTier");
    let line = tier.map_or(input.line, |node| node.line);
    match tier.and_then(YamlNode::text).unwrap_or("BASIC") {
        "BASIC_GPU" => gpus(job, line, "trainingInput.scaleTier", "T4:1", "one K80"),
        "BASIC_TPU" => {
            let what = "there are no TPUs: name GPUs in `gpus`";
            job.decide(Some(line), "trainingInput.scaleTier", what);
        }
        word @ ("STANDARD_1" | "PREMIUM_1") => {
            let what =
                format!("`{word}` is a cluster of CPU machines: [gang] describes several machines");
            job.decide(Some(line), "trainingInput.scaleTier", what);
        }
        _ => {}
    }
    if let Some(kind) = input.get("masterType") {
        master_type(job, kind);
    }
    let Some(config) = input.get("masterConfig") else { return };
    if let Some(accelerator) = config.get("acceleratorConfig") {
        let count = accelerator.text_of("count").unwrap_or("1");
        let kind = accelerator.text_of("type").unwrap_or_default();
        let model = kind.trim_start_matches("NVIDIA_").trim_start_matches("TESLA_");
        job.gpu_count = count.parse().unwrap_or(1);
        job.gpus = Some(format!("{}:{count}", model.replace('_', "-")));
    }
    let reasons =
        [("imageUri", "the image is not used: `docker run` in the command starts a container")];
    job.note_rest(config, "trainingInput.masterConfig.", &["acceleratorConfig"], &reasons);
}

fn master_type(job: &mut ImportedJob, node: &YamlNode) {
    let kind = node.text().unwrap_or_default();
    match MACHINE_TYPES.iter().find(|(name, ..)| *name == kind) {
        Some((_, words, were)) => gpus(job, node.line, "trainingInput.masterType", words, were),
        None if kind == "cloud_tpu" => {
            let what = "there are no TPUs: name GPUs in `gpus`";
            job.decide(Some(node.line), "trainingInput.masterType", what);
        }
        None => {
            let what =
                format!("`{kind}` is a CPU machine of Google: `instance_types` names one of AWS");
            job.decide(Some(node.line), "trainingInput.masterType", what);
        }
    }
}

fn gpus(job: &mut ImportedJob, line: usize, key: &str, words: &str, were: &str) {
    job.gpus = Some(words.to_owned());
    job.gpu_count = words.rsplit(':').next().and_then(|count| count.parse().ok()).unwrap_or(1);
    if !were.is_empty() {
        job.decide(Some(line), key, format!("had {were}: `gpus = \"{words}\"` is a faster model"));
    }
}

fn command(job: &mut ImportedJob, input: &YamlNode) {
    let module = input.text_of("pythonModule");
    job.args = ["python3", "-m", module.unwrap_or("trainer.task")].map(str::to_owned).to_vec();
    job.args.extend(input.get("args").map(YamlNode::texts).unwrap_or_default());
    if module.is_none() {
        let what = "the file names no module: `trainer.task` is a guess; add the arguments that followed `--` of gcloud";
        job.decide(Some(input.line), "trainingInput.pythonModule", what);
    }
}

/// A search is not carried: each parameter is a line of its own.
fn hyperparameters(job: &mut ImportedJob, search: &YamlNode) {
    let key = "trainingInput.hyperparameters";
    job.note(
        search.line,
        key,
        "is not carried: this job trains once, with the script's own values; [tune] searches",
    );
    for param in search.get("params").map(YamlNode::items).unwrap_or_default() {
        let name = param.text_of("parameterName").unwrap_or("?");
        let low = param.text_of("minValue");
        let values = match (low, param.text_of("maxValue")) {
            (Some(low), Some(high)) => format!("{low} to {high}"),
            _ => ["categoricalValues", "discreteValues"]
                .iter()
                .find_map(|key| param.get(key))
                .map(|values| values.texts().join(", "))
                .unwrap_or_default(),
        };
        job.note(
            param.line,
            &format!("{key}.{name}"),
            format!("was searched: {values}; add `--{name}` to the command"),
        );
    }
}
