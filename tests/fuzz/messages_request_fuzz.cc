// The body of a Messages request: any bytes give a request or an error.
#include "api/messages_request.h"
#include "api/messages_response.h"
#include "request_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  const auto request = parse_messages_request({reinterpret_cast<const char*>(data), size}, "m");
  if (!request.ok()) return check_refusal(request.error()), 0;
  check_request(*request);
  check_answer(*make_messages_writer({}, *request));
  return 0;
}
