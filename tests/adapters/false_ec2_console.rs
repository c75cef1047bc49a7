//! The false EC2 by hand: `cargo run --example false_ec2`, then `lamp` in another terminal with the
//! environment that it prints. Nothing is launched but entries in a table; a launched instance has
//! no machine behind it.
//!
//! It is an account with nothing in it, so that the steps of docs/aws.md go as they are written;
//! with `--ready` it has a job root and the machines' role already. Words on its standard input
//! play fate; `help` lists them. It ends with `quit`, with Ctrl-C (or Ctrl-D where somebody types),
//! and after `--for SECONDS`; an input that is closed or empty ends nothing, so that it can stand
//! in the background.

#![allow(clippy::disallowed_methods, reason = "a test's stand-in for the world")]

use std::io::{BufRead as _, IsTerminal as _};
use std::time::Duration;

use lamp_test_support::ec2::{FalseEc2, Fault, Options, rounds};

const HELP: &str = "instances            what there is
calls                what was asked since the last time, and in how many round trips in turn
interrupt ID SECS    a spot interruption after this notice
off ID               the machine switches itself off
fault ACTION CODE    the next call of this action is refused so
lose ACTION          the next call of this action is carried out, and its answer lost
slow MILLISECONDS    every call takes this much longer
quit";

const USAGE: &str = "false_ec2 [--ready] [--for SECONDS]";

/// What was asked for; an error: what to write instead.
fn asked(
    mut words: impl Iterator<Item = String>,
) -> Result<(bool, Option<Duration>), &'static str> {
    let (mut ready, mut lives) = (false, None);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--ready" => ready = true,
            "--for" => {
                lives = Some(Duration::from_secs(
                    words.next().and_then(|seconds| seconds.parse().ok()).ok_or(USAGE)?,
                ))
            }
            _ => return Err(USAGE),
        }
    }
    Ok((ready, lives))
}

fn main() {
    let (ready, lives) = asked(std::env::args().skip(1)).unwrap_or_else(|usage| {
        eprintln!("usage: {usage}");
        std::process::exit(2);
    });
    let Some(cloud) = FalseEc2::start(Options {
        pending: Duration::from_secs(2),
        stopping: Duration::from_secs(2),
        managed: false,
    }) else {
        std::process::exit(1);
    };
    for (name, value) in cloud.env() {
        println!("export {name}={value}");
    }
    if ready {
        cloud.profile("lamplighter-box");
        println!("export LAMP_JOB_ROOT=s3://{}/root", cloud.bucket("jobs"));
    }
    if let Some(lives) = lives {
        std::thread::spawn(move || {
            std::thread::sleep(lives);
            std::process::exit(0);
        });
    }
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["instances"] => cloud.instances().iter().for_each(|seen| {
                println!(
                    "{} {} {} {} spot={} {} {:?}",
                    seen.id,
                    seen.kind,
                    seen.zone,
                    seen.state.name(),
                    seen.spot,
                    seen.reason,
                    seen.tags
                );
            }),
            ["calls"] => {
                let calls = cloud.take_calls();
                calls.iter().for_each(|call| {
                    println!(
                        "{:>8.3} {} {} {} {}",
                        call.began.as_secs_f64(),
                        call.service,
                        call.action,
                        call.status,
                        call.code
                    )
                });
                println!("{} calls, {} in turn", calls.len(), rounds(&calls));
            }
            ["interrupt", id, seconds] if seconds.parse::<u64>().is_ok() => {
                cloud.interrupt(id, Duration::from_secs(seconds.parse().expect("just looked at")));
            }
            ["off", id] => cloud.powered_off(id),
            ["fault", action, code] => cloud.fault(Fault::code(action, code)),
            ["lose", action] => cloud.fault(Fault::lost(action)),
            ["slow", millis] if millis.parse::<u64>().is_ok() => {
                cloud.latency(Duration::from_millis(millis.parse().expect("just looked at")))
            }
            ["quit"] => return,
            _ => println!("{HELP}"),
        }
    }
    while !std::io::stdin().is_terminal() {
        std::thread::park();
    }
}
