//! `just soak N`: plays seeds and prints machine-days and violations; `--seed S` replays one, with
//! its whole story; `--deaths` dies at every call of the short job; `--named` plays the seeds that
//! have found something once; `--mutants` plants bugs, one at a time; `--long` says what 72 hours
//! cost; `--bounds` measures what each fault takes alone. `just soak --help` has all of its words.

mod bounds;
mod bounds_table;
mod named_seeds;
mod soak_checks;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use clap::error::ErrorKind;
use clap::{ArgGroup, CommandFactory, Parser};
use lamplighter::sim::{Bug, Course, SaveStyle, Strikes, WorldResult, WorldRun, play, play_on};
use lamplighter::wire::read_capacity;
use rustix::time::{ClockId, clock_gettime};

/// Play the shipped controller and agent in false worlds, and say which laws they broke
///
/// One seed is one world. Ends with 1 where a law was broken (also by a bug that --bug plants,
/// which is then seen), a death changed something, or --mutants found a planted bug that its law
/// does not see.
#[derive(Parser)]
#[command(
    name = "soak",
    group = ArgGroup::new("what").args(["seed", "deaths", "long", "mutants", "named", "bounds"]),
    group = ArgGroup::new("alone").args(["seed", "deaths", "long", "mutants", "named"]),
)]
struct Args {
    /// How many seeds are played
    #[arg(default_value_t = 100, conflicts_with = "alone", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    count: u64,
    /// Length of a world in hours; jobs and faults grow with it
    #[arg(long, value_name = "H", default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=24 * 366))]
    hours: u64,
    /// The first seed; what a run prints on its way is where to go on
    #[arg(long, value_name = "S", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=u64::MAX / 2))]
    from: u64,
    /// Worlds that are played at once, one on each thread
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: u64,
    /// The work saves one file that it renames, whatever the seed says
    #[arg(long)]
    renamed: bool,
    /// Without the faults that came into the world after the seeds of a time before were named
    #[arg(long)]
    older: bool,
    /// Without the layouts of saves that came into the world later
    #[arg(long)]
    plain: bool,
    /// Only those of the seeds whose job keeps the disk of its machine: the worlds that a change of
    /// how it is started again can touch
    #[arg(long, conflicts_with = "what")]
    kept: bool,
    /// One job on several machines in each world
    #[arg(long, conflicts_with_all = ["deaths", "long", "mutants", "named", "bounds", "trace"])]
    gangs: bool,
    /// Let spot capacity come and go as this recording does, or one of these, in each zone by
    /// itself
    #[arg(long, value_name = "FILE", conflicts_with_all = ["deaths", "long", "mutants", "named", "bounds"])]
    trace: Vec<PathBuf>,
    /// One world, told
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// With a bug planted in it, as --mutants names them
    #[arg(long, value_name = "NAME", requires = "seed", value_parser = bug)]
    bug: Option<Bug>,
    /// The short job with one of the stories of `sim::Story` instead of what its seed says
    #[arg(long, value_name = "NAME", requires = "seed")]
    story: Option<String>,
    /// One fault alone, as --bounds names it
    #[arg(long, value_name = "FAULT:WHO", requires = "seed")]
    lone: Option<String>,
    /// The short job, whose controller or agent dies at this call, `before` its effect or `after`
    #[arg(long, value_name = "WHO:CALL:WHEN", requires = "seed")]
    death: Option<String>,
    /// Let the controller and the agent of the short job die at every call, one at a time
    #[arg(long)]
    deaths: bool,
    /// Say what 72 hours of one job cost in seconds of a processor
    #[arg(long)]
    long: bool,
    /// Plant bugs, one at a time: each must break its law
    #[arg(long)]
    mutants: bool,
    /// Play the seeds that have found something once
    #[arg(long)]
    named: bool,
    /// Play each fault alone so many times, and measure how long it takes until what is promised is
    /// there
    #[arg(long)]
    bounds: bool,
}

fn bug(name: &str) -> Result<Bug, String> {
    let all = || Bug::ALL.into_iter().chain(Bug::OF_GANGS).chain([Bug::Panics]);
    let names = || all().map(|bug| format!("{bug:?}")).collect::<Vec<_>>().join(", ");
    all().find(|bug| format!("{bug:?}") == name).ok_or_else(|| format!("there are {}", names()))
}

