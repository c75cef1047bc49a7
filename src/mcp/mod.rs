//! The face for coding agents: tools of the Model Context Protocol over stdin and stdout.
//!
//! ```text
//! client ─ JSON-RPC ─> server: tool ─┬─> app: overview, costs
//!                                    ├─> purse: does the most that it can cost fit?
//!                                    └─> our own program with `-o json`: plan, check, run, stop
//! ```
//!
//! The tools that `cli` implements today start our own program as a child. So an agent meets the
//! same checks, caps and refusals as a person. The child runs without a terminal. Tools never pass
//! a flag that answers a question. Not here: a decision about a job, or a change of the
//! configuration.

mod own_program;
mod purse;
mod server;
mod tool_input;
mod tool_result;

pub use server::{AgentServer, serve};
