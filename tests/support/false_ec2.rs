//! The false EC2 by hand: `cargo run --example false_ec2`, then `lamp` in another terminal with the environment that it
//! prints. Nothing is launched but entries in a table; a launched instance has no machine behind it.
//!
//! Words on its standard input play fate; `help` lists them.

#![allow(clippy::disallowed_methods, reason = "a test's stand-in for the world")]

#[path = "ec2/mod.rs"]
mod ec2;
mod moto;
mod skipped;

use std::io::BufRead as _;
use std::time::Duration;

use ec2::{FalseEc2, Fault, Options};

const HELP: &str = "instances            what there is
calls                what was asked since the last time, and in how many round trips in turn
interrupt ID SECS    a spot interruption after this notice
off ID               the machine switches itself off
fault ACTION CODE    the next call of this action is refused so
lose ACTION          the next call of this action is carried out, and its answer lost
slow MILLISECONDS    every call takes this much longer
quit";

fn main() {
    let Some(cloud) = FalseEc2::start(Options { pending: Duration::from_secs(2), stopping: Duration::from_secs(2), managed: false }) else {
        std::process::exit(1);
    };
    cloud.profile("lamplighter-box");
    for (name, value) in cloud.env() {
        println!("export {name}={value}");
    }
    println!("export LAMP_JOB_ROOT=s3://{}/root", cloud.bucket("jobs"));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["instances"] => cloud.instances().iter().for_each(|seen| {
                println!("{} {} {} {} spot={} {} {:?}", seen.id, seen.kind, seen.zone, seen.state.name(), seen.spot, seen.reason, seen.tags);
            }),
            ["calls"] => {
                let calls = cloud.take_calls();
                calls
                    .iter()
                    .for_each(|call| println!("{:>8.3} {} {} {} {}", call.began.as_secs_f64(), call.service, call.action, call.status, call.code));
                println!("{} calls, {} in turn", calls.len(), ec2::rounds(&calls));
            }
            ["interrupt", id, seconds] if seconds.parse::<u64>().is_ok() => {
                cloud.interrupt(id, Duration::from_secs(seconds.parse().expect("just looked at")));
            }
            ["off", id] => cloud.powered_off(id),
            ["fault", action, code] => cloud.fault(Fault::code(action, code)),
            ["lose", action] => cloud.fault(Fault::lost(action)),
            ["slow", millis] if millis.parse::<u64>().is_ok() => cloud.latency(Duration::from_millis(millis.parse().expect("just looked at"))),
            ["quit"] => return,
            _ => println!("{HELP}"),
        }
    }
}
