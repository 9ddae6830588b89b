use longrein_core::outcome::{Billing, ModelErrorClass};

use super::*;
use crate::failure::Refusal;

fn served(limit: u64, prompt: u64, output: u64, bytes: u64) -> Option<Served> {
    let known = |number: u64| Some(number).filter(|number| *number > 0);
    Served { limit: known(limit), prompt: known(prompt), output: known(output), bytes: known(bytes) }.told()
}

#[track_caller]
fn check(status: u16, body: &str, class: ModelErrorClass, expected: Option<Served>) {
    let status = Some(status).filter(|status| *status > 0);
    let failure = Refusal { status, body, retry_after_s: None }.into_failure();
    assert_eq!((failure.class, failure.served), (class, expected), "{body}");
}

/// The words alone, in the envelopes of those who send them so.
#[track_caller]
fn check_words(words: &str, class: ModelErrorClass, expected: Option<Served>) {
    let wrapped = serde_json::json!({ "error": { "message": words, "type": "invalid_request_error" } });
    let bare = serde_json::json!({ "object": "error", "message": words, "code": 400 });
    let plain = serde_json::json!({ "error": words });
    let routed = serde_json::json!({
        "error": { "message": "Provider returned error", "code": 400, "metadata": { "raw": wrapped.to_string() } }
    });
    let listed = serde_json::json!([{ "error": { "message": words, "code": 400, "status": "INVALID_ARGUMENT" } }]);
    for body in [wrapped, bare, plain, routed, listed] {
        check(400, &body.to_string(), class, expected);
    }
    for status in [422, 500] {
        let class =
            if status == 500 && class == ModelErrorClass::BadRequest { ModelErrorClass::Transient } else { class };
        check(status, words, class, expected);
    }
}

