//! `lamp`: the command line and the controller, on a workstation.

fn main() -> std::process::ExitCode {
    lamplighter::cli::main()
}
