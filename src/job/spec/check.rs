//! Errors and doubts in a spec, all found at once.
//!
//! `config` finds syntax errors and unknown keys when it reads the file. These checks need the
//! whole spec. Pure: the caller checks files and programs.

use super::check_fit::check_fit;
use super::check_market::check_market;
use super::check_script::check_script;
use super::check_secrets::check_secrets;
use super::gang::check_gang::check_gang;
use super::limits::{BOOT_BOUNDS, LEASE_BOUNDS};
use super::user_tags::check_tags;

use crate::job::{
    AlarmRule, Finding, FindingCause, ImageChoice, LimitsSpec, MachineSpec, MarketChoice,
    OutputGlob, Reaction, Spec, WatchSpec, is_launchers,
};
use crate::market::{CloudKind, Span};

/// The shortest idle window that is allowed: below it, loading the data looks like the end of work.
const IDLE_WINDOW_MIN: Span = Span::from_secs(1);

/// The signals that may ask a script to save: a program can catch them, and no other program sends
/// them while it works.
pub const CHECKPOINT_SIGNALS: [&str; 5] = ["SIGUSR1", "SIGUSR2", "SIGTERM", "SIGINT", "SIGHUP"];

/// The words of the user after `--job-dir`. The agent sets no variable of this name.
pub const JOB_DIR_URL: &str = "LAMP_JOB_DIR_URL";

/// The text that stands for the command in a new job file.
pub const COMMAND_PLACEHOLDER: &str = "put your command here";

/// All findings of a spec, errors and warnings, in the order of the file.
pub fn check(spec: &Spec) -> Vec<Finding> {
    let mut found = Vec::new();
    check_command(spec, &mut found);
    check_fit(spec, &mut found);
    check_secrets(spec, &mut found);
    check_tags(&spec.tags, &mut found);
    check_paths(spec, &mut found);
    check_machine(spec, &mut found);
    check_market(spec, &mut found);
    check_speed(spec, &mut found);
    check_watch(spec, &mut found);
    check_ends(spec, &mut found);
    check_gang(spec, &mut found);
    found
}

fn check_command(spec: &Spec, found: &mut Vec<Finding>) {
    let argv = spec.command.argv();
    if argv.first().is_none_or(|program| program.trim().is_empty())
        || spec.command.display().trim().is_empty()
    {
        found.push(
            Finding::error("command", "is empty")
                .hint("say what to run: command = [\"python\", \"train.py\"]"),
        );
    }
    if spec.command.display().trim() == COMMAND_PLACEHOLDER {
        found.push(
            Finding::error("command", "is still the placeholder of `lamp init`")
                .hint("say what to run: command = [\"python\", \"train.py\"]"),
        );
    }
    check_script(spec, found);
    for name in spec.env.keys() {
        if name.is_empty()
            || name
                .contains(|letter: char| letter == '=' || letter == '\0' || letter.is_whitespace())
        {
            found.push(Finding::error(
                &format!("env.{name}"),
                "is not a name that an environment variable can have",
            ));
        } else if name.starts_with("LAMP_") && name != JOB_DIR_URL {
            found.push(Finding::warning(
                &format!("env.{name}"),
                "is set by the agent; the value of the agent wins",
            ));
        } else if is_launchers(name) {
            let finding = Finding::warning(
                &format!("env.{name}"),
                "tells a framework that a launcher started the command, as one rank of several",
            );
            found.push(finding.hint("leave it out, unless the script asks for it; a launcher in `command`, as torchrun, sets its own"));
        }
    }
}

