// One class for both forms: items are built as events come, and frames tell of them when the client reads a
// stream.
#include "api/responses_response.h"

#include <algorithm>
#include <utility>

#include "api/logprobs.h"
#include "api/sse.h"

namespace deepinfer {
namespace {

enum class ItemKind { kReasoning, kMessage, kFunctionCall, kCustomCall, kToolSearch };

struct Item {
  ItemKind kind = ItemKind::kMessage;
  std::string id;
  std::string status = "in_progress";
  std::string text;  // or arguments, or the input of a custom tool
  // kReasoning
  std::string sealed;
  bool summarised = false;  // the text stands as its own summary too
  // kMessage
  std::string_view phase = "final_answer";
  std::vector<ScoredToken> tokens;
  // calls
  std::string call_id;
  std::string name;
  std::string namespace_name;
};

void write_text_part(JsonWriter& json, std::string_view text, const std::vector<ScoredToken>& tokens) {
  json.begin_object().member("type", "output_text").key("annotations").begin_array().end_array();
  write_logprobs(json.key("logprobs"), tokens);
  json.member("text", text).end_object();
}

void write_reasoning_part(JsonWriter& json, std::string_view text) {
  json.begin_object().member("type", "reasoning_text").member("text", text).end_object();
}

void write_summary_part(JsonWriter& json, std::string_view text) {
  json.begin_object().member("type", "summary_text").member("text", text).end_object();
}

// `begun`: the item as it is announced, without its text.
void write_item(JsonWriter& json, const Item& item, bool begun = false) {
  const auto head = [&](std::string_view type) -> JsonWriter& {
    return json.begin_object().member("type", type).member("id", item.id).member("status", item.status);
  };
  const std::string_view text = begun ? std::string_view() : std::string_view(item.text);
  switch (item.kind) {
    case ItemKind::kReasoning:
      head("reasoning").key("content").begin_array();
      if (!begun) write_reasoning_part(json, text);
      json.end_array().key("summary").begin_array();
      if (!begun && item.summarised) write_summary_part(json, text);
      json.end_array();
      if (!item.sealed.empty()) json.member("encrypted_content", item.sealed);
      break;
    case ItemKind::kMessage:
      head("message").member("role", "assistant").member("phase", item.phase).key("content").begin_array();
      if (!begun) write_text_part(json, text, item.tokens);
      json.end_array();
      break;
    case ItemKind::kFunctionCall:
      head("function_call").member("call_id", item.call_id).member("name", item.name);
      if (!item.namespace_name.empty()) json.member("namespace", item.namespace_name);
      json.member("arguments", text);
      break;
    case ItemKind::kCustomCall:
      head("custom_tool_call")
          .member("call_id", item.call_id)
          .member("name", item.name)
          .member("input", text);
      break;
    case ItemKind::kToolSearch: {
      head("tool_search_call").member("call_id", item.call_id).member("execution", "client").key("arguments");
      const Result<JsonValue> arguments = parse_json(text);
      const bool whole = arguments.ok() && arguments->object() != nullptr;
      whole ? json.value(*arguments) : json.begin_object().end_object();
      break;
    }
  }
  json.end_object();
}

struct ResponseState {
  std::string_view status = "in_progress";
  std::optional<int64_t> completed_at = {};
  const ApiError* error = nullptr;
  std::string_view incomplete_reason = {};
  const Usage* usage = nullptr;
};

void write_responses_usage(JsonWriter& json, const Usage& usage) {
  json.begin_object()
      .member("input_tokens", usage.prompt_tokens)
      .key("input_tokens_details")
      .begin_object()
      .member("cached_tokens", usage.cached_tokens);
  if (usage.context_mode) json.member("context_mode", context_mode_name(*usage.context_mode));
  json.end_object()
      .member("output_tokens", usage.completion_tokens)
      .key("output_tokens_details")
      .begin_object()
      .member("reasoning_tokens", usage.reasoning_tokens.value_or(0))
      .end_object()
      .member("total_tokens", usage.prompt_tokens + usage.completion_tokens)
      .end_object();
}

void write_error(JsonWriter& json, const ApiError* error) {
  if (error == nullptr) {
    json.null();
    return;
  }
  json.begin_object().member("code", error->code).member("message", error->message).end_object();
}

// The order of keys follows the official package.
void write_response(JsonWriter& json, const AnswerIdentity& identity, const ResponsesEcho& echo,
                    const std::vector<Item>& items, const ResponseState& state) {
  json.begin_object()
      .member("id", identity.id)
      .member("object", "response")
      .member("created_at", identity.created)
      .member("status", state.status)
      .member("background", echo.background)
      .key("completed_at");
  state.completed_at ? json.value(*state.completed_at) : json.null();
  json.key("content_filters").null();
  write_error(json.key("error"), state.error);
  json.member("frequency_penalty", echo.frequency_penalty).key("incomplete_details");
  if (state.incomplete_reason.empty()) {
    json.null();
  } else {
    json.begin_object().member("reason", state.incomplete_reason).end_object();
  }
  json.member("instructions", echo.instructions)
      .member("max_output_tokens", echo.max_output_tokens)
      .key("max_tool_calls")
      .null()
      .member("model", identity.model)
      .key("moderation")
      .null()
      .key("output")
      .begin_array();
  for (const Item& item : items) write_item(json, item);
  json.end_array()
      .member("parallel_tool_calls", echo.parallel_tool_calls)
      .member("presence_penalty", echo.presence_penalty)
      .member("previous_response_id", echo.previous_response_id)
      .member("prompt_cache_key", echo.prompt_cache_key)
      .key("prompt_cache_retention")
      .null()
      .key("reasoning")
      .begin_object()
      .member("effort", echo.effort)
      .member("summary", echo.summary)
      .end_object()
      .member("safety_identifier", echo.safety_identifier)
      .member("service_tier", "default")
      .member("store", echo.store)
      .member("temperature", echo.temperature)
      .key("text")
      .begin_object()
      .member("format", echo.text_format)
      .member("verbosity", echo.verbosity)
      .end_object()
      .member("tool_choice", echo.tool_choice)
      .member("tools", echo.tools)
      .member("top_logprobs", echo.top_logprobs)
      .member("top_p", echo.top_p)
      .member("truncation", echo.truncation)
      .key("usage");
  state.usage == nullptr ? void(json.null()) : write_responses_usage(json, *state.usage);
  json.member("user", echo.user).member("metadata", echo.metadata).end_object();
}

class ResponsesAnswer : public AnswerWriter {
 public:
  ResponsesAnswer(AnswerIdentity identity, const ResponsesRequest& request, ResponsesHooks hooks)
      : identity_(std::move(identity)),
        echo_(request.echo),
        summarises_(!request.echo.summary.is_null()),
        names_(request.conversation, PromptVersion::kV41),
        hooks_(std::move(hooks)),
        stream_(request.stream) {}

