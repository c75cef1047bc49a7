//! Machines of the local cloud, with a shell script for an agent.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use lamplighter::adapters::host::process_tree::with_environment;
use lamplighter::adapters::local::cloud::LocalCloud;
use lamplighter::adapters::local::machine_folder::{InstanceRecord, LocalFolder};
use lamplighter::adapters::local::machine_process::{self, INSTANCE_VARIABLE};
use lamplighter::adapters::local::metadata::LocalMetadata;
use lamplighter::instance::{InstanceState, InstanceView, MachineRef, Tags};
use lamplighter::job::{AttemptNo, MachineSpec, Plan, RECORD_FORMAT};
use lamplighter::market::{self, Region, Span};
use lamplighter::ports::{Cloud, CloudError, Metadata};

/// Not a test of its own: the machine's process, when a test below starts this binary as one.
#[test]
fn plays_the_machine() {
    if let Some(dir) = std::env::var_os("LAMP_TEST_MACHINE") {
        machine_process::main(Path::new(&dir));
        std::process::exit(0);
    }
}

struct World {
    folder: tempfile::TempDir,
    cloud: LocalCloud,
}

impl World {
    /// `agent` is what the agent does, in shell; `$1` is the machine's folder.
    fn new(agent: &str) -> World {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("agent.sh");
        let test = std::env::current_exe().unwrap();
        let machine = format!(
            "exec env LAMP_TEST_MACHINE=\"$2\" {} --exact local_cloud::plays_the_machine --nocapture",
            test.display()
        );
        fs::write(
            &script,
            format!("case \"$1\" in\nmachine) {machine};;\nboot) shift 2\n{agent}\n;;\nesac\n"),
        )
        .unwrap();
        let cloud = World::cloud_of(folder.path(), "file:///root");
        World { folder, cloud }
    }

    fn cloud_of(folder: &Path, root: &str) -> LocalCloud {
        LocalCloud::new(
            folder,
            root,
            vec!["/bin/sh".into(), folder.join("agent.sh").display().to_string()],
        )
    }

    async fn launch(&self, token: &str, kill_at: Option<Timestamp>) -> (String, LocalFolder) {
        let instance = self.cloud.launch(&plan(token, kill_at, &self.cloud).await).await.unwrap();
        let folder = self.cloud.folder(&instance);
        (instance, folder)
    }

    async fn view(&self) -> InstanceView {
        self.cloud.describe("me", &Region::new("local")).await.unwrap().remove(0)
    }

    async fn ended(&self, instance: &str) -> InstanceView {
        until("the machine has ended", async || {
            self.view().await.state == InstanceState::Terminated
        })
        .await;
        // The machine's own process exits last, after it has written the end.
        until("nothing of it is left", async || {
            with_environment(INSTANCE_VARIABLE, instance).is_empty()
        })
        .await;
        let view = self.view().await;
        assert!(view.ended.unwrap() >= view.launched);
        view
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for entry in fs::read_dir(self.folder.path().join("local")).into_iter().flatten().flatten()
        {
            let name = entry.file_name().into_string().unwrap();
            for process in with_environment(INSTANCE_VARIABLE, &name) {
                let _ = Command::new("kill").args(["-9", &process.pid.to_string()]).status();
            }
        }
    }
}

async fn plan(token: &str, kill_at: Option<Timestamp>, cloud: &LocalCloud) -> Plan {
    let job = "digits-222222".parse().unwrap();
    let tags = Tags {
        owner: "me".into(),
        job,
        attempt: AttemptNo::FIRST,
        lease: Span::from_secs(1800),
        boot: lamplighter::job::BOOT,
        kill_at,
    };
    Plan {
        format: RECORD_FORMAT,
        job: tags.job.clone(),
        attempt: tags.attempt,
        created: Timestamp::now(),
        controller: "test".into(),
        offer: cloud.supply(&MachineSpec::default()).await.unwrap().offers.remove(0),
        reasons: vec![],
        rejected: vec![],
        bid: None,
        launch: None,
        most_usd: None,
        most_any_usd: None,
        most_job_usd: None,
        client_token: token.into(),
        kill_at,
        lease: tags.lease,
        boot: tags.boot,
        resume_from: None,
        launch_by: None,
        starts: None,
        gang: None,
        followers: 0,
        tags: tags.to_map(),
    }
}

