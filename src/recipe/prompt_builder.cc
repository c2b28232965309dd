#include "recipe/prompt_builder.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "recipe/control_tokens.h"

namespace deepinfer {

void PromptBuilder::template_text(std::string_view ours) {
  while (!ours.empty()) {
    size_t begin = std::string_view::npos;
    std::string_view next;
    for (const std::string_view token : {control::kThinkOpen, control::kThinkClose, control::kDsml}) {
      if (const size_t at = ours.find(token); at < begin) begin = at, next = token;
    }
    if (next.empty()) return text(ours);
    text(ours.substr(0, begin));
    control(next);
    ours.remove_prefix(begin + next.size());
  }
}

void PromptBuilder::content(const Message& message, std::string_view placeholder) {
  const std::string_view content = message.content;
  size_t at = 0;
  for (const Image& image : message.images) {
    const size_t offset = std::clamp(image.offset, at, content.size());
    text(content.substr(at, offset - at));
    at = offset;
    if (placeholder.empty()) {
      text("[Unsupported Image]");
      continue;
    }
    prompt_.images.push_back({prompt_.text.size(), image.source, image.detail, image.place});
    control(placeholder);
  }
  text(content.substr(at));
}

void append_text_part(Message& message, std::string_view text, bool is_first) {
  if (!is_first) message.content += "\n\n";
  message.content += text;
}

void append_image_part(Message& message, Image image, bool is_first) {
  if (!is_first) message.content += "\n\n";
  image.offset = message.content.size();
  message.images.push_back(std::move(image));
}

void order_results(std::vector<Turn>& turns, ResultOrder order) {
  std::map<std::string_view, size_t> ranks;  // of the calls of the last assistant message that had any
  for (size_t begin = 0; begin < turns.size();) {
    if (const auto& calls = turns[begin].message->tool_calls; !calls.empty()) {
      ranks.clear();
      for (size_t i = 0; i < calls.size(); ++i) ranks.try_emplace(calls[i].id, i);
    }
    size_t end = begin;
    std::vector<size_t> places;
    for (; end < turns.size() && is_user_turn(turns[end]); ++end) {
      if (turns[end].role == Role::kTool) places.push_back(end);
    }
    if (places.size() > 1 && !ranks.empty()) {
      const auto rank = [&ranks](const Turn& turn) {
        const auto call = ranks.find(turn.message->tool_call_id);
        return call == ranks.end() ? 0 : call->second;
      };
      std::vector<Turn> results;
      for (const size_t place : places) results.push_back(turns[place]);
      std::stable_sort(results.begin(), results.end(), [&](const Turn& a, const Turn& b) {
        return order == ResultOrder::kById ? a.message->tool_call_id < b.message->tool_call_id
                                           : rank(a) < rank(b);
      });
      for (size_t i = 0; i < places.size(); ++i) turns[places[i]] = results[i];
    }
    begin = std::max(end, begin + 1);
  }
}

ReasoningEffort default_effort(const PromptFormat& format) {
  const bool low = format.version == PromptVersion::kV4 && format.profile == PromptProfile::kReference;
  return low ? ReasoningEffort::kLow : ReasoningEffort::kHigh;
}

RenderedPrompt render(const Conversation& conversation, const PromptFormat& format) {
  if (format.profile == PromptProfile::kReference) return render_reference(conversation, format);
  return render_recipe(conversation, format);
}

RenderedPrompt render_completion(std::string_view text, std::optional<std::string_view> suffix) {
  PromptBuilder prompt;
  prompt.control(control::kBeginOfSentence);
  if (suffix) prompt.control(control::kFimBegin);
  prompt.text(text);
  if (suffix) {
    prompt.control(control::kFimHole);
    prompt.text(*suffix);
    prompt.control(control::kFimEnd);
  }
  return prompt.take(OutputStage::kContentContinuation);
}

}  // namespace deepinfer
