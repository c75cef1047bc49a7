//! Several ranks in virtual time: who waits for whom, who is lost, and when a gang is over.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lamp_test_support::counting_store::CountingStore;
use lamp_test_support::faulty_store::{Fault, FaultyStore};
use lamp_test_support::inline_files::InlineFiles;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};
use lamplighter::adapters::host::files::LocalFiles;
use lamplighter::agent::gang::{RankPaths, RankPorts, RankRun, RankSelf};
use lamplighter::instance::Status;
use lamplighter::job::{
    AttemptNo, EpochCause, ExitStatus, GangEndCause, GangRole, JobId, ResolvedSpec, Wish, seats_of,
};
use lamplighter::jobdir::{GangDir, JobDir, layout};
use lamplighter::ports::{Clock, Files, RankAddress, RankHost, RankLaunch, RankProcess, Store};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::role::box_may;

/// The engine of a rank in an epoch runs so long and ends with this code.
type Script = fn(rank: u32, epoch: u32) -> (u64, i32);

struct Engine {
    clock: Arc<VirtualClock>,
    ends: Duration,
    code: i32,
    killed: bool,
}

#[async_trait]
impl RankProcess for Engine {
    async fn ended(&mut self) -> ExitStatus {
        let left = self.ends.saturating_sub(self.clock.mono());
        if !self.killed && left > Duration::ZERO {
            self.clock.sleep(left).await;
        }
        ExitStatus { code: Some(self.code), ..ExitStatus::default() }
    }

    fn pass_on_term(&self) {}

    async fn end(&mut self, _grace: Duration) -> ExitStatus {
        if self.ends > self.clock.mono() {
            (self.killed, self.code) = (true, 143);
        }
        self.ended().await
    }
}

struct Host {
    clock: Arc<VirtualClock>,
    rank: u32,
    script: Script,
    said: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl RankHost for Host {
    fn address(&self) -> io::Result<RankAddress> {
        Ok(RankAddress { host: format!("10.0.0.{}", self.rank + 1), interface: None, port: 4000 })
    }

    fn start(&self, launch: &RankLaunch) -> io::Result<Box<dyn RankProcess>> {
        let epoch = launch.env["LAMP_EPOCH"].parse().expect("an epoch");
        let (secs, code) = (self.script)(self.rank, epoch);
        let ends = self.clock.mono() + Duration::from_secs(secs);
        Ok(Box::new(Engine { clock: Arc::clone(&self.clock), ends, code, killed: false }))
    }

    async fn told_to_end(&self) {
        std::future::pending().await
    }

    fn say(&self, text: &str) {
        self.said.lock().unwrap().push(text.to_owned());
    }
}

struct Gang {
    clock: Arc<VirtualClock>,
    store: Arc<dyn Store>,
    faults: Arc<FaultyStore>,
    folder: tempfile::TempDir,
    /// `[gang]` as it is recorded, without the member.
    words: serde_json::Value,
    ranks: u32,
    script: Script,
    /// Its ranks save checkpoints.
    saves: bool,
    /// The agents doubt the files of their folders.
    doubts: bool,
    said: Arc<Mutex<Vec<String>>>,
}

impl Gang {
    fn new(clock: Arc<VirtualClock>, words: serde_json::Value, script: Script) -> Gang {
        let folder = tempfile::tempdir().expect("a folder");
        let faults = FaultyStore::new(clock.clone());
        let ranks = words["nodes"]["max"].as_u64().expect("a number") as u32;
        let said = Arc::default();
        let store = faults.clone();
        Gang {
            clock,
            store,
            faults,
            folder,
            words,
            ranks,
            script,
            saves: false,
            doubts: false,
            said,
        }
    }

    /// Rank 0 has uploaded this checkpoint.
    async fn upload(&self, body: &'static str) {
        let dir = JobDir::new(Arc::clone(&self.store), self.leader());
        let file = json!({ "path": "model", "bytes": body.len(), "key": "checkpoints/0001/files/model",
            "sha256": hex::encode(Sha256::digest(body)) });
        let key = format!("{}checkpoints/0001/files/model", layout::job(dir.job()));
        self.store.put(&key, body.into()).await.expect("it works");
        let manifest = json!({ "format": 1, "number": 1, "attempt": 1, "step": 7.0,
            "created": "2026-01-01T00:00:00Z", "save_secs": 0.0, "upload_secs": 0.0,
            "files": [file] });
        let manifest = serde_json::from_value(manifest).expect("a manifest");
        let _new = dir.create_manifest(&manifest).await.expect("it works");
    }