  void start(const Usage&, std::string& out) override {
    for (const char* type : {"response.created", "response.in_progress"}) {
      frame(out, type,
            [&](JsonWriter& json) { write_response(json.key("response"), identity_, echo_, items_, {}); });
    }
  }

  void add(int32_t, const OutputEvent& event, const std::vector<ScoredToken>& tokens,
           std::string& out) override {
    if (hooks_.on_running) std::exchange(hooks_.on_running, nullptr)(response_text({}));
    switch (event.kind) {
      case OutputEvent::Kind::kReasoning:
        return add_text(ItemKind::kReasoning, event.text, tokens, out);
      case OutputEvent::Kind::kContent:
        return add_text(ItemKind::kMessage, event.text, tokens, out);
      case OutputEvent::Kind::kToolCall:
        return open_call(event.text, out);
      case OutputEvent::Kind::kToolArguments:
        return add_arguments(event.text, out);
    }
  }

  void end(int32_t, const AnswerEnding& ending, const Usage* total, std::string& out) override {
    ResponseState state = {.status = "completed"};
    if (ending.end == AnswerEnd::kLength)
      state = {.status = "incomplete", .incomplete_reason = "max_output_tokens"};
    if (ending.end == AnswerEnd::kContentFilter) {
      state = {.status = "incomplete", .incomplete_reason = "content_filter"};
    }
    close_item(state.status, out);
    state.completed_at = hooks_.now_s();
    state.usage = total;
    tell_end(state.status == "completed" ? "response.completed" : "response.incomplete", state, out);
  }

