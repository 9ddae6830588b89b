//! Error bodies of many providers, and the class each must get: what should follow, whoever said it.

use longrein_core::outcome::ModelErrorClass::{
    self, Authentication, BadRequest, ContentRefused, ContextExhausted, Malformed, Overloaded, Quota, RateLimited,
    Transient,
};
use longrein_models::{ModelConfig, connect};

use crate::support::server::{response, server};
use crate::support::{prompt, spec, user};

type Row = (&'static str, u16, &'static str, ModelErrorClass);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("openai", 401, r#"{"error":{"message":"Incorrect API key provided: sk-x.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#, Authentication),
    ("openai", 401, r#"{"error":{"message":"You must be a member of an organization to use the API","type":"invalid_request_error","code":"no_organization"}}"#, Authentication),
    ("openai", 403, r#"{"error":{"message":"Country, region, or territory not supported","type":"request_forbidden","code":"unsupported_country_region_territory"}}"#, Authentication),
    ("openai", 404, r#"{"error":{"message":"The model `gpt-x` does not exist or you do not have access to it.","type":"invalid_request_error","code":"model_not_found"}}"#, BadRequest),
    ("openai", 429, r#"{"error":{"message":"Rate limit reached for gpt-x in organization o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try again in 2s.","type":"tokens","code":"rate_limit_exceeded"}}"#, RateLimited),
    ("openai", 429, r#"{"error":{"message":"Request too large for gpt-x on tokens per min (TPM): Limit 30000, Requested 40000.","type":"tokens","code":"rate_limit_exceeded"}}"#, ContextExhausted),
    ("openai", 429, r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","code":"insufficient_quota"}}"#, Quota),
    ("openai", 429, r#"{"error":{"message":"Billing hard limit has been reached","type":"insufficient_quota","code":"billing_hard_limit_reached"}}"#, Quota),
    ("openai", 400, r#"{"error":{"message":"Billing hard limit has been reached","type":"invalid_request_error","code":"billing_hard_limit_reached"}}"#, Quota),
    ("openai", 400, r#"{"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#, ContextExhausted),
    ("openai", 400, r#"{"error":{"message":"Invalid 'messages[0].content': string too long. Expected a string with maximum length 10485760, but got a string with length 10485761 instead.","type":"invalid_request_error","code":"string_above_max_length"}}"#, ContextExhausted),
    // Asked again with the other name of the field.
    ("openai", 400, r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model.","type":"invalid_request_error","code":"unsupported_parameter"}}"#, Transient),
    ("openai", 400, r#"{"error":{"message":"Your request was rejected as a result of our safety system.","type":"invalid_request_error","code":"content_policy_violation"}}"#, ContentRefused),
    ("openai", 400, r#"{"error":{"message":"Invalid prompt: your prompt was flagged as potentially violating our usage policy.","type":"invalid_request_error","code":"invalid_prompt"}}"#, ContentRefused),
    ("openai", 500, r#"{"error":{"message":"The server had an error while processing your request. Sorry about that!","type":"server_error"}}"#, Transient),
    ("openai", 503, r#"{"error":{"message":"The engine is currently overloaded, please try again later","type":"server_error"}}"#, Overloaded),
    ("openai", 503, r#"{"error":{"message":"Slow Down","type":"server_error"}}"#, Overloaded),
    ("openai", 502, "<html><head><title>502 Bad Gateway</title></head></html>", Transient),
    ("openai", 504, "<html><head><title>504 Gateway Time-out</title></head></html>", Transient),
    ("openai", 408, r#"{"error":{"message":"Request timed out","type":"timeout"}}"#, Transient),
    ("openai", 409, r#"{"error":{"message":"Conflict","type":"conflict"}}"#, Transient),
    ("openai", 422, r#"{"error":{"message":"Unprocessable","type":"invalid_request_error"}}"#, BadRequest),
    ("anthropic", 400, r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#, ContextExhausted),
    ("anthropic", 400, r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"}}"#, ContextExhausted),
    ("anthropic", 400, r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}}"#, Quota),
    ("anthropic", 400, r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages: at least one message is required"}}"#, BadRequest),
    ("anthropic", 400, r#"{"type":"error","error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"}}"#, ContentRefused),
    ("anthropic", 401, r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#, Authentication),
    ("anthropic", 403, r#"{"type":"error","error":{"type":"permission_error","message":"Your API key does not have permission to use the specified resource."}}"#, Authentication),
    ("anthropic", 403, r#"{"error":{"type":"forbidden","message":"Request not allowed"}}"#, Authentication),
    ("anthropic", 404, r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-x"}}"#, BadRequest),
    ("anthropic", 413, r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#, ContextExhausted),
    ("anthropic", 429, r#"{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit of 40,000 input tokens per minute"}}"#, RateLimited),
    ("anthropic", 429, r#"{"type":"error","error":{"type":"rate_limit_error","message":"Extra usage is required for long context requests"}}"#, Quota),
    ("anthropic", 500, r#"{"type":"error","error":{"type":"api_error","message":"Internal server error"}}"#, Transient),
    ("anthropic", 529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, Overloaded),
    ("anthropic", 504, r#"{"type":"error","error":{"type":"timeout_error","message":"timeout"}}"#, Transient),
    ("anthropic", 402, r#"{"type":"error","error":{"type":"billing_error","message":"billing"}}"#, Quota),
    ("gemini", 400, r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}]}}"#, Authentication),
    ("gemini", 400, r#"{"error":{"code":400,"message":"The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}"#, ContextExhausted),
    ("gemini", 400, r#"{"error":{"code":400,"message":"User location is not supported for the API use.","status":"FAILED_PRECONDITION"}}"#, BadRequest),
    ("gemini", 400, r#"{"error":{"code":400,"message":"Function call is missing a thought_signature in functionCall parts.","status":"INVALID_ARGUMENT"}}"#, BadRequest),
    ("gemini", 403, r#"{"error":{"code":403,"message":"Method doesn't allow unregistered callers","status":"PERMISSION_DENIED"}}"#, Authentication),
    ("gemini", 404, r#"{"error":{"code":404,"message":"models/x is not found for API version v1beta","status":"NOT_FOUND"}}"#, BadRequest),
    ("gemini", 429, r#"{"error":{"code":429,"message":"Resource has been exhausted (e.g. check quota).","status":"RESOURCE_EXHAUSTED"}}"#, RateLimited),
    ("gemini", 500, r#"{"error":{"code":500,"message":"An internal error has occurred.","status":"INTERNAL"}}"#, Transient),
    ("gemini", 503, r#"{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}"#, Overloaded),
    ("gemini", 504, r#"{"error":{"code":504,"message":"Deadline expired before operation could complete.","status":"DEADLINE_EXCEEDED"}}"#, Transient),
    ("gemini compatible", 400, r#"[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}]"#, Authentication),
    ("gemini compatible", 429, r#"[{"error":{"code":429,"message":"Too fast","status":"RESOURCE_EXHAUSTED"}}]"#, RateLimited),
    ("vertex", 401, r#"{"error":{"code":401,"message":"Request had invalid authentication credentials.","status":"UNAUTHENTICATED"}}"#, Authentication),
    ("vertex", 403, r#"{"error":{"code":403,"message":"Permission 'aiplatform.endpoints.predict' denied","status":"PERMISSION_DENIED"}}"#, Authentication),
    ("vertex", 429, r#"{"error":{"code":429,"message":"Quota exceeded for aiplatform.googleapis.com/online_prediction_requests_per_base_model","status":"RESOURCE_EXHAUSTED"}}"#, RateLimited),
    ("vertex", 499, r#"{"error":{"code":499,"message":"The operation was cancelled.","status":"CANCELLED"}}"#, Transient),
    ("deepseek", 401, r#"{"error":{"message":"Authentication Fails, Your api key: ****x is invalid","type":"authentication_error","param":null,"code":"invalid_request_error"}}"#, Authentication),
    ("deepseek", 402, r#"{"error":{"message":"Insufficient Balance","type":"unknown_error","code":"invalid_request_error"}}"#, Quota),
    ("deepseek", 400, r#"{"error":{"message":"Content Exists Risk","type":"invalid_request_error","code":"invalid_request_error"}}"#, ContentRefused),
    ("deepseek", 400, r#"{"error":{"message":"This model's maximum context length is 65536 tokens. However, you requested 70000 tokens (66000 in the messages, 4000 in the completion).","type":"invalid_request_error"}}"#, ContextExhausted),
    ("deepseek", 422, r#"{"error":{"message":"Invalid max_tokens value, the valid range of max_tokens is [1, 8192]","type":"invalid_request_error"}}"#, ContextExhausted),
    ("deepseek", 400, r#"{"error":{"message":"Model Not Exist","type":"invalid_request_error"}}"#, BadRequest),
    ("deepseek", 429, r#"{"error":{"message":"Rate Limit Reached"}}"#, RateLimited),
    ("deepseek", 500, r#"{"error":{"message":"Server Error"}}"#, Transient),
    ("deepseek", 503, r#"{"error":{"message":"Service is too busy","type":"service_unavailable_error"}}"#, Overloaded),
    ("groq", 401, r#"{"error":{"message":"Invalid API Key","type":"invalid_request_error","code":"invalid_api_key"}}"#, Authentication),
    ("groq", 413, r#"{"error":{"message":"Request too large for model `x` in organization `o` service tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested 7000, please reduce your message size and try again.","type":"tokens","code":"rate_limit_exceeded"}}"#, ContextExhausted),
    ("groq", 429, r#"{"error":{"message":"Rate limit reached for model `x` on tokens per day (TPD): Limit 100000, Used 99000, Requested 2000.","type":"tokens","code":"rate_limit_exceeded"}}"#, RateLimited),
    ("groq", 498, r#"{"error":{"message":"Flex tier capacity exceeded","type":"capacity_exceeded"}}"#, Overloaded),
    ("groq", 400, r#"{"error":{"message":"Failed to call a function. Please adjust your prompt.","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"<function=f>"}}"#, Malformed),
    ("groq", 404, r#"{"error":{"message":"The model `x` has been decommissioned","type":"invalid_request_error","code":"model_decommissioned"}}"#, BadRequest),
    ("groq", 400, r#"{"error":{"message":"Please reduce the length of the messages or completion.","type":"invalid_request_error","code":"context_length_exceeded"}}"#, ContextExhausted),
    ("groq", 503, r#"{"error":{"message":"x is currently over capacity. Please try again and back off exponentially.","type":"internal_server_error"}}"#, Overloaded),
    ("mistral", 401, r#"{"detail":"Unauthorized"}"#, Authentication),
    ("mistral", 401, r#"{"message":"Unauthorized","request_id":"r"}"#, Authentication),
    ("mistral", 400, r#"{"object":"error","message":"Invalid model: x","type":"invalid_model","param":null,"code":"1500"}"#, BadRequest),
    ("mistral", 400, r#"{"object":"error","message":"Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length","type":"invalid_request_prompt","code":"3051"}"#, ContextExhausted),
    ("mistral", 422, r#"{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","x"],"msg":"Extra inputs are not permitted"}]},"type":"invalid_request_error"}"#, BadRequest),
    ("mistral", 429, r#"{"message":"Requests rate limit exceeded"}"#, RateLimited),
    ("mistral", 429, r#"{"object":"error","message":"Service tier capacity exceeded for this model.","type":"service_tier_capacity_exceeded","code":"3505"}"#, RateLimited),
    ("mistral", 500, r#"{"object":"error","message":"Service unavailable.","type":"unreachable_backend","code":"1100"}"#, Overloaded),
    ("ollama", 404, r#"{"error":"model 'x' not found"}"#, BadRequest),
    ("ollama", 400, r#"{"error":"registry.ollama.ai/library/x does not support tools"}"#, BadRequest),
    ("ollama", 500, r#"{"error":"model requires more system memory (8 GiB) than is available (4 GiB)"}"#, Transient),
    ("ollama", 503, r#"{"error":"server busy, please try again.  maximum pending requests exceeded"}"#, Overloaded),
    ("ollama", 500, r#"{"error":"llama runner process has terminated: exit status 2"}"#, Transient),
    ("ollama cloud", 401, r#"{"error":"unauthorized"}"#, Authentication),
    ("openrouter", 401, r#"{"error":{"message":"No auth credentials found","code":401}}"#, Authentication),
    ("openrouter", 402, r#"{"error":{"message":"This request requires more credits, or fewer max_tokens.","code":402}}"#, Quota),
    ("openrouter", 403, r#"{"error":{"message":"x requires moderation on OpenInference. Your input was flagged","code":403,"metadata":{"reasons":["violence"]}}}"#, ContentRefused),
    ("openrouter", 404, r#"{"error":{"message":"No endpoints found that support tool use.","code":404}}"#, BadRequest),
    ("openrouter", 429, r#"{"error":{"message":"Provider returned error","code":429,"metadata":{"raw":"x is temporarily rate-limited upstream"}}}"#, RateLimited),
    ("openrouter", 400, r#"{"error":{"message":"This endpoint's maximum context length is 8192 tokens. However, you requested about 9000 tokens (8000 of text input, 1000 in the output).","code":400}}"#, ContextExhausted),
    ("openrouter", 502, r#"{"error":{"message":"Provider returned error","code":502}}"#, Transient),
    ("openrouter", 503, r#"{"error":{"message":"No instances available","code":503}}"#, Overloaded),
    ("openrouter", 400, r#"{"error":{"message":"x is not a valid model ID","code":400}}"#, BadRequest),
    ("openrouter", 408, r#"{"error":{"message":"Timed out","code":408}}"#, Transient),
    ("xai", 400, r#"{"code":"Client specified an invalid argument","error":"Incorrect API key provided: xa***x."}"#, Authentication),
    ("xai", 403, r#"{"code":"The caller does not have permission to execute the specified operation","error":"Your team has either used all available credits or reached its monthly spending limit."}"#, Quota),
    ("xai", 404, r#"{"code":"Some requested entity was not found","error":"The model x does not exist or your team does not have access to it."}"#, BadRequest),
    ("xai", 400, r#"{"code":"Client specified an invalid argument","error":"This model's maximum prompt length is 131072 but the request contains 140000 tokens."}"#, ContextExhausted),
    ("xai", 429, r#"{"code":"Some resource has been exhausted","error":"Too many requests for team"}"#, RateLimited),
    ("xai", 403, r#"{"code":"permission-denied","error":"Content violates usage guidelines."}"#, ContentRefused),
    ("llamacpp", 401, r#"{"error":{"code":401,"message":"Invalid API Key","type":"authentication_error"}}"#, Authentication),
    ("llamacpp", 400, r#"{"error":{"code":400,"message":"request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":4096}}"#, ContextExhausted),
    ("llamacpp", 503, r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#, Overloaded),
    ("llamacpp", 500, r#"{"error":{"code":500,"message":"tools param requires --jinja flag","type":"server_error"}}"#, Transient),
    ("llamacpp", 500, r#"{"error":{"code":500,"message":"the request exceeds the available context size","type":"server_error"}}"#, ContextExhausted),
    ("llamacpp", 404, r#"{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}"#, BadRequest),
    ("llamacpp", 501, r#"{"error":{"code":501,"message":"This server does not support it","type":"not_supported_error"}}"#, Transient),
    ("together", 401, r#"{"id":"x","error":{"message":"Invalid API key provided.","type":"invalid_request_error","code":"invalid_api_key"}}"#, Authentication),
    ("together", 402, r#"{"error":{"message":"You have reached your credit limit","type":"credit_limit"}}"#, Quota),
    ("together", 422, r#"{"error":{"message":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens and 512 `max_new_tokens`","type":"invalid_request_error"}}"#, ContextExhausted),
    ("together", 429, r#"{"error":{"message":"You have been rate limited. Your rate limit is 60 queries per minute.","type":"rate_limit"}}"#, RateLimited),
    ("together", 503, r#"{"error":{"message":"The server is overloaded or not ready yet.","type":"service_unavailable"}}"#, Overloaded),
    ("together", 404, r#"{"error":{"message":"Unable to access model x.","type":"invalid_request_error","code":"model_not_available"}}"#, BadRequest),
    ("fireworks", 401, r#"{"error":{"object":"error","type":"invalid_request_error","message":"The API key you provided is invalid."}}"#, Authentication),
    ("fireworks", 400, r#"{"error":{"object":"error","type":"invalid_request_error","message":"The prompt is too long: 9000, model maximum context length: 8191"}}"#, ContextExhausted),
    ("fireworks", 404, r#"{"error":{"object":"error","type":"invalid_request_error","code":"NOT_FOUND","message":"Model not found, inaccessible, and/or not deployed"}}"#, BadRequest),
    ("fireworks", 412, r#"{"error":"Account x is suspended, possibly due to reaching the monthly spending limit or failure to pay past invoices."}"#, Quota),
    ("fireworks", 429, r#"{"error":{"object":"error","type":"rate_limit_exceeded","message":"rate limit exceeded, please try again later"}}"#, RateLimited),
    ("cerebras", 401, r#"{"message":"Wrong API Key","type":"invalid_request_error","param":"api_key","code":"wrong_api_key"}"#, Authentication),
    ("cerebras", 400, r#"{"message":"Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}"#, ContextExhausted),
    ("cerebras", 429, r#"{"message":"Tokens per minute limit exceeded - too many tokens processed.","type":"too_many_tokens_error","param":"quota","code":"token_quota_exceeded"}"#, RateLimited),
    ("cerebras", 429, r#"{"message":"We're experiencing high traffic right now! Please try again soon.","type":"too_many_requests_error","param":"queue","code":"queue_exceeded"}"#, RateLimited),
    ("cerebras", 404, r#"{"message":"Model x does not exist or you do not have access to it.","type":"not_found_error","param":"model","code":"model_not_found"}"#, BadRequest),
    ("azure", 400, r#"{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","type":null,"param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#, ContentRefused),
    ("azure", 401, r#"{"error":{"code":"401","message":"Access denied due to invalid subscription key or wrong API endpoint."}}"#, Authentication),
    ("azure", 404, r#"{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}"#, BadRequest),
    ("azure", 429, r#"{"error":{"code":"429","message":"Requests to the ChatCompletions_Create Operation have exceeded call rate limit of your current pricing tier. Please retry after 10 seconds."}}"#, RateLimited),
    ("azure", 404, r#"{"error":{"code":"404","message":"Resource not found"}}"#, BadRequest),
    ("azure", 403, r#"{"error":{"code":"AuthenticationTypeDisabled","message":"Key based authentication is disabled for this resource."}}"#, Authentication),
    ("azure models", 413, r#"{"error":{"code":"tokens_limit_reached","message":"Request body too large for x model. Max size: 8000 tokens.","details":"Request body too large"}}"#, ContextExhausted),
    ("bedrock", 400, r#"{"message":"Input is too long for requested model."}"#, ContextExhausted),
    ("bedrock", 403, r#"{"message":"The security token included in the request is invalid."}"#, Authentication),
    ("bedrock", 400, r#"{"__type":"ValidationException","message":"The provided model identifier is invalid."}"#, BadRequest),
    ("bedrock", 429, r#"{"message":"Too many tokens, please wait before trying again."}"#, RateLimited),
    ("bedrock", 400, r#"{"__type":"ThrottlingException","message":"Too many requests, please wait before trying again."}"#, RateLimited),
    ("bedrock", 424, r#"{"message":"Model error"}"#, BadRequest),
    ("bedrock", 503, r#"{"__type":"ServiceUnavailableException","message":"Bedrock is unable to process your request."}"#, Overloaded),
    ("perplexity", 401, "<html><head><title>401 Authorization Required</title></head></html>", Authentication),
    ("perplexity", 400, r#"{"error":{"message":"Invalid model 'x'.","type":"invalid_model","code":400}}"#, BadRequest),
    ("perplexity", 401, r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","code":401}}"#, Quota),
    ("cohere", 401, r#"{"message":"invalid api token"}"#, Authentication),
    ("cohere", 400, r#"{"message":"too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292. Try using a shorter prompt."}"#, ContextExhausted),
    ("cohere", 429, r#"{"message":"You are using a Trial key, which is limited to 10 API calls / minute."}"#, RateLimited),
    ("cohere", 404, r#"{"message":"model 'x' not found, make sure the correct model ID was used"}"#, BadRequest),
    ("cohere", 422, r#"{"message":"invalid request: tools"}"#, BadRequest),
    ("dashscope", 400, r#"{"error":{"message":"Range of input length should be [1, 30720]","type":"invalid_request_error","param":null,"code":"invalid_parameter_error"}}"#, ContextExhausted),
    ("dashscope", 400, r#"{"error":{"message":"Input data may contain inappropriate content.","type":"data_inspection_failed","code":"data_inspection_failed"}}"#, ContentRefused),
    ("dashscope", 400, r#"{"error":{"message":"Access denied, please make sure your account is in good standing.","type":"Arrearage","code":"Arrearage"}}"#, Quota),
    ("dashscope", 401, r#"{"error":{"message":"Incorrect API key provided.","type":"invalid_request_error","code":"invalid_api_key"}}"#, Authentication),
    ("dashscope", 429, r#"{"error":{"message":"Requests rate limit exceeded, please try again later.","type":"limit_requests","code":"limit_requests"}}"#, RateLimited),
    ("dashscope", 429, r#"{"code":"Throttling.AllocationQuota","message":"Allocated quota exceeded, please increase your quota limit."}"#, RateLimited),
    ("moonshot", 401, r#"{"error":{"message":"Invalid Authentication","type":"invalid_authentication_error"}}"#, Authentication),
    ("moonshot", 429, r#"{"error":{"message":"Your account is suspended, please check your plan and billing details","type":"exceeded_current_quota_error"}}"#, Quota),
    ("moonshot", 429, r#"{"error":{"message":"The engine is currently overloaded, please try again later","type":"engine_overloaded_error"}}"#, Overloaded),
    ("moonshot", 429, r#"{"error":{"message":"Your account o request reached max request: 3, please try again after 1 seconds","type":"rate_limit_reached_error"}}"#, RateLimited),
    ("moonshot", 400, r#"{"error":{"message":"Invalid request: Your request exceeded model token limit: 8192","type":"invalid_request_error"}}"#, ContextExhausted),
    ("moonshot", 400, r#"{"error":{"message":"The request was rejected because it was considered high risk","type":"content_filter"}}"#, ContentRefused),
    ("moonshot", 404, r#"{"error":{"message":"Not found the model x or Permission denied","type":"resource_not_found_error"}}"#, BadRequest),
    ("zhipu", 401, r#"{"error":{"code":"1002","message":"Authorization Token非法，请确认Authorization Token正确传递。"}}"#, Authentication),
    ("zhipu", 429, r#"{"error":{"code":"1113","message":"您的账户已欠费，请充值后重试。"}}"#, Quota),
    ("zhipu", 429, r#"{"error":{"code":"1302","message":"您当前使用该API的并发数过高，请降低并发"}}"#, RateLimited),
    ("zhipu", 400, r#"{"error":{"code":"1301","message":"系统检测到输入或生成内容可能包含不安全或敏感内容"}}"#, ContentRefused),
    ("zhipu", 400, r#"{"error":{"code":"1261","message":"Prompt 超长"}}"#, ContextExhausted),
    ("zhipu", 400, r#"{"error":{"code":"1211","message":"模型不存在，请检查模型代码。"}}"#, BadRequest),
    ("minimax", 401, r#"{"type":"error","error":{"type":"authentication_error","message":"login fail (1004)","http_code":"401"}}"#, Authentication),
    ("minimax", 429, r#"{"type":"error","error":{"type":"rate_limit_error","message":"rate limit exceeded(RPM) (1002)","http_code":"429"}}"#, RateLimited),
    ("minimax", 500, r#"{"type":"error","error":{"type":"insufficient_balance_error","message":"insufficient balance (1008)","http_code":"500"}}"#, Quota),
    ("minimax", 400, r#"{"type":"error","error":{"type":"bad_request_error","message":"invalid params, context window exceeds limit (2013)","http_code":"400"}}"#, ContextExhausted),
    ("nvidia", 401, r#"{"status":401,"title":"Unauthorized","detail":"Authentication failed"}"#, Authentication),
    ("nvidia", 402, r#"{"status":402,"title":"Payment Required","detail":"Account: Cloud credits expired"}"#, Quota),
    ("nvidia", 404, "404 page not found", BadRequest),
    ("nvidia", 429, r#"{"status":429,"title":"Too Many Requests"}"#, RateLimited),
    ("nvidia", 504, "", Transient),
    ("vllm", 400, r#"{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4500 in the messages, 500 in the completion).","type":"BadRequestError","param":null,"code":400}"#, ContextExhausted),
    ("vllm", 404, r#"{"object":"error","message":"The model `x` does not exist.","type":"NotFoundError","param":null,"code":404}"#, BadRequest),
    ("vllm", 400, r#"{"object":"error","message":"\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set","type":"BadRequestError","code":400}"#, BadRequest),
    ("vllm", 401, r#"{"error":"Unauthorized"}"#, Authentication),
    ("vllm", 500, "Internal Server Error", Transient),
    ("sglang", 400, r#"{"object":"error","message":"The input (5000 tokens) is longer than the model's context length (4096 tokens).","type":"BadRequestError","code":400}"#, ContextExhausted),
    ("sglang", 503, r#"{"object":"error","message":"The request queue is full.","type":"SERVICE_UNAVAILABLE","code":503}"#, Overloaded),
    ("lm studio", 400, r#"{"error":"Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough."}"#, ContextExhausted),
    ("lm studio", 404, r#"{"error":{"message":"No models loaded. Please load a model in the developer page.","type":"invalid_request_error","code":"model_not_found"}}"#, BadRequest),
    ("cloudflare", 429, "<html><head><title>Error 1015</title></head><body>You are being rate limited</body></html>", RateLimited),
    ("cloudflare", 520, "error code: 520", Transient),
    ("cloudflare", 524, "error code: 524", Transient),
    ("cloudflare", 403, "<html><head><title>Attention Required! | Cloudflare</title></head></html>", Authentication),
    ("nginx", 413, "<html><head><title>413 Request Entity Too Large</title></head></html>", ContextExhausted),
    ("litellm", 429, r#"{"error":{"message":"No deployments available for selected model, Try again in 60 seconds.","type":"None","param":"None","code":"429"}}"#, RateLimited),
    ("litellm", 400, r#"{"error":{"message":"litellm.ContextWindowExceededError: BadRequestError: x","type":null,"param":null,"code":"400"}}"#, ContextExhausted),
    ("litellm", 400, r#"{"error":{"message":"Budget has been exceeded! Current cost: 5, Max budget: 4","type":"budget_exceeded","param":null,"code":"400"}}"#, Quota),
    ("huggingface", 503, r#"{"error":"Model x is currently loading","estimated_time":20.0}"#, Overloaded),
    ("huggingface", 402, r#"{"error":"You have exceeded your monthly included credits"}"#, Quota),
    ("huggingface", 422, r#"{"error":"Input validation error: `inputs` must have less than 4095 tokens. Given: 5000","error_type":"validation"}"#, ContextExhausted),
    ("gemini", 429, r#"{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}]},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"18s"}]}}"#, RateLimited),
    ("gemini", 429, r#"{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel-FreeTier"},{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}]}}"#, Quota),
    ("anthropic", 400, r#"{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2027-01-01 at 00:00 UTC."}}"#, Quota),
    ("siliconflow", 400, r#"{"code":20015,"message":"length of prompt_tokens (40000) must be less than max_seq_len (32768).","data":null}"#, ContextExhausted),
];

/// How long a refusal asks for in its body.
#[tokio::test]
async fn pauses_that_are_asked_for_in_the_body_are_heard() {
    let soon = jiff::Timestamp::now().as_millisecond() + 7_000;
    let reset = format!(
        r#"{{"error":{{"message":"slow","code":429,"metadata":{{"headers":{{"X-RateLimit-Reset":"{soon}"}}}}}}}}"#
    );
    for (status, body, seconds) in [
        (
            429,
            r#"{"error":{"code":429,"message":"Resource has been exhausted (e.g. check quota).","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"3.2s"}]}}"#,
            Some(4..=4),
        ),
        (
            429,
            r#"{"error":{"message":"Rate limit reached. Please try again in 3s.","code":"rate_limit_exceeded"}}"#,
            Some(3..=3),
        ),
        (
            429,
            r#"{"error":{"message":"Rate limit reached. Please try again in 1m2.5s. Visit x.","code":"rate_limit_exceeded"}}"#,
            Some(63..=63),
        ),
        (
            429,
            r#"{"error":{"message":"Rate limit reached. Please try again in 20ms.","code":"rate_limit_exceeded"}}"#,
            Some(1..=1),
        ),
        (
            429,
            r#"{"error":{"message":"No deployments available for selected model, Try again in 60 seconds."}}"#,
            Some(60..=60),
        ),
        (
            429,
            r#"{"error":{"message":"Your account reached max request: 3, please try again after 1 seconds"}}"#,
            Some(1..=1),
        ),
        (429, "Too many requests, retry after 2 minutes.", Some(120..=120)),
        (429, &reset, Some(4..=7)),
        (503, r#"{"error":{"message":"overloaded","retry_after":12}}"#, Some(12..=12)),
        (429, r#"{"error":{"message":"Please try again in a moment"}}"#, None),
        (400, r#"{"error":{"message":"Bad schema, try again in 3s"}}"#, None),
    ] {
        let server = server(response(&format!("{status} X"), body)).await;
        let config = ModelConfig { base_url: Some(server.url), ..ModelConfig::default() };
        let model = connect(&spec("openai/asked"), &config).expect("good settings");
        let failure = model.send(model.encode(&prompt(0, vec![user("hello")]))).await.expect_err(body);
        let heard = failure.retry_after_s;
        assert!(
            seconds.as_ref().map_or(heard.is_none(), |range| heard.is_some_and(|s| range.contains(&s))),
            "{body}: {heard:?}"
        );
    }
}

#[tokio::test]
async fn every_error_in_its_class() {
    let mut faults = Vec::new();
    for (provider, status, body, class) in ROWS {
        let server = server(response(&format!("{status} X"), body)).await;
        let config = ModelConfig { base_url: Some(server.url), ..ModelConfig::default() };
        let model = connect(&spec("openai/asked"), &config).expect("good settings");
        let failure = model.send(model.encode(&prompt(0, vec![user("hello")]))).await.expect_err(body);
        assert_eq!(failure.status, Some(*status), "{provider}");
        if failure.class != *class {
            faults.push(format!("{provider} {status}: {:?}, not {class:?}: {body}", failure.class));
        }
    }
    assert!(faults.is_empty(), "{} of {} rows:\n{}", faults.len(), ROWS.len(), faults.join("\n"));
    assert!(ROWS.len() >= 150, "{} rows", ROWS.len());
}
