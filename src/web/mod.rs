//! The page: the same facts and acts as the command line, for a browser on this workstation.
//!
//! ```text
//! browser ─> guard (host, origin, token) ─> router ─> app ─> values ─> HTML, or JSON for programs
//!                                              └─ server-sent events repeat the changed part
//! ```
//!
//! Each page is readable without JavaScript. A GET changes nothing. Not here: a fact about a job
//! (`app::view`), an act on one (`app`), or the socket's address and its question (`cli`).

mod act_page;
mod api;
mod assets;
mod costs;
mod costs_page;
mod gpu_table;
mod guard;
mod job;
mod job_log;
mod job_page;
mod layout;
pub mod live;
mod machines_page;
mod overview_page;
mod patience;
mod plots;
mod prices_page;
pub mod server;
pub mod share;
mod sign_in;
mod site;
mod sparkline;
mod tune;

pub use server::{Listen, serve};
pub use site::Site;
