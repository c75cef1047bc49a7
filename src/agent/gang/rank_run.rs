//! The loop of one rank: ready, formed, engine, and again until the gang is over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::gathering::Gathered;
use super::peers::{KEEP_LOOKS, PeerSight, PeerWatch};
use super::rank_state::{EPOCH_GRACE, RankPaths, RankPorts, RankSelf, RankState};
use super::remote_start::FIRST_TELLS_WITHIN;
use crate::job::{
    DoneRule, EpochCause, EpochOver, EpochRecord, ExitStatus, Formation, GangEnd, GangEndCause,
    GangEngine, GangSaves, Manifest, ResolvedSpec, Wish,
};
use crate::jobdir::GangDir;
use crate::market::Span;
use crate::policy::gang::engine_probe::engine_probe;
use crate::policy::gang::epoch_decision::{EpochBudget, judge_budget};
use crate::policy::gang::rank_command::rank_command;
use crate::policy::gang::rank_environment::{gang_hostfile, rank_environment};
use crate::policy::gang::rank_place::RankPlace;
use crate::ports::{RankLaunch, RankProcess};

/// The exit code of a rank that was told to end before its engine ran, as after SIGTERM.
const TOLD: i32 = 143;

/// As in a shell: the command does not exist, or cannot be executed.
const NO_SUCH_COMMAND: i32 = 127;

/// A port that is taken ends so many epochs in a row. More may go on for ever where no port can be
/// used.
const PORTS_TRIED: usize = 3;

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
    /// The agent ended the rank, which has this exit code.
    Told(i32),
}

/// The engine of this rank in one epoch.
struct EngineRun {
    env: BTreeMap<String, String>,
    /// `None`: the first machine has not said yet how this one starts.
    process: Option<Box<dyn RankProcess>>,
}

