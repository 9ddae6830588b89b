//! `longrein rollback`: the workspace back to before what a run did in it. Shows what would become of which path, asks, and
//! touches nothing that somebody else has changed since.

use longrein::core::event::{Event, RollbackWhy};
use longrein::core::ids::{ActionId, RunId, Seq, ToolName};
use longrein::core::input::{Door, Rollback};
use longrein::ports::{RecordedBody, Turned};
use longrein::{RollbackPlan, Runs};
use serde_json::json;

use crate::args::{Globals, RollbackArgs};
use crate::context::{StoreAt, environment};
use crate::failure::{Failure, Status};
use crate::out::{say, tell};
use crate::progress::print_line;
use crate::{ask, words};

/// Paths that are listed; of more, the number is told.
const LISTED_MAX: usize = 200;

pub(crate) async fn rollback(globals: Globals, args: RollbackArgs) -> Result<Status, Failure> {
    let store = StoreAt::of(&globals)?;
    let runs = store.open_existing()?;
    let id = runs.find(&args.id).await?;
    let to: Option<ActionId> = match &args.to {
        Some(word) => Some(word.parse().map_err(|error| Failure::new(Status::Usage, format!("{error}")))?),
        None => None,
    };
    let plan = runs.rollback_plan(&id, to).await?;
    if !globals.json {
        show(&plan);
    }
    if !plan.conflicts.is_empty() {
        let paths: Vec<_> = plan.conflicts.iter().map(|path| words::safe(path)).collect();
        let problem = format!(
            "nothing was undone: changed since by someone else: {}. Move those away, or undo less with --to",
            paths.join(", ")
        );
        return Err(Failure::new(Status::Data, problem));
    }
    let mut command = format!("rollback {id}");
    command.extend(to.map(|to| format!(" --to {to}")));
    command.push_str(" --yes");
    if !args.yes && !is_agreed(store.command(&command)).await? {
        tell!("nothing was undone");
        return Ok(Status::Done);
    }
    let before = runs.fold(&id, |_| {}).await?.head;
    runs.rollback(&id, Rollback { to, by: ask::operator(), door: Door::Cli }, environment()).await?;
    told(&runs, &id, before, globals.json).await
}

fn show(plan: &RollbackPlan) {
    let named = |(action, tool): &(ActionId, ToolName)| format!("{action} {}", words::short(tool.as_str(), 64));
    let actions: Vec<_> = plan.actions.iter().map(named).collect();
    say!("undoes     {}", actions.join(", "));
    let has = |turned: Turned| plan.paths.iter().any(|difference| difference.turned == turned);
    let legend: Vec<_> =
        [(Turned::Changed, "~ gets back what it held"), (Turned::Added, "+ comes back"), (Turned::Removed, "- goes")]
            .into_iter()
            .filter_map(|(turned, words)| has(turned).then_some(words))
            .collect();
    if !legend.is_empty() {
        say!("           ({})", legend.join(", "));
    }
    for difference in plan.paths.iter().take(LISTED_MAX) {
        say!("           {}", words::safe(&difference.to_string()));
    }
    match plan.paths.len() {
        0 => say!("           the workspace is as it was already"),
        paths if paths > LISTED_MAX => say!("           and {} more", paths - LISTED_MAX),
        _ => {}
    }
    if !plan.external.is_empty() {
        let external: Vec<_> = plan.external.iter().map(named).collect();
        say!("stays      {}: what acted on the world is not undone here", external.join(", "));
    }
}

/// Whether the person at the terminal says yes. Without one it takes --yes.
async fn is_agreed(command: String) -> Result<bool, Failure> {
    if !ask::somebody_is_there() {
        let problem = "this changes files: say --yes where nobody can be asked";
        return Err(Failure::new(Status::Usage, problem).way_out(command));
    }
    Ok(ask::agreed("Undo this? What stands there now is moved aside.").await)
}

/// What came of it, from the journal.
async fn told(runs: &Runs, id: &RunId, before: Seq, json: bool) -> Result<Status, Failure> {
    let mut undone = Vec::new();
    let mut problem = None;
    let mut after = before;
    loop {
        let page = runs.records(id, after).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for record in page {
            let RecordedBody::Known(event) = record.body else { continue };
            if let Event::ActionRolledBack(back) = event {
                undone.push(back);
            } else if let Event::InputRefused(refused) = event {
                problem = Some(refused.reason);
            } else if let Event::ActionNotUndone(not) = event
                && matches!(not.why, RollbackWhy::Operator { .. })
            {
                problem = Some(format!("{} could not be undone: {}", not.action, not.reason));
            }
        }
    }
    if json {
        let line = |back: &longrein::core::event::ActionRolledBack| json!({ "action": back.action, "to": back.to, "paths": back.paths, "count": back.count, "aside": back.aside });
        print_line(
            &json!({ "run": id, "rolled_back": undone.iter().map(line).collect::<Vec<_>>(), "problem": problem }),
        );
    } else {
        for back in &undone {
            let aside = back.aside.as_deref().map(|aside| format!("; what stood there is in {}", words::safe(aside)));
            let paths = words::count(back.count, "path", "paths");
            say!("{} undone: {paths}{}", back.action, aside.unwrap_or_default());
        }
    }
    match problem {
        Some(problem) => Err(Failure::new(Status::Data, words::safe(&problem))),
        None => Ok(Status::Done),
    }
}
