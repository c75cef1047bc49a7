//! The parts of a prediction on this workstation: the folder of a model, the program that serves
//! it, and HTTP on loopback.

pub mod instance_input;
pub mod loopback_http;
pub mod model_folder;
pub mod scratch_folder;
pub mod server_process;
