// Profile `reference`: what the encoder beside the released weights renders (docs/spec/recipe.md 3.4).
#include <algorithm>

#include "recipe/control_tokens.h"
#include "recipe/prompt_builder.h"

namespace deepinfer {
namespace {

std::string_view task_token(Task task) {
  switch (task) {
    case Task::kAction:
      return "<｜action｜>";
    case Task::kQuery:
      return "<｜query｜>";
    case Task::kAuthority:
      return "<｜authority｜>";
    case Task::kDomain:
      return "<｜domain｜>";
    case Task::kTitle:
      return "<｜title｜>";
    case Task::kReadUrl:
      return "<｜read_url｜>";
  }
  return "";
}

class ReferenceWriter {
 public:
  ReferenceWriter(const Conversation& conversation, const PromptFormat& format)
      : conversation_(conversation),
        format_(format),
        words_(words_of(format)),
        is_v41_(format.version == PromptVersion::kV41) {
    const bool declares_tools = conversation.tools_active() ||
                                std::any_of(conversation.messages.begin(), conversation.messages.end(),
                                            [](const Message& message) { return !message.tools.empty(); });
    drops_thinking_ = format.drop_thinking && !declares_tools;
    empty_host_.role = Role::kSystem;
  }

  RenderedPrompt write() {
    arrange();
    prompt_.control(control::kBeginOfSentence);
    const std::string effort = effort_text(conversation_, format_);
    if (is_v41_ && (!effort.empty() || (!turns_.empty() && turns_[0].role == Role::kSystem))) {
      prompt_.control(control::kSystem);
    }
    prompt_.text(effort);
    for (size_t i = 0; i < turns_.size(); ++i) {
      write_turn(i);
      write_transition(i);
    }
    return prompt_.take(stage_);
  }

 private:
  void arrange() {
    for (const Message& message : conversation_.messages) {
      turns_.push_back({&message, message.role == Role::kSystemReminder ? Role::kSystem : message.role});
    }
    // The tools and the format of a whole conversation hang on its first system message.
    const bool needs_host =
        conversation_.tools_active() || conversation_.response_format.kind != ResponseFormat::Kind::kText;
    if (needs_host && (turns_.empty() || turns_[0].role != Role::kSystem)) {
      turns_.insert(turns_.begin(), {&empty_host_, Role::kSystem});
    }
    order_results(turns_, ResultOrder::kByCall);
    last_user_ = find_last_user();
    if (!conversation_.thinking || !drops_thinking_) return;
    // Earlier developer messages go with the reasoning.
    for (size_t i = last_user_ == kNone ? 0 : last_user_; i-- > 0;) {
      if (turns_[i].role == Role::kDeveloper) turns_.erase(turns_.begin() + static_cast<ptrdiff_t>(i));
    }
    last_user_ = find_last_user();
  }

  bool asks(size_t index) const {
    const Role role = turns_[index].role;
    return role == Role::kUser || role == Role::kTool || role == Role::kDeveloper ||
           (is_v41_ && role == Role::kSystem && index > 0);
  }

  // The first turn of the last user text: what joins it does not count apart.
  size_t find_last_user() const {
    for (size_t i = turns_.size(); i-- > 0;) {
      if (!asks(i)) continue;
      while (joins(i)) --i;
      return i;
    }
    return kNone;
  }

  bool joins(size_t index) const {
    return index > 0 && is_user_turn(turns_[index]) && is_user_turn(turns_[index - 1]) &&
           !turns_[index - 1].message->task;
  }

  void write_content(const Message& message) { prompt_.content(message, control::kReleasedImage); }

  void open_user(size_t index) {
    if (joins(index)) return prompt_.text("\n\n");
    prompt_.control(control::kUser);
  }

  void write_turn(size_t index) {
    const Message& message = *turns_[index].message;
    switch (turns_[index].role) {
      case Role::kSystem:
        if (is_v41_ && index > 0) prompt_.control(control::kSystem);
        write_content(message);
        return write_extras(message, index == 0);
      case Role::kDeveloper:
        prompt_.control(control::kUser);
        write_content(message);
        return write_extras(message, false);
      case Role::kUser:
        open_user(index);
        return write_content(message);
      case Role::kTool:
        open_user(index);
        prompt_.text("<tool_result>");
        write_content(message);
        return prompt_.text("</tool_result>");
      case Role::kLatestReminder:
        prompt_.control(control::kLatestReminder);
        return prompt_.text(message.content);
      case Role::kAssistant:
        return write_assistant(message, index);
      case Role::kSystemReminder:  // became a system turn
        return;
    }
  }

