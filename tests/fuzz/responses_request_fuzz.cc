// The body of a Responses request: any bytes give a request or an error.
#include "api/request_fields.h"
#include "api/responses_request.h"
#include "api/responses_response.h"
#include "request_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  const auto body = parse_request_body({reinterpret_cast<const char*>(data), size});
  if (!body.ok()) return check_refusal(body.error()), 0;
  (void)previous_response_id(*body);
  ResponsesContext context;
  context.served_model = "m";
  const auto request = parse_responses_request(*body, context);
  if (!request.ok()) return check_refusal(request.error()), 0;
  check_request(*request);
  ResponsesHooks hooks;
  hooks.now_s = [] { return int64_t{1}; };
  check_answer(*make_responses_writer({}, *request, hooks));
  if (!parse_json(items_to_json(request->input_items, false, 5, "")).ok()) abort();
  return 0;
}
