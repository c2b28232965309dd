// What the fuzz targets of request bodies have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "api/error.h"
#include "api/generation.h"
#include "json/json.h"

namespace deepinfer {

// Any error is one that a client is told about.
inline void check_refusal(const Error& error) {
  const ApiError told = to_api_error(error);
  if (told.http_status < 400 || told.http_status >= 500 || !parse_json(to_json(told)).ok()) abort();
}

// A conversation renders to a prompt whose control ranges are in order and inside the text.
inline void check_request(const GenerationRequest& request) {
  if (!check_sampling_params(request.sampling).ok() || request.n < 1) abort();
  (void)resolve_max_tokens(request, 10, 1000);
  if (!request.raw_prompts.empty()) return;
  const RenderedPrompt prompt = render(request.conversation);
  size_t at = 0;
  for (const TextRange& range : prompt.control_ranges) {
    if (range.begin < at || range.end <= range.begin || range.end > prompt.text.size()) abort();
    at = range.end;
  }
}

// An answer of every kind of event is told in frames, or in one body, that a client can read.
inline void check_answer(AnswerWriter& writer) {
  std::string out;
  Usage usage;
  writer.start(usage, out);
  for (const OutputEvent& event :
       {OutputEvent{OutputEvent::Kind::kReasoning, "r"}, OutputEvent{OutputEvent::Kind::kContent, "c"},
        OutputEvent{OutputEvent::Kind::kToolCall, "f"},
        OutputEvent{OutputEvent::Kind::kToolArguments, "{}"}}) {
    writer.add(0, event, {}, out);
  }
  writer.end(0, {AnswerEnd::kStop}, &usage, out);
  if (writer.is_stream()) {
    if (!out.ends_with("\n\n")) abort();
  } else if (!parse_json(out).ok()) {
    abort();
  }
}

}  // namespace deepinfer
