// A chat request: thinking, limits, streaming. Messages and tools have files of their own, and what other
// protocols share stands in request_fields.
#include "api/chat_request.h"

#include "api/chat_tools.h"
#include "api/fields.h"
#include "api/request_fields.h"

namespace deepinfer {
namespace {

// {"thinking" | "enable_thinking": bool, "reasoning_effort": name, "task": below}, as vLLM and SGLang take it.
Status parse_template_arguments(const JsonRef& field, Conversation& conversation, Thinking& asked) {
  if (!given(field)) return {};
  if (const auto object = field.object(); !object.ok()) return invalid_body(object.error());
  RETURN_IF_ERROR(parse_effort(field["reasoning_effort"], conversation, asked));
  for (const char* name : {"enable_thinking", "thinking"}) {
    if (!given(field[name])) continue;
    ASSIGN_OR_RETURN(conversation.thinking, boolean_or(field[name], true));
    asked = Thinking::kAsked;
  }
  return {};
}

// {"effort": name, "enabled": bool, "max_tokens": n}, as OpenRouter takes it.
Status parse_reasoning(const JsonRef& field, GenerationRequest& request, Thinking& asked) {
  if (!given(field)) return {};
  if (const auto object = field.object(); !object.ok()) return invalid_body(object.error());
  RETURN_IF_ERROR(parse_effort(field["effort"], request.conversation, asked));
  RETURN_IF_ERROR(parse_thinking_budget(field["max_tokens"], request));
  if (!given(field["enabled"])) return {};
  ASSIGN_OR_RETURN(request.conversation.thinking, boolean_or(field["enabled"], true));
  asked = Thinking::kAsked;
  return {};
}

// Of the dialects the one named last here wins: thinking.type over reasoning_effort over the rest over the
// model's default (docs/spec/recipe.md 3.2).
Status parse_all_thinking(const JsonRef& body, GenerationRequest& request, Thinking& asked) {
  Conversation& conversation = request.conversation;
  RETURN_IF_ERROR(parse_template_arguments(body["chat_template_kwargs"], conversation, asked));
  RETURN_IF_ERROR(parse_reasoning(body["reasoning"], request, asked));
  RETURN_IF_ERROR(parse_thinking_switches(body, conversation, asked));
  RETURN_IF_ERROR(parse_effort(body["reasoning_effort"], conversation, asked));
  return parse_thinking(body["thinking"], request, asked);
}

// chat_template_kwargs.task, as SGLang takes it: the task of the last message, which has to be the user's.
Status parse_template_task(const JsonRef& field, Conversation& conversation) {
  if (!given(field)) return {};
  Message& last = conversation.messages.back();
  if (last.role != Role::kUser) {
    return Error(Code::kInvalidArgument, "{}: with a task, the last message must have the role `user`", field.path());
  }
  ASSIGN_OR_RETURN(last.task, parse_task_name(field));
  return {};
}

Status parse_stream(const JsonRef& body, ChatRequest& request) {
  ASSIGN_OR_RETURN(request.stream, boolean_or(body["stream"], false));
  const JsonRef options = body["stream_options"];
  if (!given(options)) return {};
  if (const auto object = options.object(); !object.ok()) return invalid_body(object.error());
  if (!request.stream) {
    return Error(Code::kInvalidArgument, "stream_options should be set along with stream = true");
  }
  ASSIGN_OR_RETURN(request.include_usage, boolean_or(options["include_usage"], false));
  ASSIGN_OR_RETURN(const std::string usage_chunk, string_or(options["usage_chunk"], "deepseek"));
  if (usage_chunk != "deepseek" && usage_chunk != "openai") {
    return Error(Code::kInvalidArgument,
                 "invalid request body: {}: unknown variant `{}`, expected one of `deepseek`, `openai`",
                 options["usage_chunk"].path(), usage_chunk);
  }
  request.usage_apart = request.include_usage && usage_chunk == "openai";
  ASSIGN_OR_RETURN(request.usage_always, boolean_or(options["continuous_usage_stats"], false));
  request.usage_always = request.usage_always && request.include_usage;
  return {};
}

Status parse_logprobs(const JsonRef& body, ChatRequest& request) {
  ASSIGN_OR_RETURN(const bool logprobs, boolean_or(body["logprobs"], false));
  if (logprobs) request.top_logprobs = 0;
  if (!given(body["top_logprobs"])) return {};
  ASSIGN_OR_RETURN(const int64_t top, integer_field(body["top_logprobs"]));
  if (!logprobs) {
    return Error(
        Code::kInvalidArgument,
        "Invalid top_logprobs and logprobs value, logprobs must be set to true if top_logprobs is used.");
  }
  if (top < 0 || top > kMaxTopLogprobs) return out_of_range("top_logprobs", "[0, 20]");
  request.top_logprobs = static_cast<int32_t>(top);
  return {};
}

Status parse_n(const JsonRef& body, ChatRequest& request) {
  if (given(body["n"])) {
    ASSIGN_OR_RETURN(const int64_t n, integer_field(body["n"]));
    if (n < 1 || n > kMaxAnswers) return out_of_range("n", fmt::format("[1, {}]", kMaxAnswers));
    request.n = static_cast<int32_t>(n);
  }
  return check_best_of(body["best_of"], request.n);
}

// continue_final_message, as vLLM takes it: the answer goes on where the last message, the assistant's, ends. With
// `echo` it begins with that message's text.
Status parse_continuation(const JsonRef& body, ChatRequest& request) {
  Message& last = request.conversation.messages.back();
  ASSIGN_OR_RETURN(const bool continues, boolean_or(body["continue_final_message"], false));
  ASSIGN_OR_RETURN(const bool opens_turn, boolean_or(body["add_generation_prompt"], !continues));
  if (continues && (opens_turn || last.role != Role::kAssistant || !last.tool_calls.empty())) {
    return Error(Code::kInvalidArgument,
                 "continue_final_message: expected a last message of role `assistant` without tool_calls, and no "
                 "add_generation_prompt");
  }
  if (!continues && !opens_turn) {
    return unsupported("add_generation_prompt", "without continue_final_message there is nobody to answer");
  }
  last.is_prefix = last.is_prefix || continues;
  ASSIGN_OR_RETURN(const bool echo, boolean_or(body["echo"], false));
  if (echo && last.is_prefix) request.echo = last.content;
  return {};
}

Status check_prefix(const Conversation& conversation) {
  if (conversation.messages.back().is_prefix && conversation.tools_active()) {
    return Error(Code::kInvalidArgument, "Function call should not be used with prefix");
  }
  if (conversation.messages.back().is_prefix &&
      conversation.response_format.kind != ResponseFormat::Kind::kText) {
    return Error(Code::kInvalidArgument, "response_format json_object should not be used with prefix");
  }
  return {};
}

}  // namespace

Result<ChatRequest> parse_chat_request(std::string_view text, std::string_view served_model) {
  ASSIGN_OR_RETURN(const JsonValue json, parse_request_body(text));
  const JsonRef body(json);
  RETURN_IF_ERROR(check_unsupported(body, kChatPath));
  ChatRequest request;
  Conversation& conversation = request.conversation;
  Thinking asked = Thinking::kDefault;
  RETURN_IF_ERROR(parse_model(body["model"], served_model, ModelNames::kDeepSeek, conversation));
  RETURN_IF_ERROR(parse_all_thinking(body, request, asked));
  ASSIGN_OR_RETURN(const bool lenient_history, boolean_or(body["lenient_history"], false));
  ASSIGN_OR_RETURN(conversation.messages, parse_chat_messages(body["messages"], lenient_history));
  RETURN_IF_ERROR(parse_continuation(body, request));
  RETURN_IF_ERROR(parse_template_task(body["chat_template_kwargs"]["task"], conversation));
  ASSIGN_OR_RETURN(request.legacy_functions, parse_chat_tools(body, conversation));
  settle_tool_choice(asked, conversation);
  RETURN_IF_ERROR(parse_sampling(body, request));
  RETURN_IF_ERROR(parse_max_tokens(body, "max_completion_tokens", request));
  RETURN_IF_ERROR(parse_stop(body["stop"], request));
  RETURN_IF_ERROR(parse_stream(body, request));
  RETURN_IF_ERROR(parse_logprobs(body, request));
  RETURN_IF_ERROR(parse_n(body, request));
  RETURN_IF_ERROR(parse_response_format(body["response_format"], request));
  RETURN_IF_ERROR(check_prefix(conversation));
  RETURN_IF_ERROR(parse_grammar_fields(body, request));
  ASSIGN_OR_RETURN(request.parallel_tool_calls, boolean_or(body["parallel_tool_calls"], true));
  request.parallel_tool_calls = request.parallel_tool_calls && !request.legacy_functions;  // they call one at a time
  const JsonRef user_id = body["user_id"];
  if (given(user_id)) {
    ASSIGN_OR_RETURN(request.user_id, required_string(user_id));
  }
  return request;
}

}  // namespace deepinfer
