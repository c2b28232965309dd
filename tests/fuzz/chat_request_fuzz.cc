// The body of a chat request: any bytes give a request or an error; a request renders to a prompt whose
// control ranges are in order and inside the text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "api/chat_request.h"
#include "api/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const Result<ChatRequest> request = parse_chat_request(body, "m");
  if (!request.ok()) {
    const ApiError error = to_api_error(request.error());
    if (error.http_status < 400 || error.http_status >= 500 || !parse_json(to_json(error)).ok()) abort();
    return 0;
  }
  const RenderedPrompt prompt = render(request->conversation);
  size_t at = 0;
  for (const TextRange& range : prompt.control_ranges) {
    if (range.begin < at || range.end <= range.begin || range.end > prompt.text.size()) abort();
    at = range.end;
  }
  (void)resolve_max_tokens(*request, 10, 1000);
  return 0;
}
