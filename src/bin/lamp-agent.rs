//! `lamp-agent`: parse, wire, dispatch.

fn main() -> std::process::ExitCode {
    lamplighter::wire::agent::main(std::env::args_os().skip(1).collect(), &[])
}
