//! A test that cannot be had on this machine says so, and leaves a line for the gate, which shows them all at its end: what
//! was not tried must not look like what was.

use std::fmt::Display;
use std::io::Write;

/// Says why this test goes no further. `LAMP_TEST_SKIPPED` names the file that collects such lines.
pub fn skipped(why: impl Display) {
    eprintln!("skipped: {why}");
    let Some(list) = std::env::var_os("LAMP_TEST_SKIPPED") else { return };
    let thread = std::thread::current();
    let line = format!("{}: {}\n", thread.name().unwrap_or("a test"), why.to_string().replace('\n', " "));
    // One write of a short line: tests of several programs add to the same file.
    let added = std::fs::OpenOptions::new().create(true).append(true).open(&list).and_then(|mut file| file.write_all(line.as_bytes()));
    added.unwrap_or_else(|error| panic!("cannot write to LAMP_TEST_SKIPPED ({}): {error}", list.display()));
}