impl EngineRun {
    /// Cancel-safe.
    async fn ended(&mut self) -> ExitStatus {
        match &mut self.process {
            Some(process) => process.ended().await,
            None => std::future::pending().await,
        }
    }
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
        self.find_engine().await;
        loop {
            if let Some(end) = state.insist("the end of the gang", || state.dir.end()).await {
                return self.finish(&end).await;
            }
            let epoch = state.open_epoch().await;
            match state.gather(epoch).await {
                Gathered::Superseded => {}
                Gathered::Ended(end) => return self.finish(&end).await,
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

    /// A machine without the engine ends the gang before the others wait for it.
    async fn find_engine(&self) {
        let state = &self.state;
        let Some(probe) = engine_probe(state.gang.engine, &state.me.command) else { return };
        let launch = RankLaunch { argv: probe.argv, env: BTreeMap::new() };
        let is_there = match state.ports.host.start(&launch) {
            Ok(mut process) => process.ended().await.success(),
            Err(_) => false,
        };
        if !is_there {
            let text = format!("rank {}: {} ({})", state.rank(), probe.missing, probe.hint);
            let code = Some(NO_SUCH_COMMAND);
            state.end_gang(GangEndCause::Failed, code, Vec::new(), &text).await;
        }
    }

    async fn finish(&self, end: &GangEnd) -> i32 {
        self.state.say(format!("the gang is over: {}", end.text));
        if end.rank == self.state.rank() {
            self.state.stop_unready().await;
        }
        match end.because {
            GangEndCause::Done => 0,
            _ => end.exit.unwrap_or(1),
        }
    }

    /// One epoch, from its formation to its end.
    async fn work(&self, formation: &Formation) -> EpochNext {
        let state = &self.state;
        let checkpoint = state.share_checkpoint(formation).await;
        let processes = state.me.gpus.filter(|gpus| *gpus > 0).unwrap_or(1);
        let place = RankPlace { formation, rank: state.rank(), processes };
        let env = self.environment(&place, checkpoint.as_ref());
        state.say(format!(
            "epoch {} has {} of {} machines, this is node {}",
            formation.epoch,
            formation.members.len(),
            state.gang.nodes,
            formation.node_of(state.rank()).unwrap_or_default()
        ));
        if !self.has_port(formation).await {
            return EpochNext::Epoch;
        }
        let mut engine = EngineRun { env, process: None };
        if let Some(argv) = rank_command(state.gang.engine, &state.me.command, &place)
            && let Err(text) = self.start(&mut engine, argv)
        {
            self.over(formation, EpochCause::Failed, Some(NO_SUCH_COMMAND), &text).await;
            return self.after(formation).await;
        }
        let watched = self.watch(formation, &mut engine).await;
        if let EngineWatch::Over(over) = &watched {
            state.say(format!("epoch {} is over: {}", over.epoch, over.text));
        }
        if self.ends_engine(&watched).await
            && let Some(process) = &mut engine.process
        {
            process.end(self.end_grace(&watched)).await;
        }
        match watched {
            EngineWatch::Ended(exit) if exit.success() => self.finished(formation).await,
            EngineWatch::Ended(exit) => self.failed(formation, exit).await,
            EngineWatch::Told(code) => EpochNext::Exit(code),
            EngineWatch::Over(_) => self.after(formation).await,
        }
    }

    /// Another program may have taken the port since it was chosen. The next epoch has another one.
    async fn has_port(&self, formation: &Formation) -> bool {
        let state = &self.state;
        let listens = formation.node_of(state.rank()) == Some(0)
            || state.gang.engine == GangEngine::Tensorflow;
        let own = formation.member(state.rank()).filter(|_| listens);
        let Some(port) = own.map(|own| own.port) else { return true };
        if state.ports.host.is_free(port) {
            return true;
        }
        let earlier = state.insist("the epochs", || state.earlier(formation.epoch)).await;
        let is_unstarted = |epoch: &&EpochRecord| {
            epoch.over.as_ref().is_some_and(|over| over.because == EpochCause::Unstarted)
        };
        // Then the engine says itself what is wrong.
        if earlier.iter().rev().take_while(is_unstarted).count() >= PORTS_TRIED {
            return true;
        }
        let text = format!("rank {}: another program has its port {port}", state.rank());
        state.say(&text);
        self.over(formation, EpochCause::Unstarted, None, &text).await;
        false
    }

    /// An engine may leave processes behind, and the next epoch needs their memory. If the agent
    /// ends this machine, they may still save.
    async fn ends_engine(&self, watched: &EngineWatch) -> bool {
        match watched {
            EngineWatch::Over(_) => true,
            EngineWatch::Ended(_) => !self.state.is_leaving().await,
            EngineWatch::Told(_) => false,
        }
    }

    /// From SIGTERM to SIGKILL. No epoch follows the last one, and a rank may still be writing its
    /// last save.
    fn end_grace(&self, watched: &EngineWatch) -> Duration {
        match watched {
            EngineWatch::Over(over) if over.because == EpochCause::Done => {
                self.state.resolved.spec.watch.term_grace.duration()
            }
            _ => EPOCH_GRACE,
        }
    }

    /// Starts the engine. The error is for the record of the epoch.
    fn start(&self, engine: &mut EngineRun, argv: Vec<String>) -> Result<(), String> {
        let state = &self.state;
        let launch = RankLaunch { argv, env: engine.env.clone() };
        match state.ports.host.start(&launch) {
            Ok(process) => {
                engine.process = Some(process);
                Ok(())
            }
            Err(error) => {
                let program = launch.argv.first().map_or("", String::as_str);
                let text = format!("rank {} cannot start `{program}`: {error}", state.rank());
                state.say(&text);
                Err(text)
            }
        }
    }

    fn environment(
        &self,
        place: &RankPlace<'_>,
        checkpoint: Option<&Manifest>,
    ) -> BTreeMap<String, String> {
        let state = &self.state;
        let trial = state.resolved.tuned.as_ref().map(|tuned| tuned.number);
        let mut env = rank_environment(&state.gang, place, &state.resolved.spec.env, trial);
        let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
        let hostfile = gang_hostfile(place);
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
        env.extend(state.prepare_mpi(place));
        let mark = format!("{}-{}", state.me.start, place.formation.epoch);
        env.insert(PROCESS_MARK.into(), mark);
        env
    }

    /// Waits until the engine has ended, the epoch is over, or the agent ends the rank.
    async fn watch(&self, formation: &Formation, engine: &mut EngineRun) -> EngineWatch {
        let state = &self.state;
        let mut peers = PeerWatch::of(formation, state.rank());
        let (mut looks, mut is_noticed, mut kept) = (0_u32, false, None);
        loop {
            tokio::select! {
                biased;
                exit = engine.ended() => return EngineWatch::Ended(exit),
                () = state.ports.host.told_to_end() => {
                    let Some(process) = &mut engine.process else {
                        self.leave(formation.epoch).await;
                        return EngineWatch::Told(TOLD);
                    };
                    process.pass_on_term();
                    self.leave(formation.epoch).await;
                    return EngineWatch::Told(process.ended().await.shell_code());
                }
                () = state.pause() => {}
            }
            if !is_noticed && state.has_notice() {
                is_noticed = true;
                self.save_everywhere().await;
            }
            if engine.process.is_none() {
                if let Some(argv) = state.own_start(formation).await
                    && let Err(text) = self.start(engine, argv)
                {
                    let code = Some(NO_SUCH_COMMAND);
                    self.over(formation, EpochCause::Failed, code, &text).await;
                }
            } else {
                state.pass_on_starts(formation).await;
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(KEEP_LOOKS) {
                state.keep_while_others_work(formation, &mut kept).await;
            }
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
        // It may have finished, and its machine is off. If the store does not say so, the next look
        // asks again.
        match state.dir.done(formation.epoch).await {
            Ok(done) if !done.contains(&rank) => {}
            Ok(_) | Err(_) => return,
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
        if state.gang.engine.runs_on_first() && formation.node_of(state.rank()) != Some(0) {
            self.await_first(formation).await;
        }
        let text = format!("rank {} failed: {exit}", state.rank());
        state.say(&text);
        self.over(formation, EpochCause::Failed, Some(exit.shell_code()), &text).await;
        self.after(formation).await
    }

    /// The first machine runs the command. If it has failed, its exit code is the one of the job.
    async fn await_first(&self, formation: &Formation) {
        let state = &self.state;
        let until = state.ports.clock.mono() + FIRST_TELLS_WITHIN;
        while state.ports.clock.mono() < until {
            if matches!(state.dir.over(formation.epoch).await, Ok(Some(_))) {
                return;
            }
            state.pause().await;
        }
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
        let is_first = formation.node_of(state.rank()) == Some(0);
        let is_enough = match state.gang.done {
            _ if state.gang.engine.runs_on_first() => is_first,
            DoneRule::All => formation.members.len() == 1,
            DoneRule::Rank0 => is_first,
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
        self.state.stop_unready().await;
    }

    /// A finished rank waits for the others, since a restart would need it; at most `tail`, unless
    /// all ranks must finish.
    async fn wait_for_others(&self, formation: &Formation) -> EpochNext {
        let state = &self.state;
        let needs_all = state.gang.done == DoneRule::All && !state.gang.engine.runs_on_first();
        let tail_end = state.ports.clock.mono() + state.gang.tail.duration();
        let mut peers = PeerWatch::of(formation, state.rank());
        let (mut looks, mut kept) = (0_u32, None);
        while needs_all || state.ports.clock.mono() < tail_end {
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
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(5) && matches!(state.dir.end().await, Ok(Some(_))) {
                return EpochNext::Epoch;
            }
            // The rank before may watch no other one, and its own silence ends the epoch.
            if looks.is_multiple_of(2) {
                self.watch_peer(formation, &mut peers).await;
            }
            if looks.is_multiple_of(KEEP_LOOKS) {
                state.keep_while_others_work(formation, &mut kept).await;
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
