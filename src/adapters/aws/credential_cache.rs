//! The AWS credentials of this process: asked of the SDK's chain once, kept, and renewed before
//! they expire.
//!
//! EC2 and the other clients, each request to a bucket, and links that are signed for machines ask
//! `AwsIdentity`. It answers from its copy. If the copy expires soon, or too soon for the caller,
//! it asks the chain: a profile, single sign-on, a program, a role.
//!
//! The chain itself keeps nothing: a credential program that takes half a second would run for
//! every object. Not here: a copy that outlives this process.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use jiff::Timestamp;
use object_store::aws::AwsCredential;
use object_store::{CredentialProvider, Error};
use tokio::sync::Mutex;

use super::credential_errors::why;
use super::profiles::NoSuchProfile;
use crate::adapters::host::system_clock::SystemClock;
use crate::adapters::store::s3::CredentialExpiry;
use crate::market::elapsed;
use crate::ports::Clock as _;

/// Credentials are renewed this long before they expire, so that an upload of many parts, or a
/// round over many jobs, uses one key. Two minutes are for those. Five are for a workstation clock
/// that is late (`controller::clocks`): by that clock an expired key seems valid. If
/// this is shorter, a key can expire while a request is on its way. If it is longer, sessions of 15
/// minutes are renewed all the time.
const RENEWED_BEFORE: Duration = Duration::from_secs(7 * 60);

/// A session without a known end is assumed to last this long when we sign for others: by default
/// AWS gives no shorter one. If this is longer, a plan that waited too long buys a machine whose
/// links have expired.
const UNTOLD_HOLDS: Duration = Duration::from_secs(3600);

/// If the chain has no credentials that last longer, it is asked again after this time. Otherwise a
/// program that hands out the last minute of a session would run for every object.
const AGAIN_AFTER: Duration = Duration::from_secs(15);

/// Credentials with less time left are not used: AWS would refuse the request.
const LIFE_MIN: Duration = Duration::from_secs(5);

/// The timeout of a credential program: every request waits for it, even the request that
/// terminates a machine. A sign-in over the network takes seconds.
const ASKED_WITHIN: Duration = Duration::from_secs(30);

/// Credentials without an end are read again after this time: a program may give another key
/// meanwhile, and a daemon runs for weeks.
const ENDLESS_FOR: Duration = Duration::from_secs(15 * 60);

/// The credentials of this process. Clones share the kept copy.
#[derive(Clone, Debug)]
pub struct AwsIdentity {
    chain: SharedCredentialsProvider,
    kept: Arc<Mutex<Option<CachedCredentials>>>,
    asked_within: Duration,
    told: Option<EnvironmentKeyEnd>,
    /// The profile that the configuration names; otherwise `AWS_PROFILE` names it.
    profile: Option<String>,
    /// Whether a profile may be involved: `false` if a key was given directly.
    is_of_profiles: bool,
}

/// When the key in the environment expires, as `aws configure export-credentials` writes it there.
/// The SDK does not read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentKeyEnd {
    key: String,
    ends: Timestamp,
}

impl EnvironmentKeyEnd {
    /// Reads the environment of this process.
    #[expect(
        clippy::disallowed_methods,
        reason = "these variables are AWS's own, and the SDK reads the other ones there"
    )]
    pub fn here() -> Option<Self> {
        let said = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self::read(said("AWS_ACCESS_KEY_ID")?, &said("AWS_CREDENTIAL_EXPIRATION")?)
    }

    fn read(key: String, ends: &str) -> Option<Self> {
        match ends.parse() {
            Ok(ends) => Some(EnvironmentKeyEnd { key, ends }),
            Err(error) => {
                tracing::warn!(
                    "AWS_CREDENTIAL_EXPIRATION is not a valid time and is ignored: {error}"
                );
                None
            }
        }
    }
}

/// When credentials end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialsEnd {
    Never,
    At(Timestamp),
    /// They belong to a session with an end that is not known.
    Untold,
}

#[derive(Clone, Debug)]
struct CachedCredentials {
    credentials: Credentials,
    ends: Option<Timestamp>,
    /// Time of the monotonic clock.
    asked: Duration,
}

