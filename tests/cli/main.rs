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
mod daemon_messages;
mod daemon_service;
mod discard;
mod doctor;
mod doctor_subnets;
mod documents;
mod estimated;
mod first_hour;
mod gang;
#[cfg(feature = "aws")]
mod gang_aws;
mod import;
mod init;
mod job_driver;
mod job_requests;
mod jobs;
mod kept_machines;
#[cfg(feature = "aws")]
mod launch_aws;
#[cfg(feature = "aws")]
mod live_check;
mod logs;
mod machine_output;
#[cfg(feature = "mcp")]
mod mcp;
mod messages;
mod ml_engine;
mod models;
mod newcomer;
#[cfg(feature = "aws")]
mod no_credentials;
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
mod plan_messages;
#[cfg(feature = "aws")]
mod plan_permission;
#[cfg(feature = "aws")]
mod plan_shipped;
mod price_messages;
mod prices;
#[cfg(feature = "aws")]
mod prove;
#[cfg(feature = "aws")]
mod prove_sweeper;
mod refusals;
mod rehearsals;
mod replay;
mod replay_market;
#[cfg(feature = "aws")]
mod resumed_upload;
mod sandbox;
mod secrets;
mod setup;
mod setup_bucket;
mod setup_race;
mod setup_root;
mod setup_subnets;
mod shell;
#[cfg(feature = "aws")]
mod sign_on;
mod simulate;
mod ssh;
mod start;
mod stop_all;
mod stray_machines;
#[cfg(feature = "aws")]
mod sweep;
#[cfg(feature = "aws")]
mod sweeper;
#[cfg(feature = "aws")]
mod sweeper_setup;
mod terminal;
#[cfg(feature = "top")]
mod top;
mod tune;
#[cfg(feature = "aws")]
mod tune_aws;
mod tune_gang;
mod tune_pause;
#[cfg(feature = "aws")]
mod tune_reuse;
#[cfg(feature = "aws")]
mod unanswered_root;
#[cfg(feature = "aws")]
mod uninit;
mod unreadable;
#[cfg(feature = "aws")]
mod usage_mistakes;
mod words;
