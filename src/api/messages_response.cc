#include "api/messages_response.h"

#include "api/sse.h"

namespace deepinfer {
namespace {

void write_usage(JsonWriter& json, const Usage& usage) {
  json.begin_object()
      .member("input_tokens", usage.prompt_tokens - usage.cached_tokens)
      .member("cache_creation_input_tokens", 0)
      .member("cache_read_input_tokens", usage.cached_tokens)
      .member("output_tokens", usage.completion_tokens)
      .member("service_tier", "standard");
  if (usage.context_mode) json.member("context_mode", context_mode_name(*usage.context_mode));
  json.end_object();
}

std::string_view stop_reason(AnswerEnd end) {
  switch (end) {
    case AnswerEnd::kStop:
      return "end_turn";
    case AnswerEnd::kStopSequence:
      return "stop_sequence";
    case AnswerEnd::kToolCalls:
      return "tool_use";
    case AnswerEnd::kLength:
      return "max_tokens";
    case AnswerEnd::kContentFilter:
    case AnswerEnd::kInterrupted:  // told as an error
      return "refusal";
  }
  return "end_turn";
}

void write_stop(JsonWriter& json, const AnswerEnding* ending) {
  json.key("stop_reason");
  ending == nullptr ? json.null() : json.value(stop_reason(ending->end));
  json.key("stop_sequence");
  const bool matched = ending != nullptr && ending->end == AnswerEnd::kStopSequence;
  matched ? json.value(ending->stop_sequence) : json.null();
}

// The types of Anthropic's service.
std::string_view error_type(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 529:
      return "overloaded_error";
    default:
      return http_status < 500 ? "invalid_request_error" : "api_error";
  }
}

void write_error(JsonWriter& json, const ApiError& error) {
  json.begin_object()
      .member("type", error_type(messages_http_status(error)))
      .member("message", error.message)
      .key("param")
      .null()
      .member("code", error.code);
  if (error.message == kNoThreads) {
    json.key("details").begin_object().member("error_code", "thread_unsupported_request");
    json.key("unsupported").begin_array().value("thread").end_array().end_object();
  }
  json.end_object();
}

enum class BlockKind { kThinking, kText, kToolUse };

BlockKind block_kind(OutputEvent::Kind kind) {
  switch (kind) {
    case OutputEvent::Kind::kReasoning:
      return BlockKind::kThinking;
    case OutputEvent::Kind::kContent:
      return BlockKind::kText;
    case OutputEvent::Kind::kToolCall:
    case OutputEvent::Kind::kToolArguments:
      return BlockKind::kToolUse;
  }
  return BlockKind::kText;
}

void write_message_head(JsonWriter& json, const AnswerIdentity& identity) {
  json.member("id", identity.id)
      .member("type", "message")
      .member("role", "assistant")
      .member("model", identity.model)
      .key("content")
      .begin_array();
}

class MessagesStream : public AnswerWriter {
 public:
  MessagesStream(AnswerIdentity identity, const MessagesRequest& request)
      : identity_(std::move(identity)),
        thinking_(request.conversation.thinking),
        hides_thinking_(request.hides_thinking) {}

  void start(const Usage& prompt, std::string& out) override {
    append_frame(out, "message_start", [&](JsonWriter& json) {
      write_message_head(json.key("message").begin_object(), identity_);
      json.end_array();
      write_stop(json, nullptr);
      write_usage(json.key("usage"), prompt);
      json.end_object();
    });
    if (thinking_) open(BlockKind::kThinking, "", out);
  }

  void add(int32_t, const OutputEvent& event, const std::vector<ScoredToken>&, std::string& out) override {
    const BlockKind kind = block_kind(event.kind);
    if (event.kind == OutputEvent::Kind::kToolCall || kind != open_kind_ || !is_open_)
      open(kind, event.text, out);
    if (event.kind == OutputEvent::Kind::kToolCall) return;
    if (kind == BlockKind::kThinking && hides_thinking_) return;
    append_frame(out, "content_block_delta", [&](JsonWriter& json) {
      json.member("index", index_).key("delta").begin_object();
      switch (kind) {
        case BlockKind::kThinking:
          json.member("type", "thinking_delta").member("thinking", event.text);
          break;
        case BlockKind::kText:
          json.member("type", "text_delta").member("text", event.text);
          break;
        case BlockKind::kToolUse:
          json.member("type", "input_json_delta").member("partial_json", event.text);
          break;
      }
      json.end_object();
    });
  }

  void end(int32_t, const AnswerEnding& ending, const Usage* total, std::string& out) override {
    close(out);
    append_frame(out, "message_delta", [&](JsonWriter& json) {
      write_stop(json.key("delta").begin_object(), &ending);
      json.end_object();
      if (total != nullptr) write_usage(json.key("usage"), *total);
    });
    append_frame(out, "message_stop", [](JsonWriter&) {});
  }

  int http_status(const ApiError& error) const override { return messages_http_status(error); }
  void fail(const ApiError& error, std::string& out) override {
    append_frame(out, "error", [&](JsonWriter& json) { write_error(json.key("error"), error); });
  }
  bool is_stream() const override { return true; }
  bool tells_interruption() const override { return false; }
  std::string_view keep_alive() const override { return kPing; }