fn check_paths(spec: &Spec, found: &mut Vec<Finding>) {
    let inside = |path: &str| {
        !path.is_empty() && !path.starts_with('/') && !path.split('/').any(|part| part == "..")
    };
    for output in &spec.outputs {
        if !inside(output) {
            found.push(
                Finding::error("outputs", format!("`{output}` is not below the workdir"))
                    .hint("outputs are paths or globs relative to the workdir"),
            );
        }
        if let Err(error) = OutputGlob::new(output) {
            let hint =
                "a backslash before `[`, `{` or `*` means the letter itself: \"a\\\\[1].txt\"";
            found.push(
                Finding::error("outputs", format!("`{output}` is no pattern: {error}")).hint(hint),
            );
        }
    }
    let Some(checkpoint) = &spec.checkpoint else { return };
    // The merge of the settings has reported a missing path.
    if !checkpoint.path.is_empty() && !inside(&checkpoint.path) {
        found.push(Finding::error(
            "checkpoint.path",
            format!("`{}` is not below the workdir", checkpoint.path),
        ));
    }
    if !checkpoint.path.is_empty() && is_workdir_itself(&checkpoint.path) {
        let finding = Finding::error(
            "checkpoint.path",
            "is the workdir itself: everything in it would be a checkpoint, and nothing would ship",
        );
        found.push(
            finding.hint("let the script save to a folder of its own: path = \"checkpoints\""),
        );
    }
    if checkpoint.path.starts_with('~') || checkpoint.path.contains('$') {
        let finding = Finding::warning(
            "checkpoint.path",
            "is a path, and no shell fills in its `$` or `~`: the folder is called so",
        );
        found.push(finding.hint("write a path below the workdir: path = \"checkpoints\""));
    }
    if checkpoint.interval == Span::ZERO {
        found.push(
            Finding::error("checkpoint.interval", "is zero")
                .hint("ten minutes is a good start: interval = \"10m\""),
        );
    }
    if checkpoint.grace == Span::ZERO {
        found.push(Finding::error("checkpoint.grace", "is zero: no save could ever finish"));
    }
    let machine = &spec.machine;
    if machine.cloud != CloudKind::Local
        && machine.market != MarketChoice::OnDemand
        && checkpoint.grace > SPOT_NOTICE
    {
        let text = format!(
            "lets a save take {}, and a spot machine gives {SPOT_NOTICE} of notice: one that takes longer is lost",
            checkpoint.grace
        );
        let hint = format!(
            "up to {} of work goes with it; `lamp rehearse` measures the save",
            checkpoint.interval
        );
        found.push(Finding::warning("checkpoint.grace", text).hint(hint));
    }
    if let Some(signal) = &checkpoint.signal
        && !CHECKPOINT_SIGNALS.contains(&signal.as_str())
    {
        found.push(
            Finding::error(
                "checkpoint.signal",
                format!("`{signal}` is not one of {}", CHECKPOINT_SIGNALS.join(", ")),
            )
            .hint(
                "SIGUSR1 for a script that saves and goes on, SIGTERM for one that saves and exits",
            ),
        );
    }
}

/// The notice that EC2 gives before it interrupts a spot machine.
const SPOT_NOTICE: Span = Span::from_secs(120);

/// `.`, `./` and the like.
fn is_workdir_itself(path: &str) -> bool {
    path.split('/').all(|part| part.is_empty() || part == ".")
}

/// The largest gp3 volume, in GiB. ([Amazon EBS volume
/// constraints](https://docs.aws.amazon.com/ebs/latest/userguide/volume_constraints.html)).
const DISK_GIB_MAX: u32 = 64 * 1024;

