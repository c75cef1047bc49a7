//! The loop of one rank: ready, formed, engine, and again until the gang is over.

use std::sync::Arc;

use super::gathering::Gathered;
use super::peers::{PeerSight, PeerWatch};
use super::rank_state::{EPOCH_GRACE, RankPaths, RankPorts, RankSelf, RankState};
use crate::job::{
    DoneRule, EpochCause, EpochOver, ExitStatus, Formation, GangEnd, GangEndCause, GangSaves,
    Manifest, ResolvedSpec, Wish,
};
use crate::jobdir::GangDir;
use crate::market::Span;
use crate::policy::gang::epoch_decision::{EpochBudget, judge_budget};
use crate::policy::gang::rank_command::{RankPlace, rank_command};
use crate::policy::gang::rank_environment::{gang_hostfile, rank_environment};
use crate::ports::{RankLaunch, RankProcess};

/// The exit code of a rank that was told to end before its engine ran, as after SIGTERM.
const TOLD: i32 = 143;

/// As in a shell: the command does not exist, or cannot be executed.
const NO_SUCH_COMMAND: i32 = 127;

/// The variable that marks all processes of a rank's epoch.
pub const PROCESS_MARK: &str = "LAMP_GANG_PROCESS";

/// The words that start a rank, before the user's command. The machine puts its own program there.
pub const RANK_PROGRAM: [&str; 3] = ["lamp-agent", "rank", "--"];

pub struct RankRun {
    state: RankState,
}

/// The step after an epoch.
enum EpochNext {
    Epoch,
    Exit(i32),
}

/// How the watch over an engine ended.
enum EngineWatch {
    Ended(ExitStatus),
    Over(EpochOver),
    Told(ExitStatus),
}

impl RankRun {
    /// `None`: the job is no member of a gang.
    pub fn new(
        ports: RankPorts,
        me: RankSelf,
        paths: RankPaths,
        resolved: ResolvedSpec,
    ) -> Option<RankRun> {
        let member = resolved.member()?.clone();
        let gang = (**resolved.spec.gang.as_ref()?).clone();
        let dir = GangDir::new(Arc::clone(&ports.store), member.leader().clone());
        Some(RankRun { state: RankState { ports, me, paths, resolved, gang, member, dir } })
    }

    /// Returns the exit code of the rank.
    pub async fn run(&self) -> i32 {
        let state = &self.state;
        loop {
            if let Some(end) = state.insist("the end of the gang", || state.dir.end()).await {
                return self.finish(&end);
            }
            let epoch = state.open_epoch().await;
            match state.gather(epoch).await {
                Gathered::Superseded => {}
                Gathered::Ended(end) => return self.finish(&end),
                Gathered::ToldToEnd => {
                    self.leave(epoch).await;
                    return TOLD;
                }
                Gathered::Formed(formation) => {
                    let is_me = formation
                        .member(state.rank())
                        .is_some_and(|member| member.start == state.me.start);
                    if is_me && let EpochNext::Exit(code) = self.work(&formation).await {
                        return code;
                    }
                }
            }
        }
    }

    fn finish(&self, end: &GangEnd) -> i32 {
        self.state.say(format!("the gang is over: {}", end.text));
        match end.because {
            GangEndCause::Done => 0,
            _ => end.exit.unwrap_or(1),
        }
    }

    /// One epoch, from its formation to its end.
    async fn work(&self, formation: &Formation) -> EpochNext {
        let state = &self.state;
        let checkpoint = state.share_checkpoint(formation).await;
        let launch = self.launch(formation, checkpoint.as_ref());
        state.say(format!(
            "epoch {} has {} of {} machines, this is node {}",
            formation.epoch,
            formation.members.len(),
            state.gang.nodes,
            formation.node_of(state.rank()).unwrap_or_default()
        ));
        let mut process = match state.ports.host.start(&launch) {
            Ok(process) => process,
            Err(error) => {
                let program = launch.argv.first().map_or("", String::as_str);
                let text = format!("rank {} cannot start `{program}`: {error}", state.rank());
                state.say(&text);
                self.over(formation, EpochCause::Failed, Some(NO_SUCH_COMMAND), &text).await;
                return self.after(formation).await;
            }
        };
        match self.watch(formation, &mut *process).await {
            EngineWatch::Ended(exit) if exit.success() => self.finished(formation).await,
            EngineWatch::Ended(exit) => self.failed(formation, exit).await,
            EngineWatch::Told(exit) => EpochNext::Exit(exit.shell_code()),
            EngineWatch::Over(over) => {
                state.say(format!("epoch {} is over: {}", over.epoch, over.text));
                process.end(EPOCH_GRACE).await;
                self.after(formation).await
            }
        }
    }

