//! The agent, from this workstation into a bucket and out again by the URL in the user data.

use std::path::PathBuf;
use std::sync::Arc;

use lamplighter::adapters::agent_files::AgentFiles;
use lamplighter::adapters::objects;
use lamplighter::controller::{ShipError, Shipper};
use lamplighter::job::BOOT;
use lamplighter::market::{Arch, Region};
use lamplighter::ports::Agents;

use crate::moto::moto;

const OURS: Arch = if cfg!(target_arch = "x86_64") { Arch::X86_64 } else { Arch::Arm64 };

/// A small program in place of the agent: moto is slow.
fn agents() -> Arc<AgentFiles> {
    Arc::new(AgentFiles::new(Some(PathBuf::from("/bin/true"))))
}

/// What the script assigns.
fn assigned<'a>(user_data: &'a str, name: &str) -> &'a str {
    let line = user_data.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix("='")?.strip_suffix('\''));
    line.unwrap_or_else(|| panic!("no `{name}` in {user_data}"))
}

#[tokio::test]
async fn it_is_uploaded_once_and_fetched_by_its_url() {
    let Some(moto) = moto() else { return };
    moto.bucket("jobs").await;
    let (store, region) = (moto.open("s3://jobs/root"), Region::new("eu-west-1"));
    let shipper = Shipper::new(agents(), None);
    let user_data = shipper.user_data(&*store, OURS, &region, "my-image", BOOT).await.unwrap().user_data;
    assert_eq!(shipper.user_data(&*store, OURS, &region, "my-image", BOOT).await.unwrap().user_data.len(), user_data.len());

    let program = agents().find(OURS).unwrap();
    let listed: Vec<(String, u64)> = store.list("agents/").await.unwrap().into_iter().map(|found| (found.key, found.bytes)).collect();
    assert_eq!(listed, [(format!("agents/{}/lamp-agent", program.sha256), program.bytes)]);
    assert_eq!(assigned(&user_data, "agent_sha256"), program.sha256);
    let got = reqwest::get(assigned(&user_data, "agent_url")).await.unwrap();
    assert_eq!((got.status().as_u16(), got.bytes().await.unwrap()), (200, std::fs::read("/bin/true").unwrap().into()));
    assert!(user_data.contains("LAMP_JOB_ROOT=\"s3://jobs/root\"\nLAMP_JOB_ROOT_REGION=\"us-east-1\"\nAWS_REGION=\"eu-west-1\"'"), "{user_data}");
    // The credentials that signed it stay here.
    assert!(!user_data.contains("aws_secret") && !user_data.contains("SECRET"));

    let elsewhere = Shipper::new(agents(), Some("http://169.254.169.253:5000".into()));
    let user_data = elsewhere.user_data(&*store, OURS, &region, "my-image", BOOT).await.unwrap().user_data;
    assert!(assigned(&user_data, "agent_url").starts_with("http://169.254.169.253:5000/jobs/root/agents/"), "{user_data}");
    assert!(user_data.contains("AWS_ENDPOINT_URL=\"http://169.254.169.253:5000\"'"));

    // What is S3's alone is not CloudWatch's.
    let of_s3 = Shipper::new(agents(), Some("http://s3.vpce.example".into())).of_s3();
    let user_data = of_s3.user_data(&*store, OURS, &region, "my-image", BOOT).await.unwrap().user_data;
    assert!(user_data.contains("AWS_ENDPOINT_URL_S3=\"http://s3.vpce.example\"'") && !user_data.contains("AWS_ENDPOINT_URL="), "{user_data}");
}

#[tokio::test]
async fn a_folder_here_is_out_of_a_machines_reach() {
    let folder = tempfile::tempdir().unwrap();
    let store = objects::open(folder.path().to_str().unwrap()).unwrap();
    let refused = Shipper::new(agents(), None).user_data(&*store, OURS, &Region::new("eu-west-1"), "x", BOOT).await.unwrap_err();
    assert!(matches!(refused, ShipError::NotReachable(_)), "{refused}");
    assert!(store.children("").await.unwrap().is_empty(), "nothing was written");
}