    /// The checkpoint in the folder of a rank.
    fn brought(&self, rank: u32, attempt: u32) -> Option<String> {
        self.read(rank, attempt, "checkpoints/model")
    }

    fn path(&self, rank: u32, attempt: u32, file: &str) -> PathBuf {
        self.folder.path().join(format!("{rank}-{attempt}")).join(file)
    }

    /// A file on the disk of a rank.
    fn read(&self, rank: u32, attempt: u32, file: &str) -> Option<String> {
        let path = self.path(rank, attempt, file);
        let found = InlineFiles::default().read(&path).expect("a readable folder");
        found.map(|bytes| String::from_utf8(bytes).expect("text"))
    }

    /// A file of a rank that was last changed this long after the checkpoint of rank 0.
    fn write(&self, (rank, attempt): (u32, u32), file: &str, after: u64) {
        let (files, path) = (LocalFiles, self.path(rank, attempt, file));
        files.append(&path, b"step 9").expect("it works");
        let at = clock_at(i64::try_from(after).expect("small")).as_nanosecond();
        files.set_modified(&path, i64::try_from(at).expect("small")).expect("it works");
    }

    fn leader(&self) -> JobId {
        "g-222222".parse().expect("an id")
    }

    fn dir(&self) -> GangDir {
        GangDir::new(Arc::clone(&self.store), self.leader())
    }

    fn spec(&self, rank: u32) -> ResolvedSpec {
        let seats = seats_of(&self.leader(), &vec![GangRole::Worker; self.ranks as usize]);
        let mut gang = self.words.clone();
        let reads = self.saves && rank > 0 && gang["saves"] == "rank0";
        gang["member"] = json!({ "rank": rank, "seats": seats, "retries_max": 0,
            "reads": reads.then_some("ckpt") });
        let saves = self.saves && !reads;
        let checkpoint = saves.then(|| json!({ "path": "ckpt", "interval": "1m", "grace": "30s" }));
        let spec = json!({ "format": 1, "job": seats[rank as usize].job, "written_by": "v",
            "created": "2026-01-01T00:00:00Z",
            "spec": { "name": "g", "command": { "args": ["train"] }, "checkpoint": checkpoint,
                "gang": gang } });
        serde_json::from_value(spec).expect("a spec")
    }

