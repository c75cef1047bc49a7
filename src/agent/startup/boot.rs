//! From power-on to an attempt: which machine is this, what is its job, and is the job still
//! waiting?
//!
//! Every question is retried for as long as it takes: the deadline unit and the lease limit the
//! wait. A machine that gives up early would be bought again. Not here: which metadata service or
//! store answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::attempt::{AGENT_STATE_FILE, AgentState, Attempt, Folders, Mode, terms};
use crate::agent::report::retry_sender::{Outbox, chain};
use crate::agent::shutdown::deadman::BOOTS;
use crate::instance::{TAG_PREFIX, Tags, TagsError};
use crate::job::{AttemptNo, Lease, RECORD_FORMAT, ResolvedSpec};
use crate::jobdir::{JobDir, JobDirError};
use crate::market::Usd;
use crate::ports::{Clock, Files, Identity, Metadata, Power, PowerOff, Service, Store};

/// Why this machine has nothing to do and powers off. A machine without tags of lamp is not
/// touched.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error("this machine's tags do not say what it is for")]
    Tags(#[from] TagsError),
    #[error("the job directory has no job `{job}`")]
    NoSpec { job: String },
    #[error("the attempt belongs to another machine")]
    NotOurs(#[source] JobDirError),
    #[error("the attempt has ended already")]
    Ended,
    #[error(
        "the attempt was settled ({because}) before this machine came up: nobody waits for its work"
    )]
    Settled { because: &'static str },
    #[error("the job is over and has its receipt: nobody waits for its work")]
    Over,
    #[error("a record cannot be used")]
    Record(#[source] JobDirError),
}

pub struct BootPorts {
    pub clock: Arc<dyn Clock>,
    pub files: Arc<dyn Files>,
    pub store: Arc<dyn Store>,
    pub metadata: Arc<dyn Metadata>,
    pub power: Arc<dyn Power>,
    pub service: Arc<dyn Service>,
    /// Random, made at the first boot and kept on the machine's disk.
    pub nonce: String,
}

const ATTEMPT: &str = "attempt.json";

pub const NONCE: &str = "nonce";

/// The wait between two questions to a service that does not answer.
const RETRY: Duration = Duration::from_secs(1);

/// How long a spec may be missing. It is written before the launch, so only a slow store can cause
/// this.
const SPEC_MISSING_MAX: Duration = Duration::from_secs(60);

pub async fn identity(metadata: &dyn Metadata, clock: &dyn Clock) -> Identity {
    let mut complained = false;
    loop {
        match metadata.identity().await {
            Ok(identity) => return identity,
            Err(error) if !complained => {
                tracing::warn!("{}; asking again until it answers", chain(&error));
                complained = true;
            }
            Err(_) => {}
        }
        clock.sleep(RETRY).await;
    }
}

/// How long a terminating machine asks for its identity, once in each boot. Longer only bills.
const ENDING_ASKS: Duration = Duration::from_secs(30);

/// The same for a machine whose power-off only stops it: it may have been started for another
/// attempt.
const STOPPING_ASKS: Duration = Duration::from_secs(120);

const KNOWN: &str = "identity.json";

/// The identity in one boot. In a later boot, the machine may have been started for another
/// attempt.
#[derive(Serialize, Deserialize)]
struct KnownIdentity {
    boot: String,
    identity: Identity,
    /// Not confirmed in this boot: valid only to finish an end that began before.
    #[serde(default)]
    assumed: bool,
}

/// The identity, from an earlier agent in the same boot if the metadata service does not answer. An
/// agent that crashed during power-off must not wait half an hour for metadata to continue.
async fn who(ports: &BootPorts, folders: &Folders) -> Identity {
    let (path, boot) = (folders.state.join(KNOWN), ports.clock.boot());
    let known = match ports.metadata.identity().await {
        Ok(identity) => KnownIdentity { boot, identity, assumed: false },
        Err(error) => {
            let (known, asks): (Option<KnownIdentity>, _) =
                (read(&*ports.files, &path), asks_in_its_end(&*ports.files, folders));
            match (known, asks) {
                (Some(known), asks)
                    if known.boot == boot
                        && !boot.is_empty()
                        && (!known.assumed || asks.is_some()) =>
                {
                    let by = if known.assumed {
                        "goes on with the end of the machine that it was"
                    } else {
                        "has been told already who it is"
                    };
                    tracing::warn!("{}; in this boot this machine {by}", chain(&error));
                    return known.identity;
                }
                (Some(known), Some(asks)) => tokio::select! {
                    biased;
                    identity = identity(&*ports.metadata, &*ports.clock) => KnownIdentity { boot, identity, assumed: false },
                    () = ports.clock.sleep(asks) => {
                        tracing::warn!("the metadata service does not answer: this machine was being terminated, and that goes on");
                        KnownIdentity { boot, assumed: true, ..known }
                    }
                },
                _ => KnownIdentity {
                    boot,
                    identity: identity(&*ports.metadata, &*ports.clock).await,
                    assumed: false,
                },
            }
        }
    };
    let ours = known
        .identity
        .tags
        .iter()
        .filter(|(key, _)| key.starts_with(TAG_PREFIX))
        .map(|(key, value)| (key.clone(), value.clone()));
    let kept = KnownIdentity {
        boot: known.boot.clone(),
        identity: Identity { tags: ours.collect(), ..known.identity.clone() },
        assumed: known.assumed,
    };
    let bytes = serde_json::to_vec(&kept).expect("an identity is strings and a time");
    if let Err(error) = ports.files.replace(&path, &bytes) {
        tracing::warn!("cannot write {}: {error}", path.display());
    }
    known.identity
}

fn read<T: DeserializeOwned>(files: &dyn Files, path: &Path) -> Option<T> {
    files.read(path).ok().flatten().and_then(|bytes| serde_json::from_slice(&bytes).ok())
}

/// How long to ask for the identity, if this disk's attempt was terminating.
fn asks_in_its_end(files: &dyn Files, folders: &Folders) -> Option<Duration> {
    let ends = read(files, &folders.state.join(AGENT_STATE_FILE))
        .is_some_and(|memory: AgentState| memory.is_terminating());
    let attempt: Option<Attempt> = read(files, &folders.state.join(ATTEMPT));
    let may_stand = attempt.is_none_or(|attempt| attempt.resolved.spec.on.may_stop());
    ends.then_some(if may_stand { STOPPING_ASKS } else { ENDING_ASKS })
}

/// Takes the lease and gathers what the attempt needs. On an error the machine powers off, unless
/// its tags are not lamp's.
pub async fn boot(
    ports: &BootPorts,
    folders: Folders,
) -> Result<(Attempt, Outbox, AgentState), BootError> {
    // The service manager does not wait for the store: report ready now and feed the watchdog
    // meanwhile.
    ports.service.ready();
    tokio::select! {
        biased;
        booted = take_up_or_put_out(ports, folders) => booted,
        never = keep_alive(&*ports.service, &*ports.clock) => match never {},
    }
}

async fn take_up_or_put_out(
    ports: &BootPorts,
    folders: Folders,
) -> Result<(Attempt, Outbox, AgentState), BootError> {
    let booted = take_up(ports, folders).await;
    if let Err(error @ BootError::Tags(_)) = &booted {
        // Not a machine of lamp: do not touch it.
        tracing::error!("this machine is left alone: {}", chain(error));
    } else if let Err(error) = &booted {
        tracing::error!("nothing to do on this machine: {}", chain(error));
        if let Err(error) = ports.power.off(PowerOff::Terminate, &chain(error)).await {
            tracing::error!("{error}");
        }
    }
    booted
}

/// Feeds the watchdog every second, beside slow work.
pub(crate) async fn keep_alive(
    service: &dyn Service,
    clock: &dyn Clock,
) -> std::convert::Infallible {
    loop {
        service.alive();
        clock.sleep(RETRY).await;
    }
}

async fn take_up(
    ports: &BootPorts,
    folders: Folders,
) -> Result<(Attempt, Outbox, AgentState), BootError> {
    let identity = who(ports, &folders).await;
    let tags = Tags::from_map(&identity.tags)?;
    let dir = JobDir::new(Arc::clone(&ports.store), tags.job.clone());
    let state = folders.state.clone();
    let outbox = |dir| Outbox {
        dir,
        attempt: tags.attempt,
        clock: Arc::clone(&ports.clock),
        files: Arc::clone(&ports.files),
        state: state.clone(),
    };
    if let Some(attempt) = kept(&outbox(dir.clone()), &identity.instance, &tags) {
        // An earlier agent held the lease and may have left a workload. Watch it, also without the
        // store.
        let outbox = outbox(dir);
        lease_is_held(&outbox);
        let memory = remember(&outbox);
        return Ok((attempt, outbox, memory));
    }
    forget_another_attempt(&outbox(dir.clone()), &ports.nonce);
    let resolved = spec(&dir, &*ports.clock).await?;
    let lease = Lease {
        format: RECORD_FORMAT,
        instance: identity.instance.clone(),
        nonce: ports.nonce.clone(),
        taken: ports.clock.now(),
    };
    patiently(&*ports.clock, async || dir.take_lease(tags.attempt, &lease).await).await.map_err(
        |error| match error {
            JobDirError::Taken { .. } => BootError::NotOurs(error),
            other => BootError::Record(other),
        },
    )?;
    if patiently(&*ports.clock, async || dir.outcome(tags.attempt).await)
        .await
        .map_err(BootError::Record)?
        .is_some()
    {
        return Err(BootError::Ended);
    }
    is_awaited(&dir, &*ports.clock, tags.attempt).await?;
    let plan = patiently(&*ports.clock, async || dir.plan(tags.attempt).await)
        .await
        .map_err(BootError::Record)?;
    let (price, kill_at) = terms(plan.as_ref());
    let spent_before = spent_before(&dir, &*ports.clock, tags.attempt).await?;
    let outbox = outbox(dir);
    lease_is_held(&outbox);
    let memory = remember(&outbox);
    let attempt = Attempt {
        resolved,
        no: tags.attempt,
        instance: identity.instance,
        launched: identity.launched,
        price,
        spent_before,
        kill_at: tags.kill_at.or(kill_at),
        folders,
        mode: Mode::Launched,
    };
    outbox.keep(ATTEMPT, &attempt);
    Ok((attempt, outbox, memory))
}

/// Whether the attempt is still expected. A controller that slept after its launch may have settled
/// the attempt as missing, and another attempt may run. Then this machine's work would not count.
async fn is_awaited(dir: &JobDir, clock: &dyn Clock, attempt: AttemptNo) -> Result<(), BootError> {
    if let Some(settled) =
        patiently(clock, async || dir.settled(attempt).await).await.map_err(BootError::Record)?
    {
        return Err(BootError::Settled { because: settled.because.word() });
    }
    match patiently(clock, async || dir.receipt().await).await.map_err(BootError::Record)? {
        Some(_) => Err(BootError::Over),
        None => Ok(()),
    }
}

/// Forgets the old attempt on a kept disk: its agent's state does not apply to a new attempt. The
/// work folder stays for a job that continues it (`prepare`), and so do the caches. Called before
/// the lease: after a crash halfway, a new nonce is made, and no lease has the old one.
fn forget_another_attempt(outbox: &Outbox, nonce: &str) {
    let Some(other) = outbox.recall::<Attempt>(ATTEMPT) else { return };
    tracing::info!(
        attempt = other.no.number(),
        "this disk is of an earlier attempt: what was kept of it is forgotten"
    );
    // First: a crash in between must not lose the work of a job that continues.
    let whole = outbox.recall::<AgentState>(AGENT_STATE_FILE).is_some_and(|memory| memory.prepared);
    if whole
        && let Err(error) =
            outbox.files.replace_durable(&kept_work(&outbox.state), other.job().as_str().as_bytes())
    {
        tracing::warn!("cannot note whose work this disk has: {error}");
    }
    let forgotten = outbox
        .files
        .remove(&outbox.state)
        .and_then(|()| outbox.files.replace_durable(&outbox.state.join(NONCE), nonce.as_bytes()));
    if let Err(error) = forgotten {
        tracing::warn!("cannot forget the earlier attempt: {error}");
    }
}

/// The file beside the state folder that names the job whose complete work is on this disk.
pub(crate) fn kept_work(state: &Path) -> PathBuf {
    state.with_file_name("kept-work")
}

/// Whether the work folder is from the job that this one continues, on its kept disk.
pub(crate) fn is_work_kept(out: &Outbox, attempt: &Attempt) -> bool {
    let Some(continues) = &attempt.resolved.continues else { return false };
    let noted = out.files.read(&kept_work(&out.state)).ok().flatten();
    noted.is_some_and(|job| job == continues.job.as_str().as_bytes())
}

/// This boot led to work: the count of failed boots starts again.
fn lease_is_held(outbox: &Outbox) {
    if let Err(error) = outbox.files.remove(&outbox.state.join(BOOTS)) {
        tracing::warn!("cannot remove the count of boots: {error}");
    }
}

/// The attempt that an earlier agent started on this machine.
fn kept(outbox: &Outbox, instance: &str, tags: &Tags) -> Option<Attempt> {
    let attempt: Attempt = outbox.recall(ATTEMPT)?;
    (attempt.instance == instance && attempt.no == tags.attempt && attempt.resolved.job == tags.job)
        .then_some(attempt)
}

/// The memory of an earlier agent, or a new one.
pub fn remember(outbox: &Outbox) -> AgentState {
    outbox.recall(AGENT_STATE_FILE).unwrap_or_else(|| AgentState::new(outbox.clock.now()))
}

async fn spec(dir: &JobDir, clock: &dyn Clock) -> Result<ResolvedSpec, BootError> {
    let until = clock.mono() + SPEC_MISSING_MAX;
    loop {
        match patiently(clock, async || dir.spec().await).await.map_err(BootError::Record)? {
            Some(spec) => return Ok(spec),
            None if clock.mono() >= until => {
                return Err(BootError::NoSpec { job: dir.job().to_string() });
            }
            None => clock.sleep(RETRY).await,
        }
    }
}

async fn spent_before(dir: &JobDir, clock: &dyn Clock, this: AttemptNo) -> Result<Usd, BootError> {
    let mut spent = Usd::ZERO;
    for number in (1..this.number()).map(AttemptNo::new) {
        let settled = patiently(clock, async || dir.settled(number).await)
            .await
            .map_err(BootError::Record)?;
        spent += settled.map_or(Usd::ZERO, |settled| settled.usd);
    }
    Ok(spent)
}

/// Retries until the store answers. An error about the record itself is returned at once.
async fn patiently<T>(
    clock: &dyn Clock,
    mut ask: impl AsyncFnMut() -> Result<T, JobDirError>,
) -> Result<T, JobDirError> {
    let mut complained = false;
    loop {
        match ask().await {
            Err(JobDirError::Store(error)) => {
                if !complained {
                    tracing::warn!("{}; trying again until it works", chain(&error));
                    complained = true;
                }
                clock.sleep(RETRY).await;
            }
            other => return other,
        }
    }
}

pub fn folders(root: &Path, cache: &Path) -> Folders {
    Folders { work: root.join("work"), state: root.join("agent"), cache: cache.to_owned() }
}
