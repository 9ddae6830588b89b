//! Local models: Ollama's own wire, models that know no tools, the settings that go with them, and what `models` lists.

use serde_json::{Value, json};

use crate::support::server::{KEY, Play, Server, listing, raw, rows, status, text};
use crate::support::task::{booked, books, configure, model_task, tool};
use crate::support::{Done, World, of_type};

fn tools() -> String {
    let parameters = "[tools.parameters]\ntype = \"object\"\n[tools.parameters.properties.n]\ntype = \"integer\"\n";
    [
        "[policy]\nallow = [\"*\"]\n".to_owned(),
        tool("look", "read", "echo '{\"seen\":1}'", ""),
        tool("act", "external", &books("act"), parameters),
    ]
    .concat()
}

const JSON: &str = "[models.\"ollama/test\"]\nprotocol = \"json\"\n[models.\"openai/test\"]\nprotocol = \"json\"\n";

struct Played {
    world: World,
    server: Server,
    done: Done,
}

/// Runs the task as `w` with this model and configuration, against a server that plays this.
fn play(model: &str, config: &str, plays: &[Play]) -> Played {
    let world = World::new();
    configure(&world, config);
    model_task(&world, model, &tools());
    let server = Server::playing(plays);
    let done = server.call(&world, "run --task task.toml --id w --json").done();
    Played { world, server, done }
}

impl Played {
    #[track_caller]
    fn is(self, status: i32) -> Self {
        Self { done: self.done.is(status), ..self }
    }

    fn last(&self) -> Value {
        self.done.last_json()
    }

    /// The last thing that was said to the model in the request with this number.
    fn told(&self, request: usize) -> String {
        self.server.asked()[request].messages().pop().unwrap()["content"].as_str().unwrap().to_owned()
    }
}

/// Both ways to have a model say this.
fn said(model: &str, words: &str) -> Play {
    if model.starts_with("ollama/") { rows(&[words], &[], "stop") } else { text(words) }
}

#[test]
fn ollama_calls_and_answers() {
    let n = |n: u32| json!({ "n": n });
    let plays = [
        rows(&[], &[("look", json!({})), ("act", n(1))], "stop"),
        rows(&["", ""], &[("act", n(2))], "stop"),
        rows(&["Grüße ", "🦀"], &[], "stop"),
    ];
    let played = play("ollama/test", "", &plays).is(0);
    let last = played.last();
    assert_eq!(last["answer"], "Grüße 🦀");
    assert_eq!((&last["turns"], &last["tool_calls"], &last["usage"]["input"]), (&3.into(), &3.into(), &300.into()));
    assert_eq!(booked(&played.world, "act"), 2);
    let asked = played.server.asked();
    assert!(asked.iter().all(|asked| asked.head.starts_with("POST /api/chat ") && asked.connection == 0));
    assert!(!asked[0].head.to_lowercase().contains("authorization"), "the key of another provider stays at home");
    let messages = asked[2].messages();
    let ids: Vec<_> = messages.iter().filter_map(|message| message["tool_call_id"].as_str()).collect();
    assert_eq!(ids.len(), 3, "calls that had no id have one: {messages:?}");
    assert!(ids[0] != ids[1] && ids[1] != ids[2]);
    assert!(!String::from_utf8_lossy(&asked[2].bytes).contains("hm"), "thinking is not sent back");
    played.world.verify("w");
}

#[test]
fn what_is_missing_says_what_to_do() {
    let absent = status(404, &json!({ "error": "model \"test\" not found, try pulling it first" }).to_string());
    let played = play("ollama/test", "", &[absent]).is(5);
    assert!(
        played.done.stderr.contains("ollama pull test")
            || played.last()["reason"].to_string().contains("ollama pull test")
    );
    assert_eq!(played.server.asked().len(), 1);
    let toolless =
        status(400, &json!({ "error": "registry.ollama.ai/library/test does not support tools" }).to_string());
    let played = play("ollama/test", "", &[toolless]).is(5);
    assert!(played.last()["reason"].to_string().contains("protocol = "), "{}", played.last());
}

#[test]
fn an_ollama_reply_that_was_cut_runs_nothing() {
    let call = [("act", json!({ "n": 1 }))];
    let plays = [rows(&[], &call, "length"), rows(&[], &call, "stop").cut(1), rows(&["done"], &[], "stop")];
    let played = play("ollama/test", "", &plays).is(0);
    assert_eq!(booked(&played.world, "act"), 0);
    assert!(played.told(1).contains("cut off by the output limit"));
    assert_eq!(played.last()["model_calls"], 3);
}

