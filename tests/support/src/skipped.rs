//! A test that cannot be had on this machine says so, and leaves a line for the gate, which shows
//! them all at its end.

use std::fmt::Display;
use std::io::Write;

/// Says why this test goes no further, and what it needs: a word such as `moto`, `root`, `nspawn`
/// or `chromium`.
///
/// `LAMP_TEST_REQUIRE=moto,root` makes a skip for want of these a failure. `LAMP_TEST_SKIPPED`
/// names the file that collects the lines.
pub fn skipped(needs: &str, why: impl Display) {
    eprintln!("skipped: {why}");
    let required = std::env::var("LAMP_TEST_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|required| required == needs),
        "LAMP_TEST_REQUIRE names `{needs}`: {why}"
    );
    let Some(list) = std::env::var_os("LAMP_TEST_SKIPPED") else { return };
    let thread = std::thread::current();
    let line =
        format!("{}: {}\n", thread.name().unwrap_or("a test"), why.to_string().replace('\n', " "));
    // One write of a short line: tests of several programs add to the same file.
    let added = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&list)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    added.unwrap_or_else(|error| {
        panic!("cannot write to LAMP_TEST_SKIPPED ({}): {error}", list.display())
    });
}
