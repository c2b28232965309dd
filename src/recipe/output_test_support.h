// For tests: the events of one output, put together.
#pragma once

#include <ostream>
#include <string>
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
      case OutputEvent::Kind::kReasoning: reasoning += event.text; return;
      case OutputEvent::Kind::kContent: content += event.text; return;
      case OutputEvent::Kind::kToolCall: calls.push_back({std::string(event.text), ""}); return;
      case OutputEvent::Kind::kToolArguments: calls.back().arguments += event.text; return;
    }
  }
};

inline std::ostream& operator<<(std::ostream& out, const ParsedOutput& parsed) {
  out << "reasoning <" << parsed.reasoning << "> content <" << parsed.content << ">";
  for (const auto& call : parsed.calls) out << " call " << call.name << " " << call.arguments;
  return out;
}

inline ParsedOutput parse_output(const OutputOptions& options, const std::vector<std::string>& pieces, OutputEnd end) {
  ParsedOutput parsed;
  const OutputSink sink = [&parsed](const OutputEvent& event) { parsed.add(event); };
  OutputParser parser(options);
  for (const std::string& piece : pieces) parser.push(piece, sink);
  parser.finish(end, sink);
  return parsed;
}

}  // namespace deepinfer
