//! The world: every implementation of a port, and the small readers they share.
//!
//! The only folder that asks the operating system for time, environment, files, processes or randomness. What must never
//! live here: a decision; an adapter answers what is, and does what it is told.
//!
//! | Files | Port | What |
//! |---|---|---|
//! | `aws_cloud`, `ec2_*`, `cloudwatch_alarm` | `Cloud` | EC2 as a seller of machines; `ec2_*` is a question or a deed each |
//! | `shipped_cloud` | `Cloud` | the shipped catalogue, where the cloud does not answer: for looking at, nothing can be bought of it |
//! | `local_cloud`, `local_*` | `Cloud`, `Metadata`, `Power`, `Files` | the cloud `local`: machines that are folders and processes here; `local_files` serves every machine |
//! | `objects`, `object_*`, `aws_objects`, `counted` | `Store` | job roots: a folder (`object_file`), S3 (`object_s3`), and what counts its own traffic |
//! | `ca_bundle`, `aws_*` otherwise | | credentials and the way to AWS; `aws_setup*`, `aws_ready`, `aws_doctor`: the account, made ready and looked at |
//! | `child_workload`, `unit_workload`, `held_workload`, `held_*`, `watched_fd`, `containers`, `whole_machine`, `ask`, `ask_whom` | `Workloads`, `Workload` | what runs a job: a process, a systemd unit, or all of a machine that somebody started by hand |
//! | `holder`, `holder_*` | | the process between agent and workload, and its records |
//! | `sensors`, `sensor_thread`, `host*`, `nvml*`, `logins`, `typing`, `network`, `counter` | `Sensors`, `SensorFeed` | one sample of the machine and of the workload |
//! | `terminals` | `People` | a word on the terminals of whoever is logged in |
//! | `proc_stacks`, `proc_*` | `Stacks` | what a stalled process waits for; `/proc`, read |
//! | `imds`, `imds_said` | `Metadata` | what EC2 tells a machine of itself |
//! | `poweroff`, `then_command` | `Power` | the switch of a real machine, and what replaces it where an agent runs alone |
//! | `cloudwatch_metrics` | `Meter` | what the agent measures, published |
//! | `secret_workloads`, `aws_secrets` | `Workloads` | the secrets of a job at AWS, read before each start |
//! | `notify`, `notify_command` | `Service`, `Notifier` | systemd's socket; the user's own command |
//! | `system_clock`, `launch_turns`, `agent_files`, `agent_elf` | `Clock`, `Turns`, `Agents` | the time; a turn by a lock file; the agent's program |
//! | `archive`, `git_tracked`, `hashed`, `secret_scan`, `secret_rules`, `workdir_left_out`, `workdir_pack` | | the code archive, packed on the workstation and unpacked on the machine |
//! | `sweeper_program`, `lambda_runtime`, `zip` | | the sweeper in the cloud |
//! | `capacity_trace`, `price_course`, `series`, `series_csv` | | recordings, read |
//! | `detach`, `driver_process`, `doctor_local`, `here`, `kept_environment`, `login_environment`, `kept_file`, `private`, `remove_tree`, `signals`, `unsent`, `user_file` | | processes, files and folders of the user |

