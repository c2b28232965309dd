// Chunks and objects of Chat Completions. The order of keys follows the official package.
#include "api/chat_response.h"

#include "api/logprobs.h"
#include "api/sse.h"

namespace deepinfer {
namespace {

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

// Call ids of one request differ between its answers.
std::string call_id(const AnswerIdentity& identity, int32_t answer, int64_t index) {
  return make_call_id(identity.call_id_key + static_cast<uint64_t>(answer), index);
}

// What a chunk has beside its delta.
struct ChunkRest {
  const AnswerEnd* end = nullptr;  // without it the finish_reason is null
  const Usage* usage = nullptr;
  const std::vector<ScoredToken>* tokens = nullptr;
  OutputEvent::Kind kind = OutputEvent::Kind::kContent;  // of the tokens
};

class ChatStream : public AnswerWriter {
 public:
  ChatStream(AnswerIdentity identity, const ChatRequest& request)
      : identity_(std::move(identity)),
        thinking_(request.conversation.thinking),
        include_usage_(request.include_usage),
        usage_apart_(request.usage_apart),
        num_calls_(static_cast<size_t>(request.n)) {}

  void start(const Usage&, std::string& out) override {
    for (int32_t answer = 0; answer < std::ssize(num_calls_); ++answer) {
      append_chunk(out, answer, [this](JsonWriter& json) {
        json.member("role", "assistant").key("content");
        thinking_ ? json.null().member("reasoning_content", "") : json.value("");
      });
    }
  }

  void add(int32_t answer, const OutputEvent& event, const std::vector<ScoredToken>& tokens,
           std::string& out) override {
    int64_t& num_calls = num_calls_[static_cast<size_t>(answer)];
    switch (event.kind) {
      case OutputEvent::Kind::kReasoning:
      case OutputEvent::Kind::kContent:
        return append_chunk(out, answer, [&](JsonWriter& json) { write_text_delta(json, thinking_, event); },
                            {.tokens = &tokens, .kind = event.kind});
      case OutputEvent::Kind::kToolCall:
        append_chunk(out, answer, [&](JsonWriter& json) {
          json.key("tool_calls").begin_array();
          write_call_start(json, num_calls, call_id(identity_, answer, num_calls), event.text, "");
          json.end_array();
        });
        ++num_calls;
        return;
      case OutputEvent::Kind::kToolArguments:
        return append_chunk(out, answer, [&](JsonWriter& json) {
          json.key("tool_calls").begin_array().begin_object().member("index", num_calls - 1).key("function");
          json.begin_object().member("arguments", event.text).end_object().end_object().end_array();
        });
    }
  }

  void end(int32_t answer, const AnswerEnding& ending, const Usage* total, std::string& out) override {
    const OutputEvent nothing = {OutputEvent::Kind::kContent, ""};
    append_chunk(out, answer, [&](JsonWriter& json) { write_text_delta(json, thinking_, nothing); },
                 {.end = &ending.end, .usage = usage_apart_ ? nullptr : total});
    if (total == nullptr) return;
    if (usage_apart_) append_usage(out, *total);
    out += "data: [DONE]\n\n";
  }

  void fail(const ApiError& error, std::string& out) override {
    out.append("data: ").append(to_json(error)).append("\n\n");
  }
  bool is_stream() const override { return true; }
  bool tells_interruption() const override { return true; }
  std::string_view keep_alive() const override { return kSseKeepAlive; }

 private:
  void write_identity(JsonWriter& json) const {
    json.member("id", identity_.id)
        .member("object", "chat.completion.chunk")
        .member("created", identity_.created)
        .member("model", identity_.model)
        .member("system_fingerprint", identity_.system_fingerprint);
  }

  void append_usage(std::string& out, const Usage& usage) const {
    append_frame(out, "", [&](JsonWriter& json) {
      write_identity(json);
      write_chat_usage(json.key("choices").begin_array().end_array().key("usage"), usage);
    });
  }

  // write_delta(JsonWriter&) fills the delta object.
  template <typename WriteDelta>
  void append_chunk(std::string& out, int32_t answer, WriteDelta write_delta,
                    const ChunkRest& rest = {}) const {
    append_frame(out, "", [&](JsonWriter& json) {
      write_identity(json);
      json.key("choices").begin_array().begin_object().member("index", answer).key("delta").begin_object();
      write_delta(json);
      json.end_object().key("logprobs");
      if (rest.tokens == nullptr || rest.tokens->empty()) {
        json.null();
      } else {
        const bool is_reasoning = rest.kind == OutputEvent::Kind::kReasoning;
        write_logprobs(json.begin_object().key(is_reasoning ? "reasoning_content" : "content"), *rest.tokens);
        json.end_object();
      }
      json.key("finish_reason");
      rest.end != nullptr ? json.value(finish_reason_name(*rest.end)) : json.null();
      json.end_object().end_array();
      if (rest.usage != nullptr) {
        write_chat_usage(json.key("usage"), *rest.usage);
      } else if (include_usage_) {
        json.key("usage").null();
      }
    });
  }

