//! "Too long", in every spelling seen in the wild, and the numbers beside it: what a server says it takes.
//!
//! Wordings are as public reports and the sources of servers have them. Numbers are read strictly: one that is not where a
//! known wording has it, or that no limit could be, teaches nothing, since a wrong limit would be believed for ever.

use longrein_core::outcome::Served;

use crate::reading::TOKENS_MAX;

/// A refusal's words, made comparable: small letters, single spaces, no quotes.
pub(crate) struct Words(String);

/// Nothing that matters comes later.
const WORDS_MAX_BYTES: usize = 8 * 1024;

impl Words {
    pub(crate) fn of(text: &str) -> Self {
        let text = &text[..text.floor_char_boundary(WORDS_MAX_BYTES)];
        let mut words = String::with_capacity(text.len());
        for c in text.chars().filter(|c| !matches!(c, '`' | '"' | '\'' | '*' | '\\' | '‘' | '’' | '“' | '”')) {
            if !c.is_whitespace() {
                words.extend(c.to_lowercase());
            } else if !words.ends_with(' ') {
                words.push(' ');
            }
        }
        Self(words)
    }

    fn have(&self, any: &[&str]) -> bool {
        any.iter().any(|word| self.0.contains(word))
    }

    /// Whether it says that a request is longer than the model, or a door before it, takes. `marks`: the machine-readable
    /// words beside it.
    pub(crate) fn are_of_overflow(&self, marks: &str) -> bool {
        if MARKS.iter().any(|mark| marks.contains(mark) || self.0.contains(mark)) || self.have(TOO_LONG) {
            return true;
        }
        self.have(WINDOW) && self.have(BEYOND) || self.tell_of_length() || self.counts().is_some()
    }

    /// How many tokens were sent and how many are taken, where both are told in whatever words: first the larger count, near
    /// the name of what a model reads, then a smaller one as the most there may be.
    fn counts(&self) -> Option<(u64, u64)> {
        if self.have(ALLOWANCE) || self.have(RATE) {
            return None;
        }
        self.0.match_indices(" tokens").find_map(|(end, _)| {
            let counted = ["input", "prompt", "total"].iter().find_map(|kind| self.0[..end].strip_suffix(kind));
            let counted = counted.unwrap_or(&self.0[..end]).trim_end();
            let start = counted.trim_end_matches(is_of_number).len();
            let (sent, _) = tokens(&self.0[start..])?;
            let rest = near(&self.0[end..], 120);
            let around = &self.0[self.0.floor_char_boundary(start.saturating_sub(60))..end + near(rest, 30).len()];
            let is_read = READ.iter().chain(SENT).any(|noun| after(noun, around).is_some());
            let most = MOST.iter().filter_map(|word| rest.find(word).map(|at| &rest[at + word.len()..]));
            let mut taken = most.filter_map(|rest| {
                let (number, length) = tokens(rest)?;
                let unit = rest[length..].trim_start();
                let is_of_all =
                    unit.is_empty() || unit.starts_with(['.', ',', ';', ')', '!']) || unit.starts_with("token");
                (is_of_all && is_limit(number) && number < sent).then_some(number)
            });
            taken.next().filter(|_| is_read).map(|taken| (sent, taken))
        })
    }

    /// Whether it names what a model reads, says that it is beyond something, and then beyond what: in this order and near to
    /// each other, so that a word about something else does not count.
    fn tell_of_length(&self) -> bool {
        if self.have(ALLOWANCE) {
            return false;
        }
        if self.have(READ_ZH) && self.have(BEYOND_ZH) && self.have(MEASURE_ZH) {
            return true;
        }
        let mut sentences = self.0.split([';', '!']).flat_map(|part| part.split(". "));
        sentences.any(|sentence| READ.iter().filter_map(|noun| after(noun, sentence)).any(is_beyond_a_bound))
    }

    /// Whether it speaks of a rate: how much is taken in a span of time.
    pub(crate) fn are_of_rate(&self, marks: &str) -> bool {
        marks.contains("rate_limit") || self.have(RATE)
    }

