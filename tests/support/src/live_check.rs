//! The check of a real account: `lamp` itself, the smallest machine, a budget by the user, and
//! nothing left.
//!
//! ```text
//!   LAMP_LIVE_BUDGET ──> doctor ──> prices ──> plan ── its most is within the budget? ──> run ──> stop ──> receipt ──> sweep
//!          └─ none: refused              refused: nothing was launched ─┘      └─ ended by `Guard`, whatever happens ─┘
//! ```
//! tests/live plays it against a real account. tests/cli plays it against the false EC2: its
//! refusals, the end of its job, and every step but the machine itself. It ends only its own job:
//! the name has random letters, and each request to end names the id of that job. Not here:
//! credentials.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The variable that says what this check may cost, in dollars.
pub const BUDGET: &str = "LAMP_LIVE_BUDGET";

/// Much more than it should cost. With less, a dear region would be refused. With more, a typing
/// error would be expensive.
const BUDGET_MAX: f64 = 5.0;

/// From the call to a line in the log: `limits.boot`, and a minute to see it.
const BEGINS_WITHIN: Duration = Duration::from_secs(16 * 60);

/// From the stop request to the receipt: the drain, the power-off, EC2's state, and a slow line.
const ENDS_WITHIN: Duration = Duration::from_secs(10 * 60);

/// How long a spec may still arrive after `lamp run` was killed. With less time, a late job would
/// stay. With more, each refusal takes longer.
const COMES_WITHIN: Duration = Duration::from_secs(30);

/// The smallest of the usual types, on Ubuntu's own image: it needs no quota of GPUs.
const MACHINE: [&str; 8] = [
    "--cloud",
    "aws",
    "--on-demand",
    "--instance-type",
    "t3.micro",
    "--image",
    "ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id",
    "--interruptions=0",
];

/// The machine ends by itself after this, while its kernel runs. The check stops it earlier.
const RUN_TIME: [&str; 2] = ["--max-runtime", "10m"];

const SAYS: &str = "lamp was here";

/// How much is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// All of it.
    Account,
    /// No machine boots behind what is launched, and an account that is emulated need not look
    /// healthy: that the machine is launched, ended and settled, and that nothing is left.
    Emulator,
}

impl Asks {
    /// With an endpoint in the environment, the other side is an emulator.
    pub fn of_the_environment() -> Asks {
        if std::env::var_os("AWS_ENDPOINT_URL").is_some() { Asks::Emulator } else { Asks::Account }
    }
}

/// The budget that the user set.
///
/// # Errors If it is missing, is no amount, or is more than this check can need.
pub fn budget(said: Option<&str>) -> Result<f64, String> {
    let said = said.map(str::trim).filter(|said| !said.is_empty());
    let said = said.ok_or_else(|| format!("{BUDGET} is not set: this check buys a machine, and somebody must say what it may cost, in dollars"))?;
    let dollars: Option<f64> = said.strip_prefix('$').unwrap_or(said).parse().ok();
    match dollars.filter(|dollars| dollars.is_finite() && *dollars > 0.0) {
        None => Err(format!("{BUDGET}={said} is no amount of dollars, like 0.10")),
        Some(dollars) if dollars > BUDGET_MAX => {
            Err(format!("{BUDGET}={said} is more than ${BUDGET_MAX}, and this check costs a cent"))
        }
        Some(dollars) => Ok(dollars),
    }
}

/// Whether a plan may be bought for a budget.
///
/// # Errors If it is not from AWS, has no bound, or may cost more.
pub fn within(plan: &Value, budget: f64) -> Result<f64, String> {
    if plan["source"]["name"] != "ec2" {
        return Err(format!("the plan is not AWS's own: {}", plan["source"]));
    }
    match plan["most_job_usd"].as_f64() {
        None => Err("nothing bounds what the plan can cost".to_owned()),
        Some(most) if most > budget => Err(format!(
            "the plan can cost ${most:.4}, and {BUDGET} is ${budget:.4}: nothing was launched"
        )),
        Some(most) => Ok(most),
    }
}

/// A name that no other check has: in containers that share a job root, two have the same process
/// id.
pub fn name() -> String {
    let drawn = uuid::Uuid::new_v4().simple().to_string();
    format!("live-check-{}", &drawn[..12])
}

/// Whether an account ends a machine from outside, as far as `lamp doctor` shows: a machine whose
/// kernel hangs does not end itself.
///
/// # Errors
/// It shows neither a sweeper that comes nor a proof of every region.
pub fn is_swept(doctor: &Value) -> Result<(), String> {
    let checks = || doctor["checks"].as_array().into_iter().flatten();
    let is_ok = |check: &Value| check["level"] == "ok";
    let is_proof =
        |check: &&Value| check["check"].as_str().is_some_and(|name| name.starts_with("proof, "));
    let sweeper = checks().any(|check| check["check"] == "sweeper" && is_ok(check));
    let proven = checks().any(|check| is_proof(&check)) && checks().filter(is_proof).all(is_ok);
    if sweeper || proven {
        return Ok(());
    }
    Err("`lamp doctor` shows neither a sweeper that comes nor a proof that machines end by themselves: `lamp init aws --sweeper`, or \
         `lamp doctor --prove`; nothing was launched"
        .to_owned())
}