#[test]
fn overflow_in_every_wording() {
    for (words, limit, prompt) in [
        ("prompt is too long: 200251 tokens > 200000 maximum", 200_000, 200_251),
        ("prompt is too long: 204,000 tokens > 200,000 maximum", 200_000, 204_000),
        (
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 204698, decrease input length or `max_tokens` and try again",
            204_698,
            188_240,
        ),
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 8227 tokens. Please reduce the length of the messages.",
            8_192,
            8_227,
        ),
        (
            "This model's maximum context length is 16385 tokens. However, you requested 18000 tokens (17000 in the messages, 1000 in the completion). Please reduce the length of the messages or completion.",
            16_385,
            17_000,
        ),
        (
            "This model's maximum context length is 16385 tokens. However, you requested 18000 tokens (16000 in the messages, 1000 in the functions, 1000 in the completion).",
            16_385,
            17_000,
        ),
        (
            "This model's maximum context length is 4096 tokens, however you requested 4191 tokens (3991 in your prompt; 200 for the completion). Please reduce your prompt; or completion length.",
            4_096,
            3_991,
        ),
        (
            "This endpoint's maximum context length is 32768 tokens. However, you requested about 42832 tokens (42832 of text input). Please reduce the length of either one, or use the \"middle-out\" transform",
            32_768,
            42_832,
        ),
        (
            "This endpoint's maximum context length is 200000 tokens. However, you requested about 210000 tokens (180000 of text input, 20000 of tool input, 10000 in the output).",
            200_000,
            200_000,
        ),
        ("This model's maximum context length is 131072 tokens. However, you requested 351430 tokens.", 131_072, 0),
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 32768. This model's maximum context length is 16384 tokens and your request has 1000 input tokens (32768 > 16384 - 1000).",
            16_384,
            1_000,
        ),
        (
            "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that",
            4_096,
            5_000,
        ),
        ("The input (5000 tokens) is longer than the model's context length (4096 tokens).", 4_096, 5_000),
        (
            "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5000 tokens: 4000 tokens from the input messages and 1000 tokens for the completion.",
            4_096,
            4_000,
        ),
        (
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            1_048_576,
            1_200_000,
        ),
        ("The input token count exceeds the maximum number of tokens allowed 1048576.", 1_048_576, 0),
        ("request (9031 tokens) exceeds the available context size (8192 tokens), try increasing it", 8_192, 9_031),
        (
            "the request exceeds the available context size. try increasing the context size or enable context shift",
            0,
            0,
        ),
        (
            "Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
            32_768,
            65_673,
        ),
        ("Prompt contains 40000 tokens, too large for model with 32768 maximum context length", 32_768, 40_000),
        ("Please reduce the length of the messages or completion.", 0, 0),
        (
            "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
            8_192,
            9_000,
        ),
        ("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 131_072, 537_812),
        ("Input is too long for requested model.", 0, 0),
        ("Too many input tokens. Max input tokens: 8192, request input token count: 9000", 8_192, 9_000),
        ("Malformed input request: expected maxLength: 400000, actual: 500000, please reformat your input", 0, 0),
        (
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000 `inputs` tokens and 20 `max_new_tokens`",
            4_097,
            5_000,
        ),
        ("Input validation error: `inputs` must have less than 1024 tokens. Given: 4571", 1_024, 4_571),
        (
            "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000. Try using a shorter prompt",
            4_081,
            5_000,
        ),
        (
            "too many tokens: size limit exceeded by 1234 tokens. Try using shorter or fewer inputs. The limit for this model is 128000 tokens.",
            128_000,
            0,
        ),
        ("The prompt is too long: 137000, model maximum context length: 131071", 131_071, 137_000),
        ("prompt token count of 134000 exceeds the limit of 128000", 128_000, 134_000),
        ("Request body too large for gpt-4o model. Max size: 8000 tokens.", 8_000, 0),
        (
            "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough. Try to load the model with a larger context length",
            4_096,
            5_000,
        ),
        ("the input length exceeds the context length", 0, 0),
        ("prompt too long; exceeded max context length by 4 tokens", 0, 0),
        ("Range of input length should be [1, 30720]", 30_720, 0),
        ("Your input exceeds the context window of this model. Please adjust your input and try again.", 0, 0),
        ("input exceeds the context window of 128k tokens", 128_000, 0),
        ("Your request exceeds the context window of 131_072 tokens", 131_072, 0),
        ("Prompt exceeds max length", 0, 0),
        ("The total length of tokens 9000 exceeds model limit", 0, 9_000),
        ("Input length 9000 exceeds the maximum length 8192", 8_192, 9_000),
        ("input length exceeds limit", 0, 0),
        ("number of input tokens 9000 has exceeded max_prompt_tokens 8192 limit", 8_192, 9_000),
        ("max_tokens (1000) + input tokens (8000) > context_len (8192)", 8_192, 8_000),
        ("max_tokens must be at least 1, got -808.", 0, 0),
        ("Total tokens of image and text exceed max message tokens", 0, 0),
        ("Conversation is too long.", 0, 0),
        ("Request too large: the total length of messages exceeds 8192", 8_192, 0),
        ("输入长度超过模型最大上下文长度 8192", 8_192, 0),
        ("The sum of prompt length (9000.0), query length (0) should not exceed max_num_tokens (8192)", 8_192, 0),
        ("The prompt you sent is larger than the maximum this deployment takes", 0, 0),
        ("请求的 token 总数超出限制", 0, 0),
        ("Prompt has 6181 tokens, but this model supports up to 6000 tokens.", 6_000, 6_181),
        ("Your request has 9,000 tokens; this deployment accepts at most 8,192.", 8_192, 9_000),
        ("9000 tokens in the prompt, only 8192 tokens are supported", 8_192, 9_000),
        ("Got 9000 input tokens. The model can handle a maximum of 8192 tokens", 8_192, 9_000),
    ] {
        check_words(words, ModelErrorClass::ContextExhausted, served(limit, prompt, 0, 0));
    }
}

