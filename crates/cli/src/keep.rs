//! Keeping a store: forking runs, removing them, and what nothing refers to any more.

use std::collections::BTreeMap;
use std::time::Duration;

use longrein::Runs;
use longrein::core::event::Event;
use longrein::core::ids::{RunId, Seq, TreeId};
use longrein::core::task::EffectClass;
use longrein::ports::{RecordedBody, RunRow};
use serde_json::json;

use crate::args::{ForkArgs, GcArgs, Globals, RmArgs};
use crate::context::{self, StoreAt};
use crate::failure::{Failure, Status};
use crate::out::{lay, say, tell};
use crate::progress::print_line;
use crate::{ask, words};

/// Blobs that lie as files are left this long after they were last written or wanted: an append may be about to refer to
/// them (`semantics.md` J2).
const YOUNG: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a run's changes can be undone: nobody rolls back what was built upon for a month.
const TREES_KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// States in which a run has ended and stays as it is until somebody reopens it.
const RESTING: [&str; 5] = ["done", "exhausted", "failed", "context_exhausted", "cancelled"];
/// A run that cannot be folded any more: nothing but its removal is left.
const DAMAGED: &str = "damaged";

pub(crate) async fn fork(globals: Globals, args: ForkArgs) -> Result<Status, Failure> {
    let new = match &args.new {
        None => context::fresh_id(),
        Some(text) => RunId::parse(text).map_err(|why| Failure::new(Status::Usage, format!("--as {text}: {why}")))?,
    };
    let store = StoreAt::of(&globals)?;
    let runs = store.open_existing()?;
    let from = runs.find(&args.id).await?;
    let point = runs.fork(&from, args.at.map(Seq), &new).await?;
    let again = effects_after(&runs, &from, point).await?;
    if globals.json {
        print_line(&json!({ "v": 1, "run": new, "from": from, "at_seq": point, "effects_after": again }));
        return Ok(Status::Done);
    }
    say!("{new}");
    tell!("{new} goes on from event {point} of {from}, the end of a turn; its budget is what {from} has left");
    if !again.is_empty() {
        tell!("{from} went on to start {}; {new} does not know of it and may do it again", again.join(", "));
    }
    tell!("{}", store.command(&format!("resume {new}")));
    Ok(Status::Done)
}

/// What a run started after a point that changes the workspace or the world.
async fn effects_after(runs: &Runs, id: &RunId, point: Seq) -> Result<Vec<String>, Failure> {
    let mut tools = BTreeMap::new();
    let mut started = Vec::new();
    let mut after = Seq(0);
    loop {
        let page = runs.records(id, after).await?;
        let Some(last) = page.last() else { return Ok(started) };
        after = last.seq;
        for record in &page {
            if let RecordedBody::Known(Event::ActionProposed(proposed)) = &record.body {
                tools.insert(proposed.action, proposed.tool.clone());
            }
            if let RecordedBody::Known(Event::ActionStarted(e)) = &record.body
                && e.effect != EffectClass::Read
                && e.attempt == 1
                && record.seq > point
            {
                let tool = tools.get(&e.action).map(|tool| words::safe(tool.as_str())).unwrap_or_default();
                started.push(format!("{} {tool}", e.action));
            }
        }
    }
}

