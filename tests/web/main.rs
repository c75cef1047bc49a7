//! The page of `lamp web`: the real binary, a real HTTP client, a real browser.

#![expect(clippy::disallowed_methods, reason = "tests are the world around the program")]

mod bad_input;
mod browser;
#[cfg(feature = "aws")]
mod clouds;
mod devtools;
mod ended_week;
mod fit;
mod job;
mod job_analysis;
mod live_page;
mod more_pages;
mod pages;
#[path = "../cli/place.rs"]
#[allow(dead_code, reason = "the tests of the command line use the rest")]
mod place;
mod programs;
#[path = "../cli/sandbox.rs"]
#[allow(dead_code, reason = "the tests of the command line use the rest")]
mod sandbox;
mod silent_root;
mod six_jobs;
mod trial;
