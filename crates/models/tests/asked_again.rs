//! What a server refuses by name is left out of the next request, and what it lets go of is gone on with.

mod support;

use std::sync::Arc;

use longrein_core::ids::ToolName;
use longrein_core::outcome::ModelErrorClass::{self, BadRequest, Transient};
use longrein_core::outcome::{Finish, WireBlock, Wired};
use longrein_core::payload::Payload;
use longrein_core::prompt::{Item, Prompt, ToolDef, WireCall};
use longrein_core::task::Temperature;
use longrein_models::{ModelConfig, connect};
use serde_json::{Value, json};

use support::server::{response, server, servers};
use support::{observation, prompt, spec, user};

/// The bodies of two requests to a server that refuses them with these words, and the classes they failed in.
async fn refused(model: &str, prompt: &Prompt, words: &str) -> (Vec<Value>, Vec<ModelErrorClass>) {
    let server = server(response("400 Bad Request", &json!({ "error": { "message": words } }).to_string())).await;
    let root = server.url.trim_end_matches("/v1/");
    let base = if model.starts_with("openai") { server.url.clone() } else { root.to_owned() };
    let mut spec = spec(model);
    spec.temperature = Some(Temperature::of(0.5).expect("in its bounds"));
    let config = ModelConfig { base_url: Some(base), ..ModelConfig::default() };
    let model = connect(&spec, &config).expect("good settings");
    let mut classes = Vec::new();
    for _ in 0..2 {
        classes.push(model.send(model.encode(prompt)).await.expect_err("refused").class);
    }
    let requests = server.requests.lock().expect("nobody panics").clone();
    let body = |request: &String| {
        serde_json::from_str(request.split_once("\r\n\r\n").expect("a body").1).expect("a request is JSON")
    };
    (requests.iter().map(body).collect(), classes)
}

/// A call with what its provider wants back with it.
fn thoughtful(model: &str, block: WireBlock) -> Vec<Item> {
    let call = WireCall { id: "c1".into(), name: "read_metrics".into(), arguments: "{}".into() };
    let wired = Some(Wired { model: model.into(), blocks: vec![block, WireBlock::Call] });
    vec![user("hello"), Item::Assistant { text: String::new(), calls: vec![call], wired }, observation("c1", 1, "fine")]
}

fn opaque(json: Value) -> WireBlock {
    WireBlock::Opaque(Payload::of(&json).expect("JSON"))
}

#[tokio::test]
async fn fields_that_a_server_names() {
    let prompt = prompt(0, vec![user("hello")]);
    for (model, words, gone, instead) in [
        (
            "openai/m",
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            "/max_tokens",
            Some("/max_completion_tokens"),
        ),
        ("openai/m", "Unrecognized request argument supplied: stream_options", "/stream_options", None),
        (
            "openai/m",
            "Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is supported.",
            "/temperature",
            None,
        ),
        (
            "openai-responses/m",
            "Unsupported parameter: 'temperature' is not supported with this model.",
            "/temperature",
            None,
        ),
        ("anthropic/m", "`temperature` is deprecated for this model.", "/temperature", None),
    ] {
        let (bodies, classes) = refused(model, &prompt, words).await;
        assert_eq!(classes, [Transient, BadRequest], "{words}");
        assert!(bodies[0].pointer(gone).is_some() && bodies[1].pointer(gone).is_none(), "{words}: {bodies:?}");
        assert!(instead.is_none_or(|field| bodies[1].pointer(field).is_some()), "{words}: {bodies:?}");
    }
    // What is only out of bounds is no business of ours.
    let (_, classes) = refused("openai/m", &prompt, "temperature must be between 0 and 0.3").await;
    assert_eq!(classes, [BadRequest, BadRequest]);
}

#[tokio::test]
async fn thoughts_that_a_server_does_not_know_any_more() {
    let signed = json!({ "type": "thinking", "thinking": "hm", "signature": "c2ln" });
    let encrypted = json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "b3A=" });
    let with = WireBlock::With(Payload::of(&json!({ "thoughtSignature": "c2ln" })).expect("JSON"));
    for (model, block, mark, words) in [
        ("anthropic/m", opaque(signed), "c2ln", "messages.1.content.0: Invalid `signature` in `thinking` block"),
        ("openai-responses/m", opaque(encrypted), "b3A=", "The encrypted content gAAA could not be verified."),
        ("gemini/m", with, "c2ln", "Thought signature is not valid."),
    ] {
        let (bodies, classes) = refused(model, &prompt(0, thoughtful(model, block)), words).await;
        assert_eq!(classes, [Transient, BadRequest], "{words}");
        let has = |at: usize| bodies[at].to_string().contains(mark);
        assert!(has(0) && !has(1), "{words}: {bodies:?}");
        assert!(bodies[1].to_string().contains("read_metrics"), "the call is still there");
    }
}