    fn launch(&self, formation: &Formation, checkpoint: Option<&Manifest>) -> RankLaunch {
        let state = &self.state;
        let processes = state.me.gpus.filter(|gpus| *gpus > 0).unwrap_or(1);
        let place = RankPlace { formation, rank: state.rank(), processes };
        let mut env = rank_environment(&state.gang, &place, &state.resolved.spec.env);
        let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
        let hostfile = gang_hostfile(&place);
        match state.ports.files.replace(&state.paths.hostfile, hostfile.as_bytes()) {
            Ok(()) => {
                env.insert("DSTACK_MPI_HOSTFILE".into(), text(&state.paths.hostfile));
                env.insert("LAMP_HOSTFILE".into(), text(&state.paths.hostfile));
            }
            Err(error) => state.say(format!("the list of machines is not written: {error}")),
        }
        env.insert("LAMP_CHECKPOINT_DIR".into(), text(&state.paths.checkpoints));
        env.insert("LAMP_RESUME".into(), u8::from(checkpoint.is_some()).to_string());
        if let Some(step) = checkpoint.and_then(|manifest| manifest.step) {
            env.insert("LAMP_RESUME_STEP".into(), step.to_string());
        }
        let mark = format!("{}-{}", state.me.start, formation.epoch);
        env.insert(PROCESS_MARK.into(), mark);
        RankLaunch { argv: rank_command(state.gang.engine, &state.me.command, &place), env }
    }