  // The whole form has no frame for a failure: its body is the error.
  void fail(const ApiError& error, std::string& out) override {
    close_item("incomplete", out);
    const ResponseState state = {.status = "failed", .error = &error};
    if (stream_) return tell_end("response.failed", state, out);
    std::string ignored;
    tell_end("", state, ignored);
    out += to_json(error);
  }

  void cancel(const Usage& so_far, std::string& out) override {
    close_item("incomplete", out);
    tell_end("response.incomplete", {.status = "cancelled", .usage = &so_far}, out);
  }

  bool is_stream() const override { return stream_; }
  bool tells_interruption() const override { return false; }
  std::string_view keep_alive() const override { return stream_ ? kSseKeepAlive : kBlankLine; }

 private:
  template <typename Write>
  void frame(std::string& out, std::string_view type, Write write) {
    if (!stream_) return;
    append_frame(out, type, [&](JsonWriter& json) {
      write(json);
      json.member("sequence_number", sequence_number_++);
    });
  }
  std::string response_text(const ResponseState& state) const {
    std::string response;
    JsonWriter json(response);
    write_response(json, identity_, echo_, items_, state);
    return response;
  }
  int64_t output_index() const { return std::ssize(items_) - 1; }

  void tell_end(std::string_view type, const ResponseState& state, std::string& out) {
    std::string response = response_text(state);
    if (hooks_.on_end && !hooks_.on_end(response)) {
      echo_.store = false;
      response = response_text(state);
    }
    if (!stream_) {
      out += response;
      return;
    }
    frame(out, type, [&](JsonWriter& event) { event.key("response").raw(response); });
  }

  Item& open_item(ItemKind kind, std::string_view prefix, std::string& out) {
    close_item("completed", out);
    is_open_ = true;
    Item& item = items_.emplace_back();
    item.kind = kind;
    item.id = fmt::format("{}_{}_{}", prefix, identity_.id, output_index());
    return item;
  }

  void tell_item(std::string_view type, const Item& item, bool begun, std::string& out) {
    frame(out, type, [&](JsonWriter& json) {
      write_item(json.key("item"), item, begun);
      json.member("output_index", output_index());
    });
  }

  void tell_part(std::string_view type, const Item& item, std::string& out) {
    frame(out, type, [&](JsonWriter& json) {
      json.member("content_index", 0)
          .member("item_id", item.id)
          .member("output_index", output_index())
          .key("part");
      item.kind == ItemKind::kReasoning ? write_reasoning_part(json, item.text)
                                        : write_text_part(json, item.text, item.tokens);
    });
  }

  // The summary of a thought is the thought: there is no second model to shorten it.
  template <typename Write>
  void tell_summary(std::string_view type, const Item& item, std::string& out, Write write) {
    frame(out, type, [&](JsonWriter& json) {
      json.member("item_id", item.id).member("output_index", output_index()).member("summary_index", 0);
      write(json);
    });
  }

