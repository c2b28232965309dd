// POST /v1/responses: the answer, whole and as a stream (docs/spec/recipe.md 8.2, 8.3).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "api/responses_request.h"

namespace deepinfer {

struct ResponsesHooks {
  std::function<int64_t()> now_s;  // for completed_at
  // The encrypted_content of a thought; empty: none is given.
  std::function<std::string(const std::string& text, int64_t output_index)> seal = {};
  // The response object when its first output comes. May be empty.
  std::function<void(const std::string& response)> on_running = {};
  // The whole response object, once, just before the client is told of its end; false: it can't be stored, and
  // the client is told that too. May be empty.
  std::function<bool(const std::string& response)> on_end = {};
};

std::unique_ptr<AnswerWriter> make_responses_writer(AnswerIdentity identity, const ResponsesRequest& request,
                                                    ResponsesHooks hooks);

// The response object of a request that has only begun. `status`: "queued" or "in_progress".
std::string unfinished_response(const AnswerIdentity& identity, const ResponsesRequest& request,
                                std::string_view status);

// {"object":"list","data":[...],"first_id","last_id","has_more"}: a page of items, newest first unless
// `ascending`. `after` is the id that the page follows. Items without an id get "item_N" from their place.
std::string items_to_json(const JsonValue::Array& items, bool ascending, size_t limit,
                          const std::string& after);

// {"object":"response.input_tokens","input_tokens":n}
std::string input_token_count_to_json(int64_t input_tokens);

// {"id","object":"response","deleted":true}
std::string deleted_response_to_json(const std::string& id);

}  // namespace deepinfer