const LOOK: &str = r#"{"kind":"tool","name":"look","arguments":{}}"#;
const ACT: &str = r#"{"kind":"tool","name":"act","arguments":{"n":1}}"#;
const DONE: &str = r#"{"kind":"final","answer":"Done."}"#;

#[test]
fn a_model_that_knows_no_tools() {
    for model in ["ollama/test", "openai/test"] {
        let fenced = format!("I look first.\n```json\n{LOOK}\n```");
        let played = play(model, JSON, &[said(model, &fenced), said(model, ACT), said(model, DONE)]).is(0);
        assert_eq!(played.last()["answer"], "Done.");
        assert_eq!(booked(&played.world, "act"), 1);
        let asked = played.server.asked();
        let body = asked[0].body();
        assert!(body.get("tools").is_none());
        assert!(body.get("format").or_else(|| body.pointer("/response_format/json_schema/schema")).is_some());
        assert!(asked[0].messages()[0]["content"].as_str().unwrap().contains("- act: Does act."));
        let messages = asked[2].messages();
        assert_eq!(messages[2], json!({ "role": "assistant", "content": LOOK }));
        let result = messages[3]["content"].as_str().unwrap();
        let observation =
            result.strip_prefix("<longrein-result>\n").unwrap().strip_suffix("\n</longrein-result>").unwrap();
        let observation: Value = serde_json::from_str(observation).unwrap();
        assert_eq!((&observation["ok"], &observation["evidence"]), (&true.into(), &"e1".into()));
        let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap().to_owned()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "user", "assistant", "user"], "they alternate");
        played.world.verify("w");
    }
}

