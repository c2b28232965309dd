// The body of a Completions request: any bytes give a request or an error.
#include "api/completions_request.h"
#include "api/inspection.h"
#include "request_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  (void)parse_detokenize_request(body);
  (void)parse_tokenize_request(body, "m");
  const auto request = parse_completions_request(body, "m");
  if (!request.ok()) return check_refusal(request.error()), 0;
  check_request(*request);
  return 0;
}
