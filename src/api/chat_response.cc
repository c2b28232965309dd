// Chunks and objects of Chat Completions. The order of keys follows the official package.
#include "api/chat_response.h"

#include "base/random.h"
#include "json/json.h"

namespace deepinfer {
namespace {

// "call_NN_", 20 letters and digits, 4 digits (recipe amendment 13).
std::string make_call_id(uint64_t key, int64_t index) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  constexpr size_t kAlnum = 20, kDigits = 4;
  std::string id = fmt::format("call_{:02}_", index);
  for (uint32_t i = 0; i < kAlnum + kDigits; ++i) {
    const uint32_t word = philox4x32(key, {static_cast<uint32_t>(index), i, 0, 0})[0];
    id += i < kAlnum ? kAlphabet[word % kAlphabet.size()] : static_cast<char>('0' + word % 10);
  }
  return id;
}

void write_usage(JsonWriter& json, const Usage& usage) {
  json.begin_object()
      .member("prompt_tokens", usage.prompt_tokens)
      .member("completion_tokens", usage.completion_tokens)
      .member("total_tokens", usage.prompt_tokens + usage.completion_tokens)
      .key("prompt_tokens_details")
      .begin_object()
      .member("cached_tokens", usage.cached_tokens)
      .end_object();
  if (usage.reasoning_tokens) {
    json.key("completion_tokens_details")
        .begin_object()
        .member("reasoning_tokens", *usage.reasoning_tokens)
        .end_object();
  }
  json.member("prompt_cache_hit_tokens", usage.cached_tokens)
      .member("prompt_cache_miss_tokens", usage.prompt_tokens - usage.cached_tokens)
      .end_object();
}

// The text of one channel; the other is null. Reasoning is named only when thinking.
void write_text_delta(JsonWriter& json, bool thinking, const OutputEvent& event) {
  const bool is_reasoning = event.kind == OutputEvent::Kind::kReasoning;
  json.key("content");
  is_reasoning ? json.null() : json.value(event.text);
  if (!thinking) return;
  json.key("reasoning_content");
  is_reasoning ? json.value(event.text) : json.null();
}

void write_call_start(JsonWriter& json, int64_t index, std::string_view id, std::string_view name,
                      std::string_view arguments) {
  json.begin_object()
      .member("index", index)
      .member("id", id)
      .member("type", "function")
      .key("function")
      .begin_object()
      .member("name", name)
      .member("arguments", arguments)
      .end_object()
      .end_object();
}

}  // namespace

std::string_view finish_reason_name(AnswerEnd end) {
  switch (end) {
    case AnswerEnd::kStop:
      return "stop";
    case AnswerEnd::kToolCalls:
      return "tool_calls";
    case AnswerEnd::kLength:
      return "length";
    case AnswerEnd::kInterrupted:
      return "insufficient_system_resource";
  }
  return "stop";
}

ChatStreamWriter::ChatStreamWriter(AnswerIdentity identity, bool thinking, bool include_usage)
    : identity_(std::move(identity)), thinking_(thinking), include_usage_(include_usage) {}

template <typename WriteDelta>
void ChatStreamWriter::append_chunk(std::string& out, WriteDelta write_delta, const AnswerEnd* end,
                                    const Usage* usage) const {
  out += "data: ";
  JsonWriter json(out);
  json.begin_object()
      .member("id", identity_.id)
      .member("object", "chat.completion.chunk")
      .member("created", identity_.created)
      .member("model", identity_.model)
      .member("system_fingerprint", identity_.system_fingerprint)
      .key("choices")
      .begin_array()
      .begin_object()
      .member("index", 0)
      .key("delta")
      .begin_object();
  write_delta(json);
  json.end_object().key("logprobs").null().key("finish_reason");
  end != nullptr ? json.value(finish_reason_name(*end)) : json.null();
  json.end_object().end_array();
  if (usage != nullptr) {
    write_usage(json.key("usage"), *usage);
  } else if (include_usage_) {
    json.key("usage").null();
  }
  json.end_object();
  out += "\n\n";
}

void ChatStreamWriter::start(std::string& out) {
  append_chunk(out, [this](JsonWriter& json) {
    json.member("role", "assistant").key("content");
    thinking_ ? json.null().member("reasoning_content", "") : json.value("");
  });
}

void ChatStreamWriter::add(const OutputEvent& event, std::string& out) {
  switch (event.kind) {
    case OutputEvent::Kind::kReasoning:
    case OutputEvent::Kind::kContent:
      return append_chunk(out, [&](JsonWriter& json) { write_text_delta(json, thinking_, event); });
    case OutputEvent::Kind::kToolCall:
      append_chunk(out, [&](JsonWriter& json) {
        json.key("tool_calls").begin_array();
        write_call_start(json, num_calls_, make_call_id(identity_.call_id_key, num_calls_), event.text, "");
        json.end_array();
      });
      ++num_calls_;
      return;
    case OutputEvent::Kind::kToolArguments:
      return append_chunk(out, [&](JsonWriter& json) {
        json.key("tool_calls").begin_array().begin_object().member("index", num_calls_ - 1).key("function");
        json.begin_object().member("arguments", event.text).end_object().end_object().end_array();
      });
  }
}

void ChatStreamWriter::finish(AnswerEnd end, const Usage& usage, std::string& out) {
  const OutputEvent nothing = {OutputEvent::Kind::kContent, ""};
  append_chunk(
      out, [&](JsonWriter& json) { write_text_delta(json, thinking_, nothing); }, &end, &usage);
  out += "data: [DONE]\n\n";
}

void append_stream_error(const ApiError& error, std::string& out) {
  out += "data: ";
  out += to_json(error);
  out += "\n\n";
}

ChatCompletion::ChatCompletion(AnswerIdentity identity, bool thinking)
    : identity_(std::move(identity)), thinking_(thinking) {}

void ChatCompletion::add(const OutputEvent& event) {
  switch (event.kind) {
    case OutputEvent::Kind::kReasoning:
      reasoning_ += event.text;
      return;
    case OutputEvent::Kind::kContent:
      content_ += event.text;
      return;
    case OutputEvent::Kind::kToolCall:
      tool_calls_.push_back({make_call_id(identity_.call_id_key, static_cast<int64_t>(tool_calls_.size())),
                             std::string(event.text), ""});
      return;
    case OutputEvent::Kind::kToolArguments:
      tool_calls_.back().arguments += event.text;
      return;
  }
}

std::string ChatCompletion::finish(AnswerEnd end, const Usage& usage) const {
  std::string out;
  JsonWriter json(out);
  json.begin_object()
      .member("id", identity_.id)
      .member("object", "chat.completion")
      .member("created", identity_.created)
      .member("model", identity_.model)
      .key("choices")
      .begin_array()
      .begin_object()
      .member("index", 0)
      .key("message")
      .begin_object()
      .member("role", "assistant")
      .member("content", content_);
  if (thinking_) json.member("reasoning_content", reasoning_);
  if (!tool_calls_.empty()) {
    json.key("tool_calls").begin_array();
    for (size_t i = 0; i < tool_calls_.size(); ++i) {
      const ToolCall& call = tool_calls_[i];
      write_call_start(json, static_cast<int64_t>(i), call.id, call.name, call.arguments);
    }
    json.end_array();
  }
  json.end_object()
      .key("logprobs")
      .null()
      .member("finish_reason", finish_reason_name(end))
      .end_object()
      .end_array();
  write_usage(json.key("usage"), usage);
  json.member("system_fingerprint", identity_.system_fingerprint).end_object();
  return out;
}

}  // namespace deepinfer