#[test]
fn hostile_replies_of_a_model_that_knows_no_tools() {
    let inner = r#"{"kind":"tool","name":"act","arguments":{"n":"#;
    for reply in [
        "I would call act now.",
        "[]",
        "{}",
        "{\"kind\":\"tool\",\"name\":\"act\",\"arguments\":{\"n\":1}",
        "{\"kind\":\"tool\",\"name\":\"act\",\"arguments\":{\"n\":1},\"kind\":\"final\"}",
        "{\"kind\":\"act\",\"n\":1}",
        &format!("{ACT}\n{ACT}"),
        &format!("```json\n{ACT}\n```\nand then\n```json\n{ACT}\n```"),
        &format!("{{\"kind\":\"tool\",\"name\":\"look\",\"arguments\":{{\"text\":\"{inner}1}}}}\"}}"),
        &format!("<think>{ACT}"),
        "<html><body>Bad gateway</body></html>",
    ] {
        let played = play("ollama/test", JSON, &[said("ollama/", reply), said("ollama/", DONE)]).is(0);
        assert_eq!(booked(&played.world, "act"), 0, "{reply}");
        assert!(played.told(1).contains("Nothing of it was run"), "{reply}: {}", played.told(1));
        let last = played.last();
        assert_eq!((&last["turns"], &last["model_calls"]), (&1.into(), &2.into()), "{reply}: an attempt, and no turn");
    }
    // Calls that are whole and wrong get their own observation, as with any model.
    for (reply, class) in [
        (r#"{"kind":"tool","name":"acct","arguments":{"n":1}}"#, "unknown_tool"),
        (r#"{"kind":"tool","name":"act","arguments":[1]}"#, "invalid_arguments"),
        (r#"{"kind":"tool","name":"act","arguments":{"n":"one"}}"#, "invalid_arguments"),
        (r#"{'kind':'tool','name':'act','arguments':{'n':'one',}}"#, "invalid_arguments"),
    ] {
        let played = play("ollama/test", JSON, &[said("ollama/", reply), said("ollama/", DONE)]).is(0);
        assert_eq!(booked(&played.world, "act"), 0, "{reply}");
        assert!(played.told(1).contains(class), "{reply}: {}", played.told(1));
    }
    // For ever: it broke the protocol.
    let played = play("ollama/test", JSON, &[said("ollama/", "no")]).is(4);
    assert!(played.last()["reason"].as_str().unwrap().contains("protocol"), "{}", played.last());
    assert_eq!(played.server.asked().len(), 3);
}

#[test]
fn a_cut_reply_is_not_completed() {
    let cut = rows(&[&ACT[..ACT.len() - 2]], &[], "length");
    let whole = rows(&[ACT], &[], "length");
    let played = play("ollama/test", JSON, &[cut, whole, said("ollama/", DONE)]).is(0);
    assert_eq!(booked(&played.world, "act"), 0);
    assert!(played.told(1).contains("cut off by the output limit"), "{}", played.told(1));
}

#[test]
fn broken_json_is_mended_and_the_journal_says_so() {
    let played = play(
        "ollama/test",
        JSON,
        &[said("ollama/", "{'kind':'tool','name':'act','arguments':{'n':1},}"), said("ollama/", DONE)],
    )
    .is(0);
    assert_eq!(booked(&played.world, "act"), 1);
    let log = played.world.log("w");
    let repaired: Vec<_> = of_type(&log, "model.replied").iter().map(|event| event["repaired"].clone()).collect();
    assert_eq!(repaired, [json!(true), json!(false)]);
}

#[test]
fn a_server_that_knows_no_schemas_is_spoken_to_without() {
    let refusal = json!({ "error": { "message": "response_format is not supported by this model" } }).to_string();
    let played = play("openai/test", JSON, &[status(400, &refusal), text(ACT), text(DONE)]).is(0);
    assert_eq!(booked(&played.world, "act"), 1);
    assert!(played.server.asked()[1..].iter().all(|asked| asked.body().get("response_format").is_none()));
}

#[test]
fn an_answer_with_a_schema_and_the_last_words_of_a_budget() {
    let world = World::new();
    configure(&world, JSON);
    world.write("a.json", r#"{"type":"object","required":["seen"],"properties":{"seen":{"type":"integer"}},"additionalProperties":false}"#);
    model_task(&world, "ollama/test", &format!("[answer]\nschema = \"a.json\"\n{}", tools()));
    let wrong = r#"{"kind":"final","seen":"one"}"#;
    let plays = [said("ollama/", LOOK), said("ollama/", wrong), said("ollama/", r#"{"kind":"final","seen":1}"#)];
    let server = Server::playing(plays.clone());
    let done = server.call(&world, "run --task task.toml --id w").done().is(0);
    assert_eq!(done.answer(), r#"{"seen":1}"#);
    assert_eq!(server.asked()[2].messages()[4]["content"], wrong, "it is shown its answer in the form it gave it");

    model_task(&world, "ollama/test", &format!("[budget]\nturns = 2\n{}", tools()));
    let server =
        Server::playing([said("ollama/", LOOK), said("ollama/", r#"{"kind":"final","answer":"Half of it."}"#)]);
    let done = server.call(&world, "run --task task.toml --id x").done().is(2);
    assert!(done.stderr.contains("Half of it."), "{}", done.stderr);
}

#[test]
fn settings_shape_the_request_and_survive_a_resume() {
    for (model, protocol) in [("ollama/test", "native"), ("ollama/test", "json"), ("openai/test", "json")] {
        let world = World::new();
        let settings = |more: &str| format!("[models.\"{model}\"]\n{more}\n");
        configure(
            &world,
            &settings(&format!(
                "protocol = \"{protocol}\"\ntemperature = 0.7\nmax_output = 500\ncontext_limit = 16384"
            )),
        );
        model_task(&world, model, &tools());
        let calls =
            if protocol == "json" { said(model, ACT) } else { rows(&[], &[("act", json!({ "n": 1 }))], "stop") };
        let answer = if protocol == "json" { said(model, DONE) } else { rows(&["Done."], &[], "stop") };
        let server = Server::by_position(status(503, "loading model").header("retry-after", "0"), [calls, answer]);
        server.call(&world, "run --task task.toml --id w --crash-at append.before.model.replied:2").done().is(75);
        // What the configuration says now is for runs that start now.
        configure(&world, &settings("temperature = 0.1\nmax_output = 9\ncontext_limit = 99"));
        let done = server.call(&world, "resume w").done().is(0);
        assert_eq!((done.answer(), booked(&world, "act")), ("Done.", 1), "{model} {protocol}");
        let asked = server.asked();
        let (before, after) = (&asked[1], &asked[asked.len() - 1]);
        let shared = before.bytes.iter().zip(&after.bytes).take_while(|(one, other)| one == other).count();
        let last = before.messages().pop().unwrap()["content"].as_str().unwrap().to_owned();
        let end =
            String::from_utf8(before.bytes.clone()).unwrap().rfind(json!(last).to_string().trim_matches('"')).unwrap();
        assert!(
            shared > end + 5,
            "{model} {protocol}: the conversation before the crash is a prefix of the one after it"
        );
        assert_eq!(asked[0].bytes, asked[1].bytes, "the same request again");
        assert_eq!(asked[2].bytes, asked[3].bytes, "and after the crash");
        let body = after.body();
        if model.starts_with("ollama/") {
            assert_eq!(body["options"], json!({ "num_predict": 500, "temperature": 0.7, "num_ctx": 16384 }));
        } else {
            assert_eq!((&body["temperature"], &body["max_tokens"]), (&json!(0.7), &json!(500)));
        }
        world.verify("w");
    }
}

#[test]
fn configuration_names_what_is_wrong_and_what_is_near() {
    let world = World::new();
    for (text, words) in [
        ("modell = \"x/y\"", &["modell", "near it: model"][..]),
        ("[models.\"openai/x\"]\ntemperatur = 1.0", &["models.\"openai/x\".temperatur", "near it: temperature"]),
        ("[models.\"openai/x\"]\ntemperature = 11.0", &["temperature", "from 0 to 10"]),
        ("[models.\"openai/x\"]\ntemperature = 0.12345", &["temperature", "three decimals"]),
        ("[models.\"openai/x\"]\nprotocol = \"xml\"", &["protocol", "native, json"]),
        ("[models.\"script/x\"]\nprotocol = \"json\"", &["protocol", "scripted"]),
        ("[models.\"openai/x\"]\nmax_output = 0", &["max_output", "from 1"]),
        ("[models.\"openai/x\"]\nmax_output = 100\ncontext_limit = 100", &["max_output", "no room"]),
        ("[models.\"openai/x\"]\nprice = { input = 1.0, outptu = 2.0 }", &["price.outptu", "near it: output"]),
        ("[models.x]\nmax_output = 1", &["models.\"x\"", "openai/x"]),
    ] {
        configure(&world, text);
        let done = world.run("models --no-probe").is(78);
        for word in words {
            assert!(done.stderr.contains(word), "{text}: {word} is not in {}", done.stderr);
        }
    }
}

#[test]
fn models_that_are_configured_and_answer() {
    let world = World::new();
    world.write("s.toml", "[[reply]]\ntext = \"x\"\n");
    let secret = "sk-very-secret-0123456789";
    let installed =
        json!({ "models": [{ "name": "small:latest" }, { "name": "other:7b" }], "data": [{ "id": "served" }] });
    let server = Server::playing([listing(&installed)]);
    let config = format!(
        "model = \"ollama/small\"\n[models.\"ollama/small\"]\nprotocol = \"json\"\ncontext_limit = 8192\n\
         [models.\"ollama/absent\"]\n[models.\"openai/served\"]\nbase_url = \"http://user:{secret}@{}/v1?key={secret}\"\n\
         api_key_env = \"MY_KEY\"\nprice = {{ input = 1.0, output = 2.0 }}\n\
         [models.\"openai/keyless\"]\napi_key_env = \"UNSET_KEY\"\n[models.\"openai/far\"]\nbase_url = \"http://127.0.0.1:1/v1\"\n\
         [models.\"openai/odd\"]\nbase_url = \"ftp://{secret}@x\"\n[models.\"script/{}\"]\n[models.\"gemini/x\"]\n",
        server.host(),
        world.path("s.toml").display(),
    );
    configure(&world, &config);
    let listing = server.call(&world, "models --json").env("MY_KEY", secret).done().is(0);
    let rows = listing.last_json().as_array().unwrap().clone();
    let row = |name: &str| rows.iter().find(|row| row["model"] == name).unwrap_or_else(|| panic!("{name}: {rows:#?}"));
    assert_eq!(rows[0]["model"], "ollama/small", "the default comes first");
    assert_eq!(
        (&rows[0]["default"], &rows[0]["protocol"], &rows[0]["context_limit"]),
        (&true.into(), &"json".into(), &8192.into())
    );
    assert_eq!(
        (&rows[0]["endpoint"], &rows[0]["answers"]),
        (&format!("http://{}", server.host()).into(), &true.into())
    );
    assert_eq!(row("ollama/absent")["answers"], false);
    assert!(row("ollama/absent")["detail"].as_str().unwrap().contains("ollama pull absent"));
    assert_eq!(row("ollama/other:7b")["detail"], "installed");
    assert_eq!(row("openai/served")["endpoint"], format!("http://{}/v1", server.host()));
    assert_eq!(
        (&row("openai/served")["answers"], &row("openai/served")["price"]["output"]),
        (&true.into(), &2.0.into())
    );
    assert!(row("openai/keyless")["detail"].as_str().unwrap().contains("UNSET_KEY"));
    assert!(row("openai/far")["detail"].as_str().unwrap().contains("could not be reached"));
    assert!(row("openai/odd")["detail"].as_str().unwrap().contains("must begin with http"));
    assert!(row("gemini/x")["detail"].as_str().unwrap().contains("GEMINI_API_KEY"));
    assert_eq!(row("openai/*")["source"], "OPENAI_BASE_URL");
    assert_eq!(row("ollama/*")["source"], "OLLAMA_HOST");
    assert_eq!(row(&format!("script/{}", world.path("s.toml").display()))["answers"], true);

    let shown = server.call(&world, "models").env("MY_KEY", secret).done().is(0);
    let lines: Vec<_> = shown.stdout.lines().collect();
    assert_eq!(lines.len(), rows.len() + 1, "one line each: {}", shown.stdout);
    assert!(
        lines[1].starts_with("ollama/small *  ") && lines[1].contains("json") && lines[1].contains("8192"),
        "{}",
        lines[1]
    );
    for text in [&listing.stdout, &listing.stderr, &shown.stdout, &shown.stderr] {
        assert!(!text.contains(secret) && !text.contains(KEY), "{text}");
    }

    let before = server.asked().len();
    let quiet = server.call(&world, "models --no-probe --json").env("MY_KEY", secret).done().is(0).last_json();
    assert_eq!(server.asked().len(), before, "nobody is asked");
    assert_eq!(quiet[0]["answers"], Value::Null);
}

#[test]
fn a_server_that_says_nothing_keeps_nobody_waiting() {
    let world = World::new();
    let server = Server::playing([raw(&["x"]).stall(0, std::time::Duration::from_secs(30))]);
    let began = std::time::Instant::now();
    let rows = server.call(&world, "models --json").done().is(0).last_json();
    assert!(began.elapsed() < std::time::Duration::from_secs(10), "{:?}", began.elapsed());
    let row = rows.as_array().unwrap().iter().find(|row| row["model"] == "openai/*").unwrap().clone();
    assert_eq!(row["answers"], false, "{row}");
}

#[test]
fn no_model_at_all() {
    let world = World::new();
    let done = world.run("models --no-probe").is(0);
    assert_eq!((done.stdout.as_str(), done.stderr.lines().count()), ("", 4), "{}", done.stderr);
    done.says("OPENAI_API_KEY").says("ANTHROPIC_API_KEY").says("ollama pull").says("LONGREIN_MODEL");
    assert_eq!(world.run("models --no-probe --json").is(0).last_json(), json!([]));
}

#[test]
fn an_answer_that_is_an_error_is_no_yes() {
    use crate::support::server::status;
    let refusal = r#"{"error":{"message":"who are you?","code":"invalid_api_key"}}"#;
    let named = "model = \"openai/x\"\n";
    for (play, said) in [
        (status(401, refusal), "the key in OPENAI_API_KEY is refused"),
        (status(404, "<html>Not Found</html>"), "is the base URL right? it usually ends in /v1"),
        (status(200, "<html>Hello</html>"), "it usually ends in /v1"),
        (listing(&json!({ "hello": 1 })), "it usually ends in /v1"),
        (status(500, "oops"), "HTTP 500"),
    ] {
        let world = World::new();
        configure(&world, named);
        let server = Server::playing([play]);
        let rows = server.call(&world, "models --json").done().is(0).last_json();
        for row in rows.as_array().unwrap().iter().filter(|row| row["model"].as_str().unwrap().starts_with("openai/")) {
            assert_eq!(row["answers"], false, "{row}");
            assert!(row["detail"].as_str().unwrap().contains(said), "{said}: {row}");
        }
        let doctor = server.call(&world, "doctor --probe --json").done().last_json();
        let probe = doctor.as_array().unwrap().iter().find(|found| found["about"] == "probe").unwrap();
        assert_eq!(probe["level"], "bad", "{probe}");
        assert!(probe["what"].as_str().unwrap().contains(said), "{probe}");
    }
    // Without a key, in a run too.
    let world = World::new();
    let server = Server::playing([status(401, refusal)]);
    let run = "longrein run hi -m openai/x --id r";
    world
        .typed(run)
        .env("OPENAI_BASE_URL", server.url())
        .done()
        .is(5)
        .says("no key was sent; OPENAI_API_KEY is not set");
}
