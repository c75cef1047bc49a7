//! Every implementation of a port, and the small readers that they share.
//!
//! Only this folder asks the operating system for time, environment, files, processes or
//! randomness. Not here: a decision. An adapter reports facts and carries out orders.
//!
//! | Folder | Ports | What |
//! |---|---|---|
//! | `aws` | `Metadata`, `Meter` | sessions, credentials, metadata, metrics, signed calls |
//! | `aws/ec2` | `Cloud` | EC2 as a seller of instances |
//! | `aws/account` | | the setup and check of an account, and its sweeper |
//! | `host` | `Sensors`, `People`, `Stacks`, `Power`, `Files`, `Clock`, `Service` | this machine |
//! | `http` | | the server of the agent's measurements |
//! | `local` | `Cloud`, `Metadata`, `Power` | the cloud `local`: folders and processes here |
//! | `notify` | `Notifier` | channels to the user: webhook, Slack, ntfy, mail, desktop |
//! | `prediction` | | a model folder, its server on loopback |
//! | `rank` | `RankHost`, `RankProcess` | the engine of a rank, and the address of its machine |
//! | `recordings` | | prices, capacity and utilisation, read from files |
//! | `store` | `Store` | job roots: a folder or an S3 bucket |
//! | `tuner` | | Optuna in a Python process |
//! | `workdir` | | the code archive: packed, searched for secrets, unpacked |
//! | `workload` | `Workloads`, `Workload` | runs a process, a systemd unit, a whole machine |
//! | `workload/holder` | | the process between agent and workload |
//! | `workstation` | `Turns`, `Agents`, `Cloud` | files of the user, the catalogue |

pub mod aws;
pub mod host;
pub mod http;
pub mod local;
#[cfg(feature = "lamp")]
pub mod notify;
#[cfg(feature = "lamp")]
pub mod prediction;
pub mod rank;
#[cfg(feature = "lamp")]
pub mod recordings;
pub mod store;
#[cfg(feature = "lamp")]
pub mod tuner;
pub mod workdir;
pub mod workload;
pub mod workstation;
