// Responses: made, asked for again, deleted, ended.
#include <map>
#include <set>

#include "api/request_fields.h"
#include "api/responses_request.h"
#include "api/responses_response.h"
#include "base/log.h"
#include "gateway/routes.h"
#include "json/json.h"

namespace deepinfer {
namespace {

constexpr size_t kMaxChain = 1000;  // responses that one continues
constexpr int64_t kDefaultPage = 20, kMaxPage = 100;

ApiError not_found(const Error& error) {
  if (error.code() != Code::kNotFound) return to_api_error(error);
  return {404, error.message(), "invalid_request_error", "response_not_found"};
}

JsonValue::Array array_of(const std::string& json) {
  Result<JsonValue> value = parse_json(json);
  if (!value.ok() || value->array() == nullptr) return {};
  return std::move(*value->array());
}

JsonValue::Array output_of(const StoredResponse& stored) {
  const Result<JsonValue> response = parse_json(stored.response);
  const JsonValue* output = response.ok() ? response->find("output") : nullptr;
  return output != nullptr && output->array() != nullptr ? *output->array() : JsonValue::Array();
}

// What was said before, oldest first.
std::optional<ApiError> load_history(GatewayCore& core, const std::string& owner, std::string id,
                                     JsonValue::Array& history) {
  std::vector<StoredResponse> chain;
  while (!id.empty()) {
    Result<StoredResponse> stored = core.responses().get(owner, id);
    if (!stored.ok() && stored.error().code() == Code::kNotFound) {
      return ApiError{404, fmt::format("Previous response with id '{}' not found.", id),
                      "invalid_request_error", "previous_response_not_found"};
    }
    if (!stored.ok()) return to_api_error(stored.error());
    if (chain.size() == kMaxChain) {
      return to_api_error(Error(Code::kInvalidArgument,
                                "previous_response_id: the chain is longer than {} responses", kMaxChain));
    }
    id = stored->previous_id;
    chain.push_back(std::move(*stored));
  }
  for (auto stored = chain.rbegin(); stored != chain.rend(); ++stored) {
    for (JsonValue& item : array_of(stored->input_items)) history.push_back(std::move(item));
    for (JsonValue& item : output_of(*stored)) history.push_back(std::move(item));
  }
  return std::nullopt;
}

// Output items by their ids, for one request: "msg_resp_..._0" names the response that holds the item. A response is
// read once, whatever refers to it.
class ItemFinder {
 public:
  ItemFinder(ResponseStore& store, std::string owner) : store_(store), owner_(std::move(owner)) {}

  std::optional<JsonValue> find(const std::string& id) {
    const size_t begin = id.find("resp_");
    const size_t end = id.rfind('_');
    if (begin == std::string::npos || end == std::string::npos || end <= begin) return std::nullopt;
    read(id.substr(begin, end - begin));
    const auto found = items_.find(id);
    if (found == items_.end()) return std::nullopt;
    return found->second;
  }

 private:
  void read(const std::string& response) {
    if (!responses_.insert(response).second) return;
    const Result<StoredResponse> stored = store_.get(owner_, response);
    if (!stored.ok()) return;
    for (JsonValue& item : output_of(*stored)) {
      const JsonValue* id = item.find("id");
      if (id != nullptr && id->string() != nullptr) items_.emplace(*id->string(), std::move(item));
    }
  }

  ResponseStore& store_;
  std::string owner_;
  std::set<std::string> responses_;         // that were read
  std::map<std::string, JsonValue> items_;  // of theirs
};

std::string query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const size_t equals = pair.find('=');
    if (equals != std::string_view::npos && pair.substr(0, equals) == name)
      return percent_decoded(pair.substr(equals + 1));
  }
  return "";
}

// The response object with another status.
std::string with_status(const std::string& text, std::string_view status, std::optional<ApiError> error = {}) {
  Result<JsonValue> response = parse_json(text);
  if (!response.ok()) return text;
  if (JsonValue* found = response->find("status")) *found = JsonValue(status);
  JsonValue* place = response->find("error");
  if (error && place != nullptr) {
    *place = JsonValue(JsonValue::Object{{"code", error->code}, {"message", error->message}});
  }
  return to_json(*response);
}

