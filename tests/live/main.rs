//! The check of a real account, for a person who has one:
//! `LAMP_LIVE_BUDGET=0.10 cargo test --features live-aws --test live -- --nocapture`.
//!
//! It buys the smallest machine for a few minutes with the account, the job root and the
//! configuration that `lamp` itself would use (tests/README.md). Without a budget it refuses.

#![expect(clippy::disallowed_methods, reason = "tests are the world around the program")]

use std::process::Command;

use lamp_test_support::live_check::{Asks, BUDGET, Check, name};

#[test]
fn smallest_machine_runs_is_stopped_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let lamp = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lamp"));
        command.args(words).current_dir(folder.path());
        command
    };
    let asks = Asks::of_the_environment();
    if asks == Asks::Emulator {
        println!(
            "AWS_ENDPOINT_URL is set: an emulator, of which less is asked (no health, no log of a machine)"
        );
    }
    let check = Check { lamp: &lamp, asks, name: name(), breaks: false };
    let said = std::env::var(BUDGET).ok();
    match check.run(said.as_deref()) {
        Ok(usd) => println!("all of it went well, for ${usd:.4}"),
        Err(why) => panic!("{why}"),
    }
}