async fn until(what: &str, mut true_at_last: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + crate::workload::workload::LONG;
    while !true_at_last().await {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Leaves a child that has a session of its own, lost its parent, and ignores what can be ignored.
const DAEMON: &str =
    "(setsid sh -c 'trap \"\" TERM HUP; sleep 1000' &) ; touch \"$1/started\"; exec sleep 1000";

fn machine(id: &str) -> MachineRef {
    MachineRef { cloud: market::CloudKind::Local, region: Region::new("local"), id: id.into() }
}

#[tokio::test]
async fn plan_is_one_machine_however_often_it_is_launched() {
    let world = World::new("touch \"$1/started\"; exec sleep 1000");
    let (instance, folder) = world.launch("t1", None).await;
    let other = World::cloud_of(world.folder.path(), "file:///root");
    assert_eq!(other.launch(&plan("t1", None, &other).await).await.unwrap(), instance);
    until("it runs", async || world.view().await.state == InstanceState::Running).await;
    until("the agent runs", async || folder.path("started").exists()).await;
    assert_eq!(world.cloud.describe("me", &Region::new("local")).await.unwrap().len(), 1);
    assert_eq!(fs::read_to_string(folder.path("machine.log")).unwrap().matches("boots").count(), 1);
    // Neither another owner nor another job root sees it, or can end it.
    assert_eq!(world.cloud.describe("you", &Region::new("local")).await.unwrap(), []);
    let elsewhere = World::cloud_of(world.folder.path(), "file:///elsewhere");
    assert_eq!(elsewhere.describe("me", &Region::new("local")).await.unwrap(), []);
    elsewhere.terminate(&machine(&instance)).await.unwrap();
    assert!(!folder.path("terminate.json").exists());

    world.cloud.terminate(&machine(&instance)).await.unwrap();
    world.cloud.terminate(&machine(&instance)).await.unwrap();
    assert_eq!(
        world.ended(&instance).await.state_reason.unwrap(),
        "Client.UserInitiatedShutdown: terminated by its owner"
    );
    // Its one life is over: the same plan gives the same ended machine.
    assert_eq!(world.cloud.launch(&plan("t1", None, &world.cloud).await).await.unwrap(), instance);
    assert_eq!(world.view().await.state, InstanceState::Terminated);
    world.cloud.release(&machine(&instance)).await.unwrap();
    assert!(!folder.path("started").exists() && folder.path("agent.log").exists());
}

#[tokio::test]
async fn agent_ends_its_machine_and_nothing_is_left() {
    let world = World::new(&format!(
        "echo '{{\"how\": \"terminate\", \"why\": \"succeeded\"}}' > \"$1/poweroff.json\"; {DAEMON}"
    ));
    let (instance, _) = world.launch("t2", None).await;
    assert_eq!(
        world.ended(&instance).await.state_reason.unwrap(),
        "Client.InstanceInitiatedShutdown: succeeded"
    );
}

#[tokio::test]
async fn crashed_agent_is_started_again() {
    let world = World::new("echo x >> \"$1/starts\"; kill -9 $$");
    let (instance, folder) = world.launch("t3", None).await;
    let starts = || fs::read_to_string(folder.path("starts")).unwrap_or_default().len();
    until("it was started three times", async || starts() >= 6).await;
    world.cloud.terminate(&machine(&instance)).await.unwrap();
    world.ended(&instance).await;
}

#[tokio::test]
async fn notice_is_served_and_at_its_time_the_power_is_cut() {
    let world = World::new(DAEMON);
    let (instance, folder) = world.launch("t4", None).await;
    until("the agent runs", async || folder.path("started").exists()).await;
    let metadata = LocalMetadata::new(folder);
    assert_eq!(metadata.identity().await.unwrap().instance, instance);
    assert_eq!(metadata.notices().await.unwrap(), []);
    world.cloud.interrupt(&machine(&instance), Span::from_secs(3600)).await.unwrap();
    assert_eq!(metadata.notices().await.unwrap().len(), 1);
    assert_eq!(world.view().await.state, InstanceState::Running);
    world.cloud.interrupt(&machine(&instance), Span::ZERO).await.unwrap();
    assert!(
        world
            .ended(&instance)
            .await
            .state_reason
            .unwrap()
            .starts_with("Server.SpotInstanceTermination")
    );
}

#[tokio::test]
async fn killed_machine_is_seen_to_be_lost_and_cleaned_up() {
    let world = World::new(DAEMON);
    let (instance, folder) = world.launch("t5", None).await;
    until("the agent runs", async || folder.path("started").exists()).await;
    let machine = folder.machine().unwrap().unwrap().process;
    Command::new("kill").args(["-9", &machine.pid.to_string()]).status().unwrap();
    assert_eq!(
        world.ended(&instance).await.state_reason.unwrap(),
        "Server.HostLost: the machine's process was killed"
    );
}

#[tokio::test]
async fn hard_cap_ends_it_unless_it_is_raised() {
    let world = World::new(DAEMON);
    let past = Timestamp::now();
    let (instance, _) = world.launch("t6", Some(past)).await;
    assert!(world.ended(&instance).await.state_reason.unwrap().contains("kill-at"));

    let world = World::new(DAEMON);
    let soon = Timestamp::now() + Duration::from_secs(3600);
    let (instance, folder) = world.launch("t7", Some(soon)).await;
    until("the agent runs", async || folder.path("started").exists()).await;
    let later = soon + Duration::from_secs(3600);
    world.cloud.raise_kill_at(&machine(&instance), later).await.unwrap();
    world.cloud.raise_kill_at(&machine(&instance), soon).await.unwrap();
    assert_eq!(world.view().await.tags.kill_at, Some(later));
}

/// One look at a record that cannot be read must not bring back the cap that it has raised.
#[tokio::test]
async fn raised_cap_that_cannot_be_read_once_holds_as_last_read() {
    let world = World::new(DAEMON);
    let soon = Timestamp::now() + Duration::from_secs(10);
    let (instance, folder) = world.launch("t6b", Some(soon)).await;
    world.cloud.raise_kill_at(&machine(&instance), soon + Duration::from_secs(3600)).await.unwrap();
    until("the agent runs", async || folder.path("started").exists()).await;
    until("the first cap is over, and another look after it", async || {
        Timestamp::now() > soon + Duration::from_millis(500)
    })
    .await;
    assert!(folder.ended().unwrap().is_none());
    fs::write(folder.path("kill-at.json"), "not a record").unwrap();
    let alive = folder.last_alive();
    until("it lives on", async || {
        folder.last_alive() != alive || folder.ended().unwrap().is_some()
    })
    .await;
    assert!(folder.ended().unwrap().is_none(), "{:?}", folder.ended());
}

#[tokio::test]
async fn machine_that_can_never_start_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("lamp");
    fs::write(&program, "").unwrap();
    let cloud = LocalCloud::new(folder.path(), "file:///root", vec![program.display().to_string()]);
    assert!(
        matches!(
            cloud.launch(&plan("t8", None, &cloud).await).await,
            Err(CloudError::Denied { .. })
        ),
        "not a program"
    );
    let view = cloud.describe("me", &Region::new("local")).await.unwrap().remove(0);
    assert!(
        view.state == InstanceState::Terminated
            && view.state_reason.unwrap().starts_with("Client.InternalError")
    );
}

#[tokio::test]
async fn machine_that_cannot_start_just_now_is_tried_again() {
    let world = World::new("touch \"$1/started\"; exec sleep 1000");
    let (program, script) =
        (world.file("being-built"), world.file("agent.sh").display().to_string());
    let cloud = LocalCloud::new(
        world.folder.path(),
        "file:///root",
        vec![program.display().to_string(), script],
    );
    let error = cloud.launch(&plan("t10", None, &cloud).await).await.unwrap_err();
    assert!(matches!(error, CloudError::Ambiguous { .. }), "{error}");
    let view = world.view().await;
    assert_eq!(view.state, InstanceState::Pending);
    std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
    let folder = world.cloud.folder(&view.id);
    let launched_ago = |ago: u64| {
        let record = InstanceRecord {
            launched: Timestamp::now() - Duration::from_secs(ago),
            ..folder.instance().unwrap()
        };
        folder.write("instance.json", &record).unwrap();
    };
    launched_ago(60);
    until("it runs", async || world.view().await.state == InstanceState::Running).await;

    let never = LocalCloud::new(world.folder.path(), "file:///root", vec!["/nowhere/lamp".into()]);
    assert!(never.launch(&plan("t11", None, &never).await).await.is_err());
    let instance = world
        .cloud
        .describe("me", &Region::new("local"))
        .await
        .unwrap()
        .into_iter()
        .find(|other| other.id != view.id)
        .unwrap()
        .id;
    let folder = world.cloud.folder(&instance);
    let record = InstanceRecord {
        launched: Timestamp::now() - Duration::from_secs(601),
        ..folder.instance().unwrap()
    };
    folder.write("instance.json", &record).unwrap();
    world.cloud.describe("me", &Region::new("local")).await.unwrap();
    assert!(
        folder.ended().unwrap().unwrap().state_reason.starts_with("Client.InternalError"),
        "ten minutes are enough"
    );
}

#[tokio::test]
async fn machine_with_a_damaged_record_is_unknown_and_hides_no_other() {
    let world = World::new("touch \"$1/started\"; exec sleep 1000");
    let (damaged, _) = (world.launch("t12", None).await, world.launch("t13", None).await);
    for name in ["instance.json", "ended.json"] {
        let record = damaged.1.path(name);
        let whole = fs::read(&record).ok();
        fs::write(&record, "{").unwrap();
        let seen: Vec<_> = world
            .cloud
            .describe("me", &Region::new("local"))
            .await
            .unwrap()
            .into_iter()
            .map(|view| view.client_token.unwrap())
            .collect();
        assert_eq!(seen, ["t13"], "{name}");
        let missing = async |token: &str| {
            world.cloud.confirm_missing(&plan(token, None, &world.cloud).await).await
        };
        assert!(missing("t12").await.is_err(), "{name}: it may run");
        assert!(missing("t14").await.is_ok(), "this one was never there");
        match whole {
            Some(whole) => fs::write(&record, whole).unwrap(),
            None => fs::remove_file(&record).unwrap(),
        }
        assert!(missing("t12").await.is_err(), "{name}: it is there after all");
    }
    assert_eq!(world.cloud.describe("me", &Region::new("local")).await.unwrap().len(), 2);
}

#[tokio::test]
async fn only_what_was_settled_is_ever_forgotten() {
    let world = World::new(
        "echo '{\"how\": \"terminate\", \"why\": \"succeeded\"}' > \"$1/poweroff.json\"; exec sleep 1000",
    );
    let (instance, folder) = world.launch("t15", None).await;
    world.ended(&instance).await;
    let old = std::time::SystemTime::now() - Duration::from_secs(8 * 86_400);
    fs::File::options()
        .write(true)
        .open(folder.path("ended.json"))
        .unwrap()
        .set_modified(old)
        .unwrap();
    let other = World::cloud_of(world.folder.path(), "file:///other");
    other.launch(&plan("t16", None, &other).await).await.unwrap();
    assert!(folder.path("ended.json").exists(), "its end is still to be settled");
    world.cloud.release(&machine(&instance)).await.unwrap();
    other.launch(&plan("t16", None, &other).await).await.unwrap();
    assert!(!folder.dir().exists());
}

#[tokio::test]
async fn reboot_of_the_workstation_ends_every_machine() {
    let world = World::new(DAEMON);
    let (instance, folder) = world.launch("t9", None).await;
    until("the agent runs", async || folder.path("started").exists()).await;
    let mut record = folder.instance().unwrap();
    record.boot_id = "an earlier boot".into();
    folder.write("instance.json", &record).unwrap();
    let view = World::cloud_of(world.folder.path(), "file:///root")
        .describe("me", &Region::new("local"))
        .await
        .unwrap()
        .remove(0);
    assert_eq!(
        view.state_reason.as_deref(),
        Some("Server.HostLost: the workstation was restarted")
    );
    assert_eq!(view.id, instance);
    assert!(world.file("local").exists());
}

#[tokio::test]
async fn workstation_keeps_its_name() {
    let world = World::new("exit 0");
    let name = world.cloud.zone().unwrap();
    assert!(name.as_str().starts_with("ws-") && name.as_str().len() == 11, "{name}");
    assert_eq!(World::cloud_of(world.folder.path(), "file:///other").zone().unwrap(), name);
    assert_eq!(world.cloud.supply(&MachineSpec::default()).await.unwrap().offers[0].zone, name);
    assert_ne!(World::new("exit 0").cloud.zone().unwrap(), name);
}
