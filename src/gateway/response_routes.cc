// Responses: made, asked for again, deleted, ended.
#include "api/request_fields.h"
#include "api/responses_request.h"
#include "api/responses_response.h"
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
                                "previous_response_id: found more than {} responses in a row", kMaxChain));
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

// "msg_resp_..._0" names the response that holds the item.
std::optional<JsonValue> find_item(GatewayCore& core, const std::string& owner, const std::string& id) {
  const size_t begin = id.find("resp_");
  const size_t end = id.rfind('_');
  if (begin == std::string::npos || end == std::string::npos || end <= begin) return std::nullopt;
  const Result<StoredResponse> stored = core.responses().get(owner, id.substr(begin, end - begin));
  if (!stored.ok()) return std::nullopt;
  for (JsonValue& item : output_of(*stored)) {
    const JsonValue* found = item.find("id");
    if (found != nullptr && found->string() != nullptr && *found->string() == id) return std::move(item);
  }
  return std::nullopt;
}

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

// Stores what begins, and runs it.
void begin_response(GatewayCore& core, const ExchangePtr& exchange, ResponsesRequest request,
                    const std::string& previous_id, AnswerJob job) {
  const AnswerIdentity identity = core.new_identity("resp_");
  const std::string& owner = core.owner();
  StoredResponse stored;
  stored.id = identity.id;
  stored.previous_id = previous_id;
  stored.input_items = to_json(JsonValue(std::move(request.input_items)));
  ResponsesHooks hooks;
  hooks.now_s = [&core] { return core.now_s(); };
  if (request.seals_reasoning) {
    hooks.seal = [&core](const std::string& text, int64_t) { return core.sealer().seal(text); };
  }
  const bool background = request.echo.background, store = request.echo.store;
  if (store) {
    hooks.on_end = [&core, owner, stored](const std::string& response) mutable {
      stored.response = response;
      core.keep(owner, stored);
      core.forget_running(stored.id);
    };
  }
  job.protocol = Protocol::kResponses;
  job.writer = make_responses_writer(identity, request, std::move(hooks));
  job.call_id_key = identity.call_id_key;
  job.detached = background;
  const std::string begun = unfinished_response(identity, request, background ? "queued" : "in_progress");
  if (store) {
    stored.response = begun;
    core.keep(owner, stored);
  }
  job.request = std::move(request);
  const auto session = core.run(exchange, std::move(job), identity.id);
  if (!session && store) core.forget(owner, identity.id);
  if (session && background) core.respond_json(exchange, begun);
}

}  // namespace

void answer_responses(GatewayCore& core, const ExchangePtr& exchange, const std::string&) {
  Result<JsonValue> body = parse_request_body(exchange->request().body);
  if (!body.ok()) return core.refuse(exchange, body.error());
  const std::string& owner = core.owner();
  ResponsesContext context;
  context.served_model = core.model();
  context.open_sealed = [&core](std::string_view sealed) { return core.sealer().open(sealed); };
  context.find_item = [&core, &owner](const std::string& id) { return find_item(core, owner, id); };
  const Result<std::optional<std::string>> previous = previous_response_id(*body);
  if (!previous.ok()) return core.refuse(exchange, previous.error());
  if (*previous) {
    if (const auto error = load_history(core, owner, **previous, context.history)) {
      return core.refuse(exchange, *error);
    }
  }
  Result<ResponsesRequest> request = parse_responses_request(*body, context);
  if (!request.ok()) return core.refuse(exchange, request.error());

  // Callbacks are copied.
  const auto held = std::make_shared<ResponsesRequest>(std::move(*request));
  core.constrain(
      exchange, *held,
      [&core, exchange, held, previous_id = previous->value_or("")](auto constraint, bool is_shaped) {
        AnswerJob job;
        job.constraint = std::move(constraint);
        job.is_shaped = is_shaped;
        begin_response(core, exchange, std::move(*held), previous_id, std::move(job));
      });
}

void show_response(GatewayCore& core, const ExchangePtr& exchange, const std::string& id) {
  Result<StoredResponse> stored = core.responses().get(core.owner(), id);
  if (!stored.ok()) return core.refuse(exchange, not_found(stored.error()));
  core.respond_json(exchange, std::move(stored->response));
}

void delete_response(GatewayCore& core, const ExchangePtr& exchange, const std::string& id) {
  const Result<StoredResponse> stored = core.responses().get(core.owner(), id);
  if (!stored.ok()) return core.refuse(exchange, not_found(stored.error()));
  core.interrupt(id);
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

// Ends it where it is; one that has ended stays as it is.
void cancel_response(GatewayCore& core, const ExchangePtr& exchange, const std::string& id) {
  Result<StoredResponse> stored = core.responses().get(core.owner(), id);
  if (!stored.ok()) return core.refuse(exchange, not_found(stored.error()));
  if (!core.interrupt(id)) return core.respond_json(exchange, std::move(stored->response));
  Result<JsonValue> response = parse_json(stored->response);
  if (response.ok()) {
    if (JsonValue* status = response->find("status")) *status = JsonValue("cancelled");
    stored->response = to_json(*response);
  }
  core.respond_json(exchange, std::move(stored->response));
}

}  // namespace deepinfer
