// "input" of a Responses request. Private to the room.
#pragma once

#include <set>

#include "api/open_calls.h"
#include "api/responses_request.h"

namespace deepinfer {

// Appends the turns of `items` to the conversation. `path` names the list in messages.
class ResponsesInput {
 public:
  ResponsesInput(const ResponsesContext& context, Conversation& conversation)
      : context_(context), messages_(conversation.messages) {}

  Status read(const JsonValue::Array& items, std::string_view path);
  // Every call has its result.
  Status finish();

 private:
  Status read_item(const JsonRef& item);
  Status read_message(const JsonRef& item);
  Status read_reasoning(const JsonRef& item);
  Status read_call(const JsonRef& item, ToolCall call);
  // `result` holds the content.
  Status read_result(const JsonRef& item, Message result, std::vector<ToolDefinition> tools = {});
  Status read_reference(const JsonRef& item);
  // A message of that role with the content alone.
  Result<Message> read_content(Role role, const JsonRef& field) const;
  Message& assistant_turn();
  void take_reasoning(Message& message);
  // A thought that nothing of the assistant follows is a turn of its own.
  void flush_reasoning();
  Status check_answered() const;

  const ResponsesContext& context_;
  std::vector<Message>& messages_;
  std::optional<std::string> reasoning_;  // of the assistant turn that follows
  OpenCalls calls_;
  std::set<std::string> referred_;  // items
  bool results_begun_ = false;      // since the last call
};

}  // namespace deepinfer