fn check_machine(spec: &Spec, found: &mut Vec<Finding>) {
    let machine = &spec.machine;
    if machine.cloud == CloudKind::Local && machine.market == MarketChoice::Spot {
        found.push(
            Finding::warning("machine.market", "is `spot`, but this workstation has one price")
                .hint("`lamp rehearse` plays an interruption on it"),
        );
    }
    for (path, names) in
        [("machine.regions", &machine.regions), ("machine.instance_types", &machine.instance_types)]
    {
        for problem in names.iter().filter_map(|name| name_problem(name)) {
            found.push(
                Finding::error(path, format!("has a name that {problem}"))
                    .hint("one name an element: [\"one\", \"another\"]"),
            );
        }
    }
    check_settings_without_effect(spec, found);
    if machine.market != MarketChoice::OnDemand && spec.checkpoint.is_none() {
        found.push(
            Finding::warning(
                "machine.market",
                "can be interrupted, and without `[checkpoint]` an interruption loses all work",
            )
            .hint("add [checkpoint] with the folder that the script saves to"),
        );
    }
    if machine.market == MarketChoice::Auto {
        check_auto(spec, found);
    }
    if let Err(error) = machine.image.parse::<ImageChoice>() {
        found.push(Finding::error("machine.image", error.to_string()));
    }
    match machine.disk_gib {
        0 => found.push(Finding::error("machine.disk", "is zero")),
        gib if gib > DISK_GIB_MAX => found.push(Finding::error(
            "machine.disk",
            format!("is more than {DISK_GIB_MAX} GiB: no disk is so large"),
        )),
        _ => {}
    }
}

/// The fault in the name of a region or an instance type; `None`: no fault.
pub fn name_problem(name: &str) -> Option<String> {
    if name.trim().is_empty() {
        return Some("is empty".to_owned());
    }
    name.contains(|letter: char| letter == ',' || letter.is_whitespace())
        .then(|| format!("is several, or none: `{name}`"))
}

/// Beyond these a figure is a typing error: no machine is a thousand times another.
const SPEEDS: std::ops::RangeInclusive<f64> = 0.001..=1000.0;

fn check_speed(spec: &Spec, found: &mut Vec<Finding>) {
    for (name, speed) in spec.machine.speed.iter() {
        if !SPEEDS.contains(&speed) {
            let hint = "say how fast the work is there beside another machine: \"L4\" = 0.6";
            found.push(
                Finding::error(
                    "machine.speed",
                    format!("`{name}` is {speed}: not a number from 0.001 to 1000"),
                )
                .hint(hint),
            );
        }
    }
}

fn check_auto(spec: &Spec, found: &mut Vec<Finding>) {
    let limits = &spec.limits;
    if limits.deadline.is_none() {
        let message = "is `auto` without `limits.deadline`: that is `spot` with relaunches, unless spot machines live so short that they cost more";
        found.push(Finding::warning("machine.market", message));
    } else if limits.work.is_none() {
        let message = "is not given: until the progress file says `step` and `total`, no time can be spared and the job runs on demand";
        found.push(
            Finding::warning("limits.work", message)
                .hint("say how long the whole job works on such a machine: work = \"20h\""),
        );
    }
    if limits.work == Some(Span::ZERO) {
        found.push(Finding::error("limits.work", "is zero"));
    }
}

/// Settings for another kind of machine than this job's. A limit that has no effect gives false
/// safety.
fn check_settings_without_effect(spec: &Spec, found: &mut Vec<Finding>) {
    let (machine, bought) = (&spec.machine, MachineSpec::default());
    let (limits, watch) = (&spec.limits, &spec.watch);
    let (usual_limits, usual_watch) = (LimitsSpec::default(), WatchSpec::default());
    let here = "with `cloud = \"local\"`: the job runs on this workstation as it is";
    let unwatched = "with `cloud = \"local\"`: nothing but the agent watches this workstation";
    let asked = match machine.cloud {
        CloudKind::Local => vec![
            ("machine.instance_types", machine.instance_types != bought.instance_types, here),
            ("machine.regions", machine.regions != bought.regions, here),
            ("machine.image", machine.image != bought.image, here),
            ("machine.disk", machine.disk_gib != bought.disk_gib, here),
            ("machine.max_price", machine.max_price != bought.max_price, here),
            ("machine.fallback_cost", machine.fallback_cost != bought.fallback_cost, here),
            ("machine.speed", machine.speed != bought.speed, here),
            ("limits.lease", limits.lease != usual_limits.lease, here),
            ("limits.boot", limits.boot != usual_limits.boot, here),
            ("watch.alarm", watch.alarm != usual_watch.alarm, unwatched),
            ("watch.metrics", watch.metrics != usual_watch.metrics, unwatched),
        ],
        CloudKind::Aws => vec![
            (
                "machine.usd_per_hour",
                machine.usd_per_hour != bought.usd_per_hour,
                "with `cloud = \"aws\"`: the price is AWS's",
            ),
            (
                "machine.max_price",
                machine.max_price != bought.max_price && machine.market == MarketChoice::OnDemand,
                "with `market = \"on-demand\"`: the list price is paid; `limits.budget` bounds what the job may cost",
            ),
        ],
    };
    for (path, _, why) in asked.into_iter().filter(|(_, asked, _)| *asked) {
        let finding = Finding::warning(path, format!("changes nothing {why}"));
        found.push(finding.because(FindingCause::NoEffect));
    }
}