  const AnswerIdentity identity_;
  const bool thinking_;
  const bool include_usage_;
  const bool usage_apart_;
  std::vector<int64_t> num_calls_;  // of each answer
};

class WholeChat : public AnswerWriter {
 public:
  WholeChat(AnswerIdentity identity, const ChatRequest& request)
      : identity_(std::move(identity)),
        thinking_(request.conversation.thinking),
        choices_(static_cast<size_t>(request.n)) {}

  void start(const Usage&, std::string&) override {}

  void add(int32_t answer, const OutputEvent& event, const std::vector<ScoredToken>& tokens,
           std::string&) override {
    Choice& choice = choices_[static_cast<size_t>(answer)];
    switch (event.kind) {
      case OutputEvent::Kind::kReasoning:
        choice.reasoning += event.text;
        choice.reasoning_tokens.insert(choice.reasoning_tokens.end(), tokens.begin(), tokens.end());
        return;
      case OutputEvent::Kind::kContent:
        choice.content += event.text;
        choice.content_tokens.insert(choice.content_tokens.end(), tokens.begin(), tokens.end());
        return;
      case OutputEvent::Kind::kToolCall:
        choice.calls.push_back({std::string(event.text), ""});
        return;
      case OutputEvent::Kind::kToolArguments:
        choice.calls.back().arguments += event.text;
        return;
    }
  }

  void end(int32_t answer, const AnswerEnding& ending, const Usage* total, std::string& out) override {
    choices_[static_cast<size_t>(answer)].end = ending.end;
    if (total == nullptr) return;
    JsonWriter json(out);
    json.begin_object()
        .member("id", identity_.id)
        .member("object", "chat.completion")
        .member("created", identity_.created)
        .member("model", identity_.model)
        .key("choices")
        .begin_array();
    for (int32_t i = 0; i < std::ssize(choices_); ++i) write_choice(json, i);
    json.end_array();
    write_chat_usage(json.key("usage"), *total);
    json.member("system_fingerprint", identity_.system_fingerprint).end_object();
  }

  void fail(const ApiError& error, std::string& out) override { out += to_json(error); }
  bool is_stream() const override { return false; }
  bool tells_interruption() const override { return true; }
  std::string_view keep_alive() const override { return kBlankLine; }

 private:
  struct Call {
    std::string name;
    std::string arguments;
  };
  struct Choice {
    std::string content;
    std::string reasoning;
    std::vector<Call> calls;
    std::vector<ScoredToken> content_tokens;
    std::vector<ScoredToken> reasoning_tokens;
    AnswerEnd end = AnswerEnd::kStop;
  };

  void write_choice(JsonWriter& json, int32_t index) const {
    const Choice& choice = choices_[static_cast<size_t>(index)];
    json.begin_object().member("index", index).key("message").begin_object();
    json.member("role", "assistant").member("content", choice.content);
    if (thinking_) json.member("reasoning_content", choice.reasoning);
    if (!choice.calls.empty()) {
      json.key("tool_calls").begin_array();
      for (int64_t i = 0; i < std::ssize(choice.calls); ++i) {
        const Call& call = choice.calls[static_cast<size_t>(i)];
        write_call_start(json, i, call_id(identity_, index, i), call.name, call.arguments);
      }
      json.end_array();
    }
    json.end_object().key("logprobs");
    if (choice.content_tokens.empty() && choice.reasoning_tokens.empty()) {
      json.null();
    } else {
      json.begin_object();
      if (!choice.content_tokens.empty()) write_logprobs(json.key("content"), choice.content_tokens);
      if (!choice.reasoning_tokens.empty())
        write_logprobs(json.key("reasoning_content"), choice.reasoning_tokens);
      json.end_object();
    }
    json.member("finish_reason", finish_reason_name(choice.end)).end_object();
  }

  const AnswerIdentity identity_;
  const bool thinking_;
  std::vector<Choice> choices_;
};

}  // namespace

std::string_view finish_reason_name(AnswerEnd end) {
  switch (end) {
    case AnswerEnd::kStop:
    case AnswerEnd::kStopSequence:
      return "stop";
    case AnswerEnd::kToolCalls:
      return "tool_calls";
    case AnswerEnd::kLength:
      return "length";
    case AnswerEnd::kContentFilter:
      return "content_filter";
    case AnswerEnd::kInterrupted:
      return "insufficient_system_resource";
  }
  return "stop";
}

std::unique_ptr<AnswerWriter> make_chat_writer(AnswerIdentity identity, const ChatRequest& request) {
  if (request.stream) return std::make_unique<ChatStream>(std::move(identity), request);
  return std::make_unique<WholeChat>(std::move(identity), request);
}

void write_chat_usage(JsonWriter& json, const Usage& usage) {
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

}  // namespace deepinfer
