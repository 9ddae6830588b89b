//! What a server offers: tools, resources, prompts. The rest of this module carries any of it.

use longrein_ports::BoxFuture;
use serde_json::{Map, Value, json};

use super::{Peer, RpcError};

/// Who a server is.
#[derive(Debug, Clone)]
pub struct About {
    /// Its name, for programs.
    pub name: String,
    /// Its name, for people.
    pub title: String,
    /// Its version.
    pub version: String,
    /// How a model is to use it.
    pub instructions: String,
    /// `capabilities`, as `initialize` answers them.
    pub capabilities: Value,
}

/// A tool, as `tools/list` shows it.
#[derive(Debug, Clone)]
pub struct ToolDef {
    /// What it is called by.
    pub name: String,
    /// Its name, for people.
    pub title: String,
    /// What it does and when to use it, for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
    /// What it may do to the world.
    pub annotations: Value,
}

impl ToolDef {
    pub(crate) fn to_value(&self) -> Value {
        let mut tool = json!({
            "name": self.name, "title": self.title, "description": self.description, "inputSchema": self.input_schema,
        });
        if let (Value::Object(tool), false) = (&mut tool, self.annotations.is_null()) {
            tool.insert("annotations".to_owned(), self.annotations.clone());
        }
        tool
    }
}

/// What a tool brings back.
#[derive(Debug, Clone, Default)]
pub struct ToolReply {
    /// Content blocks.
    pub content: Vec<Value>,
    /// The same as one value.
    pub structured: Option<Value>,
    /// The tool failed: for the model to read, no error of the protocol.
    pub is_error: bool,
}

impl ToolReply {
    /// Some text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![json!({ "type": "text", "text": text.into() })], ..Self::default() }
    }

    /// A value, and the same as text for clients that read only that.
    pub fn value(value: Value) -> Self {
        let text = value.to_string();
        Self { structured: Some(value), ..Self::text(text) }
    }

    pub(crate) fn into_value(self) -> Value {
        let mut reply = Map::new();
        reply.insert("content".to_owned(), Value::Array(self.content));
        if let Some(structured) = self.structured {
            reply.insert("structuredContent".to_owned(), structured);
        }
        if self.is_error {
            reply.insert("isError".to_owned(), Value::Bool(true));
        }
        Value::Object(reply)
    }
}

/// Part of a listing.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// What is in it.
    pub items: Vec<Value>,
    /// Where the next one begins. None: this was the last.
    pub next: Option<String>,
}

/// What a server has to say. Only [`Offer::about`], [`Offer::tools`] and [`Offer::call`] must be there.
pub trait Offer: Send + Sync + 'static {
    /// Who it is.
    fn about(&self) -> About;

    /// All its tools.
    fn tools(&self) -> Vec<ToolDef>;

    /// Calls a tool that [`Offer::tools`] names.
    fn call<'a>(
        &'a self,
        tool: &'a str,
        arguments: Map<String, Value>,
        peer: &'a Peer,
    ) -> BoxFuture<'a, Result<ToolReply, RpcError>>;

    /// Its resources after a cursor that an earlier page gave.
    fn resources<'a>(&'a self, _cursor: Option<&'a str>) -> BoxFuture<'a, Result<Page, RpcError>> {
        Box::pin(async { Err(RpcError::method_not_found("resources/list")) })
    }

    /// Shapes of further addresses.
    fn templates(&self) -> Vec<Value> {
        Vec::new()
    }

    /// The contents of a resource.
    fn read<'a>(&'a self, _uri: &'a str) -> BoxFuture<'a, Result<Vec<Value>, RpcError>> {
        Box::pin(async { Err(RpcError::method_not_found("resources/read")) })
    }

    /// Whether to tell of changes of a resource; an error where that is not offered.
    fn subscribe(&self, _uri: &str) -> Result<(), RpcError> {
        Err(RpcError::method_not_found("resources/subscribe"))
    }

    /// Prompts, as `prompts/list` shows them. None: this server has no prompts.
    fn prompts(&self) -> Option<Vec<Value>> {
        None
    }

    /// What `prompts/get` answers.
    fn prompt(&self, _name: &str, _arguments: &Map<String, Value>) -> Result<Value, RpcError> {
        Err(RpcError::method_not_found("prompts/get"))
    }

    /// What `completion/complete` answers.
    fn complete(&self, _params: &Map<String, Value>) -> Result<Value, RpcError> {
        Err(RpcError::method_not_found("completion/complete"))
    }

    /// The server is about to end: what it started comes to rest in order. Requests are answered for a while yet.
    fn closing(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
