//! The flags of every command.

use clap::{ArgAction, Args, ValueEnum};

/// How results are written: for people, as one JSON document, or as one JSON object per line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    #[default]
    Text,
    Json,
    Jsonl,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, ValueEnum)]
pub enum ColorChoice {
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct Globals {
    /// How results are written; errors follow on stderr in the same way. `prices` also knows `csv`
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,

    /// Where jobs are kept: `file:///...`, a folder, or `s3://bucket/prefix`; `daemon` takes
    /// several [env: LAMP_JOB_ROOT]
    #[arg(long, global = true, value_name = "URL")]
    pub job_root: Vec<String>,

    /// Only data, errors, and warnings of what happens meanwhile
    #[arg(short, long, global = true)]
    pub quiet: bool,

    /// Say what the program does; twice for more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,

    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "WHEN",
        help = "When to use colour; `auto` is on a terminal, unless NO_COLOR is set"
    )]
    pub color: ColorChoice,
}
