//! `lamp man` (hidden): writes the manual pages of both programs and of the job file, for packages.
//!
//! Not here: what the pages say; clap, the agent and the schema have the texts.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, Command};
use clap_mangen::Man;
use serde_json::json;

use super::manual_text;
use crate::agent::startup::cli as agent;
use crate::app::text::counted;
use crate::cli::{Context, ExitCode, Fault, Format};
use crate::config;

/// Write the manual pages into a folder
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// The folder; it is made if it is missing
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// # Errors
/// Fails when a page cannot be written.
pub fn run(args: &Args, mut commands: Command, context: &Context) -> Result<ExitCode, Fault> {
    commands.build();
    let folder = context.current_dir.join(&args.out);
    let pages = write_pages(&folder, &commands).map_err(|error| unwritten(&error, &args.out))?;
    if context.printer.format() == Format::Text {
        let pages = counted(pages.len() as u64, "manual page");
        context.printer.line(format!("wrote {pages} to {}", args.out.display()));
    } else {
        context.printer.json(&json!({ "pages": pages }));
    }
    Ok(ExitCode::SUCCESS)
}

fn unwritten(error: &io::Error, folder: &Path) -> Fault {
    let what = format!("cannot write the manual pages to `{}`", folder.display());
    Fault::new(ExitCode::UNREACHABLE, what)
        .because(error)
        .hint("`lamp man --out DIR` writes them to another folder")
}

/// Writes all pages, and returns their names in order.
#[expect(clippy::disallowed_methods, reason = "writes to a folder that the user names")]
fn write_pages(folder: &Path, commands: &Command) -> io::Result<Vec<String>> {
    std::fs::create_dir_all(folder)?;
    let mut pages = vec![
        ("lamp-agent.1".to_owned(), manual_text::agent_page(agent::HELP).into_bytes()),
        ("lamp.toml.5".to_owned(), manual_text::job_file_page(&config::job_schema()).into_bytes()),
    ];
    command_pages(commands, &mut pages)?;
    for (name, page) in &pages {
        std::fs::write(folder.join(name), page)?;
    }
    let mut names: Vec<String> = pages.into_iter().map(|(name, _)| name).collect();
    names.sort();
    Ok(names)
}

/// One page for a command, and one for each verb below it that `--help` shows. The words of
/// `lamp agent` are those of `lamp-agent`, which has its own page.
fn command_pages(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    let man = Man::new(command.clone()).manual("Lamplighter");
    let mut page = Vec::new();
    man.render(&mut page)?;
    let page = manual_text::with_synopsis(page, command)?;
    pages.push((man.get_filename(), page));
    let has_page = |verb: &&Command| !verb.is_hide_set() && verb.get_name() != "agent";
    command.get_subcommands().filter(has_page).try_for_each(|verb| command_pages(verb, pages))
}