    /// A request that is larger than what is taken in a minute cannot pass by waiting: the rate is then a limit of its
    /// size.
    pub(crate) fn beyond_rate(&self) -> Option<u64> {
        let mut found = Found::default();
        let is_told = ["limit {limit}, requested {asked}", "limit {limit}, used {_}, requested {asked}"]
            .iter()
            .any(|wording| found.read(wording, &self.0));
        let limit = found.limit.filter(|limit| is_told && found.asked > Some(*limit))?;
        is_limit(limit).then_some(limit)
    }

    /// The most output the model gives, where more was asked for.
    pub(crate) fn output_limit(&self) -> Option<u64> {
        let mut found = Found::default();
        OUTPUT.iter().any(|wording| found.read(wording, &self.0));
        let beyond = Found::default().also(OUTPUT_BELOW, &self.0).output.map(|output| output.saturating_sub(1));
        found.output.or(beyond).filter(|output| is_limit(*output))
    }

    /// What it says of limits, where it is one of overflow.
    pub(crate) fn served(&self) -> Served {
        let mut found = Found::default().also(TOKENS, &self.0);
        if let (None, Some((sent, taken))) = (found.limit, self.counts()) {
            (found.prompt, found.limit) = (found.prompt.or(Some(sent)), Some(taken));
        }
        let bytes = Found::default().also(BYTES, &self.0).bytes;
        Served {
            limit: found.limit.or_else(|| self.beyond_rate()).filter(|limit| is_limit(*limit)),
            prompt: found.prompt.filter(|prompt| (1..=TOKENS_MAX).contains(prompt)),
            output: self.output_limit(),
            bytes: bytes.filter(|bytes| (BYTES_MIN..=BYTES_MAX).contains(bytes)),
        }
    }
}

/// What follows the name of what a model reads, where it is a word of its own and not the place of something else (`images in
/// the prompt`).
fn after<'a>(noun: &str, sentence: &'a str) -> Option<&'a str> {
    let parts = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '-');
    sentence.match_indices(noun).find_map(|(at, _)| {
        let (before, rest) = (&sentence[..at], &sentence[at + noun.len()..]);
        let is_place = [" in", " in the", " in your", " per"].iter().any(|word| before.trim_end().ends_with(word));
        (parts(rest.chars().next()) && parts(before.chars().next_back()) && !is_place).then_some(rest)
    })
}

/// Whether something near is beyond a limit: one with a name or a number.
fn is_beyond_a_bound(rest: &str) -> bool {
    let rest = near(rest, 80);
    let verb = EXCEEDS.iter().filter_map(|verb| rest.find(verb).map(|at| at + verb.len())).min();
    let Some(bound) = verb.map(|at| near(&rest[at..], 30)) else { return false };
    let number = bound.trim_start_matches(char::is_alphabetic).trim_start();
    BOUND.iter().any(|word| bound.contains(word)) || tokens(number).is_some_and(|(number, _)| is_limit(number))
}

