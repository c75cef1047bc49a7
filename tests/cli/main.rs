//! The command line from outside: exit code, stdout and stderr of the real binary.

#![expect(clippy::disallowed_methods, reason = "tests are the world around the program")]

mod alarms;
mod apply;
mod attention;
#[cfg(feature = "aws")]
mod aws_machines;
mod check;
mod check_market;
#[cfg(feature = "aws")]
mod credentials;
mod daemon_says;
mod daemon_service;
mod discard;
mod doctor;
mod doctor_subnets;
mod documents;
mod driven;
mod estimated;
mod first_hour;
mod gang;
#[cfg(feature = "aws")]
mod gang_aws;
mod import;
mod init;
mod jobs;
mod kept;
#[cfg(feature = "aws")]
mod launch_aws;
#[cfg(feature = "aws")]
mod live_check;
mod logs;
#[cfg(feature = "aws")]
mod lost;
mod machine_output;
#[cfg(feature = "mcp")]
mod mcp;
mod ml_engine;
mod models;
mod newcomer;
#[cfg(feature = "aws")]
mod nobody;
mod outputs;
mod permissions;
mod permissions_setup;
mod place;
#[cfg(feature = "aws")]
mod plan_account;
#[cfg(feature = "aws")]
mod plan_aws;
#[cfg(feature = "aws")]
mod plan_bid;
#[cfg(feature = "aws")]
mod plan_kept;
#[cfg(feature = "aws")]
mod plan_permission;
#[cfg(feature = "aws")]
mod plan_says;
#[cfg(feature = "aws")]
mod plan_shipped;
mod prices;
mod prices_said;
#[cfg(feature = "aws")]
mod prove;
#[cfg(feature = "aws")]
mod prove_sweeper;
mod refused;
mod rehearsals;
mod replay;
mod replay_market;
mod sandbox;
mod secrets;
#[cfg(feature = "aws")]
mod sent_again;
mod setup;
mod setup_bucket;
mod setup_race;
mod setup_root;
mod setup_subnets;
mod shell;
#[cfg(feature = "aws")]
mod sign_on;
mod simulate;
#[cfg(feature = "aws")]
mod slips;
mod ssh;
mod start;
mod stop_several;
mod stray;
#[cfg(feature = "aws")]
mod sweep;
#[cfg(feature = "aws")]
mod sweeper;
#[cfg(feature = "aws")]
mod sweeper_setup;
mod terminal;
mod told;
#[cfg(feature = "top")]
mod top;
mod tune;
#[cfg(feature = "aws")]
mod tune_aws;
mod tune_pause;
#[cfg(feature = "aws")]
mod uninit;
mod unreadable;
mod wishes;
mod words;
