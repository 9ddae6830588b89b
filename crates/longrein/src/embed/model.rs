//! Models by name, of the embedding program, or scripted in code.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use longrein_core::budget::{Price, Usage};
use longrein_core::ids::ModelName;
use longrein_core::outcome::{Billing, Finish, ModelErrorClass, ModelFailure, RawCall, Reply};
use longrein_core::task::{ModelSpec, Protocol, Temperature};
use longrein_models::script::ScriptedModel;
use longrein_models::{ModelConfig, Secret, Timeouts};
use longrein_ports::Model;
use serde::Serialize;
use serde_json::json;

/// Which model answers, and how it is reached. A text is a [`named`](LanguageModel::named) one.
#[derive(Clone)]
pub struct LanguageModel {
    pub(crate) source: Source,
    spec: ModelSpec,
}

/// Where a model comes from.
#[derive(Clone)]
pub(crate) enum Source {
    Provider(Box<ModelConfig>),
    Own(Arc<dyn Model>),
    Script(Arc<Vec<Result<Reply, ModelFailure>>>),
}

/// The most tokens of a reply where nothing says otherwise.
const MAX_OUTPUT: u64 = 8_192;

const FREE: Price = Price { input: 0, cached: 0, cache_write: 0, output: 0, reasoning: None };

impl LanguageModel {
    /// A model of a provider: `openai/NAME` (any compatible server, with [`base_url`](LanguageModel::base_url)),
    /// `ollama/NAME`, or `script/FILE`.
    pub fn named(name: &str) -> Self {
        let price = name.starts_with("script/").then_some(FREE);
        Self::of(name, Source::Provider(Box::default()), price)
    }

    /// A model of this program. The name stands in the journal; a run goes on with the model of that name.
    pub fn own(name: &str, model: Arc<dyn Model>) -> Self {
        Self::of(name, Source::Own(model), None)
    }

    fn of(name: &str, source: Source, price: Option<Price>) -> Self {
        let spec = ModelSpec { price, ..ModelSpec::plain(ModelName::new(name), MAX_OUTPUT) };
        Self { source, spec }
    }

    fn configured(mut self, change: impl FnOnce(&mut ModelConfig)) -> Self {
        if let Source::Provider(config) = &mut self.source {
            change(config);
        }
        self
    }

    /// Where the provider's server is, up to and with `/v1`.
    #[must_use]
    pub fn base_url(self, url: &str) -> Self {
        self.configured(|config| config.base_url = Some(url.to_owned()))
    }

    /// The key for the provider. It is kept out of everything tools return.
    #[must_use]
    pub fn api_key(self, key: &str) -> Self {
        self.configured(|config| config.api_key = Some(Secret::new(key)))
    }

    /// The sampling temperature; the provider's own if not given.
    #[must_use]
    pub fn temperature(mut self, temperature: Temperature) -> Self {
        self.spec.temperature = Some(temperature);
        self
    }

    /// The most tokens of a request and its reply together, where that is known.
    #[must_use]
    pub fn context_limit(mut self, tokens: u64) -> Self {
        self.spec.context_limit = Some(tokens);
        self
    }