// Stores what begins, and runs it.
void begin_response(GatewayCore& core, const ExchangePtr& exchange, ResponsesRequest request,
                    const std::string& previous_id, AnswerJob job) {
  const AnswerIdentity identity = core.new_identity("resp_", request);
  const std::string& owner = core.owner();
  StoredResponse stored;
  stored.id = identity.id;
  stored.previous_id = previous_id;
  stored.input_items = to_json(JsonValue(std::move(request.input_items)));
  ResponsesHooks hooks;
  hooks.now_s = [&core] { return core.now_s(); };
  if (request.seals_reasoning) {
    hooks.seal = [&core](const std::string& text, int64_t) { return core.sealer().seal(text, core.owner()); };
  }
  const bool background = request.echo.background;
  const std::string_view status = background ? "queued" : "in_progress";
  if (request.echo.store) {
    stored.response = unfinished_response(identity, request, status);
    const Status begun = core.responses().begin(owner, stored);
    request.echo.store = core.kept(begun);
    if (background && !begun.ok()) {
      const Code code = begun.error().code() == Code::kIo ? Code::kUnavailable : Code::kInvalidArgument;
      return core.refuse(exchange, Error(code, "background: {}", begun.error().message()));
    }
  }
  const bool store = request.echo.store;
  const std::string begun = unfinished_response(identity, request, status);
  if (store) {
    hooks.on_end = [&core, owner, id = identity.id](const std::string& response) {
      if (core.kept(core.responses().update(owner, id, response, true))) return true;
      core.kept(core.responses().erase(owner, id));  // rather none than one that says it runs
      return false;
    };
  }
  if (background) {
    hooks.on_running = [&core, owner, id = identity.id](const std::string& response) {
      core.kept(core.responses().update(owner, id, response, false));
    };
  }
  job.protocol = Protocol::kResponses;
  job.writer = make_responses_writer(identity, request, std::move(hooks));
  job.call_id_key = identity.call_id_key;
  job.detached = background;
  job.request = std::move(request);
  const auto session = core.run(exchange, std::move(job), store ? identity.id : "");
  if (!session && store) core.kept(core.responses().erase(owner, identity.id));
  if (session && background) core.respond_json(exchange, begun);
}

}  // namespace

namespace {

struct ReadResponse {
  ResponsesRequest request;
  std::string previous_id;
};

// The request with what it continues; nothing, and a refusal, when it can't be read.
std::optional<ReadResponse> read_response(GatewayCore& core, const ExchangePtr& exchange) {
  const auto refuse = [&](const auto& error) {
    core.refuse(exchange, error);
    return std::optional<ReadResponse>();
  };
  const Result<JsonValue> body = parse_request_body(exchange->take_body());
  if (!body.ok()) return refuse(body.error());
  const std::string& owner = core.owner();
  ResponsesContext context;
  context.served_model = core.model();
  context.open_sealed = [&core](std::string_view sealed) { return core.sealer().open(sealed, core.owner()); };
  context.find_item = [finder = ItemFinder(core.responses(), owner)](const std::string& id) mutable {
    return finder.find(id);
  };
  const Result<std::optional<std::string>> previous = previous_response_id(*body);
  if (!previous.ok()) return refuse(previous.error());
  if (*previous) {
    if (const auto error = load_history(core, owner, **previous, context.history)) return refuse(*error);
  }
  Result<ResponsesRequest> request = parse_responses_request(*body, context);
  if (!request.ok()) return refuse(request.error());
  return ReadResponse{std::move(*request), previous->value_or("")};
}

}  // namespace

void answer_responses(GatewayCore& core, const ExchangePtr& exchange, const std::string&) {
  std::optional<ReadResponse> read = read_response(core, exchange);
  if (!read) return;
  const auto held = std::make_shared<ReadResponse>(std::move(*read));  // callbacks are copied
  core.constrain(exchange, held->request, [&core, exchange, held](auto constraint, bool is_shaped) {
    AnswerJob job;
    job.constraint = std::move(constraint);
    job.is_shaped = is_shaped;
    begin_response(core, exchange, std::move(held->request), held->previous_id, std::move(job));
  });
}

