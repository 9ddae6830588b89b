//! What a refusal means: from an HTTP status and an error body, in any spelling seen in the wild, to a class that says
//! what should follow.

use std::borrow::Cow;

use longrein_core::budget::Usage;
use longrein_core::outcome::{Billing, ModelErrorClass, ModelFailure, Served};
use serde_json::Value;

use crate::overflow::{Words, is_limit};
use crate::pause;
use crate::reading::{TOKENS_MAX, spoilt};

/// The most bytes of a provider's own words that go into a message.
const PROVIDER_TEXT_MAX_BYTES: usize = 2 * 1024;

/// A refusal as it came: status (absent inside a stream that began well), body, and the seconds it asks us to wait.
pub(crate) struct Refusal<'a> {
    pub(crate) status: Option<u16>,
    pub(crate) body: &'a str,
    pub(crate) retry_after_s: Option<u64>,
}

impl Refusal<'_> {
    pub(crate) fn into_failure(self) -> ModelFailure {
        let told = Told::read(self.body);
        let status = self.status.or(told.status);
        let words = Words::of(&told.text);
        let class = classify(status, &told, &words);
        let served = match class {
            ModelErrorClass::ContextExhausted => told.served(&words).told(),
            ModelErrorClass::Transient
            | ModelErrorClass::RateLimited
            | ModelErrorClass::Overloaded
            | ModelErrorClass::Quota
            | ModelErrorClass::Authentication
            | ModelErrorClass::BadRequest
            | ModelErrorClass::ContentRefused
            | ModelErrorClass::Malformed
            | ModelErrorClass::Lost
            | ModelErrorClass::Script => None,
        };
        let text = if told.text.is_empty() { Cow::Borrowed("no explanation was given") } else { bounded(&told.text) };
        let place = match self.status {
            Some(status) => format!("HTTP {status}"),
            None => match told.status {
                Some(status) => format!("error {status} in the response"),
                None => "error in the response".to_owned(),
            },
        };
        let hint = if told.says(TAKES_NO_TOOLS) {
            NO_TOOLS_HINT
        } else if told.is_of_a_broken_call() {
            "nothing of it was run: call again, with arguments in valid JSON that fit the tool"
        } else if served.is_some_and(|served| served.output.is_some() && served.limit.is_none()) {
            "more output was reserved than this model gives"
        } else {
            hint(class)
        };
        let may_pass =
            matches!(class, ModelErrorClass::RateLimited | ModelErrorClass::Overloaded | ModelErrorClass::Transient);
        let failure = ModelFailure {
            class,
            message: format!("{place}: {text} ({hint})"),
            status,
            retry_after_s: self.retry_after_s.or_else(|| told.pause_s.filter(|_| may_pass)),
            billing: billing(status, class),
            usage: None,
            partial: None,
            served,
        };
        match told.generation {
            Some(generation) => spoilt(failure, generation, Vec::new(), None),
            None => failure,
        }
    }
}

/// A reply that filled the model's window to its end: what came of it is cut, and only a shorter request leaves room for more.
pub(crate) fn window_full(word: &str, usage: Option<Usage>) -> ModelFailure {
    let text = format!("the reply was cut off where the model's window ends ({word}): the prompt is too long for it");
    ModelFailure { usage, ..broken(ModelErrorClass::ContextExhausted, Billing::Perhaps, text) }
}

/// A reply that was cut before it began: the prompt left no room in the window, and the server said so in no other way.
pub(crate) fn no_room(usage: Option<Usage>) -> ModelFailure {
    let prompt = usage.map(|usage| usage.input + usage.cached + usage.cache_write).filter(|prompt| *prompt > 0);
    ModelFailure {
        usage,
        served: Served { prompt, ..Served::default() }.told(),
        ..broken(
            ModelErrorClass::ContextExhausted,
            Billing::Perhaps,
            "the reply was cut off by its length before its first word (the prompt is too long for this model)",
        )
    }
}

/// A failure of ours to get a reply, rather than the provider's word.
pub(crate) fn broken(class: ModelErrorClass, billing: Billing, message: impl Into<String>) -> ModelFailure {
    ModelFailure {
        class,
        message: message.into(),
        status: None,
        retry_after_s: None,
        billing,
        usage: None,
        partial: None,
        served: None,
    }
}

/// What an error body says, whatever its shape.
struct Told {
    /// The words for people; the whole body where no words are found.
    text: String,
    /// Every machine-readable word: code, type, status, metadata.
    marks: String,
    /// A status inside the body.
    status: Option<u16>,
    /// Numbers beside the words: llama.cpp gives those of an overlong prompt.
    limit: Option<u64>,
    prompt: Option<u64>,
    /// For how long it asks us to wait, in words or numbers of its own.
    pause_s: Option<u64>,
    /// What the model wrote, where that was the fault.
    generation: Option<String>,
}