 private:
  static constexpr std::string_view kPing = "event: ping\ndata: {\"type\":\"ping\"}\n\n";

  void open(BlockKind kind, std::string_view call_name, std::string& out) {
    close(out);
    is_open_ = true;
    open_kind_ = kind;
    append_frame(out, "content_block_start", [&](JsonWriter& json) {
      json.member("index", ++index_).key("content_block").begin_object();
      switch (kind) {
        case BlockKind::kThinking:
          json.member("type", "thinking").member("thinking", "").member("signature", "");
          break;
        case BlockKind::kText:
          json.member("type", "text").member("text", "");
          break;
        case BlockKind::kToolUse:
          json.member("type", "tool_use")
              .member("id", make_call_id(identity_.call_id_key, num_calls_++))
              .member("name", call_name)
              .key("input")
              .begin_object()
              .end_object();
          break;
      }
      json.end_object();
    });
    if (index_ == 0) out += kPing;
  }

  // Clients drop thinking without a signature; ours is the id of the message.
  void close(std::string& out) {
    if (!is_open_) return;
    is_open_ = false;
    if (open_kind_ == BlockKind::kThinking) {
      append_frame(out, "content_block_delta", [&](JsonWriter& json) {
        json.member("index", index_).key("delta").begin_object();
        json.member("type", "signature_delta").member("signature", identity_.id).end_object();
      });
    }
    append_frame(out, "content_block_stop", [&](JsonWriter& json) { json.member("index", index_); });
  }

  const AnswerIdentity identity_;
  const bool thinking_;
  const bool hides_thinking_;
  bool is_open_ = false;
  BlockKind open_kind_ = BlockKind::kText;
  int64_t index_ = -1;
  int64_t num_calls_ = 0;
};

class WholeMessage : public AnswerWriter {
 public:
  WholeMessage(AnswerIdentity identity, const MessagesRequest& request)
      : identity_(std::move(identity)), hides_thinking_(request.hides_thinking) {
    if (request.conversation.thinking) blocks_.push_back({BlockKind::kThinking, "", ""});
  }

  void start(const Usage&, std::string&) override {}

  void add(int32_t, const OutputEvent& event, const std::vector<ScoredToken>&, std::string&) override {
    const BlockKind kind = block_kind(event.kind);
    if (event.kind == OutputEvent::Kind::kToolCall) {
      blocks_.push_back({kind, std::string(event.text), ""});
      return;
    }
    if (blocks_.empty() || blocks_.back().kind != kind) blocks_.push_back({kind, "", ""});
    if (kind != BlockKind::kThinking || !hides_thinking_) blocks_.back().text += event.text;
  }

  void end(int32_t, const AnswerEnding& ending, const Usage* total, std::string& out) override {
    JsonWriter json(out);
    write_message_head(json.begin_object(), identity_);
    int64_t num_calls = 0;
    for (const Block& block : blocks_) {
      json.begin_object();
      switch (block.kind) {
        case BlockKind::kThinking:
          json.member("type", "thinking").member("thinking", block.text).member("signature", identity_.id);
          break;
        case BlockKind::kText:
          json.member("type", "text").member("text", block.text);
          break;
        case BlockKind::kToolUse:
          json.member("type", "tool_use")
              .member("id", make_call_id(identity_.call_id_key, num_calls++))
              .member("name", block.name);
          write_input(json.key("input"), block.text);
          break;
      }
      json.end_object();
    }
    json.end_array();
    write_stop(json, &ending);
    if (total != nullptr) write_usage(json.key("usage"), *total);
    json.end_object();
  }

  int http_status(const ApiError& error) const override { return messages_http_status(error); }
  void fail(const ApiError& error, std::string& out) override { out += to_messages_json(error, ""); }
  bool is_stream() const override { return false; }
  bool tells_interruption() const override { return false; }
  std::string_view keep_alive() const override { return kBlankLine; }

 private:
  struct Block {
    BlockKind kind;
    std::string name;  // of a call
    std::string text;  // or the arguments
  };

  // An object always: arguments that the token limit cut are closed where they ended.
  static void write_input(JsonWriter& json, const std::string& arguments) {
    const Result<JsonValue> input = parse_json(close_cut_json(arguments));
    const bool is_object = input.ok() && input->object() != nullptr;
    is_object ? json.value(*input) : json.begin_object().end_object();
  }

  const AnswerIdentity identity_;
  const bool hides_thinking_;
  std::vector<Block> blocks_;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_messages_writer(AnswerIdentity identity, const MessagesRequest& request) {
  if (request.stream) return std::make_unique<MessagesStream>(std::move(identity), request);
  return std::make_unique<WholeMessage>(std::move(identity), request);
}

std::string token_count_to_json(int64_t input_tokens) {
  std::string out;
  JsonWriter(out).begin_object().member("input_tokens", input_tokens).end_object();
  return out;
}

int messages_http_status(const ApiError& error) {
  return error.http_status == 503 ? 529 : error.http_status;
}

std::string to_messages_json(const ApiError& error, std::string_view request_id) {
  std::string out;
  JsonWriter json(out);
  write_error(json.begin_object().member("type", "error").key("error"), error);
  if (!request_id.empty()) json.member("request_id", request_id);
  json.end_object();
  return out;
}

}  // namespace deepinfer