  void add_text(ItemKind kind, std::string_view text, const std::vector<ScoredToken>& tokens,
                std::string& out) {
    const bool is_reasoning = kind == ItemKind::kReasoning;
    if (!is_open_ || items_.back().kind != kind) {
      Item& item = open_item(kind, is_reasoning ? "rs" : "msg", out);
      if (is_reasoning && hooks_.seal) item.sealed = hooks_.seal("", output_index());
      tell_item("response.output_item.added", item, true, out);
      tell_part("response.content_part.added", item, out);
      item.summarised = is_reasoning && summarises_;
      if (item.summarised) {
        tell_summary("response.reasoning_summary_part.added", item, out,
                     [](JsonWriter& json) { write_summary_part(json.key("part"), ""); });
      }
    }
    Item& item = items_.back();
    item.text += text;
    if (!is_reasoning) item.tokens.insert(item.tokens.end(), tokens.begin(), tokens.end());
    frame(out, is_reasoning ? "response.reasoning_text.delta" : "response.output_text.delta",
          [&](JsonWriter& json) {
            json.member("content_index", 0).member("delta", text).member("item_id", item.id);
            if (!is_reasoning) write_logprobs(json.key("logprobs"), tokens);
            json.member("output_index", output_index());
          });
    if (item.summarised) {
      tell_summary("response.reasoning_summary_text.delta", item, out,
                   [&](JsonWriter& json) { json.member("delta", text); });
    }
  }

  void open_call(std::string_view printed_name, std::string& out) {
    if (is_open_ && items_.back().kind == ItemKind::kMessage) items_.back().phase = "commentary";
    const ToolNames::Target target = names_.target(printed_name);
    const ItemKind kind = target.kind == ToolKind::kCustom       ? ItemKind::kCustomCall
                          : target.kind == ToolKind::kToolSearch ? ItemKind::kToolSearch
                                                                 : ItemKind::kFunctionCall;
    const char* prefix = kind == ItemKind::kCustomCall ? "ctc" : kind == ItemKind::kToolSearch ? "tsc" : "fc";
    Item& item = open_item(kind, prefix, out);
    item.call_id = make_call_id(identity_.call_id_key, num_calls_++);
    item.name = target.name;
    item.namespace_name = target.namespace_name;
    input_ = CustomToolInput();
    tell_item("response.output_item.added", item, true, out);
  }

  void add_arguments(std::string_view arguments, std::string& out) {
    Item& item = items_.back();
    if (item.kind == ItemKind::kCustomCall) {
      std::string text;
      input_.push(arguments, text);
      return add_input(text, out);
    }
    item.text += arguments;
    if (item.kind == ItemKind::kFunctionCall)
      tell_delta("response.function_call_arguments.delta", arguments, out);
  }

  void add_input(std::string_view text, std::string& out) {
    if (text.empty()) return;
    items_.back().text += text;
    tell_delta("response.custom_tool_call_input.delta", text, out);
  }

  void tell_delta(std::string_view type, std::string_view text, std::string& out) {
    frame(out, type, [&](JsonWriter& json) {
      json.member("delta", text).member("item_id", items_.back().id).member("output_index", output_index());
    });
  }

  void close_item(std::string_view status, std::string& out) {
    if (!is_open_) return;
    is_open_ = false;
    Item& item = items_.back();
    if (item.kind == ItemKind::kCustomCall) {
      std::string rest;
      input_.finish(rest);
      add_input(rest, out);
    }
    item.status = status;
    if (item.kind == ItemKind::kReasoning && hooks_.seal)
      item.sealed = hooks_.seal(item.text, output_index());
    tell_text_done(item, out);
    tell_item("response.output_item.done", item, false, out);
  }

