//! The fixtures that MCP's conformance suite asks a server for, over the transport, session and errors that ship.
//!
//! `cargo xtask conformance server` starts it; by hand: `conformance_server 127.0.0.1:PORT`. It says where it is on stdout.
#![expect(clippy::print_stdout, reason = "says where it is")]

use std::sync::Arc;
use std::time::Duration;

use longrein_ports::BoxFuture;
use longrein_protocols::server::{About, Access, Level, Offer, Page, Peer, RpcError, ToolDef, ToolReply, serve_http};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

/// One red point.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// No sound at all.
const WAV: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let listener = tokio::net::TcpListener::bind(&address).await?;
    println!("http://{}/mcp", listener.local_addr()?);
    serve_http(Arc::new(Fixtures), listener, Access::Anybody, CancellationToken::new()).await
}

struct Fixtures;

fn tool(name: &str, description: &str, input_schema: Value) -> ToolDef {
    ToolDef {
        name: name.to_owned(),
        title: name.replace('_', " "),
        description: description.to_owned(),
        input_schema,
        annotations: Value::Null,
    }
}

fn nothing() -> Value {
    json!({ "type": "object", "properties": {} })
}

fn with(name: &str) -> Value {
    json!({ "type": "object", "properties": { name: { "type": "string" } }, "required": [name] })
}

fn text(arguments: &Map<String, Value>, name: &str) -> Result<String, RpcError> {
    let text = arguments.get(name).and_then(Value::as_str).map(str::to_owned);
    text.ok_or_else(|| RpcError::invalid_params(format!("\"{name}\" must be a string")))
}

fn reply(content: Value) -> ToolReply {
    ToolReply { content: vec![content], ..ToolReply::default() }
}

fn image() -> Value {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}

fn said(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn resource(uri: &str, kind: &str, text: &str) -> Value {
    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": kind, "text": text } })
}

fn in_2020_12() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
            },
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}

fn defaults() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "description": "User name", "default": "John Doe" },
            "age": { "type": "integer", "description": "User age", "default": 30 },
            "score": { "type": "number", "description": "User score", "default": 95.5 },
            "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
            "verified": { "type": "boolean", "description": "Verification status", "default": true },
        },
        "required": [],
    })
}