  void write_extras(const Message& message, bool is_host) {
    std::vector<const ToolDefinition*> tools;
    if (is_host && conversation_.tools_active()) {
      for (const ToolDefinition& tool : conversation_.tools) tools.push_back(&tool);
    }
    for (const ToolDefinition& tool : message.tools) tools.push_back(&tool);
    if (!tools.empty()) {
      prompt_.text("\n\n");
      prompt_.template_text(words_.tools_head);
      for (size_t i = 0; i < tools.size(); ++i) {
        if (i > 0) prompt_.text("\n");
        append_definition(prompt_, *tools[i], tools[i]->name, format_);
      }
      prompt_.text(words_.tools_tail);
    }
    if (is_host) write_response_format();
    if (message.response_format) write_schema(*message.response_format);
  }

  void write_response_format() {
    switch (conversation_.response_format.kind) {
      case ResponseFormat::Kind::kText:
      case ResponseFormat::Kind::kRegex:
        return;
      case ResponseFormat::Kind::kJsonObject:
        return write_schema(JsonValue(JsonValue::Object{{"type", "json_object"}}));
      case ResponseFormat::Kind::kJsonSchema:
        return write_schema(conversation_.response_format.schema);
    }
  }

  void write_schema(const JsonValue& schema) {
    prompt_.text("\n\n");
    prompt_.text(kResponseFormatHeader);
    prompt_.json(schema, words_.json);
  }

  bool keeps_reasoning(size_t index) const {
    return conversation_.thinking && (!drops_thinking_ || last_user_ == kNone || index >= last_user_);
  }

  void write_assistant(const Message& message, size_t index) {
    const bool answers_task = index > 0 && turns_[index - 1].message->task.has_value();
    stage_ = OutputStage::kContentContinuation;
    if (keeps_reasoning(index) && !answers_task) {
      const std::string reasoning = message.reasoning.value_or("");
      prompt_.text(reasoning);
      // A thought that the client began stays open.
      if (message.is_prefix && message.content.empty() && message.tool_calls.empty()) {
        stage_ = reasoning.empty() ? OutputStage::kReasoning : OutputStage::kReasoningContinuation;
        return;
      }
      prompt_.control(control::kThinkClose);
    }
    prompt_.text(message.content);
    if (!message.tool_calls.empty()) {
      prompt_.text("\n\n");
      append_tool_calls(prompt_, message.tool_calls, nullptr, format_);
    }
    if (!message.is_prefix) prompt_.control(control::kEndOfSentence);
  }

  // What stands between a turn and the answer, given or to come.
  void write_transition(size_t index) {
    const bool answered_next = index + 1 == turns_.size() || turns_[index + 1].role == Role::kAssistant ||
                               turns_[index + 1].role == Role::kLatestReminder;
    if (!answered_next) return;
    const std::optional<Task> task = turns_[index].message->task;
    if (task && *task != Task::kAction) {
      prompt_.control(task_token(*task));
      stage_ = OutputStage::kContentContinuation;
      return;
    }
    if (!task && !asks(index)) return;
    const bool thinks = conversation_.thinking && (task ? true : keeps_reasoning(index));
    prompt_.control(control::kAssistant);
    prompt_.control(thinks ? control::kThinkOpen : control::kThinkClose);
    stage_ = thinks ? OutputStage::kReasoning : OutputStage::kContent;
    if (!task) return;
    prompt_.control(task_token(*task));
    stage_ = OutputStage::kContentContinuation;
  }

  static constexpr size_t kNone = static_cast<size_t>(-1);

  const Conversation& conversation_;  // borrowed from the caller of render()
  const PromptFormat& format_;
  const PromptWords& words_;
  const bool is_v41_;
  Message empty_host_;
  bool drops_thinking_ = false;
  size_t last_user_ = kNone;
  std::vector<Turn> turns_;
  PromptBuilder prompt_;
  OutputStage stage_ = OutputStage::kContentContinuation;
};

}  // namespace

RenderedPrompt render_reference(const Conversation& conversation, const PromptFormat& format) {
  return ReferenceWriter(conversation, format).write();
}

}  // namespace deepinfer