  void tell_text_done(const Item& item, std::string& out) {
    switch (item.kind) {
      case ItemKind::kReasoning:
        frame(out, "response.reasoning_text.done", [&](JsonWriter& json) {
          json.member("content_index", 0).member("item_id", item.id).member("output_index", output_index());
          json.member("text", item.text);
        });
        tell_part("response.content_part.done", item, out);
        if (!item.summarised) return;
        tell_summary("response.reasoning_summary_text.done", item, out,
                     [&](JsonWriter& json) { json.member("text", item.text); });
        return tell_summary("response.reasoning_summary_part.done", item, out,
                            [&](JsonWriter& json) { write_summary_part(json.key("part"), item.text); });
      case ItemKind::kMessage:
        frame(out, "response.output_text.done", [&](JsonWriter& json) {
          write_logprobs(json.member("content_index", 0).member("item_id", item.id).key("logprobs"),
                         item.tokens);
          json.member("output_index", output_index()).member("text", item.text);
        });
        return tell_part("response.content_part.done", item, out);
      case ItemKind::kFunctionCall:
      case ItemKind::kCustomCall: {
        const bool custom = item.kind == ItemKind::kCustomCall;
        return frame(
            out, custom ? "response.custom_tool_call_input.done" : "response.function_call_arguments.done",
            [&](JsonWriter& json) {
              json.member(custom ? "input" : "arguments", item.text).member("item_id", item.id);
              json.member("output_index", output_index());
            });
      }
      case ItemKind::kToolSearch:
        return;
    }
  }

  const AnswerIdentity identity_;
  ResponsesEcho echo_;
  const bool summarises_;
  const ToolNames names_;
  ResponsesHooks hooks_;
  const bool stream_;
  std::vector<Item> items_;
  bool is_open_ = false;  // the last item
  CustomToolInput input_;
  int64_t num_calls_ = 0;
  int64_t sequence_number_ = 0;
};

std::string item_id(const JsonValue& item, size_t place) {
  const JsonValue* id = item.find("id");
  return id != nullptr && id->string() != nullptr ? *id->string() : fmt::format("item_{}", place);
}

}  // namespace

std::unique_ptr<AnswerWriter> make_responses_writer(AnswerIdentity identity, const ResponsesRequest& request,
                                                    ResponsesHooks hooks) {
  return std::make_unique<ResponsesAnswer>(std::move(identity), request, std::move(hooks));
}

std::string unfinished_response(const AnswerIdentity& identity, const ResponsesRequest& request,
                                std::string_view status) {
  std::string out;
  JsonWriter json(out);
  write_response(json, identity, request.echo, {}, {.status = status});
  return out;
}

std::string items_to_json(const JsonValue::Array& items, bool ascending, size_t limit,
                          const std::string& after) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = ascending ? i : items.size() - 1 - i;
  size_t begin = 0;
  for (size_t i = 0; i < order.size() && !after.empty(); ++i) {
    if (item_id(items[order[i]], order[i]) == after) begin = i + 1;
  }
  const size_t end = std::min(order.size(), begin + limit);
  std::string out;
  JsonWriter json(out);
  json.begin_object().member("object", "list").key("data").begin_array();
  for (size_t i = begin; i < end; ++i) {
    JsonValue item = items[order[i]];
    JsonValue::Object* object = item.object();
    if (object != nullptr && item.find("id") == nullptr) object->push_back({"id", item_id(item, order[i])});
    json.value(item);
  }
  json.end_array();
  const auto id_at = [&](std::string_view key, size_t i) {
    json.key(key);
    begin < end ? json.value(item_id(items[order[i]], order[i])) : json.null();
  };
  id_at("first_id", begin);
  id_at("last_id", end - 1);
  json.member("has_more", end < order.size()).end_object();
  return out;
}

std::string input_token_count_to_json(int64_t input_tokens) {
  std::string out;
  JsonWriter(out)
      .begin_object()
      .member("object", "response.input_tokens")
      .member("input_tokens", input_tokens)
      .end_object();
  return out;
}

std::string deleted_response_to_json(const std::string& id) {
  std::string out;
  JsonWriter(out)
      .begin_object()
      .member("id", id)
      .member("object", "response")
      .member("deleted", true)
      .end_object();
  return out;
}

}  // namespace deepinfer
