// Conversation to prompt: normalise the messages, then emit them turn by turn (recipe.md 3.3, amendments
// A1-A8).
#include <algorithm>
#include <map>

#include "recipe/control_tokens.h"
#include "recipe/prompt_builder.h"

namespace deepinfer {
namespace {

std::string_view effort_number(ReasoningEffort effort) {
  switch (effort) {
    case ReasoningEffort::kLow:
      return "50";
    case ReasoningEffort::kHigh:
    case ReasoningEffort::kXhigh:
      return "75";
    case ReasoningEffort::kMax:
      return "100";
  }
  return "75";
}

std::string effort_line(ReasoningEffort effort) {
  return fmt::format(
      "Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)\n\n",
      effort_number(effort));
}

bool is_user_turn(const Message& message) {
  return message.role == Role::kUser || message.role == Role::kTool;
}

// Steps A1 and A2: an empty system message after the start vanishes, adjacent user messages become one.
std::vector<Message> merged(const std::vector<Message>& messages) {
  std::vector<Message> out;
  for (const Message& message : messages) {
    if (message.role == Role::kSystem && message.content.empty()) continue;
    if (message.role == Role::kUser && !out.empty() && out.back().role == Role::kUser) {
      out.back().content += "\n\n" + message.content;
    } else {
      out.push_back(message);
    }
  }
  return out;
}

// Step A3: the tool messages in [begin, end) take the order of the calls they answer; unknown ids come first.
void order_results(std::vector<Message>& messages, size_t begin, size_t end,
                   const std::vector<ToolCall>& calls) {
  std::map<std::string_view, size_t> rank;
  for (size_t i = 0; i < calls.size(); ++i) rank.emplace(calls[i].id, i);
  std::vector<Message> results;
  for (size_t i = begin; i < end; ++i) {
    if (messages[i].role == Role::kTool) results.push_back(messages[i]);
  }
  const auto rank_of = [&rank](const Message& result) {
    const auto found = rank.find(result.tool_call_id);
    return found == rank.end() ? 0 : found->second;
  };
  std::stable_sort(results.begin(), results.end(),
                   [&](const Message& a, const Message& b) { return rank_of(a) < rank_of(b); });
  size_t next = 0;
  for (size_t i = begin; i < end; ++i) {
    if (messages[i].role == Role::kTool) messages[i] = std::move(results[next++]);
  }
}

void order_all_results(std::vector<Message>& messages) {
  std::vector<ToolCall> calls;  // of the last assistant message that had any
  for (size_t i = 0; i < messages.size();) {
    if (!messages[i].tool_calls.empty()) calls = messages[i].tool_calls;
    size_t end = i;
    while (end < messages.size() && is_user_turn(messages[end])) ++end;
    if (end > i) order_results(messages, i, end, calls);
    i = std::max(end, i + 1);
  }
}

// Step C, one turn after another.
class TurnWriter {
 public:
  explicit TurnWriter(const Conversation& conversation) : conversation_(conversation) {}

  RenderedPrompt write(const std::vector<Message>& messages) {
    prompt_.control(control::kBeginOfSentence);
    for (size_t i = 0; i < messages.size(); ++i) {
      if (i == 0) open_first(messages[0]);
      const bool joins = i > 0 && is_user_turn(messages[i]) && is_user_turn(messages[i - 1]);
      write_turn(messages[i], i, joins);
    }
    if (!messages.empty() && messages.back().is_prefix) return prompt_.take(prefix_stage_);
    return open_answer();
  }

 private:
  // The effort line stands in a system turn of its own when the conversation has none.
  void open_first(const Message& first) {
    if (conversation_.thinking || first.role == Role::kSystem) prompt_.control(control::kSystem);
    if (conversation_.thinking) prompt_.text(effort_line(conversation_.reasoning_effort));
  }

  void write_turn(const Message& message, size_t index, bool joins) {
    switch (message.role) {
      case Role::kSystem:
        if (index > 0) prompt_.control(control::kSystem);
        prompt_.text(message.content);
        if (index == 0) write_tools();
        return;
      case Role::kUser:
        open_user(joins);
        prompt_.text(message.content);
        return;
      case Role::kTool:
        open_user(joins);
        prompt_.text("<tool_result>");
        prompt_.text(message.content);
        prompt_.text("</tool_result>");
        return;
      case Role::kLatestReminder:
        prompt_.control(control::kLatestReminder);
        prompt_.text(message.content);
        return;
      case Role::kAssistant:
        if (message.is_prefix) return write_prefix(message);
        return write_assistant(message);
    }
  }

  void open_user(bool joins) {
    if (joins) return prompt_.text("\n\n");
    prompt_.control(control::kUser);
  }

  void write_tools() {
    if (!conversation_.tools_active()) return;
    prompt_.text("\n\n");
    append_tools_block(prompt_, conversation_.tools);
  }

  // Earlier reasoning is shown only while tools are active (amendment A1).
  void write_assistant(const Message& message) {
    prompt_.control(control::kAssistant);
    if (conversation_.thinking && conversation_.tools_active()) {
      prompt_.control(control::kThinkOpen);
      prompt_.text(message.reasoning.value_or(""));
    }
    prompt_.control(control::kThinkClose);
    prompt_.text(message.content);
    if (!message.tool_calls.empty()) {
      prompt_.text("\n\n");
      append_tool_calls(prompt_, message.tool_calls);
    }
    prompt_.control(control::kEndOfSentence);
  }

  // Amendment B26: the model goes on where the client's text ends.
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
    if (conversation_.tool_choice == ToolChoice::kRequired && conversation_.tools_active()) {
      append_forced_calls_opener(prompt_);
      return prompt_.take(OutputStage::kToolCalls);
    }
    return prompt_.take(conversation_.thinking ? OutputStage::kReasoning : OutputStage::kContent);
  }

  const Conversation& conversation_;  // borrowed from the caller of render()
  PromptBuilder prompt_;
  OutputStage prefix_stage_ = OutputStage::kContent;
};

}  // namespace

RenderedPrompt render(const Conversation& conversation) {
  std::vector<Message> messages = merged(conversation.messages);
  order_all_results(messages);
  // Step B: the tools block hangs on a leading system message.
  const bool has_host = !messages.empty() && messages[0].role == Role::kSystem;
  if (conversation.tools_active() && !has_host) {
    messages.emplace(messages.begin())->role = Role::kSystem;
  }
  return TurnWriter(conversation).write(messages);
}

}  // namespace deepinfer
