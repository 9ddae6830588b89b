//! The model's window through the real binary: generations, what stays in sight, what is read back, what is shown of it.

use serde_json::Value;

use crate::snapshots::{hold, settled};
use crate::support::server::{Server, calls as wire_calls, status, text};
use crate::support::task::{calls, configure, says, task, tool, wire_task};
use crate::support::{World, of_type};

/// The model's window in tokens: a dozen pages fill it.
const SMALL: u64 = 6_000;

fn window_of(world: &World, tokens: u64) {
    configure(world, &format!("[models.\"script/replies.toml\"]\ncontext_limit = {tokens}\nmax_output = 200\n"));
}

/// A reply that calls a tool, and says nothing of tokens: the script's requests are counted by estimate.
fn reply(when: &str, tool: &str, args: &str) -> String {
    let when = if when.is_empty() { String::new() } else { format!("when = \"{when}\"\n") };
    format!("[[reply]]\n{when}calls = [{{ name = \"{tool}\", args = {args} }}]\n")
}

fn answer(when: &str, text: &str) -> String {
    format!("[[reply]]\nwhen = \"{when}\"\ntext = \"{text}\"\n")
}

/// Pages to be read, of some 3,000 bytes each, with one word in the middle that is nowhere else.
fn pages(world: &World, count: usize) {
    for page in 1..=count {
        let mut text = String::new();
        for line in 1..=60 {
            let word = if line == 30 { format!("needle{page}") } else { "and so it goes on and on".to_owned() };
            text.push_str(&format!("page {page}, line {line}: {word}\n"));
        }
        world.write(&format!("pages/p{page}.txt"), &text);
    }
}

fn read(when: &str, page: usize) -> String {
    reply(when, "read_file", &format!("{{ path = \"pages/p{page}.txt\" }}"))
}

const BUILTINS: &str = "builtins = [\"read_file\", \"recall\", \"note\"]\nconstraints = [\"Change no page.\"]\n";