void count_response_tokens(GatewayCore& core, const ExchangePtr& exchange, const std::string&) {
  const std::optional<ReadResponse> read = read_response(core, exchange);
  if (!read) return;
  const auto prompts = prepare_prompts(read->request, core.tokenizer(), core.service().prompt_settings());
  if (!prompts.ok()) return core.refuse(exchange, prompts.error());
  core.respond_json(exchange, input_token_count_to_json(std::ssize(prompts->front().ids)));
}

void refuse_compaction(GatewayCore& core, const ExchangePtr& exchange, const std::string&) {
  core.refuse(exchange, Error(Code::kUnimplemented,
                              "Compaction is not supported yet: ask for a summary in a request of your own, or send "
                              "`truncation: auto` to let the oldest turns go."));
}

namespace {

void respond_stored(GatewayCore& core, const ExchangePtr& exchange, const std::string& id) {
  Result<StoredResponse> stored = core.responses().get(core.owner(), id);
  if (!stored.ok()) return core.refuse(exchange, not_found(stored.error()));
  core.respond_json(exchange, std::move(stored->response));
}

}  // namespace

void show_response(GatewayCore& core, const ExchangePtr& exchange, const std::string& id) {
  if (query_value(exchange->request().query, "stream") == "true") {
    return core.refuse(exchange, Error(Code::kUnimplemented,
                                       "stream is not supported yet: the events of a response are told once, to the "
                                       "request that made it; ask without it until the status is final"));
  }
  respond_stored(core, exchange, id);
}

void delete_response(GatewayCore& core, const ExchangePtr& exchange, const std::string& id) {
  const Result<StoredResponse> stored = core.responses().get(core.owner(), id);
  if (!stored.ok()) return core.refuse(exchange, not_found(stored.error()));
  core.cancel(id, [] {});
  if (const Status erased = core.responses().erase(core.owner(), id); !erased.ok()) {
    return core.refuse(exchange, erased.error());
  }
  core.respond_json(exchange, deleted_response_to_json(id));
}

void list_input_items(GatewayCore& core, const ExchangePtr& exchange, const std::string& id) {
  const Result<StoredResponse> stored = core.responses().get(core.owner(), id);
  if (!stored.ok()) return core.refuse(exchange, not_found(stored.error()));
  const std::string& query = exchange->request().query;
  const std::string order = query_value(query, "order");
  if (!order.empty() && order != "asc" && order != "desc") {
    return core.refuse(
        exchange, Error(Code::kInvalidArgument, "order: found '{}', expected asc or desc", plain_ascii(order)));
  }
  const std::string limit_text = query_value(query, "limit");
  int64_t limit = kDefaultPage;
  if (!limit_text.empty()) {
    const bool digits =
        limit_text.find_first_not_of("0123456789") == std::string::npos && limit_text.size() < 6;
    limit = digits ? std::stol(limit_text) : 0;
    if (limit < 1 || limit > kMaxPage) {
      return core.refuse(exchange, Error(Code::kInvalidArgument, "limit: found '{}', expected 1 to {}",
                                         plain_ascii(limit_text), kMaxPage));
    }
  }
  core.respond_json(exchange, items_to_json(array_of(stored->input_items), order == "asc",
                                            static_cast<size_t>(limit), query_value(query, "after")));
}

// Ends it where it is; one that has ended stays as it is. The client is told how it ended, not how it was asked to.
void cancel_response(GatewayCore& core, const ExchangePtr& exchange, const std::string& id) {
  const Result<StoredResponse> stored = core.responses().get(core.owner(), id);
  if (!stored.ok()) return core.refuse(exchange, not_found(stored.error()));
  const bool runs = core.cancel(
      id, [&core, exchange, id] { exchange->post([&core, exchange, id] { respond_stored(core, exchange, id); }); });
  if (!runs) respond_stored(core, exchange, id);
}

void settle_unfinished_responses(ResponseStore& store) {
  const auto unfinished = store.unfinished();
  if (!unfinished.ok()) return log::warn("{}", unfinished.error().message());
  const ApiError ended = to_api_error(Error(Code::kUnavailable, "The server ended before this response was complete."));
  for (const auto& [owner, response] : *unfinished) {
    const Status settled = store.update(owner, response.id, with_status(response.response, "failed", ended), true);
    if (!settled.ok()) log::warn("{}", settled.error().message());
  }
}

}  // namespace deepinfer