/// How a command of `lamp` ended.
struct Ended {
    code: i32,
    out: String,
    err: String,
}

pub struct Check<'a> {
    /// `lamp` with these words, in an empty folder.
    pub lamp: &'a dyn Fn(&[&str]) -> Command,
    pub asks: Asks,
    /// The name of its job, which no other job has ([`name`]).
    pub name: String,
    /// A test's: what goes wrong once its machine is there.
    pub breaks: bool,
}

impl Check<'_> {
    /// All of it, and what it has cost.
    ///
    /// # Errors
    /// It was refused before anything was launched, or something is not as it should be; what was
    /// launched is ended either way.
    pub fn run(&self, said: Option<&str>) -> Result<f64, String> {
        let budget = budget(said)?;
        let doctor = self.json(&["doctor"], &[0, 100, 103])?;
        let worst = &doctor["worst"];
        if self.asks == Asks::Account && (worst == "failure" || worst == "unknown") {
            return Err(format!(
                "`lamp doctor` says {worst}; mend that first: nothing was launched"
            ));
        }
        if self.asks == Asks::Account {
            is_swept(&doctor)?;
        }
        let prices = self.json(&["prices", "--type", "t3.micro"], &[0])?;
        if prices["source"]["name"] != "ec2" || prices["rows"][0]["on_demand"].is_null() {
            return Err(format!("no price of a t3.micro is known by EC2: {}", prices["source"]));
        }
        let plan = self.json(&self.job("plan", &[]), &[0])?;
        let most = within(&plan, budget)?;
        println!(
            "the plan: a t3.micro in {}, at most ${most:.4} of ${budget:.4}",
            plan["offer"]["zone"]
        );
        let (job, usd) = self.launched(budget, most)?;
        self.nothing_is_left(&job)?;
        Ok(usd)
    }

    /// The machine, from its launch to its receipt: its job, and what it cost.
    fn launched(&self, budget: f64, most: f64) -> Result<(String, f64), String> {
        let limit = format!("--budget={budget}");
        let words = self.job("run", &[&limit]);
        // From here on the guard ends what there is, also where this panics.
        let mut guard = Guard::new(self, None);
        guard.run = Some(
            self.command(&words)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .map_err(|error| error.to_string())?,
        );
        let run = guard.run.as_mut().expect("it was just started");
        let there = self.until("its machine is there", BEGINS_WITHIN, || match run.try_wait() {
            Ok(Some(status)) => {
                Some(Err(format!("`lamp run` ended before its machine was there: {status}")))
            }
            _ => self.job_with_a_machine().map(Ok),
        });
        let job = there??;
        guard.job = Some(job.clone());
        println!("job {job} has its machine");
        assert!(!self.breaks, "a test breaks it here");
        if self.asks == Asks::Account {
            self.until("its line is in the log", BEGINS_WITHIN, || {
                self.ended(&["logs", &job]).out.contains(SAYS).then_some(())
            })?;
        }
        let receipt = self.json(&["stop", "--wait", &job], &[0])?;
        let usd = receipt["total_usd"].as_f64().unwrap_or(f64::INFINITY);
        if receipt["outcome"] != "stopped" || usd > most {
            return Err(format!(
                "the receipt of {job} is not that of a job that was stopped, for ${most:.4} at most: {receipt:#}"
            ));
        }
        println!("its receipt: {}, ${usd:.4}", receipt["reason"]);
        Ok((job, usd))
    }

    /// Checks that the job left no machine or residue.
    fn nothing_is_left(&self, job: &str) -> Result<(), String> {
        let swept = self.json(&["sweep", "--dry-run"], &[0])?;
        let of_ours = |list: &Value| {
            list.as_array().into_iter().flatten().filter(|one| one["job"] == job).count()
        };
        let left = of_ours(&swept["machines"]) + of_ours(&swept["residue"]);
        if left == 0 { Ok(()) } else { Err(format!("something of the job is left: {swept:#}")) }
    }

    fn is_ours(&self, of: &Value) -> bool {
        of["job"]
            .as_str()
            .and_then(|job| job.rsplit_once('-'))
            .is_some_and(|(name, _)| name == self.name)
    }

    fn job<'b>(&'b self, verb: &'b str, more: &[&'b str]) -> Vec<&'b str> {
        let script = ["--", "sh", "-c", "echo lamp was here; sleep 3600"];
        [&[verb, "--name", &self.name], &MACHINE[..], &RUN_TIME, more, &script].concat()
    }

    /// The job, once the cloud shows a machine of it: what `lamp status` knows of it, its agent has
    /// said.
    fn job_with_a_machine(&self) -> Option<String> {
        let swept = self.json(&["sweep", "--dry-run"], &[0, 103]).ok()?;
        let own = swept["machines"].as_array()?.iter().find(|machine| self.is_ours(machine))?;
        own["job"].as_str().map(str::to_owned)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = (self.lamp)(words);
        command.stdin(Stdio::null());
        command
    }

    fn ended(&self, words: &[&str]) -> Ended {
        let output =
            self.command(words).output().unwrap_or_else(|error| panic!("{words:?}: {error}"));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ended {
            code: output.status.code().unwrap_or(-1),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    /// The document of a verb that ends with one of these codes.
    fn json(&self, words: &[&str], codes: &[i32]) -> Result<Value, String> {
        let Ended { code, out, err } = self.ended(&[&["-o", "json"], words].concat());
        let document = serde_json::from_str(&out).ok().filter(|_| codes.contains(&code));
        document.ok_or_else(|| format!("`lamp {}` ended with {code}: {out}{err}", words.join(" ")))
    }

    fn until<T>(
        &self,
        what: &str,
        within: Duration,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, String> {
        let end = Instant::now() + within;
        loop {
            if let Some(seen) = look() {
                return Ok(seen);
            }
            if Instant::now() >= end {
                return Err(format!(
                    "after {} minutes it is not so: {what}",
                    within.as_secs() / 60
                ));
            }
            std::thread::sleep(if self.asks == Asks::Account {
                Duration::from_secs(5)
            } else {
                Duration::from_millis(200)
            });
        }
    }
}

/// How the one job stands.
enum Stands {
    Ended,
    /// It is there, and this is its id.
    Lives(String),
    NotThere,
    /// Nobody has said.
    Unknown,
}

/// Ends the one job, and the process that drives it, however this is left.
pub struct Guard<'a> {
    check: &'a Check<'a>,
    run: Option<Child>,
    /// Its id, once that is known: from then on nothing is asked by name.
    job: Option<String>,
    /// For how long a job is waited for whose launcher was killed.
    pub comes_within: Duration,
    is_over: bool,
}

impl<'a> Guard<'a> {
    pub fn new(check: &'a Check<'a>, run: Option<Child>) -> Self {
        Guard { check, run, job: None, comes_within: COMES_WITHIN, is_over: false }
    }

    fn look(&self) -> Stands {
        let of = self.job.as_deref().unwrap_or(&self.check.name);
        let Ended { code, out, .. } = self.check.ended(&["-o", "json", "status", of]);
        if code == 101 {
            // One that was there and whose records are gone may still have its machine.
            return if self.job.is_none() { Stands::NotThere } else { Stands::Unknown };
        }
        let told = serde_json::from_str::<Value>(&out).unwrap_or_default();
        let is_own = |job: &&Value| {
            if let Some(own) = &self.job {
                job["job"] == own.as_str()
            } else {
                self.check.is_ours(job)
            }
        };
        let own: Vec<&Value> =
            told["jobs"].as_array().into_iter().flatten().filter(is_own).collect();
        match own[..] {
            [job] if !job["ended"].is_null() => Stands::Ended,
            [job] => {
                job["job"].as_str().map_or(Stands::Unknown, |job| Stands::Lives(job.to_owned()))
            }
            _ => Stands::Unknown,
        }
    }

    /// Ends the job. Returns a message for the user if it may still run.
    pub fn end(&mut self) -> Option<String> {
        // Kill `lamp run` first, so that it launches nothing more. A spec may still be on its way.
        // `lamp cancel --wait` then drives the job to its end.
        if let Some(mut run) = self.run.take() {
            let _ = run.kill();
            let _ = run.wait();
        }
        self.is_over = true;
        let (killed, check) = (Instant::now(), self.check);
        let is_there = check.until("its job has ended", ENDS_WITHIN, || match self.look() {
            Stands::Ended => Some(true),
            Stands::NotThere if killed.elapsed() >= self.comes_within => Some(false),
            Stands::Lives(job) => {
                check.ended(&["cancel", "--wait", "--yes", &job]);
                self.job = Some(job);
                None
            }
            Stands::NotThere | Stands::Unknown => None,
        });
        let name = &self.check.name;
        let alone = "while its kernel lives, its machine powers itself off within 20 minutes of its launch; one whose kernel hangs bills on \
                     until a sweeper, a daemon, its alarm or `lamp sweep` ends it";
        match (is_there, &self.job) {
            (Ok(true), _) => None,
            (Ok(false), _) => Some(format!(
                "no job {name} is there {} s after its launcher has ended. Whether one is still on its way is not known, and a daemon of this \
                 job root would launch it: `lamp status {name}` shows it, `lamp cancel` with its id ends it; {alone}",
                self.comes_within.as_secs()
            )),
            (Err(_), Some(job)) => Some(format!(
                "NOT ENDED: `lamp cancel {job}` ends it, `lamp sweep` shows it; {alone}"
            )),
            (Err(_), None) => Some(format!(
                "NOT KNOWN: nobody has said whether job {name} is there. `lamp status {name}` shows it, `lamp cancel` with its id ends it, \
                 `lamp sweep` shows its machine; {alone}"
            )),
        }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Some(told) = (!self.is_over).then(|| self.end()).flatten() {
            eprintln!("{told}");
        }
    }
}