/// The texts of one zone of a request.
fn zone(request: &Value, name: &str) -> String {
    let items = request["items"].as_array().unwrap().iter();
    items.filter(|item| item["zone"] == name).map(|item| item["text"].as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

fn request(world: &World, id: &str, turn: u64) -> Value {
    let request = world.run(&format!("context {id} --turn {turn} --json")).is(0).last_json();
    assert_eq!(request["sent"]["exact"], true, "turn {turn}: {}", request["sent"]);
    request
}

/// What must stand in every request fills most of the window: room is made of what is old, and the model sees each result
/// before it is archived.
#[test]
fn the_newest_result_is_seen_where_little_room_is_left() {
    let world = World::new();
    configure(&world, "[models.\"script/replies.toml\"]\ncontext_limit = 8000\nmax_output = 1000\n");
    let mut replies = String::new();
    for page in 1..=14 {
        let lines: String = (1..=12).map(|line| format!("page {page}, line {line}, and so it goes on\n")).collect();
        world.write(&format!("pages/p{page}.txt"), &format!("{lines}needle{page}x\n{lines}"));
        let seen = if page == 1 { String::new() } else { format!("needle{}x", page - 1) };
        replies.push_str(&read(&seen, page));
    }
    replies.push_str(&answer("needle14x", "Read."));
    let goal = "Keep this in mind. ".repeat(600);
    let text = format!(
        "goal = \"{goal}\"\nmodel = \"script/replies.toml\"\nworkspace = \".\"\nbuiltins = [\"read_file\", \"recall\"]\n"
    );
    world.write("task.toml", &text);
    world.write("replies.toml", &replies);
    world.run("run --task task.toml --id r").is(0).says("the context was made anew");
    world.verify("r");
}

/// A run of many generations, with a person's word and the model's notes in it, killed on the way.
fn long_run(world: &World) {
    window_of(world, SMALL);
    pages(world, 40);
    let mut replies = reply("", "note", "{ kind = \"step\", text = \"read all pages\" }");
    replies.push_str(&read("", 1));
    replies.push_str(&reply("", "note", "{ kind = \"open_loop\", text = \"say what page 7 has\" }"));
    for page in 2..=39 {
        replies.push_str(&read("Leave the vault alone", page));
    }
    // The words of the first page left the window long ago.
    replies.push_str(&reply("say what page 7 has", "recall", "{ query = \"needle7\" }"));
    replies.push_str(&reply("needle7", "recall", "{ handle = \"a2\", from = 30, to = 45 }"));
    replies.push_str(&answer("needle1", "It is needle7."));
    replies.push_str(&answer("n3 is open", "It is needle7."));
    task(world, BUILTINS, &replies);
    world.run("run --task task.toml --id long --crash-at append.after.model.replied:3").is(75);
    world.run("send long 'Leave the vault alone.'").is(0);
    world.run("resume long --crash-at append.after.generation.started:2").is(75);
    // It never closes what it has opened, so that all of it is in sight to the end; done it is not.
    world.run("resume long").is(4).says("the context was made anew (generation 4)").says("n1 is open");
}

#[test]
fn many_generations_and_nothing_is_lost() {
    let world = World::new();
    long_run(&world);
    world.verify("long");
    let log = world.log("long");
    let rebuilds = of_type(&log, "generation.started");
    assert!(rebuilds.len() >= 3, "{rebuilds:?}");
    let requests = of_type(&log, "model.requested");
    assert!(requests.iter().all(|sent| sent["counted"]["upper"].as_u64() <= sent["counted"]["safe"].as_u64()));
    let last = request(&world, "long", 43);
    // What a person said, the task's rule and the open loop are in sight; the first pages are not.
    assert!(zone(&last, "goal_and_messages").contains("Leave the vault alone."));
    for kept in ["Change no page.", "say what page 7 has", "read all pages"] {
        assert!(zone(&last, "control_block").contains(kept), "{kept}");
    }
    assert!(!zone(&last, "turns").contains("page 2, line 29"));
    assert!(last["generation"].as_u64() >= Some(4), "{}", last["generation"]);
    // Every request can be shown again, to the byte.
    for turn in [1, 2, 7, 20, 42] {
        request(&world, "long", turn);
    }
    let show = world.show("long");
    assert_eq!(show["open_loops"][0]["text"], "say what page 7 has");
    assert_eq!(show["current_step"]["text"], "read all pages");
    assert_eq!(show["constraints"], serde_json::json!(["Change no page."]));
    assert_eq!(show["messages"][0]["text"], "Leave the vault alone.");
    assert_eq!(show["context"]["rebuilds"].as_u64(), Some(rebuilds.len() as u64));
    assert_eq!((&show["context"]["window"], &show["context"]["declared"]), (&SMALL.into(), &SMALL.into()));
    assert_eq!(show["context"]["cached_share"], Value::Null);
    assert!(show["context"]["archived"]["calls"].as_u64() > Some(20), "{}", show["context"]);
    let stats = world.run("runs --stats --json").is(0).last_json();
    assert_eq!(stats["rebuilds"].as_u64(), Some(rebuilds.len() as u64));
}

/// Arguments that a tool does not take, and a tool that there is not: neither was run, and both were said.
#[test]
fn a_refused_call_is_read_back_as_it_was_sent() {
    let world = World::new();
    let refused =
        reply("", "read_file", "{ road = \"first the pumps\" }") + &reply("", "open_valve", "{ name = \"north\" }");
    let recalled = reply("", "recall", "{ handle = \"a1\", part = \"call\" }")
        + &reply("first the pumps", "recall", "{ query = \"north\" }");
    task(&world, BUILTINS, &(refused + &recalled + &answer("north", "done")));
    world.run("run --task task.toml --id r").is(0);
    let log = world.log("r");
    let results: Vec<_> = of_type(&log, "action.finished").iter().map(|event| event.to_string()).collect();
    assert!(results[0].contains("first the pumps"), "{results:?}");
    assert!(results[1].contains("open_valve") && results[1].contains("a2"), "{results:?}");
    world.verify("r");
}

#[test]
fn what_show_and_context_print() {
    let world = World::new();
    long_run(&world);
    let shown = world.run("show long").is(0).stdout;
    let (head, _) = shown.split_once("actions").unwrap();
    hold("show.txt", &settled(&world, head));
    let sent = world.run("context long --turn 40").is(0).stdout;
    let (head, _) = sent.split_once("\n\n").unwrap();
    // Its length has that of a path in it.
    let head: Vec<_> = head.lines().filter(|line| !line.contains(" bytes to ")).collect();
    hold("context.txt", &settled(&world, &head.join("\n")));
    assert!(sent.contains(" bytes to script/"), "{sent}");
    assert!(sent.contains("exactly the bytes that were sent"), "{sent}");
    assert!(sent.contains("\n── system · system text · about "), "{sent}");
    let now = world.run("context long").is(0).stdout;
    assert!(now.starts_with("request    as it would be sent now, for turn 46"), "{now}");
    assert!(now.contains("── goal and messages · u1, the goal · about"), "{now}");
}

/// A worker is told to stop while calls of an outside tool are under way: their results are kept, and nobody has asked for
/// more. One is larger than the window can bear; the picture in the other was taken out when it came.
#[test]
fn the_next_request_is_shown_as_it_will_be_sent() {
    let world = World::new();
    window_of(&world, SMALL);
    let picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ".repeat(20);
    let look = tool("look", "external", "touch looking; sleep 0.3; seq 1 20000", "");
    let see = tool("see", "external", &format!("sleep 0.3; echo {picture}"), "");
    let both = "[[reply]]\ncalls = [{ name = \"look\", args = {} }, { name = \"see\", args = {} }]\n";
    task(&world, &(look + &see + ALLOWED), &(both.to_owned() + &says("done")));
    let running = world.typed("longrein run --task task.toml --id r").start();
    world.until("the call runs", || world.path("looking").exists().then_some(()));
    running.signal("TERM");
    running.end();
    let shown = world.run("context r --json").is(0).last_json();
    assert_eq!((&shown["turn"], &shown["before"]), (&2.into(), &serde_json::json!({ "spills": 1 })), "{shown}");
    assert!(world.run("context r").is(0).stdout.contains("one new result is made shorter for it"));
    world.run("resume r").is(0);
    assert_eq!(shown["items"], request(&world, "r", 2)["items"]);
}

const ALLOWED: &str = "[policy]\nallow = [\"look\", \"see\"]\n";

#[test]
fn a_request_that_was_never_sent_is_not_shown() {
    let world = World::new();
    task(&world, "", &says("done"));
    world.run("run --task task.toml --id r").is(0);
    let none = world.run("context r --turn 2").is(66).says("turn 2 of run r: the last turn that was is 1");
    world.typed(none.last_line()).done().is(0);
    world.run("context nobody").is(66);
    world.run("run --task task.toml --id s --max-turns 0").is(2);
    world.run("context s --turn 1").is(66).says("no turn has begun yet");
    let next = world.run("context s").is(0).stdout;
    assert!(next.contains("as it would be sent now, for turn 1"), "{next}");
}

#[test]
fn terminal_controls_in_a_request_are_made_visible() {
    let world = World::new();
    task(&world, &tool("look", "read", "printf 'a\\033[2Jb'", ""), &(calls("look", "{}") + &says("done")));
    world.run("run --task task.toml --id r").is(0);
    let shown = world.run("context r").is(0).stdout;
    assert!(!shown.contains('\u{1b}'));
}

#[test]
fn a_request_over_the_wire_is_known_again() {
    let world = World::new();
    wire_task(&world, "");
    let server = Server::playing([text("done")]);
    server.call(&world, "run --task task.toml --id w").done().is(0);
    let same = server.call(&world, "context w --turn 1").done().is(0).stdout;
    assert!(same.contains("exactly the bytes that were sent"), "{same}");
    // The body as a string is the one that went over the wire; a summary leaves out all texts.
    let json = server.call(&world, "context w --turn 1 --json").done().is(0).last_json();
    let body = json["sent"]["body"].as_str().expect("it is the one that was sent");
    assert_eq!(body.len() as u64, json["sent"]["bytes"].as_u64().unwrap());
    let brief = server.call(&world, "context w --turn 1 --summary").done().is(0).stdout;
    assert!(brief.contains("goal and messages · u1, the goal") && !brief.contains("── "), "{brief}");
    let brief = server.call(&world, "context w --turn 1 --summary --json").done().is(0).last_json();
    assert!(brief["sent"]["body"].is_null() && brief["items"][0]["text"].is_null(), "{brief}");
    // Elsewhere the same request is spelt another way.
    let other = world.run("context w --turn 1").is(0).stdout;
    assert!(other.contains("the bytes differ"), "{other}");
    let json = world.run("context w --turn 1 --json").is(0).last_json();
    assert_eq!(json["sent"]["exact"], false);
}

#[test]
fn rule_files_stand_in_every_request_from_their_first_use_on() {
    let world = World::new();
    window_of(&world, SMALL);
    pages(&world, 20);
    world.write("AGENTS.md", "Root rule: be brief.\n");
    world.write("pages/AGENTS.md", "Page rule: read in order.\n");
    let change = tool("change", "workspace", "echo 'Other rule: be long.' > AGENTS.md; echo ok", "");
    let mut replies = reply("Root rule", "change", "{}");
    replies.push_str(&reply("Root rule", "read_file", "{ path = \"AGENTS.md\" }"));
    for page in 1..=18 {
        replies.push_str(&read("Root rule", page));
    }
    replies.push_str(&answer("Other rule", "done"));
    task(&world, &format!("{BUILTINS}{change}"), &replies);
    world.run("run --task task.toml --id r --allow change").is(0);
    let first = request(&world, "r", 1);
    assert!(zone(&first, "rule_files").contains("Root rule") && !zone(&first, "rule_files").contains("Page rule"));
    assert!(!zone(&request(&world, "r", 3), "rule_files").contains("Page rule"), "nothing there was used yet");
    assert!(zone(&request(&world, "r", 4), "rule_files").contains("Page rule"));
    // As it is now it is data, and stays in sight as such.
    let last = request(&world, "r", 21);
    assert!(last["generation"].as_u64() > Some(1));
    assert!(!zone(&last, "rule_files").contains("Other rule"));
    assert!(zone(&last, "control_block").contains("Other rule: be long."), "{}", zone(&last, "control_block"));
    let rules = &world.show("r")["rules"];
    assert_eq!((&rules[0]["path"], &rules[0]["changed_since"]), (&"AGENTS.md".into(), &true.into()), "{rules}");
    assert_eq!((&rules[1]["path"], &rules[1]["in_window"]), (&"pages/AGENTS.md".into(), &true.into()), "{rules}");
    let doctor = world.run("doctor").is(0).stdout;
    let both = "every run there: AGENTS.md; shown once something in their folder is used: pages/AGENTS.md";
    assert!(doctor.contains(both), "{doctor}");
    assert!(doctor.contains("-cache, "), "{doctor}");
}

#[test]
fn what_does_not_fit_ends_in_6_and_goes_on_with_more_room() {
    let world = World::new();
    window_of(&world, 400);
    task(&world, BUILTINS, &says("done"));
    let full = world.run("run --task task.toml --id r").is(6).says("the tools (about");
    assert_eq!(world.show("r")["state"], "context_exhausted");
    for look in ["resume", "show r"] {
        let ways = world.run(look).is(0).stdout;
        assert!(
            ways.contains("longrein resume r --model ") && ways.contains("a larger context_limit"),
            "{look}: {ways}"
        );
    }
    let next = world.run("context r").is(0).stdout;
    assert!(next.contains("it will not be sent: what must be sent does not fit"), "{next}");
    assert_eq!(full.stderr.matches("what must be sent does not fit").count(), 1, "said once: {}", full.stderr);
    // The same room is not enough once more; the command that is printed goes on with what is configured now.
    assert!(full.last_line().starts_with("longrein resume r --model script/"), "{}", full.last_line());
    world.typed(full.last_line()).done().is(6);
    window_of(&world, SMALL);
    assert_eq!(world.typed(full.last_line()).done().is(0).answer(), "done");
    world.verify("r");

    window_of(&world, 400);
    world.run("run --task task.toml --id other").is(6);
    world.write("roomy.toml", &(says("first") + &says("from another")));
    world.run("resume other --model script/roomy.toml").is(0);
    world.verify("other");
}

/// The same three pages again and again: the window fills up and is made anew, which does not hide the circle.
#[test]
fn law_11_a_window_that_fills_up_in_vain_ends_the_run_by_name() {
    let world = World::new();
    window_of(&world, SMALL);
    pages(&world, 3);
    let replies: String = (0..120).map(|number| read("", number % 3 + 1)).collect();
    task(&world, BUILTINS, &replies);
    let ended = world.run("run --task task.toml --id r").is(4);
    assert!(ended.stderr.contains("circle"), "{}", ended.stderr);
    let log = world.log("r");
    assert_eq!(of_type(&log, "run.ended")[0]["state"], "failed");
    assert!(!of_type(&log, "generation.started").is_empty(), "a rebuild came in between");
    assert!(of_type(&log, "model.replied").len() < 20, "{log:?}");
}

/// What follows a refusal is said as it is: the same for a shorter reply where nothing can be left out, else how much shorter.
#[test]
fn what_is_sent_after_a_refusal_is_said_as_it_is() {
    let world = World::new();
    wire_task(&world, "");
    let refusal = || status(413, r#"{"error":{"message":"Request Entity Too Large"}}"#);
    let server = Server::playing([refusal(), text("done")]);
    let done = server.call(&world, "run --task task.toml --id bare").done().is(0);
    let told = "what was too long, once more, for a reply of at most ";
    let log = world.run("log bare").is(0).stdout;
    for said in [&done.stderr, &log] {
        assert!(said.contains(told) && !said.contains("made anew") && !said.contains("next try"), "{said}");
    }
    let [first, second] =
        [0, 1].map(|place| of_type(&world.log("bare"), "model.requested")[place]["max_output"].clone());
    assert_eq!(second.as_u64().unwrap(), first.as_u64().unwrap() / 2, "{log}");

    pages(&world, 4);
    wire_task(&world, BUILTINS);
    let mut plays: Vec<_> =
        (1..=4).map(|page| wire_calls(&[("c", "read_file", &format!(r#"{{"path":"pages/p{page}.txt"}}"#))])).collect();
    plays.extend([refusal(), text("done")]);
    let server = Server::playing(plays);
    let done = server.call(&world, "run --task task.toml --id long").done().is(0);
    let log = world.run("log long").is(0).stdout;
    for said in [&done.stderr, &log] {
        assert!(said.contains("the provider found it too long"), "{said}");
        assert!(said.contains(" fewer than what was too long, for a reply of at most "), "{said}");
    }
    world.verify("long");
}

/// What a server showed of its window counts for the next run as well, which need not find out.
#[test]
fn a_learned_window_is_kept_for_other_runs() {
    let world = World::new();
    wire_task(&world, "");
    let too_long = r#"{"error":{"message":"This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.","code":"context_length_exceeded"}}"#;
    let server = Server::playing([status(400, too_long), text("done"), text("done")]);
    server.call(&world, "run --task task.toml --id first").done().is(0);
    server.call(&world, "run --task task.toml --id second").done().is(0);
    let second = server.call(&world, "show second").done().is(0).stdout;
    assert!(second.contains("window 8192 (learned from the server)"), "{second}");
    assert!(of_type(&world.log("second"), "model.failed").is_empty());
}

#[test]
fn how_the_window_is_kept_is_configured() {
    let world = World::new();
    task(&world, "[context]\ntarget = 0.2\n", &says("done"));
    configure(&world, "[context]\ntrigger = 0.6\ntarget = 0.3\n");
    world.run("run --task task.toml --id r").is(0);
    let sources = world.log("r")[0]["sources"].clone();
    assert_eq!(sources["context.target"], "task file");
    assert!(sources["context.trigger"].as_str().unwrap().ends_with("config.toml"), "{sources}");
    let context = &world.show("r")["context"];
    // 60 % of what may be sent.
    assert_eq!(context["rebuild_at"].as_u64().unwrap(), context["safe"].as_u64().unwrap() * 6 / 10);
    assert_eq!((&context["assumed"], &context["declared"]), (&true.into(), &Value::Null));
    for (wrong, says) in [
        ("triger = 0.5", "context.triger: there is no such key; near it: trigger"),
        ("trigger = 8.0", "context.trigger: this must be \"economic\" or a share"),
        ("trigger = \"soon\"", "context.trigger: this must be"),
        ("recent = 0.9", "context.recent: this must be a share such as 0.10, at most 0.5"),
        ("margin = true", "context.margin: this must be a share"),
    ] {
        configure(&world, &format!("[context]\n{wrong}\n"));
        world.run("run --task task.toml").is(78).says(says);
    }
}

#[test]
fn a_heavy_start_is_told_of() {
    let world = World::new();
    window_of(&world, SMALL);
    task(&world, BUILTINS, &says("done"));
    let light = world.run("run --task task.toml").is(0);
    assert!(!light.stderr.contains("warning"), "{}", light.stderr);
    world.write("AGENTS.md", &"Keep every line of this in mind, always.\n".repeat(200));
    let heavy = world.run("run --task task.toml --id r").is(0).says("the largest are AGENTS.md (");
    let lines = heavy.stderr.lines().filter(|line| line.starts_with("warning: ")).count();
    assert_eq!(lines, 1, "{}", heavy.stderr);
    let quiet = world.run("run --task task.toml --quiet").is(0);
    assert!(!quiet.stderr.contains("warning"), "{}", quiet.stderr);
}
