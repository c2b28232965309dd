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

// How calls are told.
enum class CallForm {
  kFunction,
  kCustom,  // the input of a custom tool is text, not JSON
  kLegacy,  // "function_call" of a message, before there were tools
};

void write_function(JsonWriter& json, std::string_view name, std::string_view arguments) {
  json.begin_object().member("name", name).member("arguments", arguments).end_object();
}

void write_call_start(JsonWriter& json, int64_t index, std::string_view id, CallForm form, std::string_view name,
                      std::string_view text) {
  const bool custom = form == CallForm::kCustom;
  json.begin_object().member("index", index).member("id", id).member("type", custom ? "custom" : "function");
  if (custom) {
    json.key("custom").begin_object().member("name", name).member("input", text).end_object();
  } else {
    write_function(json.key("function"), name, text);
  }
  json.end_object();
}

std::string_view end_name(AnswerEnd end, bool legacy) {
  return legacy && end == AnswerEnd::kToolCalls ? "function_call" : finish_reason_name(end);
}

// The form of the calls that an answer makes, by the names that the model writes.
class CallForms {
 public:
  explicit CallForms(const ChatRequest& request)
      : names_(request.conversation, PromptVersion::kV41), legacy_(request.legacy_functions) {}
  CallForm of(std::string_view name) const {
    if (legacy_) return CallForm::kLegacy;
    return names_.target(name).kind == ToolKind::kCustom ? CallForm::kCustom : CallForm::kFunction;
  }
  bool legacy() const { return legacy_; }

 private:
  const ToolNames names_;
  const bool legacy_;
};

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
        usage_always_(request.usage_always),
        echo_(request.echo),
        forms_(request),
        calls_(static_cast<size_t>(request.n)) {}

  void start(const Usage& usage, std::string& out) override {
    if (usage_always_) usage_so_far_ = &usage;
    for (int32_t answer = 0; answer < std::ssize(calls_); ++answer) {
      append_chunk(out, answer, [this](JsonWriter& json) {
        json.member("role", "assistant").key("content");
        thinking_ ? json.null().member("reasoning_content", "") : json.value("");
      });
      if (echo_.empty()) continue;
      const OutputEvent echo = {OutputEvent::Kind::kContent, echo_};
      append_chunk(out, answer, [&](JsonWriter& json) { write_text_delta(json, thinking_, echo); });
    }
  }

  void add(int32_t answer, const OutputEvent& event, const std::vector<ScoredToken>& tokens,
           std::string& out) override {
    Calls& calls = calls_[static_cast<size_t>(answer)];
    switch (event.kind) {
      case OutputEvent::Kind::kReasoning:
      case OutputEvent::Kind::kContent:
        return append_chunk(out, answer, [&](JsonWriter& json) { write_text_delta(json, thinking_, event); },
                            {.tokens = &tokens, .kind = event.kind});
      case OutputEvent::Kind::kToolCall:
        return open_call(answer, calls, event.text, out);
      case OutputEvent::Kind::kToolArguments: {
        if (calls.form != CallForm::kCustom) return append_call_text(answer, calls, event.text, out);
        std::string input;
        calls.input.push(event.text, input);
        if (!input.empty()) append_call_text(answer, calls, input, out);
        return;
      }
    }
  }

  void end(int32_t answer, const AnswerEnding& ending, const Usage* total, std::string& out) override {
    close_call(answer, calls_[static_cast<size_t>(answer)], out);
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
  struct Calls {  // of one answer
    int64_t count = 0;
    CallForm form = CallForm::kFunction;  // of the last one
    CustomToolInput input = {};
  };

  void open_call(int32_t answer, Calls& calls, std::string_view name, std::string& out) {
    close_call(answer, calls, out);
    calls.form = forms_.of(name);
    calls.input = {};
    append_chunk(out, answer, [&](JsonWriter& json) {
      if (calls.form == CallForm::kLegacy) return write_function(json.key("function_call"), name, "");
      json.key("tool_calls").begin_array();
      write_call_start(json, calls.count, call_id(identity_, answer, calls.count), calls.form, name, "");
      json.end_array();
    });
    ++calls.count;
  }

  void append_call_text(int32_t answer, const Calls& calls, std::string_view text, std::string& out) {
    const bool custom = calls.form == CallForm::kCustom, legacy = calls.form == CallForm::kLegacy;
    append_chunk(out, answer, [&](JsonWriter& json) {
      if (!legacy) json.key("tool_calls").begin_array().begin_object().member("index", calls.count - 1);
      json.key(legacy ? "function_call" : custom ? "custom" : "function").begin_object();
      json.member(custom ? "input" : "arguments", text).end_object();
      if (!legacy) json.end_object().end_array();
    });
  }

  void close_call(int32_t answer, Calls& calls, std::string& out) {
    if (calls.count == 0 || calls.form != CallForm::kCustom) return;
    std::string rest;
    calls.input.finish(rest);
    if (!rest.empty()) append_call_text(answer, calls, rest, out);
  }

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
      rest.end != nullptr ? json.value(end_name(*rest.end, forms_.legacy())) : json.null();
      json.end_object().end_array();
      const Usage* usage = rest.usage != nullptr ? rest.usage : usage_so_far_;
      if (usage != nullptr) {
        write_chat_usage(json.key("usage"), *usage);
      } else if (include_usage_) {
        json.key("usage").null();
      }
    });
  }

  const AnswerIdentity identity_;
  const bool thinking_;
  const bool include_usage_;
  const bool usage_apart_;
  const bool usage_always_;
  const Usage* usage_so_far_ = nullptr;  // set: every chunk has it
  const std::string echo_;
  const CallForms forms_;
  std::vector<Calls> calls_;  // of each answer
};

class WholeChat : public AnswerWriter {
 public:
  WholeChat(AnswerIdentity identity, const ChatRequest& request)
      : identity_(std::move(identity)),
        thinking_(request.conversation.thinking),
        forms_(request),
        choices_(static_cast<size_t>(request.n)) {
    for (Choice& choice : choices_) choice.content = request.echo;
  }

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
    if (!choice.calls.empty() && forms_.legacy()) {
      write_function(json.key("function_call"), choice.calls[0].name, choice.calls[0].arguments);
    } else if (!choice.calls.empty()) {
      json.key("tool_calls").begin_array();
      for (int64_t i = 0; i < std::ssize(choice.calls); ++i) {
        const Call& call = choice.calls[static_cast<size_t>(i)];
        const CallForm form = forms_.of(call.name);
        write_call_start(json, i, call_id(identity_, index, i), form, call.name,
                         form == CallForm::kCustom ? input_of(call.arguments) : call.arguments);
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
    json.member("finish_reason", end_name(choice.end, forms_.legacy())).end_object();
  }

  static std::string input_of(std::string_view arguments) {
    CustomToolInput input;
    std::string text;
    input.push(arguments, text);
    input.finish(text);
    return text;
  }

  const AnswerIdentity identity_;
  const bool thinking_;
  const CallForms forms_;
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
      .member("cached_tokens", usage.cached_tokens);
  if (usage.context_mode) json.member("context_mode", context_mode_name(*usage.context_mode));
  json.end_object();
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