fn main() {
    let args = Args::parse();
    let saves = args.renamed.then_some(SaveStyle::Renamed);
    let run = Run {
        from: args.from,
        count: args.count,
        hours: args.hours,
        threads: args.threads,
        saves,
        newer: !args.older,
        layouts: !args.plain,
        kept: args.kept,
        gangs: args.gangs,
        recordings: recordings(&args.trace),
        traces: args.trace,
    };
    // The parser does not require a seed if a count is given too.
    if args.seed.is_none()
        && (args.bug.is_some()
            || args.story.is_some()
            || args.lone.is_some()
            || args.death.is_some())
    {
        Args::command()
            .error(
                ErrorKind::MissingRequiredArgument,
                "--bug, --story, --lone and --death are of one world: --seed says which",
            )
            .exit();
    }
    name_the_seed_of_a_panic();
    match args.seed {
        _ if args.deaths => soak_checks::deaths(),
        _ if args.long => soak_checks::long(),
        _ if args.mutants => soak_checks::mutants(&run),
        _ if args.named => soak_checks::named(&run),
        _ if args.bounds => soak_checks::bounds(&run),
        Some(seed) => {
            let told = [("--story", args.story), ("--lone", args.lone), ("--death", args.death)]
                .into_iter()
                .filter_map(|(flag, word)| Some((flag, word?)));
            let world = told
                .into_iter()
                .try_fold(run.world(seed), |play, (flag, word)| play.with(flag, &word));
            let world = world.unwrap_or_else(|why| {
                Args::command().error(ErrorKind::ValueValidation, why).exit()
            });
            replay(&run, world, args.bug);
        }
        None => soak(&run),
    }
}

fn recordings(files: &[PathBuf]) -> Vec<Course> {
    let read = |file: &PathBuf| match read_capacity(file) {
        Ok(trace) => Course {
            tick: trace.tick,
            there: trace.there.into(),
            first: 0,
            prices: None,
            begins: Duration::ZERO,
        },
        Err(error) => Args::command().error(ErrorKind::ValueValidation, error).exit(),
    };
    files.iter().map(read).collect()
}

#[expect(clippy::disallowed_methods, reason = "the real time that it takes is what is printed")]
fn clock() -> Instant {
    Instant::now()
}

/// The processor time of this program. It does not depend on other programs.
fn processor() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

thread_local! {
    /// The world that this thread plays.
    static PLAYED: Cell<Option<WorldRun>> = const { Cell::new(None) };
}

/// A panic in a task of a world ends the run, because this profile aborts. This hook prints the
/// world.
fn name_the_seed_of_a_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if let Some(play) = PLAYED.get() {
            println!("seed {} panics: {}", play.seed, play.command());
        }
        before(panic);
    }));
}

fn played(how: WorldRun) -> WorldResult {
    PLAYED.set(Some(how));
    play(how)
}

/// Seeds to play, and how.
struct Run {
    from: u64,
    count: u64,
    hours: u64,
    threads: u64,
    saves: Option<SaveStyle>,
    newer: bool,
    layouts: bool,
    /// Only worlds whose job keeps its disk.
    kept: bool,
    gangs: bool,
    recordings: Vec<Course>,
    /// The files of the recordings.
    traces: Vec<PathBuf>,
}

impl Run {
    fn play(&self, how: WorldRun) -> WorldResult {
        PLAYED.set(Some(how));
        let mut played = play_on(how, &self.recordings);
        played
            .command
            .extend(self.traces.iter().map(|file| format!(" --trace '{}'", file.display())));
        played
    }

    fn world(&self, seed: u64) -> WorldRun {
        WorldRun {
            hours: self.hours,
            saves: self.saves,
            newer: self.newer,
            layouts: self.layouts,
            gang: self.gangs,
            ..WorldRun::seed(seed)
        }
    }
}

/// The results so far.
#[derive(Default)]
struct Tally {
    seeds: u64,
    powered: Duration,
    lived: Duration,
    deeds: u64,
    /// The time from the end of the faults to the end of a stopped job, and its seed.
    converged: Vec<(Duration, u64)>,
    /// Seeds with violations.
    broken: Vec<u64>,
    ended: BTreeMap<String, u64>,
    strikes: Strikes,
    /// The seed of each thread. All seeds below the lowest are done.
    at: Vec<u64>,
    told: Duration,
}

/// The time between two lines of progress.
const TELL_EVERY: Duration = Duration::from_secs(60);

fn soak(run: &Run) {
    let began = clock();
    let tally = Mutex::new(Tally { at: vec![run.from; run.threads as usize], ..Tally::default() });
    let end = run.from + run.count;
    let done = side_by_side(run, run.count, |thread, number| {
        let seed = run.from + number;
        lock(&tally).at[thread] = seed;
        if run.kept && !run.world(seed).keeps_a_disk() {
            return;
        }
        let played = run.play(run.world(seed));
        count(&mut lock(&tally), run, &played, began.elapsed());
    });
    let mut tally = lock(&tally);
    tally.at = done.iter().map(|()| end).collect();
    let took = began.elapsed();
    for (kind, (all, struck)) in &tally.strikes {
        println!("{kind}: {struck} of {all} found a machine");
    }
    println!("attempts ended: {:?}", tally.ended);
    tally.converged.sort_unstable();
    println!("{}", converged(&tally.converged));
    println!("{}", progress(&tally, run, took));
    if !tally.broken.is_empty() {
        std::process::exit(1);
    }
}

