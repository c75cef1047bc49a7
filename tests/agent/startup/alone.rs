//! The agent without a controller, by the words that people type, on a machine that does as it is
//! told.

use std::sync::Arc;

use lamplighter::adapters::workload::whole_machine::WholeMachine;
use lamplighter::agent::report::retry_sender::Outbox;
use lamplighter::agent::startup::cli::{Call, parse};
use lamplighter::agent::startup::{boot, standalone};
use lamplighter::agent::{Agent, AgentPorts, Finish};
use lamplighter::job::{AttemptNo, EndedBecause};
use lamplighter::jobdir::JobDir;
use lamplighter::ports::{Clock, Nobody};

use crate::world::Played;
use crate::{Rig, secs};
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

/// `lamp-agent watch` with these words.
async fn watch(rig: &Rig, played: &Played, words: &[&str]) -> Finish {
    let words = ["watch"].iter().chain(words).map(Into::into).collect();
    let Ok(Call::Watch(call)) = parse(words) else { panic!("it is a watch") };
    let resolved = standalone::resolved(&call, rig.clock.now(), [0; 6]);
    let state = rig.path("state");
    let dir = JobDir::new(rig.store.clone(), resolved.job.clone());
    let outbox = Outbox {
        dir,
        attempt: AttemptNo::FIRST,
        clock: rig.clock.clone(),
        files: rig.files.clone(),
        state,
    };
    standalone::record(&outbox, &resolved).await.expect("it can be recorded");
    let memory = boot::remember(&outbox);
    let attempt = standalone::attempt(
        &resolved,
        memory.started,
        &rig.path("work"),
        &outbox.state,
        &rig.path("cache"),
    );
    let world = AgentPorts {
        sensors: Box::new(played.clone()),
        workloads: Arc::new(WholeMachine),
        metadata: None,
        power: Arc::new(played.clone()),
        insist: false,
        own_network: Arc::default(),
        switch_files: None,
        own_machine: false,
        meter: None,
        exposed: None,
        service: Arc::new(played.clone()),
        stacks: Arc::new(played.clone()),
        people: Arc::new(Nobody),
        signals: tokio::sync::watch::channel(0).1,
    };
    Agent::new(attempt, world, outbox, memory).run().await
}

#[test]
fn quiet_watched_machine_is_idle_once_the_window_is_over() {
    simulate(async |clock: Arc<VirtualClock>| {
        let rig = Rig::new(clock.clone());
        let played = Played::new(&rig);
        let (finish, ()) =
            tokio::join!(watch(&rig, &played, &["--idle", "10m", "--max-runtime", "12h"]), async {
                clock.sleep(secs(1800)).await;
                assert!(!played.is_off(), "it works");
                played.show(|now| now.works = false);
            });
        assert_eq!(finish.because, EndedBecause::Idle, "{finish:?}");
        assert_eq!((finish.reason.policy.as_str(), standalone::exit_code(&finish)), ("idle", 124));
        assert!(finish.reason.numbers["quiet_secs"] >= 600.0, "{:?}", finish.reason);
        let after = clock.mono();
        // Longer than the window at most by what `--dry-run` says of it.
        assert!((secs(1800 + 600)..secs(1800 + 3700)).contains(&after), "{after:?}");
        assert!(played.is_off(), "what `--then` says was done");
    });
}

#[test]
fn working_watched_machine_is_not_idle_and_ends_at_max_runtime() {
    simulate(async |clock: Arc<VirtualClock>| {
        let rig = Rig::new(clock.clone());
        let played = Played::new(&rig);
        let finish = watch(&rig, &played, &["--idle", "10m", "--max-runtime", "1h"]).await;
        assert_eq!(finish.because, EndedBecause::MaxRuntime, "{finish:?}");
        assert!(clock.mono() > secs(3600 - 120), "{:?}", clock.mono());
    });
}
