//! The agent, from this workstation into a bucket and out again by the URL in the user data.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use lamplighter::adapters::store::open;
use lamplighter::adapters::workstation::agent_files::AgentFiles;
use lamplighter::controller::{ShipError, Shipper};
use lamplighter::job::BOOT;
use lamplighter::market::{Arch, Region};
use lamplighter::ports::{AgentFile, Agents, AgentsError};

use lamp_test_support::moto::moto;
use lamp_test_support::small_agent::small_agent;

const OURS: Arch = if cfg!(target_arch = "x86_64") { Arch::X86_64 } else { Arch::Arm64 };

/// A small program in place of the agent: moto is slow.
static SMALL: LazyLock<PathBuf> =
    LazyLock::new(|| small_agent(Path::new(env!("CARGO_TARGET_TMPDIR"))));

fn agents() -> Arc<AgentFiles> {
    Arc::new(AgentFiles::new(Some(SMALL.clone())))
}

/// What the script assigns.
fn assigned<'a>(user_data: &'a str, name: &str) -> &'a str {
    let line = user_data
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix("='")?.strip_suffix('\''));
    line.unwrap_or_else(|| panic!("no `{name}` in {user_data}"))
}

#[tokio::test]
async fn it_is_uploaded_once_and_fetched_by_its_url() {
    let Some(moto) = moto() else { return };
    moto.bucket("jobs").await;
    let (store, region) = (moto.open("s3://jobs/root"), Region::new("eu-west-1"));
    let shipper = Shipper::new(agents(), None);
    let user_data =
        shipper.user_data(&*store, OURS, &region, "my-image", BOOT).await.unwrap().user_data;
    assert_eq!(
        shipper.user_data(&*store, OURS, &region, "my-image", BOOT).await.unwrap().user_data.len(),
        user_data.len()
    );

    let program = agents().find(OURS).unwrap();
    let listed: Vec<(String, u64)> = store
        .list("agents/")
        .await
        .unwrap()
        .into_iter()
        .map(|found| (found.key, found.bytes))
        .collect();
    let folder = format!("agents/{}", program.sha256);
    assert_eq!(
        listed,
        [(format!("{folder}/checked"), 0), (format!("{folder}/lamp-agent"), program.bytes)]
    );
    assert_eq!(assigned(&user_data, "agent_sha256"), program.sha256);
    let got = reqwest::get(assigned(&user_data, "agent_url")).await.unwrap();
    assert_eq!(
        (got.status().as_u16(), got.bytes().await.unwrap()),
        (200, std::fs::read(&*SMALL).unwrap().into())
    );
    assert!(user_data.contains("LAMP_JOB_ROOT=\"s3://jobs/root\"\nLAMP_JOB_ROOT_REGION=\"us-east-1\"\nAWS_REGION=\"eu-west-1\"'"), "{user_data}");
    // The credentials that signed it stay here.
    assert!(!user_data.contains("aws_secret") && !user_data.contains("SECRET"));

    let elsewhere = Shipper::new(agents(), Some("http://169.254.169.253:5000".into()));
    let user_data =
        elsewhere.user_data(&*store, OURS, &region, "my-image", BOOT).await.unwrap().user_data;
    assert!(
        assigned(&user_data, "agent_url")
            .starts_with("http://169.254.169.253:5000/jobs/root/agents/"),
        "{user_data}"
    );
    assert!(user_data.contains("AWS_ENDPOINT_URL=\"http://169.254.169.253:5000\"'"));

    // What is S3's alone is not CloudWatch's.
    let of_s3 = Shipper::new(agents(), Some("http://s3.vpce.example".into())).of_s3();
    let user_data =
        of_s3.user_data(&*store, OURS, &region, "my-image", BOOT).await.unwrap().user_data;
    assert!(
        user_data.contains("AWS_ENDPOINT_URL_S3=\"http://s3.vpce.example\"'")
            && !user_data.contains("AWS_ENDPOINT_URL="),
        "{user_data}"
    );
}

/// A file that was built anew while it was sent: its name is the sum of what it was.
struct Changing(AgentFile);

impl Agents for Changing {
    fn find(&self, _arch: Arch) -> Result<AgentFile, AgentsError> {
        Ok(self.0.clone())
    }
}

/// Each machine would boot with it, refuse it and go out.
#[tokio::test]
async fn upload_with_wrong_bytes_is_never_taken_for_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let store = open::open(folder.path().to_str().unwrap()).unwrap();
    let program = agents().find(OURS).unwrap();
    let (key, good) =
        (format!("agents/{}/lamp-agent", program.sha256), std::fs::read(&*SMALL).unwrap());
    let wrong = vec![0; good.len()];
    let bring = async || Shipper::new(agents(), None).bring(&*store, OURS).await.unwrap();
    // Somebody's upload ended between sending and comparing, or could not be taken back.
    store.put(&key, wrong.clone().into()).await.unwrap();
    bring().await;
    assert_eq!(store.get(&key).await.unwrap().unwrap(), good);
    // Written again after it was found to be right.
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    store.put(&key, wrong.into()).await.unwrap();
    bring().await;
    assert_eq!(store.get(&key).await.unwrap().unwrap(), good);
    // What is right is not sent again.
    let sent = store.head(&key).await.unwrap().unwrap().modified;
    bring().await;
    assert_eq!(store.head(&key).await.unwrap().unwrap().modified, sent);

    let other = AgentFile { sha256: "0a".repeat(32), ..program };
    let changed =
        Shipper::new(Arc::new(Changing(other)), None).bring(&*store, OURS).await.unwrap_err();
    assert!(matches!(changed, ShipError::Changed { .. }), "{changed}");
    assert_eq!(
        store.list(&format!("agents/{}/", "0a".repeat(32))).await.unwrap(),
        [],
        "it was taken back"
    );
}

#[tokio::test]
async fn folder_here_is_out_of_a_machines_reach() {
    let folder = tempfile::tempdir().unwrap();
    let store = open::open(folder.path().to_str().unwrap()).unwrap();
    let refused = Shipper::new(agents(), None)
        .user_data(&*store, OURS, &Region::new("eu-west-1"), "x", BOOT)
        .await
        .unwrap_err();
    assert!(matches!(refused, ShipError::NotReachable(_)), "{refused}");
    assert!(store.children("").await.unwrap().is_empty(), "nothing was written");
}