    /// Waits until the engine has ended, the epoch is over, or the agent ends the rank.
    async fn watch(&self, formation: &Formation, process: &mut dyn RankProcess) -> EngineWatch {
        let state = &self.state;
        let mut peers = PeerWatch::of(formation, state.rank());
        let (mut looks, mut is_noticed) = (0_u32, false);
        loop {
            tokio::select! {
                biased;
                exit = process.ended() => return EngineWatch::Ended(exit),
                () = state.ports.host.told_to_end() => {
                    process.pass_on_term();
                    self.leave(formation.epoch).await;
                    return EngineWatch::Told(process.ended().await);
                }
                () = state.pause() => {}
            }
            if !is_noticed && state.has_notice() {
                is_noticed = true;
                self.save_everywhere().await;
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(2) {
                self.watch_peer(formation, &mut peers).await;
            } else if let Ok(Some(over)) = state.dir.over(formation.epoch).await {
                return EngineWatch::Over(over);
            }
        }
    }

    async fn watch_peer(&self, formation: &Formation, peers: &mut PeerWatch) {
        let state = &self.state;
        let Ok(Some((rank, PeerSight::Silent(silent)))) = state.look_at_peer(peers).await else {
            return;
        };
        // It may have finished, and its machine is off.
        if state.dir.done(formation.epoch).await.is_ok_and(|done| done.contains(&rank)) {
            return;
        }
        let text = format!("rank {rank} sends no heartbeat for {} s", silent.as_secs());
        let mark = state.mark(rank);
        state.insist("a lost rank", || state.dir.create_lost(formation.epoch, &mark)).await;
        state.end_epoch(formation.epoch, rank, EpochCause::Lost, None, &text).await;
    }

    /// This machine will be interrupted. The other ranks save too, because the next epoch needs the
    /// checkpoints of all.
    async fn save_everywhere(&self) {
        let state = &self.state;
        state.say("its machine has a notice of an interruption, so the other ranks save too");
        let others = (0..state.gang.nodes.max).filter(|rank| *rank != state.rank());
        for rank in others.filter(|rank| state.gang.saves == GangSaves::Each || *rank == 0) {
            state.ask(rank, Wish::Checkpoint).await;
        }
    }

    async fn over(
        &self,
        formation: &Formation,
        because: EpochCause,
        exit: Option<i32>,
        text: &str,
    ) {
        self.state.end_epoch(formation.epoch, self.state.rank(), because, exit, text).await;
    }

    /// The agent ends this rank: the others must not wait for it in vain.
    async fn leave(&self, epoch: u32) {
        let state = &self.state;
        let (because, why) = if state.has_notice() {
            (EpochCause::Interrupted, "its machine is interrupted")
        } else {
            (EpochCause::Stopped, "its agent ends it")
        };
        let text = format!("rank {}: {why}", state.rank());
        state.end_epoch(epoch, state.rank(), because, None, &text).await;
    }

    async fn failed(&self, formation: &Formation, exit: ExitStatus) -> EpochNext {
        let state = &self.state;
        let is_over = state.insist("an epoch", || state.dir.over(formation.epoch)).await;
        if is_over.is_none() && state.is_leaving().await {
            self.leave(formation.epoch).await;
            return EpochNext::Exit(exit.shell_code());
        }
        let text = format!("rank {} failed: {exit}", state.rank());
        state.say(&text);
        self.over(formation, EpochCause::Failed, Some(exit.shell_code()), &text).await;
        self.after(formation).await
    }

    /// After an epoch that is over: whether there is another one.
    async fn after(&self, formation: &Formation) -> EpochNext {
        let state = &self.state;
        let over = state.insist("an epoch", || state.dir.over(formation.epoch)).await;
        let Some(over) = over.filter(|over| over.because == EpochCause::Failed) else {
            return EpochNext::Epoch;
        };
        let spec = &state.resolved.spec;
        let retries = state.retries();
        let next = formation.epoch + 1;
        let epochs = state.insist("the epochs", || state.earlier(next)).await;
        let ready = state.insist("the epochs", || state.dir.ready(next)).await;
        let budget = judge_budget(&epochs, &ready, &retries, &spec.interruptions);
        if budget == EpochBudget::FailuresSpent {
            match state.find_lost(formation, &over).await {
                Some(rank) => {
                    state.say(format!("rank {rank} was lost, so this was no failure"));
                    let mark = state.mark(rank);
                    let lost = || state.dir.create_lost(formation.epoch, &mark);
                    state.insist("a lost rank", lost).await;
                }
                None => {
                    state.end_gang(GangEndCause::Failed, over.exit, Vec::new(), &over.text).await;
                }
            }
        } else {
            state.ports.clock.sleep(retries.delay.duration()).await;
        }
        EpochNext::Epoch
    }

    /// The engine of this rank has ended well.
    async fn finished(&self, formation: &Formation) -> EpochNext {
        let state = &self.state;
        if state.is_leaving().await {
            self.leave(formation.epoch).await;
            return EpochNext::Exit(0);
        }
        let mark = state.mark(state.rank());
        state.insist("its end", || state.dir.create_done(formation.epoch, &mark)).await;
        let is_enough = match state.gang.done {
            DoneRule::All => formation.members.len() == 1,
            DoneRule::Rank0 => formation.node_of(state.rank()) == Some(0),
            DoneRule::Any => true,
        };
        if is_enough {
            self.done(formation).await;
            return EpochNext::Exit(0);
        }
        self.wait_for_others(formation).await
    }

    async fn done(&self, formation: &Formation) {
        let text = format!("rank {} finished", self.state.rank());
        self.state.end_gang(GangEndCause::Done, None, Vec::new(), &text).await;
        self.over(formation, EpochCause::Done, None, &text).await;
    }

    /// A finished rank waits for the others, since a restart would need it; at most `tail`.
    async fn wait_for_others(&self, formation: &Formation) -> EpochNext {
        let state = &self.state;
        let until = state.ports.clock.mono() + state.gang.tail.duration();
        let mut looks = 0_u32;
        while state.ports.clock.mono() < until {
            let over = state.dir.over(formation.epoch).await.ok().flatten();
            if over.is_some_and(|over| over.because != EpochCause::Done) {
                return self.after(formation).await;
            }
            let done = state.dir.done(formation.epoch).await.unwrap_or_default();
            if formation.members.iter().all(|member| done.contains(&member.rank)) {
                state.say("all ranks finished");
                state.end_gang(GangEndCause::Done, None, Vec::new(), "all ranks finished").await;
                return EpochNext::Exit(0);
            }
            looks += 1;
            if looks.is_multiple_of(5) && matches!(state.dir.end().await, Ok(Some(_))) {
                return EpochNext::Epoch;
            }
            tokio::select! {
                biased;
                () = state.ports.host.told_to_end() => return EpochNext::Exit(0),
                () = state.pause() => {}
            }
        }
        state.say(format!(
            "it finished {} ago, and its machine waits no longer for the other ranks",
            Span::from_secs(state.gang.tail.duration().as_secs())
        ));
        EpochNext::Exit(0)
    }
}