    /// How it calls tools: by its provider's own means if not said, or by JSON in its text.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.spec.protocol = protocol;
        self
    }

    /// How long to wait for the provider.
    #[must_use]
    pub fn timeouts(self, timeouts: Timeouts) -> Self {
        self.configured(|config| config.timeouts = Some(timeouts))
    }

    /// What a relative script path is relative to; the working directory if not given.
    #[must_use]
    pub fn base_folder(self, folder: impl Into<PathBuf>) -> Self {
        self.configured(|config| config.base_folder = folder.into())
    }

    /// The most tokens of one reply, reasoning included; 8,192 if not given.
    #[must_use]
    pub fn max_output(mut self, tokens: u64) -> Self {
        self.spec.max_output = tokens;
        self
    }

    /// What it costs. A budget in dollars needs it.
    #[must_use]
    pub fn price(mut self, price: Price) -> Self {
        self.spec.price = Some(price);
        self
    }

    pub(crate) fn name(&self) -> &ModelName {
        &self.spec.name
    }

    /// Whether a provider has it, and not this program.
    pub(crate) fn is_provided(&self) -> bool {
        match &self.source {
            Source::Provider(_) => true,
            Source::Own(_) | Source::Script(_) => false,
        }
    }

    pub(crate) fn spec(&self) -> ModelSpec {
        self.spec.clone()
    }

    /// How a provider is reached, and the model itself where it comes from this program.
    pub(crate) fn connect(&self) -> (ModelConfig, Option<Arc<dyn Model>>) {
        match &self.source {
            Source::Provider(config) => ((**config).clone(), None),
            Source::Own(model) => (ModelConfig::default(), Some(Arc::clone(model))),
            // One for every drive: a script remembers what it has served.
            Source::Script(replies) => {
                (ModelConfig::default(), Some(Arc::new(ScriptedModel::of(replies.iter().cloned()))))
            }
        }
    }
}

impl From<&str> for LanguageModel {
    fn from(name: &str) -> Self {
        Self::named(name)
    }
}

/// Shows the name; a configuration may hold a key.
impl fmt::Debug for LanguageModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LanguageModel").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

/// Replies written in code, one for each model call: for tests and examples, without a network.
///
/// ```
/// use longrein::Script;
/// use serde_json::json;
///
/// let script = Script::new().call("temperature", json!({ "name": "Oslo" })).text("It is -3.5 °C in Oslo.");
/// # let _ = script;
/// ```
#[derive(Debug, Clone, Default)]
pub struct Script {
    replies: Vec<Result<Reply, ModelFailure>>,
}

impl Script {
    /// No reply yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A reply with one call.
    #[must_use]
    pub fn call(self, tool: &str, args: impl Serialize) -> Self {
        self.calls([(tool, json!(args))])
    }

    /// A reply with several calls.
    #[must_use]
    pub fn calls<'a>(self, calls: impl IntoIterator<Item = (&'a str, serde_json::Value)>) -> Self {
        let calls = calls.into_iter().map(|(name, args)| RawCall {
            id: String::new(),
            name: name.to_owned(),
            arguments: args.to_string(),
        });
        let reply = Reply {
            text: String::new(),
            calls: calls.collect(),
            finish: Finish::ToolCalls,
            usage: Some(Usage::default()),
            repaired: None,
            wired: None,
        };
        self.reply(Ok(reply))
    }

    /// A reply without a call: the answer.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        let usage = Some(Usage::default());
        self.reply(Ok(Reply {
            text: text.into(),
            calls: Vec::new(),
            finish: Finish::Stop,
            usage,
            repaired: None,
            wired: None,
        }))
    }

    /// An answer in JSON.
    #[must_use]
    pub fn json(self, answer: impl Serialize) -> Self {
        self.text(json!(answer).to_string())
    }

    /// A call that fails for now: it is tried again.
    #[must_use]
    pub fn fails(self, message: &str) -> Self {
        self.reply(Err(ModelFailure {
            class: ModelErrorClass::Transient,
            message: message.to_owned(),
            status: None,
            retry_after_s: None,
            billing: Billing::Nothing,
            usage: None,
            partial: None,
            served: None,
        }))
    }

    /// Exactly this.
    #[must_use]
    pub fn reply(mut self, reply: Result<Reply, ModelFailure>) -> Self {
        self.replies.push(reply);
        self
    }
}

impl From<Script> for LanguageModel {
    fn from(script: Script) -> Self {
        Self::of(SCRIPT_NAME, Source::Script(Arc::new(script.replies)), Some(FREE))
    }
}

/// What a script in code is called in the journal.
const SCRIPT_NAME: &str = "code/script";