/// The start of a text, so many bytes or a little less.
fn near(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// No model takes less, and no number below it is a limit of tokens.
const LIMIT_MIN: u64 = 256;

/// No gateway takes less, nor does any more than this.
const BYTES_MIN: u64 = 16 << 10;
const BYTES_MAX: u64 = 16 << 30;

pub(crate) fn is_limit(tokens: u64) -> bool {
    (LIMIT_MIN..=TOKENS_MAX).contains(&tokens)
}

/// Codes and types of errors.
const MARKS: &[&str] = &[
    "context_length_exceeded",
    "context_window_exceeded",
    "contextwindowexceeded",
    "exceed_context_size",
    "model_max_prompt_tokens_exceeded",
    "tokens_limit_reached",
    "string_above_max_length",
    "request_too_large",
    "prompt_too_long",
    "input_too_long",
];

/// What says it all.
const TOO_LONG: &[&str] = &[
    "maximum context length",
    "maximum prompt length",
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "input too long",
    "prompt is longer than",
    "conversation is too long",
    "conversation too long",
    "messages are too long",
    // What is left for the reply, worked out by the server.
    "tokens must be at least 1, got -",
    "too large for model",
    "too many input tokens",
    "too many tokens:",
    "exceeds the maximum number of tokens",
    "exceed context limit",
    "exceeds the context",
    "exceed the context",
    "input token count exceeds",
    "tokens in the prompt cannot exceed",
    "range of input length should be",
    "inputs tokens + max_new_tokens must be",
    "inputs must have less than",
    "longer than the models context length",
    "longer than the maximum model length",
    "reduce the length of the messages",
    "reduce the length of your",
    "reduce the length of either",
    "expected maxlength:",
    "context the overflows",
    "request entity too large",
    "payload too large",
    "request body too large",
    "request exceeds the maximum size",
    "request size exceeds",
    "payload size exceeds",
    "maximum allowed number of bytes",
    // Zhipu's.
    "prompt 超长",
];

/// Names of the window, which may be spoken of for any reason …
const WINDOW: &[&str] = &[
    "context window",
    "context_window",
    "context length",
    "context_length",
    "context size",
    "context limit",
    "token limit",
    "max_model_len",
    "max_seq_len",
    "number of tokens",
    "prompt token count",
    "input token count",
];

/// … and what makes it this one.
const BEYOND: &[&str] = &[
    "exceed",
    "too long",
    "too large",
    "too many tokens",
    "larger than",
    "longer than",
    "greater than",
    "more than",
    "overflow",
    "does not fit",
    "doesnt fit",
    "not enough",
    "ran out of",
];

/// What a model reads …
const READ: &[&str] = &[
    "prompt",
    "prompt length",
    "prompt tokens",
    "prompt_tokens",
    "input length",
    "input tokens",
    "input_tokens",
    "tokens in the prompt",
    "tokens in prompt",
    "total length",
    "total tokens",
    "total number of tokens",
    "length of messages",
    "length of the messages",
];

/// … other names of it, beside a count of tokens …
const SENT: &[&str] = &["input", "request", "message", "messages", "conversation", "context"];

/// … which is more than this.
const MOST: &[&str] = &[
    "up to ",
    "at most ",
    "maximum of ",
    "maximum is ",
    "a maximum ",
    "no more than ",
    "limit of ",
    "limit is ",
    "only ",
];

/// … is beyond …
const EXCEEDS: &[&str] = &["exceed", "longer than", "larger than", "greater than", "must be less than", " > "];

/// … this.
const BOUND: &[&str] = &["max", "limit", "context"];

/// The same three in Chinese, whose words have no ends.
const READ_ZH: &[&str] = &["输入", "上下文", "提示词", "消息", "prompt", "请求"];
const BEYOND_ZH: &[&str] = &["超过", "超出", "超长", "过长", "太长"];
const MEASURE_ZH: &[&str] = &["长度", "上下文", "token"];

/// What is bought or granted has an end too, which a shorter request does not move.
const ALLOWANCE: &[&str] = &[
    "quota",
    "month",
    "daily",
    "credit",
    "balance",
    "billing",
    "your plan",
    "每分钟",
    "每天",
    "频率",
    "速率",
    "配额",
    "余额",
    "额度",
];

const RATE: &[&str] = &[
    "per minute",
    "per min",
    "per hour",
    "per day",
    "per second",
    "rate limit",
    "rate-limit",
    "(tpm)",
    "(rpm)",
    "(tpd)",
    "too many requests",
    "current quota",
];

/// Where a number stands in a wording. `{limit}`: tokens taken in all. `{prompt}`: tokens counted; several add up.
/// `{output}`: tokens given. `{bytes}`: with its unit. `{asked}`, `{_}`: read and of no further use.
const TOKENS: &[&str] = &[
    "prompt is too long: {prompt} tokens > {limit} maximum",
    "exceed context limit: {prompt} + {_} > {limit}",
    "maximum context length is {limit}",
    "maximum context length of {limit}",
    "model maximum context length: {limit}",
    "messages resulted in {prompt} tokens",
    "({prompt} in the messages, {prompt} in the functions, {_} in the completion)",
    "({prompt} in the messages, {_} in the completion)",
    "({prompt} in the messages)",
    "({prompt} in your prompt; {_} for the completion)",
    "({prompt} of text input, {prompt} of tool input",
    "({prompt} of text input",
    "{prompt} tokens from the input messages and {_} tokens for the completion",
    "your request has {prompt} input tokens",
    "input token count ({prompt}) exceeds the maximum number of tokens allowed ({limit})",
    "exceeds the maximum number of tokens allowed ({limit})",
    "exceeds the maximum number of tokens allowed {limit}",
    "request ({prompt} tokens) exceeds the available context size ({limit} tokens)",
    "exceeds the available context size ({limit} tokens)",
    "prompt contains {prompt} tokens and {_} draft tokens, too large for model with {limit} maximum context length",
    "prompt contains {prompt} tokens, too large for model with {limit} maximum context length",
    "too large for model with {limit} maximum context length",
    "maximum prompt length is {limit} but the request contains {prompt} tokens",
    "max input tokens: {limit}, request input token count: {prompt}",
    "prompt (length {prompt}) is longer than the maximum model length of {limit}",
    "input ({prompt} tokens) is longer than the models context length ({limit} tokens)",
    "max_new_tokens must be <= {limit}. given: {prompt} inputs tokens",
    "inputs must have less than {limit} tokens. given: {prompt}",
    "tokens in the prompt cannot exceed {limit} - received {prompt}",
    "the limit for this model is {limit} tokens",
    "prompt is too long: {prompt}, model maximum context length: {limit}",
    "current length is {prompt} while limit is {limit}",
    "prompt token count of {prompt} exceeds the limit of {limit}",
    "max size: {limit} tokens",
    "keep the first {prompt} tokens",
    "context length of only {limit} tokens",
    "range of input length should be [1, {limit}]",
    "range of input length should be [1,{limit}]",
    "length of tokens {prompt} exceed",
    "length of prompt_tokens ({prompt}) must be less than max_seq_len ({limit})",
    "input length {prompt} exceeds the maximum length {limit}",
    "input tokens {prompt} has exceeded max_prompt_tokens {limit}",
    "input tokens ({prompt}) > context_len ({limit})",
    "length of messages exceeds {limit}",
    "should not exceed max_num_tokens ({limit})",
    "最大上下文长度 {limit}",
    "context window of {limit} tokens",
    "context window is {limit} tokens",
    "context size of {limit} tokens",
    "context size is {limit} tokens",
    "context length is {limit}",
    "context length of {limit}",
    "context limit is {limit} tokens",
    "context limit of {limit} tokens",
];

const OUTPUT: &[&str] = &[
    "supports at most {output} completion tokens",
    "max_tokens: {_} > {output}, which is the maximum allowed number of output tokens",
    "valid range of max_tokens is [1, {output}]",
    "valid range of max_tokens is [1,{output}]",
    "range of max_tokens should be [1, {output}]",
    "range of max_tokens should be [1,{output}]",
    "max_tokens must be less than or equal to {output}",
    "max_completion_tokens must be less than or equal to {output}",
    "max_output_tokens must be less than or equal to {output}",
    "exceeds the model limit of {output}. try again with a maximum tokens value",
];

/// Given as the first number that is too large.
const OUTPUT_BELOW: &[&str] =
    &["maxoutputtokens value of {_} but the supported range is from 1 (inclusive) to {output} (exclusive)"];

const BYTES: &[&str] = &[
    "payload size exceeds the limit: {bytes}",
    "request exceeds the maximum size of {bytes}",
    "request size exceeds {bytes}",
    "request size exceeds the limit of {bytes}",
    "maximum allowed size of {bytes}",
    "maximum request size of {bytes}",
    "maximum request size is {bytes}",
    "maximum allowed number of bytes ({bytes})",
    "maximum allowed number of bytes: {bytes}",
    "body larger than {bytes}",
    "body exceeds {bytes}",
    "body size limit of {bytes}",
    "maximum body size of {bytes}",
    "exceeds the maximum allowed size ({bytes})",
];

/// The numbers of wordings that fit.
#[derive(Debug, Default)]
struct Found {
    limit: Option<u64>,
    prompt: Option<u64>,
    output: Option<u64>,
    bytes: Option<u64>,
    asked: Option<u64>,
}

impl Found {
    /// The first wording to tell a number counts.
    fn also(mut self, wordings: &[&str], text: &str) -> Self {
        for wording in wordings {
            let mut more = Self::default();
            more.read(wording, text);
            self = Self {
                limit: self.limit.or(more.limit),
                prompt: self.prompt.or(more.prompt),
                output: self.output.or(more.output),
                bytes: self.bytes.or(more.bytes),
                asked: self.asked.or(more.asked),
            };
        }
        self
    }

    /// Reads the numbers of a wording where the text has it.
    fn read(&mut self, wording: &str, text: &str) -> bool {
        let first = wording.split('{').next().unwrap_or_default();
        if first.is_empty() {
            // It begins with a number: that is where the rest says it ends.
            let Some((name, rest)) = wording[1..].split_once('}') else { return false };
            let second = rest.split('{').next().unwrap_or_default();
            return text.match_indices(second).any(|(at, _)| {
                let start = text[..at].trim_end_matches(is_of_number).len();
                self.follow(&format!("{{{name}}}{rest}"), &text[start..])
            });
        }
        text.match_indices(first).any(|(at, _)| self.follow(&wording[first.len()..], &text[at + first.len()..]))
    }

    /// Whether `text` goes on as the wording does. Nothing is taken over unless all of it does.
    fn follow(&mut self, wording: &str, text: &str) -> bool {
        let mut found = Self::default();
        let (mut wording, mut text) = (wording, text);
        while let Some(rest) = wording.strip_prefix('{') {
            let Some((name, after)) = rest.split_once('}') else { return false };
            let number = if name == "bytes" { bytes(text) } else { tokens(text) };
            let Some((number, length)) = number else { return false };
            match name {
                "limit" => found.limit = Some(number),
                "prompt" => found.prompt = Some(found.prompt.unwrap_or(0).saturating_add(number)),
                "output" => found.output = Some(number),
                "bytes" => found.bytes = Some(number),
                "asked" => found.asked = Some(number),
                _ => {}
            }
            let literal = after.split('{').next().unwrap_or_default();
            let Some(left) = text[length..].strip_prefix(literal) else { return false };
            (wording, text) = (&after[literal.len()..], left);
        }
        *self = found;
        true
    }
}

fn is_of_number(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, ',' | '_')
}