pub(crate) async fn rm(globals: Globals, args: RmArgs) -> Result<Status, Failure> {
    let store = StoreAt::of(&globals)?;
    let runs = store.open_existing()?;
    let mut ids: Vec<RunId> = Vec::new();
    // All are looked at before the first is removed: a mistake in the last leaves the others in place.
    for text in &args.ids {
        let id = runs.find(text).await?;
        let state = runs.listed(&id).await?.map(|(row, _)| row.state).unwrap_or_default();
        if !RESTING.contains(&state.as_str()) && state != DAMAGED {
            let problem = format!("run {id} has not ended ({}); cancel it first", words::safe(&state));
            return Err(Failure::new(Status::Data, problem).way_out(store.command(&format!("cancel {id}"))));
        }
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    for id in &ids {
        runs.remove(id).await?;
    }
    if globals.json {
        print_line(&json!({ "removed": ids }));
    } else {
        for id in &ids {
            say!("removed {id}");
        }
        tell!("its large results go with the next: {}", store.command("gc"));
    }
    Ok(Status::Done)
}

pub(crate) async fn gc(globals: Globals, args: GcArgs) -> Result<Status, Failure> {
    let older_than = args.older_than.as_deref().map(longrein::taskfile::span).transpose();
    let older_than = older_than.map_err(|why| Failure::new(Status::Usage, format!("--older-than: {why}")))?;
    let store = StoreAt::of(&globals)?;
    let runs = store.open_existing()?;
    let now = runs.clock().now();
    let is_old = |row: &RunRow| older_than.is_some_and(|age| now.since(row.updated) >= age);
    let listed = runs.list().await?.into_iter();
    // Children go with their roots.
    let resting: Vec<RunRow> = listed
        .filter(|(row, holder)| row.parent.is_none() && holder.is_none() && RESTING.contains(&row.state.as_str()))
        .map(|(row, _)| row)
        .filter(is_old)
        .collect();
    let mut old = Vec::with_capacity(resting.len());
    for row in resting {
        // Somebody has sent it something that nobody has taken yet: it is about to go on.
        if runs.inbox(&row.run).await?.is_empty() {
            old.push(row);
        }
    }
    let ids: Vec<&RunId> = old.iter().map(|row| &row.run).collect();
    if args.dry_run && globals.json {
        print_line(&json!({ "would_remove": ids }));
        return Ok(Status::Done);
    }
    let asks = !old.is_empty() && !args.yes && !globals.json && ask::somebody_is_there();
    if args.dry_run || asks {
        for row in &old {
            let (id, state) = (words::safe(row.run.as_str()), row.state.replace('_', " "));
            lay!(4, "would remove {id}  {state}  {}", words::short(&row.goal, 60));
        }
    }
    if args.dry_run {
        let runs = words::count(old.len() as u64, "run", "runs");
        say!("{runs} would be removed, and the large results and snapshots that nothing else needs");
        return Ok(Status::Done);
    }
    if asks && !ask::agreed("Remove these runs? That cannot be undone.").await {
        tell!("nothing was removed");
        return Ok(Status::Done);
    }
    let mut removed = Vec::new();
    for row in old {
        runs.remove(&row.run).await?;
        removed.push(row.run);
    }
    let freed = runs.collect(YOUNG).await?;
    let trees = forget_trees(&store.url, &first_trees(&runs).await?)?;
    if globals.json {
        let (snapshots, snapshot_bytes) = trees.unwrap_or_default();
        print_line(&json!({
            "removed": removed, "blobs": freed.blobs, "bytes": freed.bytes, "snapshots": snapshots,
            "snapshot_bytes": snapshot_bytes,
        }));
        return Ok(Status::Done);
    }
    for id in &removed {
        say!("removed {id}");
    }
    let plural = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    say!(
        "{} and {} removed, {} bytes freed",
        plural(removed.len() as u64, "run"),
        plural(freed.blobs, "large result"),
        freed.bytes
    );
    if let Some((snapshots, bytes)) = trees {
        say!("{} of workspaces removed, {bytes} bytes freed", plural(snapshots, "snapshot"));
    }
    Ok(Status::Done)
}

/// How the runs that go on found their workspaces: what their checks go by is compared with that, however old it is.
async fn first_trees(runs: &Runs) -> Result<Vec<TreeId>, Failure> {
    let mut trees = Vec::new();
    for (row, _) in runs.list().await? {
        let goes_on = !RESTING.contains(&row.state.as_str()) && row.state != DAMAGED;
        // One that cannot be read here is compared with nothing here.
        if goes_on && let Ok(run) = runs.fold(&row.run, |_| {}).await {
            trees.extend(run.first_tree);
        }
    }
    Ok(trees)
}

/// Removes what neither these nor any young snapshot of a workspace needs: how many, and the bytes that frees. None: there
/// are none at all.
fn forget_trees(store: &str, keep: &[TreeId]) -> Result<Option<(u64, u64)>, Failure> {
    let Some(folder) = longrein::trees_folder_of(store).filter(|folder| folder.is_dir()) else { return Ok(None) };
    let collected = longrein::collect_trees(&folder, keep, TREES_KEPT).map_err(|error| {
        Failure::new(Status::Unavailable, format!("the snapshots in {}: {error}", folder.display()))
    })?;
    Ok(Some((collected.snapshots_removed, collected.bytes_before.saturating_sub(collected.bytes_after))))
}
