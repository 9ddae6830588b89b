//! The command line about itself: completion scripts and the manual page, made from what clap knows.

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate};

use crate::args::{self, Cli, CompletionsArgs};
use crate::failure::{Failure, Status};
use crate::out;

pub(crate) fn completions(args: CompletionsArgs) -> Result<Status, Failure> {
    let shell = match args.shell {
        args::Shell::Bash => Shell::Bash,
        args::Shell::Zsh => Shell::Zsh,
        args::Shell::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "longrein", &mut script);
    print(&script);
    Ok(Status::Done)
}

pub(crate) fn man() -> Result<Status, Failure> {
    let failed = |error: std::io::Error| Failure::new(Status::Internal, format!("the manual page: {error}"));
    let command = Cli::command();
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page).map_err(failed)?;
    // One page for all: each command with its flags below the main one.
    for sub in commands(&command) {
        add_section("longrein", sub, &mut page).map_err(failed)?;
    }
    print(&page);
    Ok(Status::Done)
}

fn commands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
}

/// A command and those below it.
fn add_section(above: &str, sub: &Command, page: &mut Vec<u8>) -> std::io::Result<()> {
    let name = format!("{above} {}", sub.get_name());
    page.extend_from_slice(format!(".SH \"{}\"\n", name.to_uppercase()).as_bytes());
    let mut section = sub.clone().bin_name(&name);
    section.build();
    let section = clap_mangen::Man::new(section);
    let mut body = Vec::new();
    section.render_synopsis_section(&mut body)?;
    section.render_description_section(&mut body)?;
    section.render_options_section(&mut body)?;
    page.extend_from_slice(String::from_utf8_lossy(&body).replace(".SH ", ".SS ").as_bytes());
    commands(sub).try_for_each(|below| add_section(&name, below, page))
}

fn print(text: &[u8]) {
    out::stdout(format_args!("{}", String::from_utf8_lossy(text).trim_end()));
}
