//! A death at every crash point there is, in runs that use everything there is, and what holds afterwards: nothing is
//! done twice, nothing is lost unsaid, every request is whole, every journal verifies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::support::server::{Play, Server, calls, status, text};
use crate::support::task::{configure, task, tool, wire_task};
use crate::support::{World, times};

/// Deaths that are played at the same time: most of each is waiting.
const AT_ONCE: usize = 4;

#[test]
fn a_death_at_every_point_of_everything() {
    let points = World::new().run("run --crash-at list").is(0).stdout;
    let mut deaths: Vec<_> = points.lines().map(|point| format!("{point}:1")).collect();
    // Which tool runs matters more than which event is written.
    for nth in 2..=times(8, 12) {
        let of_tools = ["tool.before_spawn", "tool.running", "tool.after_exit", "append.after.action.started"];
        deaths.extend(of_tools.map(|point| format!("{point}:{nth}")));
    }
    for nth in 2..=times(1, 6) {
        deaths.extend(points.lines().map(|point| format!("{point}:{nth}")));
    }
    // Which story writes which events: with a death that never comes.
    let kinds: Vec<_> = std::thread::scope(|scope| {
        let played: Vec<_> =
            STORIES.iter().map(|story| scope.spawn(|| story("append.before.run.started:99").1)).collect();
        played.into_iter().map(|story| story.join().unwrap()).collect()
    });
    let fired = Mutex::new(BTreeSet::new());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(death) = deaths.get(next.fetch_add(1, Ordering::SeqCst)) {
                    if comes_to(death, &kinds).into_iter().any(|story| story(death).0) {
                        fired.lock().unwrap().insert(death.clone());
                    }
                }
            });
        }
    });
    let fired = fired.into_inner().unwrap();
    // No story here has children: these are tried in `programs.rs` and `children.rs`, and all of them in the simulator.
    // Nor does anybody change the workspace under a verdict, which takes a hand at the right moment.
    let elsewhere = |point: &&str| point.contains(".child.") || point.contains(".checks.voided");
    let never: Vec<_> = points
        .lines()
        .filter(|point| !elsewhere(point))
        .filter(|point| !fired.iter().any(|death| death.starts_with(&format!("{point}:"))))
        .collect();
    assert!(never.is_empty(), "these points never fired, so nothing is known about them: {never:?}");
}

/// Plays a story with one death: whether it came to it, and the kinds of events there were.
type Story = fn(&str) -> (bool, BTreeSet<String>);

/// The quickest first.
const STORIES: [Story; 7] = [trouble, circle, program, steps, opinion, window, shop];

/// The stories that may come to a death, in the order in which they are tried.
fn comes_to(death: &str, kinds: &[BTreeSet<String>]) -> Vec<Story> {
    let kind = death.trim_start_matches("append.before.").trim_start_matches("append.after.").split(':').next();
    let write = |kinds: &BTreeSet<String>| kind.is_some_and(|kind| kinds.contains(kind));
    let is_known = kinds.iter().any(write);
    // The world's side is the shop's; elsewhere the quickest story that comes to it is enough.
    let is_effect = death.contains("action.") || death.starts_with("tool.");
    let mut stories: Vec<_> = STORIES.into_iter().zip(kinds).collect();
    if is_effect {
        stories.rotate_right(1);
    }
    stories.into_iter().filter(|(_, kinds)| !is_known || write(kinds)).map(|(story, _)| story).collect()
}

fn kinds(world: &World) -> BTreeSet<String> {
    world.log("r").iter().map(|line| line["type"].as_str().unwrap().to_owned()).collect()
}

// ---- the shop: one turn with a tool of every kind ----

/// Sets `$key`, `$id` (of the attempt) and `$order` from the call.
const READ_CALL: &str = r#"call=$(cat)
field() { printf '%s' "$call" | sed -n 's/.*"'"$1"'" *: *"\{0,1\}\([A-Za-z0-9-]*\).*/\1/p'; }
key=$(field idempotency_key); id=$(field action)-$(field attempt)-$(field fence); order=$(field order)
mkdir -p bank once
"#;