impl CachedCredentials {
    fn left(&self) -> Option<Duration> {
        self.ends.map(|ends| elapsed(SystemClock.now(), ends))
    }

    /// Credentials with a session token always have an end.
    fn word(&self) -> CredentialsEnd {
        match self.ends {
            Some(ends) => CredentialsEnd::At(ends),
            None if self.credentials.session_token().is_some() => CredentialsEnd::Untold,
            None => CredentialsEnd::Never,
        }
    }

    /// Whether the chain need not be asked; `needed`: how long the caller must sign with them.
    fn will_do(&self, needed: Option<Duration>) -> bool {
        let age = SystemClock.mono().saturating_sub(self.asked);
        match (self.left(), needed) {
            (None, _) => age < ENDLESS_FOR,
            (Some(left), Some(needed)) => left >= needed,
            (Some(left), None) => left >= RENEWED_BEFORE || (left >= LIFE_MIN && age < AGAIN_AFTER),
        }
    }
}

impl AwsIdentity {
    pub fn new(chain: SharedCredentialsProvider) -> Self {
        AwsIdentity {
            chain,
            kept: Arc::default(),
            asked_within: ASKED_WITHIN,
            told: None,
            profile: None,
            is_of_profiles: false,
        }
    }

    #[must_use]
    pub fn of_profile(self, profile: Option<String>) -> Self {
        AwsIdentity { profile, is_of_profiles: true, ..self }
    }

    /// Adds the known end of the key in the environment.
    #[must_use]
    pub fn told(self, told: Option<EnvironmentKeyEnd>) -> Self {
        AwsIdentity { told, ..self }
    }

    /// When the current credentials expire.
    ///
    /// # Errors
    /// If there are none.
    pub async fn ends(&self) -> Result<CredentialsEnd, CredentialsError> {
        let kept = self.get(None).await?;
        Ok(kept.word())
    }

    /// The id of the current key, which is no secret; `None` if there are no credentials.
    pub async fn key_id(&self) -> Option<String> {
        Some(self.get(None).await.ok()?.credentials.access_key_id().to_owned())
    }

    async fn get(&self, needed: Option<Duration>) -> Result<CachedCredentials, CredentialsError> {
        if let Ok(kept) = self.kept.try_lock()
            && let Some(known) = kept.as_ref().filter(|known| known.will_do(needed))
        {
            return Ok(known.clone());
        }
        let this = self.clone();
        // In its own task: a caller may give up earlier, and the result is kept anyway.
        let asking = tokio::spawn(async move { this.renew(needed).await });
        asking.await.unwrap_or_else(|error| Err(CredentialsError::unhandled(error)))
    }

    /// One call at a time: later callers take the result of the first.
    async fn renew(&self, needed: Option<Duration>) -> Result<CachedCredentials, CredentialsError> {
        let mut kept = self.kept.lock().await;
        if let Some(known) = kept.as_ref().filter(|known| known.will_do(needed)) {
            return Ok(known.clone());
        }
        if kept.is_none() && self.is_of_profiles {
            self.refuse_an_unknown_profile().await?;
        }
        let asked = SystemClock.mono();
        let answer =
            tokio::time::timeout(self.asked_within, self.chain.provide_credentials()).await;
        let found = match answer
            .unwrap_or_else(|_| Err(CredentialsError::provider_timed_out(self.asked_within)))
        {
            Ok(credentials) => {
                let ends = credentials.expiry().and_then(|ends| Timestamp::try_from(ends).ok());
                let told = || {
                    self.told
                        .as_ref()
                        .filter(|told| told.key == credentials.access_key_id())
                        .map(|told| told.ends)
                };
                let ends = ends.or_else(told);
                CachedCredentials { credentials, ends, asked }
            }
            // The chain does not answer now: the kept credentials are still valid.
            Err(error) => {
                match kept.take().filter(|known| known.left().is_none_or(|left| left >= LIFE_MIN)) {
                    Some(known) => {
                        tracing::warn!("the AWS credentials cannot be renewed: {}", why(&error));
                        CachedCredentials { asked, ..known }
                    }
                    None => return Err(error),
                }
            }
        };
        Ok(kept.insert(found).clone())
    }

