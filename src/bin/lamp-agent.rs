//! `lamp-agent`: parse, wire, dispatch.

/// `lamp` ships only a program that has this mark (`adapters::workstation::agent_files`).
const MARK: &[u8] = b"[the program lamp-agent of Lamplighter]";

fn main() -> std::process::ExitCode {
    std::hint::black_box(MARK);
    lamplighter::wire::agent::main(std::env::args_os().skip(1).collect(), &[])
}