fn shop_task(world: &World) {
    let of_call = |shell: &str| format!("{READ_CALL}{shell}");
    let string = |name: &str| {
        format!(
            "[tools.parameters]\ntype = \"object\"\nrequired = [\"{name}\"]\n[tools.parameters.properties.{name}]\ntype = \"string\"\n"
        )
    };
    // It books, and the first time it is not sure that it has.
    let pay = of_call(
        "[ -n \"$key\" ] || exit 1\n: > bank/pay-$key\n[ -e once/pay ] || { : > once/pay; exit 75; }\necho '{\"paid\":120}'",
    );
    // It books and fails; asked, it says at first that it cannot tell yet.
    let ship = of_call(": > bank/ship-$id\nexit 1");
    let shipped = of_call(
        "[ -e once/asked ] || { : > once/asked; echo '{\"took_effect\":\"pending\"}'; exit 0; }\n\
         for f in bank/ship-*; do [ -e $f ] && { echo '{\"took_effect\":true,\"result\":{\"shipped\":1}}'; exit 0; }; done\n\
         echo '{\"took_effect\":false}'",
    );
    let quick = "settle_after = \"50ms\"\n";
    let reconcile = format!("{quick}reconcile = [\"sh\", \"-c\", '''{shipped}''']\n");
    let idempotent = format!("{quick}key = [\"invoice\"]\nidempotent = \"24h\"\n{}", string("invoice"));
    world.write("list.sh", "echo '[{\"invoice\":\"inv-1\",\"order\":\"o-1\"}]'\n");
    world.write("answer.json", r#"{"type":"object","required":["receipt","paid"]}"#);
    let plain = |name: &str, end: &str| tool(name, "external", &of_call(&format!(": > bank/{name}-$id\n{end}")), quick);
    let task = [
        "[policy]\nallow = [\"edit\", \"pay\", \"ship\", \"email\", \"fax\"]\n\
         [answer]\nschema = \"answer.json\"\nevidence = { receipt = { field = \"receipt\", tool = \"pay\" } }\n\
         check = \"receipt.paid == answer.paid\"\n\
         [[acceptance]]\nname = \"edited\"\ncommand = [\"grep\", \"-q\", \"edited\", \"note\"]\n\
         [[tools]]\nname = \"list\"\ndescription = \"What is due.\"\neffect = \"read\"\nprovides = [\"listed\"]\n\
         command = [\"sh\", \"list.sh\"]\n\
         [[hooks]]\nevent = \"prompt\"\ncommand = [\"sh\", \"-c\", \"! grep -q 'Never mind'\"]\n"
            .to_owned(),
        tool("edit", "workspace", "echo edited > note.new; mv note.new note", ""),
        tool("pay", "external", &pay, &idempotent),
        tool("ship", "external", &ship, &reconcile),
        plain("email", "echo sent"),
        plain("fax", "exit 1"),
        plain("deploy", "echo deployed"),
        plain("erase", "echo erased"),
    ];
    wire_task(world, &task.concat());
}

fn shop_replies() -> Vec<Play> {
    let answer = |paid: u32| text(&json!({ "receipt": "e4", "paid": paid }).to_string());
    vec![
        calls(&[("", "list", "{}"), ("", "nosuch", "{}")]),
        calls(&[
            ("", "edit", "{}"),
            ("", "pay", r#"{"invoice":"inv-1"}"#),
            ("", "ship", "{}"),
            ("", "email", "{}"),
            ("", "fax", "{}"),
            ("", "deploy", "{}"),
            ("", "erase", "{}"),
        ]),
        // Whatever became of the edit, it can be made again; a payment is only ever replayed.
        calls(&[("", "pay", r#"{"invoice":"inv-1"}"#), ("", "edit", "{}")]),
        answer(121),
        answer(120),
    ]
}

/// How often the world saw this effect.
fn seen(world: &World, effect: &str) -> usize {
    let bank = std::fs::read_dir(world.path("bank"));
    bank.map_or(0, |files| {
        files
            .filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().starts_with(&format!("{effect}-")))
            .count()
    })
}

fn shop(death: &str) -> (bool, BTreeSet<String>) {
    let world = World::new();
    shop_task(&world);
    let server = Server::by_position(status(500, "once").header("retry-after", "0"), shop_replies());
    let mut asked_people = false;
    let fired = drive(&world, &server, death, "--on-ask wait", |status| match status {
        3 => {
            let first = !std::mem::replace(&mut asked_people, true);
            people(&world, first);
            let more = if first { " --model openai/other --add-turns 1" } else { "" };
            Some(format!("resume r --on-ask wait{more}"))
        }
        _ => None,
    });

    let shown = world.show("r");
    let ends: BTreeMap<_, _> = shown["ledger"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["action"].as_str().unwrap(), entry["state"].as_str().unwrap()))
        .collect();
    let context = format!("{death}: {ends:?}\n{}", world.run("log r").stdout);
    assert_eq!((&shown["state"], &shown["verified"]), (&"done".into(), &true.into()), "{context}");
    assert_eq!(shown["answer"]["paid"], 120, "{context}");
    assert_eq!(shown["unknown"], json!([]), "{context}");
    assert_eq!((seen(&world, "pay"), ends["a4"]), (1, "done"), "{context}");
    assert_eq!(ends["a10"], "done (replayed)", "{context}");
    assert_eq!((seen(&world, "ship"), ends["a5"]), (1, "done"), "{context}");
    for (effect, action) in [("email", "a6"), ("fax", "a7"), ("deploy", "a8")] {
        // At most once, and what the run says of it is so.
        let truth = if seen(&world, effect) == 1 { &["done", "done (settled)"][..] } else { &["not done (settled)"] };
        assert!(seen(&world, effect) <= 1 && truth.contains(&ends[action]), "{effect}: {context}");
    }
    assert_eq!((seen(&world, "erase"), ends["a9"]), (0, "denied"), "{context}");
    assert_eq!(world.read("note"), "edited\n", "{context}");
    world.verify("r");
    (fired, kinds(&world))
}

/// What people do about whatever waits for them: each answers to the best of their knowledge, once.
fn people(world: &World, first: bool) {
    let waiting = world.run("approvals --json").is(0).last_json();
    for row in waiting.as_array().unwrap().iter().filter(|row| row["answered"] == false) {
        let word = |key: &str| row[key].as_str().unwrap();
        let (action, effect) = (word("action"), word("tool"));
        if word("kind") == "approval" {
            let line = if effect == "erase" { "deny r {} --reason 'not that'" } else { "approve r {}" };
            world.run(&line.replace("{}", action)).is(0);
        } else {
            let truth = if seen(world, effect) > 0 { "done" } else { "not-done" };
            world.run(&format!("settle r {action} --as {truth}")).is(0);
            if first {
                // Somebody else says it again, and is told that it is known.
                world.run(&format!("settle r {action} --as {truth}")).is(65);
            }
        }
    }
    if first {
        world.run("send r 'Take your time.'").is(0);
        // The hook lets that one not through.
        world.run("send r 'Never mind.'").is(0);
        world.write("list.sh", "# changed\necho '[]'\n");
    }
}

// ---- trouble: a model that refuses, and a budget that runs out ----

fn trouble(death: &str) -> (bool, BTreeSet<String>) {
    let world = World::new();
    let hook = "[[hooks]]\nevent = \"before_tool\"\ncommand = [\"true\"]\n";
    wire_task(&world, &format!("[budget]\ntool_calls = 1\n{hook}{}", tool("look", "read", "echo 1", "")));
    let look = calls(&[("", "look", "{}")]);
    let server = Server::by_position(status(401, "no"), [look.clone(), look, text("best guess"), text("sure")]);
    let fired = drive(&world, &server, death, "", |status| match status {
        5 => Some("resume r".to_owned()),
        2 => Some("resume r --add-tool-calls 5".to_owned()),
        _ => None,
    });
    assert_eq!((&world.show("r")["state"], &world.show("r")["answer"]), (&"done".into(), &"sure".into()), "{death}");
    world.verify("r");
    (fired, kinds(&world))
}

// ---- a circle: the same call again and again, until the model is told ----

fn circle(death: &str) -> (bool, BTreeSet<String>) {
    let world = World::new();
    wire_task(&world, &tool("look", "read", "echo 1", ""));
    let look = calls(&[("", "look", "{}")]);
    let server = Server::by_position(status(401, "no"), [look.clone(), look.clone(), look, text("sure")]);
    let fired = drive(&world, &server, death, "", |status| (status == 5).then(|| "resume r".to_owned()));
    assert_eq!((&world.show("r")["state"], &world.show("r")["answer"]), (&"done".into(), &"sure".into()), "{death}");
    world.verify("r");
    (fired, kinds(&world))
}

// ---- the window: it is made anew, what left it is summed up, and in the end it is too small ----

fn window(death: &str) -> (bool, BTreeSet<String>) {
    let world = World::new();
    configure(&world, "[models.\"script/replies.toml\"]\ncontext_limit = 12000\nmax_output = 1000\n");
    let more = [
        "builtins = [\"note\"]\n[context]\nsummary = \"script/summary.toml\"\n".to_owned(),
        tool(
            "look",
            "read",
            "cat > /dev/null; echo '{\"page\":\"read\"}'",
            "untrusted = true\n[tools.parameters]\ntype = \"object\"\n[tools.parameters.properties.page]\ntype = \"integer\"\n",
        ),
        tool("flood", "read", "cat > /dev/null; seq -f 'line %g of much' 2000", ""),
        tool("deploy", "external", "echo deployed", ""),
    ];
    let words = "This page is about horses, and how they are driven from behind. ".repeat(18);
    let turn = |number: u32| {
        let call = match number {
            2 => "name = \"note\", args = { kind = \"constraint\", text = \"Never touch the ledger.\" }".to_owned(),
            3 => "name = \"flood\", args = {}".to_owned(),
            12 => "name = \"deploy\", args = {}".to_owned(),
            page => format!("name = \"look\", args = {{ page = {page} }}"),
        };
        // What it reports is what fills the window.
        let input = 2500 + 900 * ((number - 1) % 8);
        format!(
            "[[reply]]\ntext = \"Page {number}. {words}\"\ncalls = [{{ {call} }}]\nusage = {{ input = {input}, output = 300 }}\n"
        )
    };
    task(&world, &more.concat(), &(1..=12).map(turn).collect::<String>());
    world.write("other.toml", &"[[reply]]\ntext = \"done\"\n".repeat(20));
    world.write("summary.toml", &"[[reply]]\ntext = '{\"text\":\"It went well.\",\"sources\":[\"t1\"]}'\n".repeat(5));
    let server = Server::playing([status(500, "nobody asks here")]);
    let mut sent = false;
    let fired = drive(&world, &server, death, "--on-ask wait", |status| match status {
        3 => {
            if !std::mem::replace(&mut sent, true) {
                world.run(&format!("send r '{}'", "Keep all of this in mind. ".repeat(1_600))).is(0);
                world.run("endorse look").is(0);
                world.run("approve r a12").is(0);
            } else {
                // A death between its start and its end: nobody else can know.
                world.run("settle r a12 --as done").is(0);
            }
            Some("resume r --on-ask wait".to_owned())
        }
        6 => Some("resume r --on-ask wait --model script/other.toml".to_owned()),
        _ => None,
    });
    let shown = world.show("r");
    assert_eq!((&shown["state"], &shown["answer"]), (&"done".into(), &"done".into()), "{death}");
    // Asked for at most once for each rebuild, since nothing failed, and settled once, whatever died.
    let mut open = BTreeSet::new();
    for line in world.log("r") {
        let generation = line["generation"].as_u64();
        match line["type"].as_str() {
            Some("summary.requested") => assert!(open.insert(generation), "{death}: {line}"),
            Some("summary.finished") if !line["outcome"]["forgone"].is_object() => {
                assert!(open.contains(&generation), "{death}: {line}");
            }
            Some(_) | None => {}
        }
    }
    let finished = world.log("r").iter().filter(|line| line["type"] == "summary.finished").count();
    assert_eq!(finished, open.len(), "{death}: each is settled once");
    world.verify("r");
    (fired, kinds(&world))
}

// ---- a program: what it calls and checks by itself, and one reply of the model ----

fn program(death: &str) -> (bool, BTreeSet<String>) {
    let world = World::new();
    world.write(
        "program.toml",
        "start = \"pay\"\nanswer = \"tell\"\n[[phase]]\nname = \"pay\"\nkind = \"call\"\ntool = \"pay\"\nnext = [{ to = \"test\" }]\n\
         [[phase]]\nname = \"test\"\nkind = \"checks\"\ncommands = [{ name = \"paid\", command = [\"test\", \"-s\", \"bank\"] }]\n\
         next = [{ when = \"last.ok\", to = \"tell\" }, { to = \"failed\", reason = \"not paid\" }]\n\
         [[phase]]\nname = \"tell\"\nkind = \"agent\"\nnext = [{ to = \"done\" }]\n",
    );
    let pay = tool(
        "pay",
        "external",
        "[ -s bank ] || echo paid >> bank; echo '{\"paid\":1}'",
        "settle_after = \"50ms\"\nidempotent = \"24h\"\n",
    );
    wire_task(&world, &format!("program = \"program.toml\"\n[policy]\nallow = [\"pay\"]\n{pay}"));
    let server = Server::by_position(status(500, "once").header("retry-after", "0"), [text("paid once")]);
    // It recognises what is sent again, so that nobody needs to be asked.
    let fired = drive(&world, &server, death, "", |_| None);
    assert_eq!(
        (&world.show("r")["state"], &world.show("r")["answer"]),
        (&"done".into(), &"paid once".into()),
        "{death}"
    );
    assert_eq!(world.read("bank"), "paid\n", "{death}");
    world.verify("r");
    (fired, kinds(&world))
}

// ---- steps that must be proven: one is undone and made better, of one nobody knows how to undo it ----

fn steps(death: &str) -> (bool, BTreeSet<String>) {
    let world = World::new();
    world.write("kept", "mine\n");
    let craft = tool(
        "craft",
        "workspace",
        "if [ -e made ]; then echo better > made; else echo bad > made; echo x >> kept; fi",
        "settle_after = \"50ms\"\ncheck = [\"grep\", \"-q\", \"good\", \"made\"]\n",
    );
    let post = tool(
        "post",
        "external",
        "[ -s posted ] || echo posted >> posted",
        "settle_after = \"50ms\"\nidempotent = \"24h\"\ncheck = [\"false\"]\n",
    );
    wire_task(&world, &format!("[policy]\nallow = [\"craft\", \"post\"]\n{craft}{post}"));
    let replies = [calls(&[("", "craft", "{}")]), calls(&[("", "post", "{}")]), text("a1 and a2 failed")];
    let server = Server::by_position(status(500, "once").header("retry-after", "0"), replies);
    let fired = drive(&world, &server, death, "", |status| (status == 3).then(|| "settle r a2 --as done".to_owned()));
    assert_eq!(world.show("r")["state"], "done", "{death}");
    assert!(!world.path("made").exists(), "{death}: what was not proven is undone");
    assert_eq!(world.read("kept"), "mine\n", "{death}");
    assert_eq!(world.read("posted"), "posted\n", "{death}");
    world.verify("r");
    (fired, kinds(&world))
}

// ---- a model that fails for good, another one that goes on, and a third that judges ----

fn opinion(death: &str) -> (bool, BTreeSet<String>) {
    let world = World::new();
    let judge = "[[acceptance]]\nname = \"good\"\njudge = \"It is short.\"\nmodel = \"script/judge.toml\"\n";
    wire_task(&world, &format!("[[route]]\nmodel = \"script/other.toml\"\n{judge}"));
    world.write("other.toml", &"[[reply]]\ntext = \"short\"\n".repeat(5));
    world.write("judge.toml", &"[[reply]]\ntext = '{\"reason\":\"It is.\",\"verdict\":\"passed\"}'\n".repeat(5));
    let refused = status(401, "no");
    let server = Server::by_position(refused.clone(), vec![refused; 5]);
    let fired = drive(&world, &server, death, "", |status| (status == 5).then(|| "resume r".to_owned()));
    let shown = world.show("r");
    assert_eq!((&shown["state"], &shown["answer"]), (&"done".into(), &"short".into()), "{death}");
    assert_eq!(shown["verified"], serde_json::Value::Null, "{death}: an opinion is no proof");
    let log = world.log("r");
    let many = |kind: &str| log.iter().filter(|line| line["type"] == kind).count();
    assert_eq!((many("model.routed"), many("judge.finished")), (1, many("judge.requested")), "{death}");
    world.verify("r");
    (fired, kinds(&world))
}

/// Drives the run `r` to its end, dying once on the way if it comes to that. `go_on`: the command that follows a status.
fn drive(
    world: &World,
    server: &Server,
    death: &str,
    flags: &str,
    mut go_on: impl FnMut(i32) -> Option<String>,
) -> bool {
    let start = format!("run --task task.toml --id r {flags}");
    let mut line = start.clone();
    let mut fired = false;
    for _ in 0..12 {
        let crash = if fired { String::new() } else { format!(" --crash-at {death}") };
        let done = server.call(world, &format!("{line}{crash}")).done();
        match done.status() {
            0 => return fired,
            75 => {
                assert!(!fired, "{death}: it died twice");
                fired = true;
                let begun = world.run("show r").status() == 0;
                line = if begun { format!("resume r {flags}") } else { start.clone() };
            }
            status => {
                let log = || world.run("log r").stdout;
                line = go_on(status).unwrap_or_else(|| panic!("{death}: longrein {line}: {done:?}\n{}", log()));
            }
        }
    }
    panic!("{death}: it does not come to an end:\n{}", world.run("log r").stdout);
}
