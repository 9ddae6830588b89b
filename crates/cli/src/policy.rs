//! `policy check`: rulings on calls that nobody makes, line by line.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use longrein::core::task::PolicyRules;
use longrein::policycheck::PolicyCheck;
use longrein::taskfile;

use crate::args::{Globals, PolicyCheckArgs, RunArgs};
use crate::config::Config;
use crate::context;
use crate::failure::{Failure, Status};
use crate::out::say;
use crate::run;
use crate::trust;

pub(crate) fn check(globals: &Globals, args: PolicyCheckArgs) -> Result<Status, Failure> {
    let PolicyCheckArgs { file, task, cd, allow, ask, deny, vars } = args;
    let config = Config::load()?;
    let (mut rules, tools, workspace) = match task {
        Some(task) => {
            let run = RunArgs { task: Some(task), cd, allow, ask, deny, vars, ..RunArgs::default() };
            let task = run::load(&run, &config)?.task;
            (task.policy, task.tools, task.workspace)
        }
        None => {
            let here = cd.unwrap_or_else(|| Path::new(".").to_owned());
            let here = std::path::absolute(&here)
                .map_err(|error| Failure::new(Status::Usage, format!("{}: {error}", here.display())))?;
            let here = here.canonicalize().unwrap_or(here);
            let mut rules = PolicyRules { allow, ask, deny };
            config.policy.iter().for_each(|layer| taskfile::add(&mut rules, &layer.rules));
            (rules, Vec::new(), here.to_string_lossy().into_owned())
        }
    };
    if let Some(ours) = trust::of_workspace(Path::new(&workspace), globals)? {
        taskfile::add(&mut rules, &ours.rules);
    }
    let check = PolicyCheck::new(rules, tools, workspace, context::environment())
        .map_err(|bad| Failure::new(Status::Usage, format!("--{}: {bad}", bad.list)))?;
    let unreadable = |error: std::io::Error| Failure::new(Status::Data, format!("{}: {error}", file.display()));
    let mut lines: Box<dyn BufRead> = match file.as_os_str() == "-" {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(BufReader::new(File::open(&file).map_err(unreadable)?)),
    };
    let mut bad_lines = 0_u64;
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        if lines.read_until(b'\n', &mut bytes).map_err(unreadable)? == 0 {
            break;
        }
        let line = bytes.trim_ascii();
        if line.is_empty() {
            continue;
        }
        match check.line(line) {
            Ok(ruled) => say!("{ruled}"),
            Err(bad) => {
                bad_lines += 1;
                say!("{}", bad.line(number));
            }
        }
    }
    match bad_lines {
        0 => Ok(Status::Done),
        1 => Err(Failure::new(Status::Data, "one line could not be ruled on; its output line says why")),
        some => {
            Err(Failure::new(Status::Data, format!("{some} lines could not be ruled on; their output lines say why")))
        }
    }
}
