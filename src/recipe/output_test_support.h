// For tests of this room and of api: the events of one output put together, and the known differences.
#pragma once

#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/recipe.h"

namespace deepinfer {

struct ParsedOutput {
  struct Call {
    std::string name;
    std::string arguments;
    bool operator==(const Call&) const = default;
  };
  std::string reasoning;
  std::string content;
  std::vector<Call> calls;
  bool operator==(const ParsedOutput&) const = default;

  void add(const OutputEvent& event) {
    switch (event.kind) {
      case OutputEvent::Kind::kReasoning:
        reasoning += event.text;
        return;
      case OutputEvent::Kind::kContent:
        content += event.text;
        return;
      case OutputEvent::Kind::kToolCall:
        calls.push_back({std::string(event.text), ""});
        return;
      case OutputEvent::Kind::kToolArguments:
        calls.back().arguments += event.text;
        return;
    }
  }
};

// Records of tests/data/recipe/chat_stream.jsonl where we do better, with what is better. All else must be
// equal.
inline const std::map<std::string_view, std::string_view> kKnownOutputDifferences = {
    {"stream-call-pname-space-chat-whole", "parameter names may hold spaces"},
    {"stream-call-pname-escape-chat-whole", "parameter names are escaped as JSON"},
    {"stream-call-bad-json-chat-whole", "raw values that are not JSON become strings"},
    {"stream-call-no-attr-chat-whole", "a missing string attribute is tolerated"},
    {"stream-call-json-body-chat-whole", "a JSON object as call body becomes the arguments"},
    {"stream-call-unclosed-invoke-chat-whole", "a new call closes the one before"},
    {"stream-call-cut-pname-chat-whole", "a call that the model left open is closed"},
    {"stream-call-unclosed-param-chat-whole", "a new parameter closes the one before"},
    {"stream-marker-prose-chat-chars", "a marker that opens no block stays text"},
    {"stream-block-empty-chat-whole", "a block without a call comes back as text"},
    {"stream-forced-plain-chat-chars", "an answer without the forced call comes back as text"},
    {"stream-json-prose-chat-whole", "JSON ends at its bracket, and nothing stands for what is around it"},
    {"stream-json-fence-chat-whole", "no spaces for the text around JSON"},
    {"stream-eos-literal-chat-whole", "a written end of sentence at the end is left out"},
    {"stream-json-none-chat-whole", "an answer without JSON comes back as text"},
};

inline std::ostream& operator<<(std::ostream& out, const ParsedOutput& parsed) {
  out << "reasoning <" << parsed.reasoning << "> content <" << parsed.content << ">";
  for (const auto& call : parsed.calls) out << " call " << call.name << " " << call.arguments;
  return out;
}

inline ParsedOutput parse_output(const OutputOptions& options, const std::vector<std::string>& pieces,
                                 OutputEnd end) {
  ParsedOutput parsed;
  const OutputSink sink = [&parsed](const OutputEvent& event) { parsed.add(event); };
  OutputParser parser(options);
  for (const std::string& piece : pieces) parser.push(piece, sink);
  parser.finish(end, sink);
  return parsed;
}

}  // namespace deepinfer