impl Told {
    fn read(body: &str) -> Self {
        let body = body.trim();
        let Ok(value) = serde_json::from_str::<Value>(body) else {
            let text = if body.starts_with('<') { page_text(body) } else { body.to_owned() };
            let pause_s = pause::in_words(&text);
            return Self {
                text,
                marks: String::new(),
                status: None,
                limit: None,
                prompt: None,
                pause_s,
                generation: None,
            };
        };
        // Gemini's compatible endpoint may wrap an error in a list.
        let value = value.get(0).cloned().unwrap_or(value);
        // vLLM and FastAPI put the error at the top; others wrap it, some as a bare string.
        let wrapped = ["error", "errors", "fault", "base_resp"].iter().find_map(|key| {
            let inner = value.get(key).filter(|inner| crate::reading::says_something(inner))?;
            Some(inner.get(0).unwrap_or(inner))
        });
        let error = wrapped.unwrap_or(&value);
        let words = WORDS
            .iter()
            .find_map(|key| error.get(key).and_then(Value::as_str).filter(|words| !words.is_empty()))
            .or_else(|| error.as_str())
            .or_else(|| WORDS.iter().find_map(|key| value.get(key).and_then(Value::as_str)));
        let mut text = words.unwrap_or(body).to_owned();
        let mut marks = String::new();
        for key in ["code", "type", "status", "reason", "__type", "error_code", "errorCode"] {
            if let Some(word) = error.get(key).and_then(Value::as_str) {
                marks.push_str(&word.to_lowercase());
                marks.push(' ');
            }
        }
        if let Some(raw) = error.pointer("/metadata/raw") {
            // Routers hide what the upstream said in here.
            let raw = raw.as_str().map_or_else(|| raw.to_string(), str::to_owned);
            text.push_str(": ");
            text.push_str(&raw);
        }
        if let Some(details) = error.get("details").and_then(Value::as_array) {
            // Google's reasons: which quota, and that a key is none.
            let reasons = details.iter().filter_map(|detail| detail.get("reason"));
            let quotas = details.iter().filter_map(|detail| detail.get("violations")?.as_array()).flatten();
            let quotas = quotas.filter_map(|violation| violation.get("quotaId"));
            for reason in reasons.chain(quotas).filter_map(Value::as_str) {
                marks.push_str(&reason.to_lowercase());
                marks.push(' ');
            }
        }
        if value.get("base_resp").is_some() {
            marks.push_str(base_mark(error.get("status_code").and_then(Value::as_i64)));
        }
        let status = [error, &value].into_iter().find_map(|place| {
            ["code", "status", "status_code", "http_code", "statusCode"].iter().find_map(|key| {
                let number = place.get(key)?;
                let number = number.as_u64().or_else(|| number.as_str()?.parse().ok())?;
                u16::try_from(number).ok().filter(|status| (400..600).contains(status))
            })
        });
        let number = |key: &str| error.get(key).and_then(Value::as_u64);
        let limit = number("n_ctx").filter(|limit| is_limit(*limit));
        let prompt = number("n_prompt_tokens").filter(|prompt| (1..=TOKENS_MAX).contains(prompt));
        let pause_s = [error, &value].into_iter().find_map(pause::in_fields).or_else(|| pause::in_words(&text));
        let generation = error.get("failed_generation").and_then(Value::as_str).map(str::to_owned);
        Self { text, marks, status, limit, prompt, pause_s, generation }
    }

    /// Groq reads the model's calls itself, and tells of one that it cannot read as if the request were at fault.
    fn is_of_a_broken_call(&self) -> bool {
        self.generation.is_some() || self.marks.contains("tool_use_failed")
    }

    fn served(&self, words: &Words) -> Served {
        let said = words.served();
        Served { limit: self.limit.or(said.limit), prompt: self.prompt.or(said.prompt), ..said }
    }

    fn says(&self, words: &[&str]) -> bool {
        let text = self.text.to_lowercase();
        words.iter().any(|word| text.contains(word) || self.marks.contains(word))
    }
}

