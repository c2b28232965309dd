#include "api/responses_request.h"
#include "api/responses_response.h"
#include "recipe_check/replay.h"

namespace deepinfer {

Result<ReplayedRequest> convert_responses(const std::string& body, std::string_view served_model) {
  const Result<JsonValue> json = parse_json(body);
  if (!json.ok()) return Error(Code::kInvalidArgument, "invalid JSON request: {}", json.error().message());
  ResponsesContext context;
  context.served_model = served_model;
  context.store_by_default = false;
  ASSIGN_OR_RETURN(ResponsesRequest request, parse_responses_request(*json, context));
  return ReplayedRequest{request, [request](AnswerIdentity identity, bool stream) mutable {
                           request.stream = stream;
                           const std::string id = identity.id;
                           ResponsesHooks hooks;
                           hooks.now_s = [] { return int64_t{1700000000}; };
                           hooks.seal = [id](const std::string&, int64_t index) {
                             return fmt::format("{}-{}", id, index);
                           };
                           return make_responses_writer(std::move(identity), request, std::move(hooks));
                         }};
}

}  // namespace deepinfer