    /// Runs a rank from this second on, and returns its exit code. From `cut` on, nothing more is
    /// heard of it.
    async fn rank(&self, rank: u32, attempt: u32, from: u64, cut: Option<u64>) -> Option<i32> {
        self.clock.sleep(Duration::from_secs(from)).await;
        let spec = self.spec(rank);
        let dir = JobDir::new(Arc::clone(&self.store), spec.job.clone());
        let _same = dir.create_spec(&spec).await.expect("a spec");
        let place = self.folder.path().join(format!("{rank}-{attempt}"));
        let host = Host {
            clock: Arc::clone(&self.clock),
            rank,
            script: self.script,
            said: Arc::clone(&self.said),
        };
        let ports = RankPorts {
            store: Arc::clone(&self.store),
            clock: self.clock.clone(),
            files: Arc::<InlineFiles>::default(),
            host: Arc::new(host),
        };
        let me = RankSelf {
            attempt: AttemptNo::new(attempt),
            instance: format!("i-{rank}-{attempt}"),
            start: format!("s-{rank}-{attempt}-{from}"),
            gpus: None,
            command: vec!["train".into()],
        };
        let paths = RankPaths {
            checkpoints: place.join("checkpoints"),
            notice: place.join("notice"),
            progress: place.join("progress"),
            hostfile: place.join("hostfile"),
        };
        let run = RankRun::new(ports, me, paths, spec).expect("it is a member");
        let beats = async {
            for sequence in 1.. {
                let status = Status { doubts: self.doubts, ..status(sequence, self.clock.now()) };
                dir.put_status(AttemptNo::new(attempt), &status, true).await.expect("a heartbeat");
                self.clock.sleep(Duration::from_secs(15)).await;
            }
        };
        let cut = async {
            match cut {
                Some(cut) => self.clock.sleep(Duration::from_secs(cut)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = cut => None,
            code = run.run() => Some(code),
            () = beats => None,
        }
    }
}

fn status(sequence: u64, at: jiff::Timestamp) -> Status {
    let bare = json!({ "format": 1, "instance": "i", "sequence": sequence, "at": at,
        "phase": "running", "started": at, "verdict": "busy", "useful": "1s", "idle": "0s" });
    serde_json::from_value(bare).expect("a heartbeat")
}

fn words(nodes: (u32, u32), more: &[(&str, &str)]) -> serde_json::Value {
    let mut words = json!({ "nodes": { "min": nodes.0, "max": nodes.1 }, "engine": "env",
        "saves": "each" });
    words.as_object_mut().expect("an object").extend(
        more.iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect::<BTreeMap<_, _>>(),
    );
    words
}

#[test]
fn gang_is_done_by_the_rule_of_its_job_file() {
    // Rank 1 finishes first, rank 0 next, rank 2 last.
    let script: Script = |rank, _| ([60, 30, 90][rank as usize], 0);
    for (done, least, most) in [("any", 30, 45), ("rank0", 60, 75), ("all", 90, 105)] {
        simulate(|clock| async move {
            let gang = Gang::new(Arc::clone(&clock), words((3, 3), &[("done", done)]), script);
            let codes = tokio::join!(
                gang.rank(0, 1, 0, None),
                gang.rank(1, 1, 0, None),
                gang.rank(2, 1, 0, None)
            );
            assert_eq!(codes, (Some(0), Some(0), Some(0)), "{done}");
            let took = clock.mono().as_secs();
            assert!((least..most).contains(&took), "{done}: {took} s");
            let end = gang.dir().end().await.unwrap().expect("it is over");
            assert_eq!(end.because, GangEndCause::Done, "{done}");
        });
    }
}

#[test]
fn finished_rank_waits_at_most_its_tail() {
    let script: Script = |rank, _| ([1000, 10][rank as usize], 0);
    simulate(|clock| async move {
        let rule = [("tail", "2m"), ("done", "rank0")];
        let gang = Gang::new(Arc::clone(&clock), words((2, 2), &rule), script);
        let finished = async {
            let code = gang.rank(1, 1, 0, None).await;
            (code, clock.mono().as_secs())
        };
        let (first, (code, ended)) = tokio::join!(gang.rank(0, 1, 0, None), finished);
        assert_eq!((first, code), (Some(0), Some(0)));
        assert!((130..145).contains(&ended), "it waited until {ended} s");
    });
}

/// If all must finish, a machine that has finished is needed when another one is lost.
#[test]
fn finished_rank_waits_for_all_beyond_its_tail() {
    let script: Script = |rank, epoch| (if rank == 0 && epoch == 1 { 1000 } else { 10 }, 0);
    simulate(|clock| async move {
        let gang = Gang::new(Arc::clone(&clock), words((2, 2), &[("tail", "1m")]), script);
        let lost = async {
            assert_eq!(gang.rank(0, 1, 0, Some(300)).await, None);
            gang.rank(0, 2, 100, None).await
        };
        let codes = tokio::join!(lost, gang.rank(1, 1, 0, None));
        assert_eq!(codes, (Some(0), Some(0)), "{:?}", gang.said.lock().unwrap());
        let over = gang.dir().over(1).await.unwrap().expect("epoch 1 is over");
        assert_eq!((over.because, over.rank), (EpochCause::Lost, 0), "{}", over.text);
        let formed = gang.dir().formation(2).await.unwrap().expect("epoch 2");
        assert_eq!(formed.members.len(), 2);
        let end = gang.dir().end().await.unwrap().expect("it is over");
        assert_eq!(end.because, GangEndCause::Done, "{}", end.text);
    });
}

/// The power of rank 1 is cut. Its silence ends the epoch, and the next one has its replacement.
#[test]
fn silent_rank_is_lost_after_45_s_and_its_replacement_joins() {
    let script: Script = |_, epoch| (if epoch == 1 { 10_000 } else { 20 }, 0);
    simulate(|clock| async move {
        let gang = Gang::new(Arc::clone(&clock), words((2, 2), &[]), script);
        let lost = async {
            assert_eq!(gang.rank(1, 1, 0, Some(100)).await, None);
            gang.rank(1, 2, 100, None).await
        };
        let codes = tokio::join!(gang.rank(0, 1, 0, None), lost);
        assert_eq!(codes, (Some(0), Some(0)), "{:?}", gang.said.lock().unwrap());
        let over = gang.dir().over(1).await.unwrap().expect("epoch 1 is over");
        assert_eq!((over.because, over.rank), (EpochCause::Lost, 1), "{}", over.text);
        let silent = over.at.duration_since(clock_at(100)).as_secs();
        assert!((30..65).contains(&silent), "seen {silent} s after the cut");
        let formed = gang.dir().formation(2).await.unwrap().expect("epoch 2");
        assert_eq!(formed.members[1].attempt, AttemptNo::new(2));
    });
}

/// An elastic gang begins without its second rank, and grows when the rank comes.
#[test]
fn elastic_gang_shrinks_and_grows_again() {
    let script: Script = |_, epoch| (if epoch < 2 { 10_000 } else { 20 }, 0);
    simulate(|clock| async move {
        let gang = Gang::new(Arc::clone(&clock), words((1, 2), &[("join", "1m")]), script);
        let codes = tokio::join!(gang.rank(0, 1, 0, None), gang.rank(1, 1, 300, None));
        assert_eq!(codes, (Some(0), Some(0)), "{:?}", gang.said.lock().unwrap());
        let sizes = |epoch: u32| {
            let dir = gang.dir();
            async move { dir.formation(epoch).await.unwrap().map(|formed| formed.members.len()) }
        };
        assert_eq!((sizes(1).await, sizes(2).await), (Some(1), Some(2)));
        let over = gang.dir().over(1).await.unwrap().expect("epoch 1 is over");
        assert_eq!(over.because, EpochCause::Joined, "{}", over.text);
    });
}

/// Each rank saves its own part. A rank that comes late has none, and begins from another one's. A
/// call that fails is made again.
#[test]
fn late_rank_begins_from_the_checkpoint_of_another() {
    let script: Script = |_, epoch| (if epoch < 2 { 10_000 } else { 20 }, 0);
    simulate(|clock| async move {
        let mut gang = Gang::new(Arc::clone(&clock), words((1, 2), &[("join", "1m")]), script);
        gang.saves = true;
        gang.upload("step 7").await;
        gang.faults.fault("checkpoints/0001/files/model", Fault::Down, Some(2));
        let codes = tokio::join!(gang.rank(0, 1, 0, None), gang.rank(1, 1, 300, None));
        assert_eq!(codes, (Some(0), Some(0)), "{:?}", gang.said.lock().unwrap());
        assert_eq!(gang.brought(1, 1).as_deref(), Some("step 7"));
        assert_eq!(gang.brought(0, 1), None, "its own folder is its own");
    });
}

/// Seeds 1050 and 1563 of the false world. The machine of rank 0 starts again with a save that was
/// never uploaded, which the other ranks cannot have.
#[test]
fn rebooted_rank_0_begins_from_the_checkpoint_of_all() {
    let script: Script = |_, epoch| (if epoch < 2 { 10_000 } else { 20 }, 0);
    simulate(|clock| async move {
        let mut gang = Gang::new(Arc::clone(&clock), words((2, 2), &[("saves", "rank0")]), script);
        (gang.saves, gang.doubts) = (true, true);
        gang.upload("step 7").await;
        let rebooted = async {
            assert_eq!(gang.rank(0, 1, 0, Some(100)).await, None);
            gang.write((0, 1), "checkpoints/model", 90);
            gang.write((0, 1), "checkpoints/step-9/model", 90);
            gang.write((0, 1), "checkpoints/train.log", 90);
            gang.write((0, 1), "checkpoints/vocabulary", 0);
            gang.rank(0, 1, 30, None).await
        };
        let codes = tokio::join!(rebooted, gang.rank(1, 1, 0, None));
        assert_eq!(codes, (Some(0), Some(0)), "{:?}", gang.said.lock().unwrap());
        for rank in 0..2 {
            assert_eq!(gang.brought(rank, 1).as_deref(), Some("step 7"), "rank {rank}");
        }
        assert!(!gang.path(0, 1, "checkpoints/step-9").exists(), "a script takes the newest");
        for kept in ["checkpoints/train.log", "checkpoints/vocabulary"] {
            assert!(gang.read(0, 1, kept).is_some(), "{kept} is no save after it");
        }
        // Its agent doubts that save, so waiting for its upload would be in vain.
        let formed = gang.dir().formation(2).await.unwrap().expect("epoch 2");
        let waited = formed.at.duration_since(clock_at(130)).as_secs();
        assert!((2..15).contains(&waited), "epoch 2 formed after {waited} s");
        let told = gang.read(0, 1, "progress").expect("it tells its agent");
        assert_eq!(told, "\n{\"gang_epoch\": 2}\n");
    });
}

/// The agent ends a quiet machine as idle. A rank that waits is kept until its wait is over, with
/// the upload of its checkpoint before.
#[test]
fn waiting_rank_is_kept_longer_than_it_waits() {
    let script: Script = |_, _| (10_000, 0);
    simulate(|clock| async move {
        let gang = Gang::new(Arc::clone(&clock), words((2, 2), &[("hold", "5m")]), script);
        let codes = tokio::join!(gang.rank(0, 1, 0, None), gang.rank(1, 1, 0, Some(60)));
        assert_eq!(codes, (Some(1), None));
        let dir = JobDir::new(Arc::clone(&gang.store), gang.leader());
        let asked = dir.requests().await.expect("it works");
        let kept = asked.iter().find_map(|request| match request.wish {
            Wish::Keep { time } => Some(time.duration().as_secs()),
            _ => None,
        });
        assert!(kept.is_some_and(|kept| kept > 300 + 60), "{kept:?}");
    });
}

/// S3 would refuse the rest, and no test here has its policies. Rank 1 gets a notice: the other
/// rank saves, and both wait for the next epoch.
#[test]
fn ranks_put_nothing_that_their_role_does_not_allow() {
    let script: Script = |_, epoch| (if epoch == 1 { 10_000 } else { 20 }, 0);
    simulate(|clock| async move {
        let mut gang = Gang::new(Arc::clone(&clock), words((2, 2), &[]), script);
        gang.saves = true;
        let counted = CountingStore::new(Arc::clone(&gang.store));
        gang.store = counted.clone();
        let notice = async {
            clock.sleep(Duration::from_secs(30)).await;
            let place = gang.folder.path().join("1-1");
            std::fs::create_dir_all(&place).expect("a folder");
            std::fs::write(place.join("notice"), "soon").expect("the folder is there");
        };
        let lost = async {
            assert_eq!(gang.rank(1, 1, 0, Some(100)).await, None);
            gang.rank(1, 2, 100, None).await
        };
        let (code, lost, ()) = tokio::join!(gang.rank(0, 1, 0, None), lost, notice);
        assert_eq!((code, lost), (Some(0), Some(0)), "{:?}", gang.said.lock().unwrap());
        // The test itself writes the specs, as the controller does.
        let put = |(act, key): &(&str, String)| *act == "put" && !key.ends_with("/spec.json");
        let keys: Vec<String> =
            counted.keys().into_iter().filter(put).map(|(_, key)| key).collect();
        for record in ["/requests/", "/gang/0001/over.json", "/gang/end.json"] {
            assert!(keys.iter().any(|key| key.contains(record)), "{record}: {keys:?}");
        }
        for key in keys {
            assert!(box_may("", "s3:PutObject", &key), "{key}");
        }
    });
}

fn clock_at(secs: i64) -> jiff::Timestamp {
    let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    start + jiff::SignedDuration::from_secs(secs)
}