fn enums() -> Value {
    let options = json!(["option1", "option2", "option3"]);
    let titled = |word: &str| {
        json!([
            { "const": "value1", "title": format!("First {word}") },
            { "const": "value2", "title": format!("Second {word}") },
            { "const": "value3", "title": format!("Third {word}") },
        ])
    };
    json!({
        "type": "object",
        "properties": {
            "untitledSingle": { "type": "string", "enum": options },
            "titledSingle": { "type": "string", "oneOf": titled("Option") },
            "legacyEnum": {
                "type": "string", "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
            "titledMulti": { "type": "array", "items": { "anyOf": titled("Choice") } },
        },
        "required": [],
    })
}

async fn elicit(peer: &Peer, message: &str, schema: Value, before: &str) -> Result<ToolReply, RpcError> {
    let answer = peer.ask("elicitation/create", &json!({ "message": message, "requestedSchema": schema })).await?;
    let action = answer.get("action").and_then(Value::as_str).unwrap_or_default();
    let content = answer.get("content").cloned().unwrap_or_else(|| json!({}));
    Ok(ToolReply::text(format!("{before}: action={action}, content={content}")))
}

async fn soon() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

impl Fixtures {
    async fn perform(&self, tool: &str, arguments: Map<String, Value>, peer: &Peer) -> Result<ToolReply, RpcError> {
        Ok(match tool {
            "test_simple_text" => ToolReply::text("This is a simple text response for testing."),
            "test_image_content" => reply(image()),
            "test_audio_content" => reply(json!({ "type": "audio", "data": WAV, "mimeType": "audio/wav" })),
            "test_embedded_resource" => {
                reply(resource("test://embedded-resource", "text/plain", "This is an embedded resource content."))
            }
            "test_multiple_content_types" => ToolReply {
                content: vec![
                    said("Multiple content types test:"),
                    image(),
                    resource("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#),
                ],
                ..ToolReply::default()
            },
            "test_tool_with_logging" => {
                for line in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
                    peer.log(Level::Info, "fixtures", &json!(line));
                    soon().await;
                }
                ToolReply::text("Tool with logging executed successfully")
            }
            "test_tool_with_progress" => {
                for (done, line) in [(0.0, "Started"), (50.0, "Half of it"), (100.0, "All of it")] {
                    peer.progress(done, Some(100.0), line);
                    soon().await;
                }
                ToolReply::text("Tool with progress executed successfully")
            }
            "test_error_handling" => {
                ToolReply { is_error: true, ..ToolReply::text("This tool intentionally returns an error for testing") }
            }
            "test_sampling" => {
                let prompt = text(&arguments, "prompt")?;
                let params = json!({
                    "messages": [{ "role": "user", "content": { "type": "text", "text": prompt } }], "maxTokens": 100,
                });
                let answer = peer.ask("sampling/createMessage", &params).await?;
                let said = answer.pointer("/content/text").and_then(Value::as_str).unwrap_or("No response");
                ToolReply::text(format!("LLM response: {said}"))
            }
            "test_elicitation" => {
                let schema = json!({
                    "type": "object",
                    "properties": {
                        "username": { "type": "string", "description": "User's response" },
                        "email": { "type": "string", "description": "User's email address" },
                    },
                    "required": ["username", "email"],
                });
                elicit(peer, &text(&arguments, "message")?, schema, "User response").await?
            }
            "test_elicitation_sep1034_defaults" => {
                let message = "Please review and update the form fields with defaults";
                elicit(peer, message, defaults(), "Elicitation completed").await?
            }
            "test_elicitation_sep1330_enums" => {
                elicit(peer, "Please select options from the enum fields", enums(), "Elicitation completed").await?
            }
            "json_schema_2020_12_tool" => ToolReply::text(Value::Object(arguments).to_string()),
            "test_reconnection" => {
                soon().await;
                peer.cut();
                tokio::time::sleep(Duration::from_millis(300)).await;
                ToolReply::text("Reconnection test completed successfully.")
            }
            other => return Err(RpcError::invalid_params(format!("there is no tool {other}"))),
        })
    }
}

impl Offer for Fixtures {
    fn about(&self) -> About {
        About {
            name: "longrein-conformance".to_owned(),
            title: "Fixtures of the conformance suite".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instructions: "For tests of the protocol.".to_owned(),
            capabilities: json!({
                "tools": {}, "resources": { "subscribe": true }, "prompts": {}, "logging": {}, "completions": {},
            }),
        }
    }

    fn tools(&self) -> Vec<ToolDef> {
        vec![
            tool("test_simple_text", "Some text", nothing()),
            tool("test_image_content", "An image", nothing()),
            tool("test_audio_content", "A sound", nothing()),
            tool("test_embedded_resource", "A resource inside a result", nothing()),
            tool("test_multiple_content_types", "Text, image and resource", nothing()),
            tool("test_tool_with_logging", "Log lines while it works", nothing()),
            tool("test_tool_with_progress", "Progress while it works", nothing()),
            tool("test_error_handling", "Fails", nothing()),
            tool("test_sampling", "Asks the client's model", with("prompt")),
            tool("test_elicitation", "Asks the client's user", with("message")),
            tool("test_elicitation_sep1034_defaults", "Asks with defaults", nothing()),
            tool("test_elicitation_sep1330_enums", "Asks with choices", nothing()),
            tool("json_schema_2020_12_tool", "Tool with JSON Schema 2020-12 features", in_2020_12()),
            tool("test_reconnection", "Ends its stream before it answers", nothing()),
        ]
    }

    fn call<'a>(
        &'a self,
        tool: &'a str,
        arguments: Map<String, Value>,
        peer: &'a Peer,
    ) -> BoxFuture<'a, Result<ToolReply, RpcError>> {
        Box::pin(self.perform(tool, arguments, peer))
    }

    fn resources<'a>(&'a self, _cursor: Option<&'a str>) -> BoxFuture<'a, Result<Page, RpcError>> {
        let resource = |uri: &str, name: &str, kind: &str| json!({ "uri": uri, "name": name, "description": name, "mimeType": kind });
        let items = vec![
            resource("test://static-text", "Static text", "text/plain"),
            resource("test://static-binary", "Static image", "image/png"),
            resource("test://watched-resource", "A resource that is watched", "text/plain"),
        ];
        Box::pin(async move { Ok(Page { items, next: None }) })
    }

    fn templates(&self) -> Vec<Value> {
        vec![json!({
            "uriTemplate": "test://template/{id}/data", "name": "Template", "description": "Data by id",
            "mimeType": "application/json",
        })]
    }

    fn read<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<Vec<Value>, RpcError>> {
        Box::pin(async move {
            let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
            Ok(vec![match (uri, id) {
                ("test://static-text", _) => {
                    json!({ "uri": uri, "mimeType": "text/plain", "text": "This is the content of the static text resource." })
                }
                ("test://static-binary", _) => json!({ "uri": uri, "mimeType": "image/png", "blob": PNG }),
                ("test://watched-resource", _) => json!({ "uri": uri, "mimeType": "text/plain", "text": "Watched" }),
                (_, Some(id)) => {
                    let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
                    json!({ "uri": uri, "mimeType": "application/json", "text": data.to_string() })
                }
                _ => return Err(RpcError::no_such_resource(uri)),
            }])
        })
    }

    fn subscribe(&self, _uri: &str) -> Result<(), RpcError> {
        Ok(())
    }

    fn prompts(&self) -> Option<Vec<Value>> {
        let argument = |name: &str| json!({ "name": name, "description": name, "required": true });
        let prompt =
            |name: &str, arguments: Vec<Value>| json!({ "name": name, "description": name, "arguments": arguments });
        Some(vec![
            prompt("test_simple_prompt", Vec::new()),
            prompt("test_prompt_with_arguments", vec![argument("arg1"), argument("arg2")]),
            prompt("test_prompt_with_embedded_resource", vec![argument("resourceUri")]),
            prompt("test_prompt_with_image", Vec::new()),
        ])
    }

    fn prompt(&self, name: &str, arguments: &Map<String, Value>) -> Result<Value, RpcError> {
        let user = |content: Value| json!({ "role": "user", "content": content });
        let messages = match name {
            "test_simple_prompt" => vec![user(said("This is a simple prompt for testing."))],
            "test_prompt_with_arguments" => {
                let (one, two) = (text(arguments, "arg1")?, text(arguments, "arg2")?);
                vec![user(said(&format!("Prompt with arguments: arg1='{one}', arg2='{two}'")))]
            }
            "test_prompt_with_embedded_resource" => {
                let uri = text(arguments, "resourceUri")?;
                let embedded = resource(&uri, "text/plain", "Embedded resource content for testing.");
                vec![user(embedded), user(said("Please process the embedded resource above."))]
            }
            "test_prompt_with_image" => vec![user(image()), user(said("Please analyze the image above."))],
            other => return Err(RpcError::invalid_params(format!("there is no prompt {other}"))),
        };
        Ok(json!({ "messages": messages }))
    }

    fn complete(&self, _params: &Map<String, Value>) -> Result<Value, RpcError> {
        Ok(json!({ "completion": { "values": [], "total": 0, "hasMore": false } }))
    }
}
