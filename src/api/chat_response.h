// POST /v1/chat/completions: the answer, whole and as a stream (recipe.md 7.2, 7.3, 5.4, 5.5).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "recipe/recipe.h"

namespace deepinfer {

// What one answer carries beside its text.
struct AnswerIdentity {
  std::string id;       // "chatcmpl-..."
  int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string system_fingerprint;
  uint64_t call_id_key = 0;  // call ids are drawn from it; another one for each answer
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt, found in the KV cache
  int64_t completion_tokens = 0;
  std::optional<int64_t> reasoning_tokens;  // of the completion; only when thinking
};

enum class AnswerEnd {
  kStop,         // the model or a stop sequence ended it
  kToolCalls,    // it ended with calls
  kLength,       // the token limit
  kInterrupted,  // the server ended it: "insufficient_system_resource", as DeepSeek's service says
};
std::string_view finish_reason_name(AnswerEnd end);

// One answer as server-sent events. Every function appends whole frames to `out`.
class ChatStreamWriter {
 public:
  ChatStreamWriter(AnswerIdentity identity, bool thinking, bool include_usage);

  void start(std::string& out);
  void add(const OutputEvent& event, std::string& out);
  void finish(AnswerEnd end, const Usage& usage, std::string& out);  // with "data: [DONE]"

 private:
  // write_delta(JsonWriter&) fills the delta object. Without `end` the finish_reason is null.
  template <typename WriteDelta>
  void append_chunk(std::string& out, WriteDelta write_delta, const AnswerEnd* end = nullptr,
                    const Usage* usage = nullptr) const;

  const AnswerIdentity identity_;
  const bool thinking_;
  const bool include_usage_;
  int64_t num_calls_ = 0;
};

// A failure after the stream began; no [DONE] follows.
void append_stream_error(const ApiError& error, std::string& out);

// One answer as one JSON object.
class ChatCompletion {
 public:
  ChatCompletion(AnswerIdentity identity, bool thinking);

  void add(const OutputEvent& event);
  std::string finish(AnswerEnd end, const Usage& usage) const;

 private:
  const AnswerIdentity identity_;
  const bool thinking_;
  std::string content_;
  std::string reasoning_;
  std::vector<ToolCall> tool_calls_;
};

}  // namespace deepinfer
