//! What is told of a reply while it comes in: in order, at once, and in the end the text that stands.

mod support;

use std::time::Duration;

use longrein_models::{ModelConfig, connect};

use support::server::{Server, Step, server};
use support::{Heard, Said, prompt, spec, user};

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

fn chunk(data: &str) -> Step {
    Step::Write(format!("{:x}\r\n{data}\r\n", data.len()))
}

/// A server that streams these, one after the other, with a rest between them.
async fn streams(pieces: &[String]) -> Server {
    let mut steps = vec![Step::Write(HEAD.to_owned())];
    for piece in pieces {
        steps.extend([chunk(piece), Step::Sleep(Duration::from_millis(30))]);
    }
    steps.push(Step::Write("0\r\n\r\n".to_owned()));
    server(steps).await
}

/// What is heard of these pieces, and the text of the reply.
async fn heard(model: &str, pieces: &[String]) -> (Vec<Said>, Result<String, String>) {
    let server = streams(pieces).await;
    let url = server.url.trim_end_matches("/v1/").to_owned();
    let config = ModelConfig { base_url: Some(url), ..ModelConfig::default() };
    let model = connect(&spec(model), &config).expect("good settings");
    let heard = Heard::default();
    let came = model.send_heard(model.encode(&prompt(0, vec![user("hello")])), &heard).await;
    if let Ok(reply) = &came {
        assert_eq!(heard.text(), reply.text);
    }
    (heard.all(), came.map(|reply| reply.text).map_err(|failure| failure.message))
}

fn data(events: &[&str]) -> Vec<String> {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

fn text(text: &str) -> Said {
    Said::Text(text.to_owned())
}

fn thought(text: &str) -> Said {
    Said::Thought(text.to_owned())
}

#[tokio::test]
async fn each_piece_is_told_as_it_comes_by_every_wire() {
    let chat = data(&[
        r#"{"choices":[{"delta":{"reasoning_content":"so"}}]}"#,
        r#"{"choices":[{"delta":{"reasoning":"it","reasoning_details":[{"type":"reasoning.text","text":"it"}]}}]}"#,
        r#"{"choices":[{"delta":{"content":"Grü"}}]}"#,
        r#"{"choices":[{"delta":{"content":"ße"}}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
    ]);
    let messages = data(&[
        r#"{"type":"message_start","message":{"usage":{"input_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"so"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"it"}}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":"Grü"}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"ße"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
        r#"{"type":"message_stop"}"#,
    ]);
    let responses = data(&[
        r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"so"}"#,
        r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"it"}"#,
        r#"{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"Grü"}"#,
        r#"{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"ße"}"#,
        r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#,
    ]);
    let gemini = data(&[
        r#"{"candidates":[{"content":{"parts":[{"text":"so","thought":true}]}}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"it","thought":true}]}}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"Grü"}]}}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"ße"}]},"finishReason":"STOP"}]}"#,
    ]);
    let ollama: Vec<String> = [
        r#"{"message":{"content":" <thi"},"done":false}"#,
        r#"{"message":{"content":"nk>so</not"},"done":false}"#,
        r#"{"message":{"content":"it</th"},"done":false}"#,
        r#"{"message":{"content":"ink>\n Grü"},"done":false}"#,
        r#"{"message":{"content":"ße"},"done":true}"#,
    ]
    .map(|row| format!("{row}\n"))
    .to_vec();
    let expected = [thought("so"), thought("it"), text("Grü"), text("ße")];
    for (model, pieces) in
        [("openai/m", chat), ("anthropic/m", messages), ("openai-responses/m", responses), ("gemini/m", gemini)]
    {
        assert_eq!(heard(model, &pieces).await, (expected.to_vec(), Ok("Grüße".to_owned())), "{model}");
    }
    let (said, came) = heard("ollama/m", &ollama).await;
    assert_eq!(came.as_deref(), Ok("Grüße"));
    let thoughts: String = said
        .iter()
        .filter_map(|said| match said {
            Said::Thought(thought) => Some(thought.as_str()),
            Said::Text(_) | Said::Anew => None,
        })
        .collect();
    assert_eq!(thoughts, "so</notit");
    assert_eq!(said[said.len() - 2..], [text("Grü"), text("ße")], "a tag is no word, wherever it is cut");
}

#[tokio::test]
async fn what_a_gateway_begins_again_is_taken_back() {
    let begun = [
        r#"{"type":"message_start","message":{}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"one"}}"#,
        r#"{"type":"message_start","message":{}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"two"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
        r#"{"type":"message_stop"}"#,
    ];
    let (said, came) = heard("anthropic/m", &data(&begun)).await;
    assert_eq!(said, [text("one"), Said::Anew, text("two")]);
    assert_eq!(came.as_deref(), Ok("two"));
}

#[tokio::test]
async fn what_only_the_end_says_is_told_then() {
    // A refusal is one only when nothing else came.
    let refused = [
        r#"{"choices":[{"delta":{"refusal":"I ca"}}]}"#,
        r#"{"choices":[{"delta":{"refusal":"n't."}}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
    ];
    assert_eq!(heard("openai/m", &data(&refused)).await, (vec![text("I can't.")], Ok("I can't.".to_owned())));
    let replaced = [
        r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"a draft"}"#,
        r#"{"type":"response.completed","response":{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"the text"}]}]}}"#,
    ];
    let (said, _) = heard("openai-responses/m", &data(&replaced)).await;
    assert_eq!(said, [text("a draft"), Said::Anew, text("the text")]);
}

#[tokio::test]
async fn an_action_in_json_is_no_text_before_it_is_whole() {
    let pieces = [
        r#"{"choices":[{"delta":{"content":"{\"kind\":\"final\","}}]}"#,
        r#"{"choices":[{"delta":{"content":"\"answer\":\"done\"}"}}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
    ];
    let server = streams(&data(&pieces)).await;
    let config = ModelConfig { base_url: Some(server.url), ..ModelConfig::default() };
    let spec = longrein_core::task::ModelSpec { protocol: longrein_core::task::Protocol::Json, ..spec("openai/m") };
    let model = connect(&spec, &config).expect("good settings");
    let heard = Heard::default();
    let reply = model.send_heard(model.encode(&prompt(0, vec![user("hello")])), &heard).await.expect("a reply");
    assert_eq!(heard.all(), [text(&reply.text)]);
    assert!(!reply.text.contains("kind"), "{}", reply.text);
}

#[tokio::test]
async fn of_a_reply_that_breaks_off_only_its_pieces_are_told() {
    let cut = [r#"{"choices":[{"delta":{"content":"half"}}]}"#, r#"{"error":{"message":"overloaded"}}"#];
    let (said, came) = heard("openai/m", &data(&cut)).await;
    assert_eq!(said, [text("half")]);
    assert!(came.is_err());
}
