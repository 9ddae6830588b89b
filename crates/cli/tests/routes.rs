//! Runs with somewhere else to go, against two servers: one that fails in every way a provider has, and one that goes on.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::server::{Play, Server, calls, status, text};
use crate::support::task::{booked, books, configure, tool};
use crate::support::{Done, World, of_type};

/// Two servers, each the place of one model, and a task that names the first and routes to the second.
struct Two {
    world: World,
    first: Server,
    second: Server,
}

impl Two {
    fn new(first: &[Play], second: &[Play], route: &str) -> Self {
        let two = Self { world: World::new(), first: Server::playing(first), second: Server::playing(second) };
        let table = |name: &str, server: &Server, more: &str| {
            format!("[models.\"openai/{name}\"]\nbase_url = \"{}\"\n{more}\n", server.url())
        };
        let prices = "price = { input = 1.0, output = 2.0 }";
        let dear = "price = { input = 10.0, output = 20.0 }";
        configure(&two.world, &(table("first", &two.first, prices) + &table("second", &two.second, dear)));
        let head = "goal = \"Do it.\"\nworkspace = \".\"\nmodel = \"openai/first\"\n";
        let parameters = "[tools.parameters]\ntype = \"object\"\n[tools.parameters.properties.n]\ntype = \"integer\"\n";
        let act = tool("act", "external", &books("act"), parameters);
        let route = route.replace("SECOND", "model = \"openai/second\"");
        two.world.write("task.toml", &format!("{head}[policy]\nallow = [\"*\"]\n{act}{route}"));
        two
    }

    fn run(&self, line: &str) -> Done {
        self.world.typed(&format!("longrein {line}")).env("OPENAI_API_KEY", "sk-loopback").done()
    }

    fn start(&self) -> Done {
        self.run("run --task task.toml --id w --json")
    }

    /// The models that were asked, in order.
    fn asked(&self) -> Vec<String> {
        let name =
            |event: &&Value| event["model"].as_str().unwrap_or_default().trim_start_matches("openai/").to_owned();
        of_type(&self.world.log("w"), "model.requested").iter().map(name).collect()
    }

    /// The one switch of the run.
    fn switch(&self) -> Value {
        let log = self.world.log("w");
        let routed = of_type(&log, "model.routed");
        assert_eq!(routed.len(), 1, "{routed:?}");
        routed[0].clone()
    }
}

const ANY: &str = "[[route]]\nSECOND\n";

fn error(code: u16, body: &str) -> Play {
    status(code, &format!("{{\"error\":{body}}}"))
}