/// A number of tokens at the start of a text, and its length. `128k` is at least 128,000.
fn tokens(text: &str) -> Option<(u64, usize)> {
    let about = ["about ", "~", "approximately ", "about ~"].iter().find(|word| text.starts_with(**word));
    let skipped = about.map_or(0, |word| word.len());
    let (number, length) = number(&text[skipped..])?;
    let rest = &text[skipped + length..];
    let (factor, unit) = match rest.as_bytes() {
        [b'k', ..] => (1_000, 1),
        [b'm', ..] => (1_000_000, 1),
        _ => (1, 0),
    };
    let is_whole = rest.as_bytes().get(unit).is_none_or(|byte| !byte.is_ascii_alphanumeric());
    is_whole.then(|| Some((number.checked_mul(factor)?, skipped + length + unit)))?
}

/// A number of bytes with its unit. A megabyte that might be one or the other is the smaller.
fn bytes(text: &str) -> Option<(u64, usize)> {
    let (number, length) = number(text)?;
    let rest = &text[length..];
    let gap = rest.len() - rest.trim_start_matches(' ').len();
    let unit: String = rest[gap..].chars().take_while(char::is_ascii_alphabetic).collect();
    let factor = match unit.as_str() {
        "b" | "byte" | "bytes" => 1,
        "kb" => 1_000,
        "kib" => 1 << 10,
        "mb" => 1_000_000,
        "mib" => 1 << 20,
        _ => return None,
    };
    Some((number.checked_mul(factor)?, length + gap + unit.len()))
}

/// Digits, perhaps in groups of three by commas or underscores; nothing with a fraction.
fn number(text: &str) -> Option<(u64, usize)> {
    let bytes = text.as_bytes();
    let digits = |from: usize| bytes[from.min(bytes.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut length = digits(0);
    if length == 0 {
        return None;
    }
    while matches!(bytes.get(length), Some(b',' | b'_')) && digits(length + 1) == 3 {
        length += 4;
    }
    let is_fraction = bytes.get(length) == Some(&b'.') && digits(length + 1) > 0;
    let number = text[..length].replace([',', '_'], "").parse().ok()?;
    (!is_fraction).then_some((number, length))
}

#[cfg(test)]
#[path = "overflow_tests.rs"]
mod tests;