fn reactions(spec: &Spec) -> [(&'static str, Reaction); 4] {
    [
        ("on.success", spec.on.success),
        ("on.failure", spec.on.failure),
        ("on.idle", spec.on.idle),
        ("on.stall", spec.on.stall),
    ]
}

fn check_watch(spec: &Spec, found: &mut Vec<Finding>) {
    let idle = &spec.watch.idle;
    if idle.window.is_some_and(|window| window < IDLE_WINDOW_MIN) {
        found.push(
            Finding::error("watch.idle", "is shorter than a second")
                .hint("to never judge a job idle, write idle = \"off\""),
        );
    }
    if let Some(open) = spec.watch.metrics_listen.filter(|address| !address.is_loopback()) {
        let message = format!(
            "serves measurements at {open} without a token: every host that reaches the port reads them"
        );
        let hint = "write the port alone, and forward it: `lamp ssh JOB -- -L 9400:localhost:9400`";
        found.push(Finding::warning("watch.metrics_listen", message).hint(hint));
    }
    if !(0.0..=100.0).contains(&idle.gpu_percent) {
        found.push(Finding::error("watch.idle_gpu_percent", "is not a percentage"));
    }
    if matches!(spec.watch.alarm, AlarmRule::Heartbeat { .. })
        && !spec.watch.metrics
        && spec.machine.cloud == CloudKind::Aws
    {
        let message = "watches heartbeats, and with `watch.metrics = false` none are published: nothing watches the machine from outside";
        found.push(
            Finding::warning("watch.alarm", message).hint("write alarm = \"off\" if that is meant"),
        );
    }
    if let AlarmRule::Heartbeat { minutes: Some(minutes) } = spec.watch.alarm
        && (spec.machine.cloud, spec.watch.metrics) == (CloudKind::Aws, true)
        && Span::from_secs(u64::from(minutes) * 60) < spec.limits.lease
    {
        let message = format!(
            "ends a machine that is silent for {minutes}m, and its lease of {} lets it work on",
            spec.limits.lease
        );
        found.push(Finding::warning("watch.alarm", message).hint(
            "write alarm = \"heartbeat\", which waits for the lease, or a shorter `limits.lease`",
        ));
    }
    let held = reactions(spec).into_iter().find_map(|(path, reaction)| {
        if let Reaction::Keep(time) = reaction { Some((path, time)) } else { None }
    });
    if let (AlarmRule::Cpu { .. }, CloudKind::Aws, Some((path, time))) =
        (spec.watch.alarm, spec.machine.cloud, held)
    {
        let message = format!(
            "may end the machine that `{path} = \"keep {time}\"` holds for a look: nobody works on it, and the alarm does not know that"
        );
        found.push(
            Finding::warning("watch.alarm", message).hint("`heartbeat` watches from outside too, and the agent of a machine that is held beats on"),
        );
    }
    if spec.watch.done_marker.as_deref().is_some_and(|marker| is_workdir_itself(marker.trim())) {
        let finding = Finding::error(
            "watch.done_marker",
            "is empty: every blank line of the log would say that the work is done",
        );
        found.push(
            finding.hint(
                "write the line that the script prints at its end, or the file that it makes",
            ),
        );
    }
    if idle.cpu_percent < 0.0 || !idle.cpu_percent.is_finite() {
        found.push(Finding::error("watch.idle_cpu_percent", "is negative"));
    } else if idle.cpu_percent > CPU_PERCENT_MAX {
        found.push(Finding::error(
            "watch.idle_cpu_percent",
            format!("is more than {CPU_PERCENT_MAX}: no machine has so many cores"),
        ));
    }
    let stall = &spec.watch.stall;
    if stall.window.is_some_and(|window| window < STALL_WINDOW_MIN) {
        let text = format!(
            "is shorter than {STALL_WINDOW_MIN}: work that prints nothing for so long would be ended"
        );
        found.push(
            Finding::error("watch.stall", text)
                .hint("to never judge a job stalled, write stall = \"off\""),
        );
    }
    if !(1.0..=STALL_STEPS_MAX).contains(&stall.steps) {
        let text = format!("is {}: it may be from 1 to {STALL_STEPS_MAX}", stall.steps);
        found.push(
            Finding::error("watch.stall_steps", text)
                .hint("to never judge a job stalled, write stall = \"off\""),
        );
    }
}

/// A thousand cores, in percent of one.
const CPU_PERCENT_MAX: f64 = 100_000.0;

/// The shortest stall window that is allowed: below it, each pause between two log lines is a
/// stall.
const STALL_WINDOW_MIN: Span = Span::from_secs(1);

/// More median steps than this are a typing error.
const STALL_STEPS_MAX: f64 = 1_000_000.0;

/// A year. A longer job can run without `work`: its simulation would take minutes and mean nothing.
const WORK_MAX: Span = Span::from_secs(365 * 86_400);

fn check_ends(spec: &Spec, found: &mut Vec<Finding>) {
    let limits = &spec.limits;
    if limits.max_runtime.is_some_and(|span| span == Span::ZERO) {
        found.push(Finding::error(
            "limits.max_runtime",
            "is zero: the job would end before it starts",
        ));
    }
    if limits.budget.is_some_and(|budget| budget.micros() <= 0) {
        found.push(Finding::error(
            "limits.budget",
            "is not more than zero: the job could not start",
        ));
    }
    if limits.work.is_some_and(|work| work > WORK_MAX) {
        let finding = Finding::error(
            "limits.work",
            format!("is more than {WORK_MAX}: nobody can say what spot machines cost by then"),
        );
        found.push(
            finding
                .hint("say the work of one part of it: what is saved is taken up by the next job"),
        );
    }
    if limits.setup == Span::ZERO {
        found.push(Finding::error("limits.setup", "is zero: no setup could run"));
    }
    for (path, time, (least, most)) in
        [("limits.lease", limits.lease, LEASE_BOUNDS), ("limits.boot", limits.boot, BOOT_BOUNDS)]
    {
        if !(least..=most).contains(&time) {
            found.push(Finding::error(
                path,
                format!("is `{time}`: it may be from {least} to {most}"),
            ));
        }
    }
    if let Some(code) = spec.retries.exit_codes.iter().find(|code| !(1..=255).contains(*code)) {
        found.push(Finding::error(
            "retries.exit_codes",
            format!("`{code}` is no exit code of a failure: they are from 1 to 255"),
        ));
    }
    for (path, reaction) in reactions(spec) {
        if reaction == Reaction::Stop && spec.machine.market == MarketChoice::Spot {
            found.push(
                Finding::error(
                    path,
                    "is `stop`, but a one-time spot machine can only be terminated",
                )
                .hint("outputs and checkpoints are kept in the job directory either way"),
            );
        }
        if reaction == Reaction::Keep(Span::ZERO) {
            found.push(
                Finding::error(path, "keeps the machine for no time")
                    .hint("write \"terminate\", or \"keep 1h\""),
            );
        }
    }
}