#[cfg(feature = "lamp")]
mod agent_elf;
#[cfg(feature = "lamp")]
pub mod agent_files;
pub mod archive;
mod ask;
mod ask_whom;
#[cfg(feature = "aws")]
mod aws_call;
#[cfg(feature = "aws")]
pub mod aws_cloud;
#[cfg(feature = "aws")]
mod aws_credentials;
#[cfg(feature = "aws")]
pub mod aws_doctor;
#[cfg(feature = "aws")]
mod aws_doctor_subnets;
#[cfg(feature = "aws")]
mod aws_identity;
#[cfg(feature = "aws")]
pub mod aws_objects;
#[cfg(feature = "aws")]
mod aws_profiles;
#[cfg(feature = "aws")]
pub mod aws_ready;
#[cfg(feature = "aws")]
mod aws_said;
pub mod aws_secrets;
#[cfg(feature = "aws")]
pub mod aws_session;
#[cfg(feature = "lamp")]
pub mod aws_settings;
#[cfg(feature = "aws")]
pub mod aws_setup;
#[cfg(feature = "aws")]
mod aws_setup_bucket;
#[cfg(feature = "aws")]
mod aws_setup_group;
#[cfg(feature = "aws")]
mod aws_setup_roles;
#[cfg(feature = "aws")]
mod aws_setup_sweeper;
mod ca_bundle;
#[cfg(feature = "lamp")]
pub mod capacity_trace;
pub mod child_workload;
#[cfg(feature = "aws")]
mod cloudwatch_alarm;
pub mod cloudwatch_metrics;
mod containers;
pub mod counted;
mod counter;
pub mod detach;
#[cfg(feature = "lamp")]
pub mod doctor_local;
#[cfg(feature = "lamp")]
pub mod driver_process;
#[cfg(feature = "aws")]
mod ec2_cache;
#[cfg(feature = "aws")]
mod ec2_clear;
#[cfg(feature = "aws")]
pub mod ec2_describe;
#[cfg(feature = "aws")]
mod ec2_disk_key;
#[cfg(feature = "aws")]
mod ec2_end;
#[cfg(feature = "aws")]
mod ec2_errors;
#[cfg(feature = "aws")]
mod ec2_foreign;
#[cfg(feature = "aws")]
mod ec2_image;
#[cfg(feature = "aws")]
mod ec2_launch;
#[cfg(feature = "aws")]
mod ec2_memory;
#[cfg(feature = "aws")]
mod ec2_prepare;
#[cfg(feature = "aws")]
mod ec2_price_list;
#[cfg(feature = "aws")]
mod ec2_quotas;
#[cfg(feature = "aws")]
mod ec2_regions;
#[cfg(feature = "aws")]
mod ec2_residue;
#[cfg(feature = "aws")]
mod ec2_spot_prices;
#[cfg(feature = "aws")]
mod ec2_subnets;
#[cfg(feature = "aws")]
pub mod ec2_supply;
#[cfg(feature = "aws")]
mod ec2_types;
#[cfg(feature = "aws")]
mod ec2_use;
mod foreign_links;
#[cfg(feature = "lamp")]
mod git_tracked;
mod hashed;
mod held_ask;
mod held_kill;
mod held_workload;
pub mod here;
pub mod holder;
mod holder_cgroup;
mod holder_echo;
mod holder_log;
mod holder_records;
mod holder_redraw;
mod holder_rows;
mod holder_signals;
mod holder_spawn;
pub mod holder_start;
mod holder_terminal;
mod host;
mod host_tree;
mod host_usage;
pub mod imds;
pub mod imds_said;
pub mod kept_environment;
#[cfg(feature = "lamp")]
pub mod kept_file;
#[cfg(feature = "aws")]
pub mod lambda_runtime;
#[cfg(feature = "lamp")]
pub mod launch_turns;
#[cfg(feature = "lamp")]
pub mod local_cloud;
#[cfg(feature = "lamp")]
mod local_environment;
pub mod local_files;
pub mod local_folder;
pub mod local_machine;
pub mod local_metadata;
#[cfg(feature = "lamp")]
mod local_offer;
pub mod local_power;
#[cfg(feature = "lamp")]
pub mod local_reads;
#[cfg(feature = "lamp")]
mod local_restart;
pub mod local_work;
pub mod login_environment;
mod logins;
mod network;
pub mod notify;
#[cfg(feature = "lamp")]
pub mod notify_command;
mod nvml;
mod nvml_events;
mod nvml_gpu;
mod nvml_util;
mod object_file;
mod object_parts;
mod object_pieces;
mod object_s3;
mod object_source;
pub mod objects;
mod open_files;
pub mod poweroff;
#[cfg(feature = "lamp")]
pub mod price_course;
pub mod private;
mod proc_read;
pub mod proc_stacks;
pub mod proc_tree;
mod remove_tree;
#[cfg(feature = "lamp")]
mod secret_rules;
#[cfg(feature = "lamp")]
pub mod secret_scan;
pub mod secret_workloads;
pub mod sensor_thread;
pub mod sensors;
#[cfg(feature = "lamp")]
pub mod series;
#[cfg(feature = "lamp")]
mod series_csv;
#[cfg(feature = "lamp")]
pub mod shipped_cloud;
pub mod signals;
mod staged_files;
#[cfg(feature = "aws")]
mod sweeper_program;
pub mod system_clock;
pub mod terminals;
pub mod then_command;
mod typing;
pub mod unit_workload;
#[cfg(feature = "lamp")]
pub mod unsent;
#[cfg(feature = "lamp")]
pub mod user_file;
mod watched_fd;
pub mod whole_machine;
#[cfg(feature = "lamp")]
mod workdir_left_out;
#[cfg(feature = "lamp")]
pub mod workdir_pack;
#[cfg(feature = "aws")]
mod zip;
