// Profile `recipe`: put the messages in order, then emit them turn by turn (docs/spec/recipe.md 3.3 and, for
// continuations, 3.5).
#include <algorithm>

#include "recipe/control_tokens.h"
#include "recipe/prompt_builder.h"

namespace deepinfer {
namespace {

bool uses_namespaces(const Conversation& conversation) {
  const auto in_namespace = [](const auto& tool) { return !tool.namespace_name.empty(); };
  if (std::any_of(conversation.tools.begin(), conversation.tools.end(), in_namespace)) return true;
  return std::any_of(conversation.messages.begin(), conversation.messages.end(), [&](const Message& message) {
    return std::any_of(message.tools.begin(), message.tools.end(), in_namespace) ||
           std::any_of(message.tool_calls.begin(), message.tool_calls.end(), in_namespace);
  });
}

class RecipeWriter {
 public:
  RecipeWriter(const Conversation& conversation, const PromptFormat& format)
      : conversation_(conversation),
        format_(format),
        words_(words_of(format)),
        is_v4_(format.version == PromptVersion::kV4) {
    if (uses_namespaces(conversation)) names_.emplace(conversation, format.version);
    tools_active_ = conversation.tools_active() &&
                    std::any_of(conversation.tools.begin(), conversation.tools.end(),
                                [this](const ToolDefinition& tool) { return is_known(tool.kind); });
  }

  RenderedPrompt write() {
    arrange();
    prompt_.control(control::kBeginOfSentence);
    write_host();
    for (size_t i = 0; i < turns_.size(); ++i) {
      write_turn(turns_[i], i > 0 && is_user_turn(turns_[i]) && is_user_turn(turns_[i - 1]));
    }
    const bool continues = !turns_.empty() && turns_.back().message->is_prefix;
    return continues ? prompt_.take(prefix_stage_) : open_answer();
  }

 private:
  bool is_known(ToolKind kind) const { return !is_v4_ || kind != ToolKind::kToolSearch; }

  // Decides what each message is shown as, and which open the prompt. Adjacent user messages need no merging:
  // the second of two user turns joins the first.
  void arrange() {
    for (const Message& message : conversation_.messages) {
      Role role = message.role;
      const bool plain_system =
          role == Role::kSystem || (!is_v4_ && (role == Role::kDeveloper || role == Role::kSystemReminder));
      if (plain_system) {
        const bool says_nothing =
            message.content.empty() && message.images.empty() && (is_v4_ || message.tools.empty());
        if (says_nothing) continue;
        // V4 knows one system text, at the start; V4.1 keeps every system message in its place.
        const bool opens = is_v4_ || (turns_.empty() && hosts_.empty());
        opens ? hosts_.push_back(&message) : turns_.push_back({&message, Role::kSystem});
        continue;
      }
      if ((role == Role::kDeveloper || role == Role::kSystemReminder) && message.content.empty()) continue;
      if (is_dropped(message)) continue;
      add_turn({&message, role == Role::kDeveloper ? Role::kUser : role});
    }
    order_results(turns_, is_v4_ ? ResultOrder::kById : ResultOrder::kByCall);
  }

  // Of two user texts in a row V4 leaves out an empty one.
  void add_turn(const Turn& turn) {
    const auto is_text = [](const Turn& candidate) {
      return candidate.role == Role::kUser || candidate.role == Role::kSystemReminder;
    };
    const auto is_empty = [](const Turn& candidate) {
      return candidate.role == Role::kUser && candidate.message->content.empty() &&
             candidate.message->images.empty();
    };
    if (is_v4_ && !turns_.empty() && is_text(turn) && is_text(turns_.back())) {
      if (is_empty(turn)) return;
      if (is_empty(turns_.back())) turns_.pop_back();
    }
    turns_.push_back(turn);
  }

  // V4 does not know tool search: its calls and their results vanish.
  bool is_dropped(const Message& message) {
    if (!is_v4_) return false;
    if (message.role == Role::kTool) {
      return std::find(searches_.begin(), searches_.end(), message.tool_call_id) != searches_.end();
    }
    bool only_searches = !message.tool_calls.empty();
    for (const ToolCall& call : message.tool_calls) {
      call.kind == ToolKind::kToolSearch ? searches_.push_back(call.id) : void(only_searches = false);
    }
    return only_searches && message.content.empty();
  }

  // The opening system turn: effort, system text, tools, format. On V4.1 it exists when any of them does.
  void write_host() {
    const std::string effort = effort_text(conversation_, format_);
    const auto format = conversation_.response_format.kind;
    const bool has_host = !hosts_.empty() || tools_active_ || format == ResponseFormat::Kind::kJsonObject ||
                          format == ResponseFormat::Kind::kJsonSchema;
    if (!is_v4_ && (has_host || !effort.empty())) prompt_.control(control::kSystem);
    prompt_.text(effort);
    for (size_t i = 0; i < hosts_.size(); ++i) {
      if (i > 0) prompt_.text("\n\n");
      write_content(*hosts_[i]);
    }
    if (tools_active_) write_tools();
    write_response_format();
    if (!hosts_.empty()) write_loaded_tools(*hosts_[0]);
  }

  void write_tools() {
    prompt_.text("\n\n");
    prompt_.template_text(words_.tools_head);
    bool is_first = true;
    for (size_t i = 0; i < conversation_.tools.size(); ++i) {
      const ToolDefinition& tool = conversation_.tools[i];
      if ((tool.deferred && !is_v4_) || !is_known(tool.kind)) continue;
      if (!is_first) prompt_.text("\n");
      is_first = false;
      append_definition(prompt_, tool, names_ ? names_->declared()[i] : tool.name, format_);
    }
    prompt_.text(words_.tools_tail);
  }