#[tokio::test]
async fn a_tool_that_a_server_names_is_not_offered_again() {
    let tool = |name: &str| ToolDef {
        name: ToolName::new(name),
        description: "d".into(),
        parameters: Payload::parse(r#"{"type":"object","properties":{}}"#).expect("JSON"),
    };
    let prompt =
        Prompt { tools: Arc::from([tool("good"), tool("bad"), tool("last")]), ..prompt(0, vec![user("hello")]) };
    let names = |body: &Value| -> Vec<String> {
        let list = body["tools"].as_array().cloned().unwrap_or_default();
        let list: Vec<Value> = list
            .iter()
            .flat_map(|one| one["functionDeclarations"].as_array().cloned().unwrap_or(vec![one.clone()]))
            .collect();
        list.iter().filter_map(|one| one.get("function").unwrap_or(one)["name"].as_str().map(str::to_owned)).collect()
    };
    for (model, words) in [
        ("openai/m", "Invalid schema for function 'bad': schema must have type 'object'."),
        ("openai-responses/m", "Invalid schema for function 'bad': In context=(), object schema missing properties."),
        ("anthropic/m", "tools.1.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12"),
        (
            "gemini/m",
            "* GenerateContentRequest.tools[0].function_declarations[1].parameters.properties[x].items: missing field.",
        ),
    ] {
        let (bodies, classes) = refused(model, &prompt, words).await;
        assert_eq!(names(&bodies[0]), ["good", "bad", "last"], "{words}");
        assert_eq!(names(&bodies[1]), ["good", "last"], "{words}");
        // The second time it names the next one by its place, and by name nobody.
        let again = if words.contains('[') || words.contains("tools.") { Transient } else { BadRequest };
        assert_eq!(classes, [Transient, again], "{words}");
    }
    for words in ["Tools 'good' and 'bad' have no schema", "'other' is no function", "This model takes no tools"] {
        assert_eq!(refused("openai/m", &prompt, words).await.1, [BadRequest, BadRequest], "{words}");
    }
}

#[tokio::test]
async fn calls_of_another_model_are_marked_for_gemini_3() {
    let items = thoughtful("anthropic/m", opaque(json!({ "type": "thinking" })));
    let prompt = prompt(0, items);
    let signature = |body: &Value| body["contents"][1]["parts"][0].get("thoughtSignature").cloned();
    let dummy = Some(json!("skip_thought_signature_validator"));
    let (bodies, _) = refused("gemini/gemini-3-pro-preview", &prompt, "no").await;
    assert_eq!(signature(&bodies[0]), dummy);
    let (bodies, _) = refused("gemini/gemini-2.5-pro", &prompt, "no").await;
    assert_eq!(signature(&bodies[0]), None);
    // One whose name does not tell says so itself.
    let words = "Function call is missing a thought_signature in functionCall parts.";
    let (bodies, classes) = refused("gemini/gemini-flash-latest", &prompt, words).await;
    assert_eq!((signature(&bodies[0]), signature(&bodies[1])), (None, dummy));
    assert_eq!(classes, [Transient, BadRequest]);
}

#[tokio::test]
async fn results_bear_the_name_of_their_call() {
    let named = |name: &str| {
        let call =
            WireCall { id: "c1".into(), name: longrein_core::prompt::wire_name(name).into(), arguments: "{}".into() };
        let Item::Observation { call: id, action, tool: _, text, verdict } = observation("c1", 1, "fine") else {
            panic!("an observation")
        };
        vec![
            user("hello"),
            Item::Assistant { text: String::new(), calls: vec![call], wired: None },
            Item::Observation { call: id, action, tool: ToolName::new(name), text, verdict },
        ]
    };
    for name in ["default_api.get", "", "get weather", "get"] {
        let (bodies, _) = refused("gemini/m", &prompt(0, named(name)), "no").await;
        let [called, answered] = [(1, "functionCall"), (2, "functionResponse")]
            .map(|(at, kind)| bodies[0]["contents"][at]["parts"][0][kind]["name"].clone());
        assert!(called == answered && called.is_string(), "{name}: {called} {answered}");
        let (bodies, _) = refused("ollama/m", &prompt(0, named(name)), "no").await;
        let messages = bodies[0]["messages"].as_array().expect("messages").clone();
        let [.., said, result] = messages.as_slice() else { panic!("{messages:?}") };
        assert_eq!(said["tool_calls"][0]["function"]["name"], result["tool_name"], "{name}");
    }
}

#[tokio::test]
async fn a_turn_that_the_provider_let_go_of_is_gone_on_with() {
    let message = |id: &str, blocks: Value, stop: &str| {
        let message = json!({ "type": "message", "id": id, "role": "assistant", "content": blocks, "stop_reason": stop,
            "usage": { "input_tokens": 10, "output_tokens": 2 } });
        response("200 OK", &message.to_string())
    };
    let search = json!([{ "type": "text", "text": "I look. " }, { "type": "server_tool_use", "id": "s1", "name": "web_search", "input": { "query": "x" } }]);
    let server = servers(vec![
        message("1", search, "pause_turn"),
        message("2", json!([{ "type": "text", "text": "Found." }]), "end_turn"),
    ])
    .await;
    let config =
        ModelConfig { base_url: Some(server.url.trim_end_matches("/v1/").to_owned()), ..ModelConfig::default() };
    let model = connect(&spec("anthropic/m"), &config).expect("good settings");
    let reply = model.send(model.encode(&prompt(0, vec![user("hello")]))).await.expect("a reply");
    assert_eq!((reply.text.as_str(), &reply.finish), ("I look. Found.", &Finish::Stop));
    assert_eq!(reply.usage.expect("counted").input, 20);
    let wired = reply.wired.expect("a block of the provider's");
    assert!(wired.covers(&reply.text, 0) && wired.model == "anthropic/m", "{wired:?}");
    let requests = server.requests.lock().expect("nobody panics").clone();
    let body: Value = serde_json::from_str(requests[1].split_once("\r\n\r\n").expect("a body").1).expect("JSON");
    assert_eq!(body["messages"][1]["role"], "assistant");
    assert_eq!(body["messages"][1]["content"][1]["id"], "s1");
}