    /// Refuses a profile that does not exist. The chain would skip it and use the environment or
    /// the machine's role, and so perhaps the wrong account. AWS's own command line refuses it too.
    async fn refuse_an_unknown_profile(&self) -> Result<(), CredentialsError> {
        NoSuchProfile::look(self.profile.as_deref())
            .await
            .map_or(Ok(()), |unknown| Err(CredentialsError::invalid_configuration(unknown)))
    }
}

impl ProvideCredentials for AwsIdentity {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async { Ok(self.get(None).await?.credentials) })
    }
}

fn nobody(error: &CredentialsError) -> Error {
    Error::Unauthenticated { path: "credentials".into(), source: why(error).into() }
}

#[async_trait]
impl CredentialProvider for AwsIdentity {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let found = self.get(None).await.map_err(|error| nobody(&error))?.credentials;
        Ok(Arc::new(AwsCredential {
            key_id: found.access_key_id().to_owned(),
            secret_key: found.secret_access_key().to_owned(),
            token: found.session_token().map(str::to_owned),
        }))
    }
}

#[async_trait]
impl CredentialExpiry for AwsIdentity {
    async fn lasting(&self, needed: Duration) -> object_store::Result<Option<Timestamp>> {
        let kept = self.get(Some(needed)).await.map_err(|error| nobody(&error))?;
        Ok(match kept.word() {
            CredentialsEnd::At(ends) => Some(ends),
            CredentialsEnd::Untold => Some(
                SystemClock
                    .now()
                    .saturating_add(needed.max(UNTOLD_HOLDS))
                    .unwrap_or(Timestamp::MAX),
            ),
            CredentialsEnd::Never => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::SystemTime;

    use super::*;

    /// A chain that counts, and gives so much life each time; at last it has none to give.
    #[derive(Debug)]
    struct Program {
        lives: Vec<Option<u64>>,
        runs: AtomicU64,
    }

    /// It answers once, and then never.
    #[derive(Debug)]
    struct Hangs(AtomicU64);

    impl ProvideCredentials for Hangs {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            if self.0.fetch_add(1, Ordering::SeqCst) > 0 {
                return future::ProvideCredentials::new(std::future::pending());
            }
            let ends = SystemTime::from(SystemClock.now()) + Duration::from_secs(60);
            future::ProvideCredentials::ready(Ok(Credentials::new(
                "key-0",
                "secret",
                None,
                Some(ends),
                "test",
            )))
        }
    }

    #[tokio::test]
    async fn hanging_program_delays_no_call_while_cache_holds() {
        let chain = SharedCredentialsProvider::new(Hangs(AtomicU64::new(0)));
        let identity =
            AwsIdentity { asked_within: Duration::from_millis(50), ..AwsIdentity::new(chain) };
        assert_eq!(key(&identity).await, "key-0");
        // The renewal that does not come, and everybody after it.
        for _ in 0..2 {
            assert!(identity.lasting(Duration::from_secs(300)).await.unwrap().is_some());
            assert_eq!(key(&identity).await, "key-0");
        }
    }

    #[derive(Debug)]
    struct CountedCalls(Arc<Program>);

    impl ProvideCredentials for CountedCalls {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            let run = self.0.runs.fetch_add(1, Ordering::SeqCst);
            let given = self.0.lives.get(usize::try_from(run).unwrap()).map(|secs| {
                let ends = secs
                    .map(|secs| SystemTime::from(SystemClock.now()) + Duration::from_secs(secs));
                Credentials::new(format!("key-{run}"), "secret", None, ends, "test")
            });
            future::ProvideCredentials::ready(
                given.ok_or_else(|| CredentialsError::provider_error("it is away")),
            )
        }
    }

    fn program(lives: &[Option<u64>]) -> (AwsIdentity, Arc<Program>) {
        let program = Arc::new(Program { lives: lives.to_vec(), runs: AtomicU64::new(0) });
        (
            AwsIdentity::new(SharedCredentialsProvider::new(CountedCalls(Arc::clone(&program)))),
            program,
        )
    }

    async fn key(identity: &AwsIdentity) -> String {
        identity.get_credential().await.unwrap().key_id.clone()
    }

    #[tokio::test]
    async fn thousand_requests_ask_the_chain_once() {
        for life in [None, Some(3600), Some(60)] {
            let (identity, program) = program(&[life]);
            for _ in 0..1000 {
                assert_eq!(key(&identity).await, "key-0");
                assert_eq!(
                    identity.provide_credentials().await.unwrap().access_key_id(),
                    "key-0",
                    "EC2 is the same one"
                );
            }
            assert_eq!(program.runs.load(Ordering::SeqCst), 1, "{life:?}");
        }
    }

    #[tokio::test]
    async fn what_has_ended_is_never_used_again() {
        let (identity, program) = program(&[Some(0), Some(3600)]);
        assert_eq!(
            (key(&identity).await.as_str(), key(&identity).await.as_str()),
            ("key-0", "key-1")
        );
        assert_eq!(program.runs.load(Ordering::SeqCst), 2);
        let (identity, _) = program_with_nothing_after(Some(0));
        assert_eq!(key(&identity).await, "key-0");
        assert!(identity.get_credential().await.is_err());
    }

    fn program_with_nothing_after(life: Option<u64>) -> (AwsIdentity, Arc<Program>) {
        program(&[life])
    }

    /// Signing for a machine that boots in minutes needs more than the next request does.
    #[tokio::test]
    async fn what_must_last_longer_is_asked_for_and_what_is_given_is_told() {
        let (identity, program) = program(&[Some(600), Some(3600)]);
        assert_eq!(key(&identity).await, "key-0");
        let ends =
            identity.lasting(Duration::from_secs(1000)).await.unwrap().expect("it has an end");
        assert!(elapsed(SystemClock.now(), ends) > Duration::from_secs(3000), "{ends}");
        assert_eq!(
            (key(&identity).await.as_str(), program.runs.load(Ordering::SeqCst)),
            ("key-1", 2),
            "the same one signs"
        );
        // Nothing that lasts longer is to be had, and what is kept still holds.
        let (identity, _) = program_with_nothing_after(Some(600));
        assert_eq!(key(&identity).await, "key-0");
        let ends =
            identity.lasting(Duration::from_secs(1000)).await.unwrap().expect("it has an end");
        assert!(elapsed(SystemClock.now(), ends) <= Duration::from_secs(600), "{ends}");
        assert_eq!(key(&identity).await, "key-0");
    }

    /// The key of the environment; `token`: it is of a session.
    fn environment(token: bool, ends: Option<&str>) -> AwsIdentity {
        let credentials =
            Credentials::new("key", "secret", token.then(|| "token".to_owned()), None, "test");
        AwsIdentity::new(SharedCredentialsProvider::new(credentials))
            .told(ends.and_then(|ends| EnvironmentKeyEnd::read("key".into(), ends)))
    }

    #[tokio::test]
    async fn environment_session_ends_as_told_or_at_an_assumed_end() {
        let needed = Duration::from_secs(1000);
        let told = environment(true, Some("2026-01-02T03:04:05+00:00"));
        let at: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        assert_eq!(
            (told.ends().await.unwrap(), told.lasting(needed).await.unwrap()),
            (CredentialsEnd::At(at), Some(at))
        );
        for ends in [None, Some("tomorrow")] {
            let untold = environment(true, ends);
            assert_eq!(untold.ends().await.unwrap(), CredentialsEnd::Untold);
            let asked = SystemClock.now();
            let assumed = async |needed: Duration| {
                elapsed(asked, untold.lasting(needed).await.unwrap().expect("an end is assumed"))
            };
            let left = assumed(needed).await;
            assert!(left >= UNTOLD_HOLDS && left < 2 * UNTOLD_HOLDS, "{left:?}");
            assert!(
                assumed(2 * UNTOLD_HOLDS).await >= 2 * UNTOLD_HOLDS,
                "a signature is not refused because the end of the session is unknown"
            );
        }
        let endless = environment(false, None);
        assert_eq!(
            (endless.ends().await.unwrap(), endless.lasting(needed).await.unwrap()),
            (CredentialsEnd::Never, None)
        );
        // An end in the environment says nothing about credentials from another source.
        let other = environment(false, None)
            .told(EnvironmentKeyEnd::read("another".into(), "2026-01-02T03:04:05Z"));
        assert_eq!(other.ends().await.unwrap(), CredentialsEnd::Never);
    }
}