  void write_response_format() {
    switch (conversation_.response_format.kind) {
      case ResponseFormat::Kind::kText:
      case ResponseFormat::Kind::kRegex:
        return;
      case ResponseFormat::Kind::kJsonObject:
        if (is_v4_) {
          return prompt_.text(
              "\n\nYou are a helpful assistant designed to output JSON.\n## Response Format:\n\nReply with "
              "JSON object ONLY.");
        }
        prompt_.text("\n\n");
        prompt_.text(kResponseFormatHeader);
        return prompt_.text("{\"type\": \"json_object\"}");
      case ResponseFormat::Kind::kJsonSchema:
        prompt_.text("\n\n");
        prompt_.text(kResponseFormatHeader);
        return prompt_.json(conversation_.response_format.schema, words_.json);
    }
  }

  // Tools that become known in the middle of a conversation (V4 declared them all at the start).
  void write_loaded_tools(const Message& message) {
    if (message.tools.empty() || is_v4_) return;
    prompt_.text("\n\n### Updated Tool Schemas\n\n");
    for (size_t i = 0; i < message.tools.size(); ++i) {
      const ToolDefinition& tool = message.tools[i];
      if (i > 0) prompt_.text("\n");
      append_definition(prompt_, tool, names_ ? names_->printed(tool.namespace_name, tool.name) : tool.name,
                        format_);
    }
  }

  void write_content(const Message& message) {
    prompt_.content(message, is_v4_ ? std::string_view() : control::kImage);
  }

  void write_turn(const Turn& turn, bool joins) {
    const Message& message = *turn.message;
    switch (turn.role) {
      case Role::kSystem:
        prompt_.control(control::kSystem);
        write_content(message);
        return write_loaded_tools(message);
      case Role::kDeveloper:  // became a system or a user turn
      case Role::kUser:
        open_user(joins);
        return write_content(message);
      case Role::kSystemReminder:
        open_user(joins);
        prompt_.text("<system-reminder>\n");
        write_content(message);
        return prompt_.text("\n</system-reminder>");
      case Role::kTool:
        open_user(joins);
        prompt_.text("<tool_result>");
        write_content(message);
        return prompt_.text("</tool_result>");
      case Role::kLatestReminder:
        prompt_.control(control::kLatestReminder);
        return prompt_.text(message.content);
      case Role::kAssistant:
        return message.is_prefix ? write_prefix(message) : write_assistant(message);
    }
  }

  void open_user(bool joins) {
    if (joins) return prompt_.text("\n\n");
    prompt_.control(control::kUser);
  }

  // Earlier reasoning is shown only while tools are active (docs/spec/recipe.md 3.3).
  void write_assistant(const Message& message) {
    prompt_.control(control::kAssistant);
    if (conversation_.thinking && tools_active_) {
      prompt_.control(control::kThinkOpen);
      prompt_.text(message.reasoning.value_or(""));
    }
    prompt_.control(control::kThinkClose);
    prompt_.text(message.content);
    if (!message.tool_calls.empty()) {
      prompt_.text("\n\n");
      append_tool_calls(prompt_, message.tool_calls, names_ ? &*names_ : nullptr, format_);
    }
    prompt_.control(control::kEndOfSentence);
  }

  // docs/spec/recipe.md 3.5: the model goes on where the client's text ends.
  void write_prefix(const Message& message) {
    prompt_.control(control::kAssistant);
    const std::string reasoning = message.reasoning.value_or("");
    if (!conversation_.thinking) {
      prompt_.control(control::kThinkClose);
      prefix_stage_ = OutputStage::kContent;
    } else {
      prompt_.control(control::kThinkOpen);
      prompt_.text(reasoning);
      prefix_stage_ = reasoning.empty() ? OutputStage::kReasoning : OutputStage::kReasoningContinuation;
      if (!message.content.empty()) {
        prompt_.control(control::kThinkClose);
        prefix_stage_ = OutputStage::kContentContinuation;
      }
    }
    prompt_.text(message.content);
  }

  // Step D.
  RenderedPrompt open_answer() {
    prompt_.control(control::kAssistant);
    prompt_.control(conversation_.thinking ? control::kThinkOpen : control::kThinkClose);
    if (conversation_.tool_choice == ToolChoice::kRequired && tools_active_ && !conversation_.thinking) {
      prompt_.text("\n\n<");
      prompt_.control(control::kDsml);
      prompt_.text(words_.calls);
      prompt_.text(">\n");
      return prompt_.take(OutputStage::kToolCalls);
    }
    return prompt_.take(conversation_.thinking ? OutputStage::kReasoning : OutputStage::kContent);
  }

  const Conversation& conversation_;  // borrowed from the caller of render()
  const PromptFormat& format_;
  const PromptWords& words_;
  const bool is_v4_;
  std::optional<ToolNames> names_;  // only when a namespace is used
  bool tools_active_ = false;
  std::vector<const Message*> hosts_;  // what opens the prompt
  std::vector<Turn> turns_;            // what follows
  std::vector<std::string> searches_;  // V4: ids of the calls that vanished
  PromptBuilder prompt_;
  OutputStage prefix_stage_ = OutputStage::kContent;
};

}  // namespace

RenderedPrompt render_recipe(const Conversation& conversation, const PromptFormat& format) {
  return RecipeWriter(conversation, format).write();
}

}  // namespace deepinfer