fn classify(status: Option<u16>, told: &Told, words: &Words) -> ModelErrorClass {
    let text = told.text.to_lowercase();
    let says = |words: &[&str]| told.says(words);
    let marked = |words: &[&str]| words.iter().any(|word| told.marks.contains(word));
    let too_long = || {
        // What is not about the prompt's length may still speak of windows.
        let is_filtered = marked(FILTERED) || (says(FILTERED) && !marked(&["context_length"]));
        !is_filtered && words.are_of_overflow(&told.marks) && !words.are_of_rate(&told.marks)
    };
    if told.is_of_a_broken_call() {
        return ModelErrorClass::Malformed;
    }
    let too_large = || too_long() || words.beyond_rate().is_some() || words.output_limit().is_some();
    match status {
        Some(401 | 403) if marked(&["content_filter", "content_policy", "moderation"]) || says(FILTERED) => {
            ModelErrorClass::ContentRefused
        }
        // Some ban for a while who is too fast, or whose money is gone.
        Some(401 | 403) if says(QUOTA) => ModelErrorClass::Quota,
        Some(403) if says(RATED) => ModelErrorClass::RateLimited,
        Some(401 | 403) => ModelErrorClass::Authentication,
        Some(402) => ModelErrorClass::Quota,
        Some(413) if says(RATED) && !too_large() => ModelErrorClass::RateLimited,
        Some(413) => ModelErrorClass::ContextExhausted,
        Some(429) if too_large() => ModelErrorClass::ContextExhausted,
        // Google words both alike; its name of the quota tells which it is.
        Some(429) if marked(&["perday"]) => ModelErrorClass::Quota,
        Some(429) if marked(&["perminute", "persecond"]) => ModelErrorClass::RateLimited,
        Some(429) if says(QUOTA) => ModelErrorClass::Quota,
        Some(429) if marked(&["engine_overloaded"]) => ModelErrorClass::Overloaded,
        Some(429) => ModelErrorClass::RateLimited,
        Some(498 | 503 | 529) => ModelErrorClass::Overloaded,
        Some(500..=599) if says(OVERLOADED) => ModelErrorClass::Overloaded,
        // llama.cpp's neighbours report an overlong prompt as a fault of the server.
        Some(500..=599) if too_large() => ModelErrorClass::ContextExhausted,
        Some(500..=599) if says(QUOTA) => ModelErrorClass::Quota,
        Some(408 | 409 | 425 | 499..=599) => ModelErrorClass::Transient,
        Some(400 | 422) if too_large() => ModelErrorClass::ContextExhausted,
        Some(_) if says(FILTERED) => ModelErrorClass::ContentRefused,
        Some(_) if says(QUOTA) => ModelErrorClass::Quota,
        Some(_) if marked(KEYS) || KEY_WORDS.iter().any(|words| text.contains(words)) => {
            ModelErrorClass::Authentication
        }
        Some(_) if marked(THROTTLED) => ModelErrorClass::RateLimited,
        Some(_) if marked(&["overloaded_error"]) => ModelErrorClass::Overloaded,
        Some(_) => ModelErrorClass::BadRequest,
        None if too_large() => ModelErrorClass::ContextExhausted,
        None if says(QUOTA) => ModelErrorClass::Quota,
        None if says(RATED) || marked(THROTTLED) => ModelErrorClass::RateLimited,
        None if says(OVERLOADED) || marked(&["unavailable"]) => ModelErrorClass::Overloaded,
        None if says(FILTERED) => ModelErrorClass::ContentRefused,
        None if marked(KEYS) || marked(&["permission"]) || KEY_WORDS.iter().any(|words| text.contains(words)) => {
            ModelErrorClass::Authentication
        }
        None if marked(&["invalid_request", "not_found", "invalid_parameter", "invalidparameter", "validation"])
            || says(&["not found", "field required", "no route", "invalid params", "does not exist"]) =>
        {
            ModelErrorClass::BadRequest
        }
        None => ModelErrorClass::Transient,
    }
}

/// What a gateway's page says: its title, or the page as it is.
fn page_text(page: &str) -> String {
    // The letters of the tag are ASCII, so places in the small-lettered copy are places in the page.
    let small = page.to_ascii_lowercase();
    let title = small.find("<title>").map(|at| at + "<title>".len());
    let title = title.and_then(|from| page[from..].get(..small[from..].find("</title>")?));
    title.map(str::trim).filter(|title| !title.is_empty()).unwrap_or(page).to_owned()
}

/// Where an error says in words what is wrong.
const WORDS: [&str; 14] = [
    "message",
    "detail",
    "error",
    "msg",
    "error_msg",
    "errorMessage",
    "error_message",
    "error_description",
    "status_msg",
    "faultstring",
    "Message",
    "title",
    "description",
    "reason",
];

/// MiniMax's numbers, as the words of others.
fn base_mark(code: Option<i64>) -> &'static str {
    match code {
        Some(1002 | 2045) => "rate_limit ",
        Some(1004 | 2049) => "invalid_api_key ",
        Some(1008 | 2056) => "insufficient_quota ",
        Some(1026 | 1027) => "content_filter ",
        Some(1039) => "context_length_exceeded ",
        Some(2013) => "invalid_request ",
        _ => "",
    }
}

