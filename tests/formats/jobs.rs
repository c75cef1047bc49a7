//! The job files that people copy are in order: those in `config/jobs`, and the one in the README.

use std::path::Path;

use lamplighter::config::{Environment, Inputs, JobFile, Loaded, UserConfig, load_job};
use lamplighter::job::{Command, Finding};

use super::text;

fn load(file: &Path) -> Loaded {
    let environment = Environment { path: Some("/usr/bin:/bin".into()), ..Environment::default() };
    let (flags, user) = (JobFile::default(), UserConfig::default());
    let inputs = Inputs {
        flags: &flags,
        user: &user,
        environment: &environment,
        current_dir: Path::new("/"),
        now: jiff::Timestamp::UNIX_EPOCH,
    };
    load_job(Some(file), &inputs).unwrap_or_else(|error| panic!("{}: {error:#?}", file.display()))
}

/// That the machine of this test has no GPU is no fault of the file.
fn of_the_file(job: &Loaded) -> Vec<&Finding> {
    job.findings.iter().filter(|finding| finding.path != "machine.gpus").collect()
}

#[test]
fn example_jobs_have_no_findings() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/jobs");
    let files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 2);
    for file in files {
        let job = load(&file);
        assert_eq!(of_the_file(&job), Vec::<&Finding>::new(), "{}", file.display());
        let Command::Args(words) = &job.spec.command else { panic!("{}", file.display()) };
        let script =
            words.iter().find(|word| word.ends_with(".py")).map_or("train.py", String::as_str);
        assert!(
            job.workdir.join(script).is_file(),
            "{} ships {}",
            file.display(),
            job.workdir.display()
        );
        assert!(
            job.spec.limits.max_runtime.is_some() && job.spec.limits.budget.is_some(),
            "{}: an example has limits",
            file.display()
        );
    }
}

#[test]
fn job_file_in_the_readme_is_one() {
    let readme = text("README.md");
    let job = readme
        .split("```toml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("the README shows a job file");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.toml");
    std::fs::write(&file, job).unwrap();
    for shipped in ["train.py", "requirements.txt"] {
        std::fs::write(folder.path().join(shipped), "").unwrap();
    }
    let job = load(&file);
    assert_eq!(job.spec.name, "llama-ft");
    assert_eq!(of_the_file(&job), Vec::<&Finding>::new());
}