#[test]
fn every_class_of_failure_leads_on_and_the_run_is_carried_over() {
    let long = r#"{"message":"This model's maximum context length is 300 tokens. However, your messages resulted in 9000 tokens.","type":"invalid_request_error","code":"context_length_exceeded"}"#;
    let cases = [
        ("rate_limited", error(429, r#"{"message":"slow down"}"#).header("retry-after", "60"), 1),
        ("overloaded", error(529, r#"{"type":"overloaded_error","message":"Overloaded"}"#), 3),
        ("quota", error(429, r#"{"message":"You exceeded your current quota","code":"insufficient_quota"}"#), 1),
        ("authentication", error(401, r#"{"message":"Incorrect API key provided"}"#), 1),
        ("bad_request", error(404, r#"{"message":"The model does not exist"}"#), 1),
        ("content_refused", error(400, r#"{"message":"flagged","code":"content_filter"}"#), 1),
        ("context_exhausted", error(400, long), 1),
    ];
    for (class, fails, times) in cases {
        // One turn goes well, so that there is something to carry over.
        let first = [calls(&[("call_1", "act", r#"{"n":1}"#)]), fails];
        let two = Two::new(&first, &[calls(&[("call_2", "act", r#"{"n":2}"#)]), text("Done.")], ANY);
        let last = two.start().is(0).last_json();
        assert_eq!(last["answer"], "Done.", "{class}");
        assert_eq!(booked(&two.world, "act"), 2, "{class}: nothing is done twice");
        let switch = two.switch();
        assert_eq!((&switch["class"], &switch["why"]), (&class.into(), &"failed".into()));
        assert_eq!((&switch["from"], &switch["model"]), (&"openai/first".into(), &"openai/second".into()));
        assert_eq!(switch["until"].is_string(), matches!(class, "rate_limited" | "overloaded"), "{class}: {switch}");
        let asked = two.asked();
        let of_first = asked.iter().filter(|name| *name == "first").count();
        if class != "context_exhausted" {
            assert_eq!(of_first, 1 + times, "{class}: {asked:?}");
        }
        assert_eq!(asked.iter().filter(|name| *name == "second").count(), 2, "{class}: {asked:?}");
        // The second one is sent the whole, with each call beside its result.
        let sent = &two.second.asked()[0];
        assert_eq!(sent.body()["model"], "second");
        assert_eq!(sent.observations().len(), 1, "{class}");
        // Both are counted: 100 and 10 tokens of each reply, at the prices of the model that gave it.
        assert_eq!(last["usage"]["input"], 300, "{class}");
        assert_eq!(last["usage"]["usd"], 0.00252, "{class}: 120 and twice 1,200 micro-dollars");
        two.world.verify("w");
        let shown = two.world.show("w");
        assert_eq!(shown["model"], "openai/second");
        assert_eq!(
            (&shown["routing"]["main"], &shown["routing"]["away_from"]),
            (&"openai/first".into(), &"openai/first".into())
        );
    }
}

#[test]
fn half_a_reply_is_never_run() {
    let half = calls(&[("a", "act", r#"{"n":1}"#), ("b", "act", r#"{"n":2}"#)]).cut(1);
    let two = Two::new(&[half], &[text("Done.")], ANY);
    two.start().is(0);
    assert_eq!(booked(&two.world, "act"), 0);
    assert_eq!(two.asked(), ["first", "first", "first", "second"]);
    let (before, after) = (two.first.asked(), two.second.asked());
    assert_eq!(before[0].messages(), after[0].messages(), "the same request goes to the next model");
}

#[test]
fn where_all_fail_the_end_names_each_and_a_resume_begins_with_the_first() {
    let denied = error(401, r#"{"message":"no such key"}"#);
    let gone = error(402, r#"{"message":"insufficient credits"}"#);
    let two = Two::new(&[denied, text("Here again.")], &[gone], ANY);
    let done = two.start().is(5);
    let reason = done.last_json()["reason"].as_str().unwrap_or_default().to_owned();
    for part in
        ["every model failed", "openai/first (authentication)", "no such key", "openai/second", "insufficient credits"]
    {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    let done = two.run("resume w").is(0);
    assert_eq!(done.answer(), "Here again.");
    assert_eq!(two.asked(), ["first", "second", "first"]);
    two.world.verify("w");
}

#[test]
fn what_people_see_of_a_switch() {
    let two = Two::new(&[error(401, r#"{"message":"no such key"}"#)], &[text("Done.")], ANY);
    let done = two.run("run --task task.toml --id w").is(0);
    assert!(
        done.stderr.contains("model is now openai/second: openai/first failed (authentication)"),
        "{}",
        done.stderr
    );
    let shown = two.run("show w").is(0);
    assert!(
        shown.answer().contains("model      openai/second (by a route: openai/first failed for good"),
        "{}",
        shown.answer()
    );
    assert!(shown.answer().contains("route    openai/second: on any failure"), "{}", shown.answer());
}

#[test]
fn a_failure_that_no_route_names_ends_as_it_did() {
    let route = "[[route]]\nSECOND\non = [\"overloaded\"]\n";
    let two = Two::new(&[error(401, r#"{"message":"no such key"}"#)], &[text("Done.")], route);
    two.start().is(5);
    assert_eq!(two.asked(), ["first"]);
}

#[test]
fn a_run_that_was_killed_stays_where_it_was() {
    let two =
        Two::new(&[error(401, r#"{"message":"no"}"#)], &[calls(&[("c", "act", r#"{"n":1}"#)]), text("Done.")], ANY);
    two.run("run --task task.toml --id w --crash-at append.after.model.routed").is(75);
    two.run("resume w").is(0);
    // The switch and the call after it are one batch: that call is lost with the process, and made again.
    assert_eq!(two.asked(), ["first", "second", "second", "second"]);
    assert_eq!(booked(&two.world, "act"), 1);
    two.world.verify("w");
}

#[test]
fn a_budget_counts_what_every_model_was_asked() {
    let route = format!("{ANY}[budget]\nmodel_calls = 3\n");
    let busy = error(529, r#"{"message":"Overloaded"}"#);
    let two = Two::new(&[busy], &[text("Done.")], &route);
    two.start().is(2);
    assert_eq!(two.asked(), ["first", "first", "first"]);
}

#[test]
fn routes_that_cannot_be_are_refused_with_what_is_meant() {
    for (route, says) in [
        ("[[route]]\nSECOND\non = [\"timeout\"]", "\"timeout\" is called \"transient\" here"),
        ("[[route]]\nSECOND\non = [\"rain\"]", "there is no failure \"rain\""),
        ("[[route]]\nSECOND\non = []", "leave it out for any"),
        ("[[route]]\nSECOND\nphase = [\"review\"]", "there is no phase \"review\""),
        ("[[route]]\nSECOND\ncontext_ower = 1", "near it: context_over"),
        ("[[route]]\nSECOND\nimages = false", "it can only be true"),
        ("[[route]]\nmodel = \"script/task.toml\"\nimages = true", "takes none; say images = true"),
        ("[[route]]\non = [\"quota\"]", "to which model?"),
        ("[[route]]\nmodel = \"second\"", "names no model"),
        ("[[route]]\nmodel = \"nobody/x\"", "the route to nobody/x cannot be used"),
        ("[[route]]\nmodel = \"openai/unpriced\"\n[budget]\nusd = 1.0", "price of openai/unpriced is not known"),
    ] {
        let two = Two::new(&[], &[], route);
        let done = two.start();
        assert!(matches!(done.status(), 65 | 78), "{route}: {}", done.stderr);
        assert!(done.told().contains(says), "{route}: {}", done.stderr);
    }
}

/// A gif of 640 × 480 in the workspace.
fn picture(two: &Two) {
    std::fs::write(two.world.path("a.gif"), b"GIF89a\x80\x02\xe0\x01").unwrap();
}

#[test]
fn a_choice_for_images_holds_while_there_is_one_to_see() {
    let two = Two::new(&[text("Nothing to see.")], &[text("A horse.")], "[[route]]\nSECOND\nimages = true\n");
    picture(&two);
    two.run("run --task task.toml --id v").is(0);
    assert_eq!((two.first.asked().len(), two.second.asked().len()), (1, 0));
    two.run("run --task task.toml --id w --image a.gif").is(0);
    assert_eq!((two.asked(), two.switch()["why"].clone()), (vec!["second".to_owned()], "images".into()));
    assert!(two.run("log w").is(0).stdout.contains("there is an image to see"));
    two.world.verify("w");
}

#[test]
fn a_way_out_that_takes_no_images_is_passed_over_while_there_are_some() {
    let no = || error(401, r#"{"message":"no"}"#);
    let route = format!("[[route]]\nmodel = \"openai/blind\"\n{ANY}");
    for (line, routed) in [("--image a.gif", "openai/second"), ("", "openai/blind")] {
        let two = Two::new(&[no()], &[text("A horse."), text("A horse.")], &route);
        picture(&two);
        let file = two.world.user().join(".config/longrein/config.toml");
        let config = std::fs::read_to_string(&file).unwrap();
        let blind = format!("[models.\"openai/blind\"]\nbase_url = \"{}\"\nimages = false\n", two.second.url());
        configure(&two.world, &format!("{config}{blind}"));
        two.run(&format!("run --task task.toml --id w {line}")).is(0);
        let switch = two.switch();
        assert_eq!(switch["model"], routed, "{switch}");
        assert_eq!(switch["passed_over"].as_array().map_or(0, Vec::len), usize::from(!line.is_empty()), "{switch}");
        let log = two.run("log w").is(0).stdout;
        assert_eq!(log.contains("openai/blind is passed over, it takes no images"), !line.is_empty(), "{log}");
    }
    // where there is no other, it is better than none, and is told that it sees nothing
    let two = Two::new(&[no()], &[text("I see nothing.")], ANY);
    picture(&two);
    let file = two.world.user().join(".config/longrein/config.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    configure(
        &two.world,
        &config.replace("[models.\"openai/second\"]\n", "[models.\"openai/second\"]\nimages = false\n"),
    );
    two.run("run --task task.toml --id w --image a.gif").is(0);
    assert!(two.second.asked()[0].messages()[1]["content"].as_str().unwrap().contains("this model takes no images"));
}

#[test]
fn routes_of_the_configuration_are_listed_and_taken() {
    let two = Two::new(&[error(401, r#"{"message":"no"}"#)], &[text("Done.")], "");
    let file = two.world.user().join(".config/longrein/config.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    configure(&two.world, &format!("{config}\n[[route]]\nmodel = \"openai/second\"\non = [\"authentication\"]\n"));
    let listed = two.run("models --no-probe").is(0);
    assert!(listed.stderr.contains("1. openai/second: on authentication"), "{}", listed.stderr);
    two.start().is(0);
    assert_eq!(two.asked(), ["first", "second"]);
    configure(&two.world, &format!("{config}\n[[route]]\nmodel = \"openai/second\"\nphase = [\"x\"]\n"));
    assert!(two.run("models --no-probe").is(78).stderr.contains("write this route into the task's file"));
}

/// Children of one process use one key: what one of them is told holds up the others, and an interrupt all of them.
#[test]
fn a_pause_that_one_run_is_told_holds_up_all_of_its_process() {
    let play = |after: &str| {
        let world = World::new();
        let busy = error(429, r#"{"message":"slow down"}"#).header("retry-after", after);
        // The pause that one of the four is told has begun before the others ask.
        let server = Server::playing([busy, text("Done.")]);
        configure(&world, "[models.\"openai/test\"]\nmax_concurrent = 1\n");
        world.write("four.toml", FOUR);
        world.write(
            "task.toml",
            "goal = \"Do it.\"\nworkspace = \".\"\nmodel = \"openai/test\"\nprogram = \"four.toml\"\n[inputs]\nparts = \"parts.json\"\n",
        );
        world.write("parts.json", "[\"a\",\"b\",\"c\",\"d\"]");
        (world, server)
    };
    let (world, server) = play("2");
    let began = Instant::now();
    server.call(&world, "run --task task.toml --id w").done().is(0);
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    let runs = world.run("runs --all --json").is(0).json();
    let rows = runs.iter().flat_map(|line| line.as_array().cloned().unwrap_or_else(|| vec![line.clone()]));
    let rows: Vec<_> = rows.collect();
    assert_eq!(rows.len(), 5, "a root and its four: {rows:?}");
    let failed: usize =
        rows.iter().map(|row| of_type(&world.log(row["run"].as_str().unwrap()), "model.failed").len()).sum();
    assert_eq!(failed, 1, "one is refused, and the others do not have to learn it");

    let (world, server) = play("25");
    let running = server.call(&world, "run --task task.toml --id w").start();
    world.until("the refusal", || (!server.asked().is_empty()).then_some(()));
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    running.signal("INT");
    running.end().is(130);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(server.asked().len(), 1, "nothing is sent while the key is told to wait");
}

const FOUR: &str = r#"
name = "four"
start = "parts"
[[phase]]
name = "parts"
kind = "each"
over = "{{ inputs.parts }}"
goal = "Do {{ item }}."
parallel = 4
next = [{ to = "done" }]
"#;