/// Marks and words of "no such key".
const KEYS: &[&str] =
    &["invalid_api_key", "invalidapikey", "authentication", "api_key_invalid", "unauthorized", "unauthenticated"];
const KEY_WORDS: &[&str] =
    &["incorrect api key", "invalid api key", "api key not valid", "api key not found", "no auth credentials"];

/// Spellings of "too fast".
const RATED: &[&str] = &["rate_limit", "rate limit", "ratelimit", "too many requests", "tokens per min", "(tpm)"];
const THROTTLED: &[&str] = &["throttling", "rate_limit", "ratelimit", "too_many_requests", "resource_exhausted"];

/// Spellings of "the account is used up", as opposed to "too fast".
const QUOTA: &[&str] = &[
    "insufficient_user_quota",
    "insufficient account balance",
    "account balance is",
    "credit balance is too low",
    "out of credits",
    "more credits",
    "requires more credits",
    "credits have been used",
    "used all available credits",
    "spending limit",
    "spend limit",
    "payment required",
    "arrearage",
    "account is in arrears",
    "quota exhausted",
    "prepayment",
    "余额不足",
    "欠费",
    "insufficient_balance",
    "exceeded_current_quota",
    "budget_exceeded",
    "account is suspended",
    "credit limit",
    "credit_limit",
    "insufficient_quota",
    "billing",
    "exceeded your current quota",
    "insufficient credits",
    "insufficient balance",
    "extra usage is required",
    "specified api usage limits",
];

/// Spellings of "no tools here": Ollama, llama.cpp, vLLM, routers.
const TAKES_NO_TOOLS: &[&str] = &[
    "does not support tools",
    "does not support tool",
    "tools param requires",
    "tool choice requires",
    "support tool use",
    "not support function calling",
];

const NO_TOOLS_HINT: &str =
    "this model takes no tools: set protocol = \"json\" in its [models.\"…\"] table of the configuration";

const OVERLOADED: &[&str] = &[
    "overloaded",
    "engine_overloaded",
    "currently overloaded",
    "capacity exceeded",
    "no healthy upstream",
    "high demand",
    "service unavailable",
    "resources exhausted",
    "insufficient system resource",
    "loading model",
    "at capacity",
    "over capacity",
    "server busy",
    "maximum pending",
];

const FILTERED: &[&str] = &[
    "content_filter",
    "content_policy",
    "content management policy",
    "content policy",
    "usage policies",
    "responsibleaipolicy",
    "moderation",
    "safety system",
    "data_inspection_failed",
    "datainspectionfailed",
    "inappropriate content",
    "content_policy_violation",
    "content violates",
    "sensitive content",
    "content exists risk",
    "content_filtered",
    "high risk",
    "content filtering policy",
    "usage policy",
    "usage guidelines",
    "flagged as",
    "不安全或敏感内容",
    "cyber_policy",
];

/// A refusal costs nothing. A gateway's or server's time-out means that somebody behind it may have worked; so does a
/// fault inside a stream that had begun.
fn billing(status: Option<u16>, class: ModelErrorClass) -> Billing {
    match (status, class) {
        (Some(408 | 504 | 524), _) | (None, ModelErrorClass::Transient) | (_, ModelErrorClass::Malformed) => {
            Billing::Perhaps
        }
        (_, _) => Billing::Nothing,
    }
}

fn hint(class: ModelErrorClass) -> &'static str {
    match class {
        ModelErrorClass::Transient => "may pass: try again",
        ModelErrorClass::RateLimited => "too many requests: try again more slowly",
        ModelErrorClass::Overloaded => "the provider is overloaded: try again later",
        ModelErrorClass::Quota => "the account's quota is used up: check its plan and billing",
        ModelErrorClass::Authentication => "check the API key and what it is allowed to use",
        ModelErrorClass::BadRequest => "check the model's name, the base URL and the model's settings",
        ModelErrorClass::ContextExhausted => "the prompt is too long for this model",
        ModelErrorClass::ContentRefused => "the provider declined the content",
        ModelErrorClass::Malformed => "the reply cannot be used",
        ModelErrorClass::Lost => "the attempt was given up",
        ModelErrorClass::Script => "mend the script or the task",
    }
}

/// At most [`PROVIDER_TEXT_MAX_BYTES`], cut at a character boundary.
fn bounded(text: &str) -> Cow<'_, str> {
    if text.len() <= PROVIDER_TEXT_MAX_BYTES {
        return Cow::Borrowed(text);
    }
    let kept = &text[..text.floor_char_boundary(PROVIDER_TEXT_MAX_BYTES)];
    Cow::Owned(format!("{kept}… (the first {} of {} bytes that were read)", kept.len(), text.len()))
}