#[test]
fn numbers_beside_the_words() {
    let body = r#"{"error":{"code":400,"message":"too much","type":"exceed_context_size_error","n_prompt_tokens":9031,"n_ctx":8192}}"#;
    check(400, body, ModelErrorClass::ContextExhausted, served(8_192, 9_031, 0, 0));
    let tiny = r#"{"error":{"message":"x","type":"exceed_context_size_error","n_prompt_tokens":90,"n_ctx":16}}"#;
    check(400, tiny, ModelErrorClass::ContextExhausted, served(0, 90, 0, 0));
    for code in ["context_length_exceeded", "model_max_prompt_tokens_exceeded", "string_above_max_length"] {
        let body = format!(r#"{{"error":{{"message":"no","code":"{code}"}}}}"#);
        for status in [400, 413, 422, 429, 500, 0] {
            check(status, &body, ModelErrorClass::ContextExhausted, None);
        }
    }
}

#[test]
fn too_many_bytes() {
    for (status, body, bytes) in [
        (413, "", 0),
        (
            413,
            "<html>\r\n<head><title>413 Request Entity Too Large</title></head>\r\n<body><center>nginx</center></body></html>",
            0,
        ),
        (
            413,
            r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
            0,
        ),
        (
            413,
            r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum allowed number of bytes."}}"#,
            0,
        ),
        (400, r#"{"error":{"message":"Request payload size exceeds the limit: 20971520 bytes."}}"#, 20_971_520),
        (413, r#"{"error":{"message":"Request size exceeds 32 MB"}}"#, 32_000_000),
        (413, r#"{"error":{"message":"maximum request size is 20 MiB"}}"#, 20 << 20),
        (413, r#"{"error":{"message":"Request payload size exceeds the limit: 12 bytes."}}"#, 0),
        (413, r#"{"error":{"message":"maximum request size is 20"}}"#, 0),
    ] {
        check(status, body, ModelErrorClass::ContextExhausted, served(0, 0, 0, bytes));
    }
    let failure = Refusal {
        status: Some(413),
        body: "<HTML><TITLE> 413 Payload Too Large </TITLE>…</HTML>",
        retry_after_s: None,
    }
    .into_failure();
    assert!(failure.message.starts_with("HTTP 413: 413 Payload Too Large ("), "{}", failure.message);
}

#[test]
fn more_output_than_there_is() {
    for (words, output) in [
        (
            "max_tokens is too large: 32768. This model supports at most 16384 completion tokens, whereas you provided 32768.",
            16_384,
        ),
        ("max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude-sonnet", 64_000),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8_192),
        ("<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]", 8_192),
        (
            "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window` for this model",
            8_192,
        ),
        (
            "Unable to submit request because it has a maxOutputTokens value of 100000 but the supported range is from 1 (inclusive) to 65537 (exclusive). Update the value and try again.",
            65_536,
        ),
        (
            "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value that is lower than 4096.",
            4_096,
        ),
    ] {
        check_words(words, ModelErrorClass::ContextExhausted, served(0, 0, output, 0));
    }
    let failure =
        Refusal { status: Some(400), body: "the valid range of max_tokens is [1, 8192]", retry_after_s: None };
    assert!(failure.into_failure().message.ends_with("(more output was reserved than this model gives)"));
}

#[test]
fn a_rate_smaller_than_the_request_is_a_limit() {
    let body =
        |words: &str| format!(r#"{{"error":{{"message":"{words}","type":"tokens","code":"rate_limit_exceeded"}}}}"#);
    let large = body(
        "Request too large for gpt-4 in organization org-x on tokens per min (TPM): Limit 30000, Requested 31000. The input or output tokens must be reduced in order to run successfully.",
    );
    for status in [429, 413, 400, 0] {
        check(status, &large, ModelErrorClass::ContextExhausted, served(30_000, 0, 0, 0));
    }
    let passing = body(
        "Rate limit reached for gpt-4 in organization org-x on tokens per min (TPM): Limit 10000, Used 9000, Requested 2000. Please try again in 6s.",
    );
    check(429, &passing, ModelErrorClass::RateLimited, None);
    let used = body("Rate limit reached on tokens per min (TPM): Limit 10000, Used 10, Requested 20000.");
    check(429, &used, ModelErrorClass::ContextExhausted, served(10_000, 0, 0, 0));
}

#[test]
fn what_is_no_overflow() {
    use ModelErrorClass::{Authentication, BadRequest, ContentRefused, Overloaded, Quota, RateLimited, Transient};
    for (status, body, class) in [
        (
            429,
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit of 30,000 input tokens per minute. Please reduce the prompt length or the maximum tokens requested, or try again later."}}"#,
            RateLimited,
        ),
        (429, r#"{"error":{"message":"Too many tokens, please wait before trying again."}}"#, RateLimited),
        (
            429,
            r#"{"error":{"message":"Too many requests: number of requests exceeds the limit per minute"}}"#,
            RateLimited,
        ),
        (
            429,
            r#"{"error":{"code":429,"message":"You exceeded your current quota. Quota exceeded for metric: input_token_count, limit: 250000","status":"RESOURCE_EXHAUSTED"}}"#,
            Quota,
        ),
        (429, r#"{"error":{"message":"Extra usage is required for long context requests."}}"#, Quota),
        (
            402,
            r#"{"error":{"message":"This request requires more credits, or fewer max_tokens. You requested up to 64000 tokens, but can only afford 1234."}}"#,
            Quota,
        ),
        (
            400,
            r#"{"error":{"code":"content_filter","message":"The prompt exceeds what our policy allows in one context window."}}"#,
            ContentRefused,
        ),
        (
            400,
            r#"{"error":{"message":"Your request was rejected by our safety system, which read more than the last context window of it."}}"#,
            ContentRefused,
        ),
        (400, r#"{"error":{"message":"Unknown parameter: context window"}}"#, BadRequest),
        (404, r#"{"error":{"message":"No model 'x' with a context length of 128000 tokens"}}"#, BadRequest),
        (
            400,
            r#"{"error":{"message":"messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 5316852 bytes > 5242880 bytes"}}"#,
            BadRequest,
        ),
        (
            400,
            r#"{"error":{"message":"Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 200 instead.","code":"array_above_max_length"}}"#,
            BadRequest,
        ),
        (400, r#"{"error":{"message":"`max_tokens` must be greater than `thinking.budget_tokens`"}}"#, BadRequest),
        (
            400,
            r#"{"error":{"message":"Invalid 'max_tokens': integer below minimum value. Expected a value >= 16"}}"#,
            BadRequest,
        ),
        (400, r#"{"error":{"message":"max_tokens is too large: 32768."}}"#, BadRequest),
        (
            400,
            r#"{"error":{"message":"The request asks for 9000 tokens; up to 4096 output tokens can be had"}}"#,
            BadRequest,
        ),
        (400, r#"{"error":{"message":"Prompt has 500 tokens, but its image has up to 400 rows"}}"#, BadRequest),
        (
            400,
            r#"{"error":{"message":"Prompt has 500 tokens, this model supports up to 6000 tokens; top_p is wrong"}}"#,
            BadRequest,
        ),
        (400, r#"{"error":{"message":"Invalid value for temperature: 3 > 2 maximum"}}"#, BadRequest),
        (400, r#"{"error":{"message":"Tool name is too long: 70 > 64 characters"}}"#, BadRequest),
        (400, r#"{"error":{"message":"prompt_cache_key exceeds the maximum length of 64"}}"#, BadRequest),
        (400, r#"{"error":{"message":"The number of images in the prompt exceeds the limit of 5"}}"#, BadRequest),
        (400, r#"{"error":{"message":"max_tokens must be at least 1, got 0."}}"#, BadRequest),
        (400, r#"{"error":{"message":"The prompt is not valid. The header exceeds the limit."}}"#, BadRequest),
        (400, r#"{"error":{"message":"Input tokens exceed your monthly limit"}}"#, BadRequest),
        (400, r#"{"error":{"message":"The conversation id exceeds 64 characters"}}"#, BadRequest),
        (400, r#"{"error":{"message":"请求频率超过限制"}}"#, BadRequest),
        (401, r#"{"error":{"message":"maximum context length is 8192 tokens"}}"#, Authentication),
        (503, r#"{"error":{"message":"the context window service is overloaded"}}"#, Overloaded),
        (500, r#"{"error":{"message":"context canceled while reading the context window"}}"#, Transient),
        (500, "context deadline exceeded", Transient),
        (0, r#"{"error":{"message":"context deadline exceeded"}}"#, Transient),
        (
            0,
            r#"{"error":{"message":"rate limit: too many tokens per minute, maximum context length aside"}}"#,
            RateLimited,
        ),
    ] {
        check(status, body, class, None);
    }
}

#[test]
fn a_doubtful_number_teaches_nothing() {
    for words in [
        "maximum context length is 12 tokens",
        "maximum context length is 131.072 tokens",
        "maximum context length is 8192x tokens",
        "maximum context length is 99999999999999999999999999 tokens",
        "maximum context length is 999999999999 tokens",
        "maximum context length is larger than 8192 minus something",
        "maximum context length is -8192 tokens",
        "maximum context length is the usual one; see page 4096",
    ] {
        check_words(words, ModelErrorClass::ContextExhausted, None);
    }
    for (text, number) in [
        ("8192", Some((8_192, 4))),
        ("8,192 x", Some((8_192, 5))),
        ("1_048_576", Some((1_048_576, 9))),
        ("1,8192]", Some((1, 1))),
        ("30000, requested", Some((30_000, 5))),
        ("128k ", Some((128_000, 4))),
        ("~9000", Some((9_000, 5))),
        ("about 42832 t", Some((42_832, 11))),
        ("2m", Some((2_000_000, 2))),
        ("32kb", None),
        ("1.5", None),
        ("", None),
    ] {
        assert_eq!(tokens(text), number, "{text}");
    }
}

#[test]
fn a_refusal_costs_nothing() {
    let failure =
        Refusal { status: Some(400), body: "prompt is too long: 300 tokens > 256 maximum", retry_after_s: None };
    let failure = failure.into_failure();
    assert_eq!((failure.billing, failure.served), (Billing::Nothing, served(256, 300, 0, 0)));
    let long = format!("{} maximum context length is 8192 tokens", "é".repeat(2_000));
    check_words(&long, ModelErrorClass::ContextExhausted, served(8_192, 0, 0, 0));
}