/// Runs `work` for each number on all threads, and returns the results in order.
fn side_by_side<T: Send>(run: &Run, count: u64, work: impl Fn(usize, u64) -> T + Sync) -> Vec<T> {
    let (next, done) = (AtomicU64::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for thread in 0..run.threads as usize {
            let (next, done, work) = (&next, &done, &work);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    let came = work(thread, number);
                    done.lock().expect("the lock is not poisoned").insert(number, came);
                }
            });
        }
    });
    done.into_inner().expect("the lock is not poisoned").into_values().collect()
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().expect("the lock is not poisoned")
}

fn count(tally: &mut Tally, run: &Run, played: &WorldResult, now: Duration) {
    tally.seeds += 1;
    tally.powered += played.machine_time;
    tally.lived += played.lived;
    tally.deeds += played.deeds;
    tally.converged.extend(played.converged.map(|took| (took, played.seed)));
    for attempt in played.receipt.iter().flat_map(|receipt| &receipt.attempts) {
        *tally.ended.entry(attempt.ended_because.word().to_owned()).or_default() += 1;
    }
    for (kind, (all, struck)) in &played.strikes {
        let sum = tally.strikes.entry(kind.clone()).or_default();
        *sum = (sum.0 + all, sum.1 + struck);
    }
    if !played.violations.is_empty() {
        tally.broken.push(played.seed);
        tell(played);
        println!("its story: {}", played.command);
    }
    if now.saturating_sub(tally.told) >= TELL_EVERY {
        tally.told = now;
        eprintln!("{}", progress(tally, run, now));
    }
}

/// How long stopped jobs took to end after the faults, from sorted times.
fn converged(took: &[(Duration, u64)]) -> String {
    let Some((longest, seed)) = took.last() else {
        return "nobody was stopped once all was well".to_owned();
    };
    let within = |percent: usize| took[(took.len() * percent).div_ceil(100).max(1) - 1].0.as_secs();
    let (half, most) = (within(50), within(99));
    let soon = 100.0 * took.partition_point(|(took, _)| *took <= SOON) as f64 / took.len() as f64;
    format!(
        "{} were stopped once all was well: half ended within {half} s, 99 % within {most} s, {soon:.1} % within {} s, the last after {} s (seed {seed})",
        took.len(),
        SOON.as_secs(),
        longest.as_secs()
    )
}

/// The bound that the design has for a stop without faults.
const SOON: Duration = Duration::from_secs(5 * 60);

fn progress(tally: &Tally, run: &Run, took: Duration) -> String {
    let days = |time: Duration| time.as_secs_f64() / 86_400.0;
    format!(
        "seeds {}..{} of {} h: {} played, {:.1} machine-days in {:.1} days of worlds, {} deeds, {} seeds with violations {:?}, in {:.1} s ({:.3} s of a processor a machine-day)",
        run.from,
        tally.at.iter().min().copied().unwrap_or(run.from),
        run.hours,
        tally.seeds,
        days(tally.powered),
        days(tally.lived),
        tally.deeds,
        tally.broken.len(),
        tally.broken,
        took.as_secs_f64(),
        processor().as_secs_f64() / days(tally.powered).max(1e-9),
    )
}

fn tell(played: &WorldResult) {
    for violation in &played.violations {
        println!(
            "seed {} law {} at {} s: {}",
            played.seed, violation.law, violation.at_secs, violation.what
        );
    }
}

fn replay(run: &Run, how: WorldRun, planted: Option<Bug>) {
    let played = run.play(WorldRun { told: true, planted, ..how });
    played.story.iter().for_each(|line| println!("{line}"));
    println!("{} deeds, {}", played.deeds, played.sha256);
    match &played.receipt {
        Some(receipt) => {
            let is_estimate = receipt.attempts.iter().any(|attempt| attempt.billed_estimated);
            let mark =
                if is_estimate { ", an estimate: the most that it can have cost" } else { "" };
            println!(
                "the job {}: {}; {}{mark}",
                receipt.outcome, receipt.reason, receipt.total_usd
            );
        }
        None => println!("the job has no receipt"),
    }
    tell(&played);
    if let Some(bug) = planted {
        let is_seen = played.violations.iter().any(|violation| violation.law == bug.law());
        println!(
            "{bug:?}, which was planted in it, is {} by law {}",
            if is_seen { "seen" } else { "not seen" },
            bug.law()
        );
    }
    let is_within = how.lone.is_none_or(|lone| soak_checks::is_within(lone, &played));
    if played.violations.is_empty() {
        println!("seed {} breaks no law", played.seed);
    }
    if !is_within || !played.violations.is_empty() {
        std::process::exit(1);
    }
}
