//! What an agent asks of the bucket, and what the role of the machines lets it.

use std::time::Duration;

use lamplighter::account::permissions::{Permissions, PolicyName};
use lamplighter::job::{AttemptNo, CheckpointNo, ExitStatus, JobId};
use lamplighter::jobdir::layout::*;
use lamplighter::ports::Clock as _;

use crate::Rig;
use crate::world::Played;
use lamp_test_support::counting_store::CountingStore;
use lamp_test_support::virtual_clock::simulate;

/// S3 would refuse the rest, and no test here has its policies.
#[test]
fn agent_asks_for_nothing_that_its_role_does_not_allow() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let store = CountingStore::new(rig.store.clone());
        let played = Played::new(&rig);
        let spec = r#"{"checkpoint": {"path": "ckpt", "interval": "10m", "grace": "90s"}, "outputs": ["out/*"]}"#;
        let work = async {
            // The agent begins with an empty folder.
            rig.clock.sleep(Duration::from_secs(60)).await;
            for name in ["ckpt", "out"] {
                std::fs::create_dir_all(rig.path(&format!("work/{name}"))).expect("a folder");
                std::fs::write(rig.path(&format!("work/{name}/model")), name)
                    .expect("the folder is there");
            }
            rig.clock.sleep(Duration::from_secs(1800)).await;
            played.end(ExitStatus { code: Some(0), ..ExitStatus::default() });
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = work => {}
            _ = played.agent_with(&rig, store.clone(), spec).run() => {}
        }
        let asked = store.keys();
        for record in ["/status.json", "/outcome.json", "/checkpoints/", "/outputs/", "/events/"] {
            assert!(
                asked.iter().any(|(act, key)| *act == "put" && key.contains(record)),
                "{record}: {asked:?}"
            );
        }
        for (act, key) in asked {
            let action = match act {
                "put" => "s3:PutObject",
                "get" => "s3:GetObject",
                "list" => "s3:ListBucket",
                _ => "s3:DeleteObject",
            };
            assert!(box_may("", action, &key), "{action} of {key}");
        }
    });
}

/// Every process on a machine may do what its role may: it writes what an agent writes, and nothing
/// that a controller, a daemon or a sweep goes by.
#[test]
fn a_machine_writes_what_an_agent_writes_and_reads_jobs() {
    let (job, no, check) = (
        "toy-222222".parse::<JobId>().expect("an id"),
        AttemptNo::FIRST,
        "0001".parse::<CheckpointNo>().expect("a number"),
    );
    let sum = "0a".repeat(32);
    let due = "2026-11-20T21:00:00Z".parse().expect("a time");
    let of_agent = [
        lease(&job, no),
        status(&job, no),
        outcome(&job, no),
        event_batch(&job, no, 1),
        sample_batch(&job, no, 1),
        log_piece(&job, no, 1),
        stacks(&job, no, 1),
        checkpoint_file(&job, check, "a/b.pt"),
        manifest(&job, check),
        format!("{}a/b.pt", outputs(&job)),
        // A rank asks another rank of its gang to save.
        request(&job, 1),
        format!("{}over.json", gang_epoch(&job, 1)),
        gang_end(&job),
    ];
    let of_others = [
        spec(&job),
        code(&job, &sum),
        plan(&job, no),
        ending(&job, no),
        settled(&job, no),
        receipt(&job),
        given_up(&job),
        attention(&job),
        waiting(&job),
        market(&job),
        told(&job, "ended-1"),
    ];
    let elsewhere = [
        CLOCK.to_owned(),
        JOBS_OVER.to_owned(),
        agent(&sum),
        agent_checked(&sum),
        schedule("set", "name"),
        schedule_code("set", "name", &sum),
        schedule_run("set", "name", due),
        suspects("sweeper"),
        visit("sweeper"),
        proof("123456789012", "us-east-1"),
        pool("us-east-1a", "g5.xlarge"),
    ];
    for prefix in ["", "team/"] {
        let may = |action: &str, key: &str| box_may(prefix, action, &format!("{prefix}{key}"));
        for key in &of_agent {
            assert!(
                may("s3:PutObject", key)
                    && may("s3:AbortMultipartUpload", key)
                    && may("s3:GetObject", key),
                "{key}"
            );
        }
        for key in &of_others {
            assert!(!may("s3:PutObject", key) && may("s3:GetObject", key), "{key}");
        }
        for key in &elsewhere {
            assert!(
                !may("s3:PutObject", key)
                    && !may("s3:GetObject", key)
                    && !may("s3:ListBucket", key),
                "{key}"
            );
        }
        assert!(may("s3:PutObject", &format!("{}0001-beat", news(&job))));
        for listed in [attempts(&job), requests(&job), checkpoints(&job), events(&job, no)] {
            assert!(may("s3:ListBucket", &listed), "{listed}");
        }
        // What another owner of the bucket has there.
        for key in ["paper.pdf", "other/jobs/toy-222222/outputs/x", "backup/news/x"] {
            assert!(
                !box_may(prefix, "s3:PutObject", key) && !box_may(prefix, "s3:GetObject", key),
                "{key}"
            );
        }
    }
}

/// Whether the policy of the machines allows it, by the resources, and the prefix of a listing,
/// that it names.
pub fn box_may(prefix: &str, action: &str, key: &str) -> bool {
    let text = |text: &str| text.to_owned();
    let permissions = Permissions {
        partition: text("aws"),
        owner: text("alice"),
        bucket: text("jobs"),
        prefix: text(prefix),
        role: text("lamplighter-box"),
        regions: Vec::new(),
        instance_types: Vec::new(),
        secrets: vec![],
    };
    let policy = permissions.policy(PolicyName::Box);
    let words = |value: &serde_json::Value| match value {
        serde_json::Value::Array(many) => {
            many.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect()
        }
        one => one.as_str().map(str::to_owned).into_iter().collect::<Vec<String>>(),
    };
    let statements = policy["Statement"]
        .as_array()
        .expect("statements")
        .iter()
        .filter(|statement| statement["Effect"] == "Allow");
    let mut patterns = statements
        .filter(|statement| words(&statement["Action"]).iter().any(|one| one == action))
        .flat_map(|statement| {
            if action == "s3:ListBucket" {
                words(&statement["Condition"]["StringLike"]["s3:prefix"])
            } else {
                words(&statement["Resource"])
            }
        });
    patterns.any(|pattern| {
        let pattern = pattern.strip_prefix("arn:aws:s3:::jobs/").unwrap_or(&pattern);
        let pattern = regex_lite::escape(pattern).replace(r"\*", ".*");
        regex_lite::Regex::new(&format!("^{pattern}$")).expect("a pattern").is_match(key)
    })
}
