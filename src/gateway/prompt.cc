#include "gateway/prompt.h"

#include <algorithm>

namespace deepinfer {
namespace {

// What the client wrote is plain text; ids are taken as they are (docs/spec/recipe.md 3.5, 10).
Result<PreparedPrompt> prepare_raw(const RawPrompt& prompt, const Tokenizer& tokenizer) {
  PreparedPrompt out;
  out.output.start = OutputStage::kContentContinuation;
  out.output.salvage = false;
  if (!prompt.ids) {
    Result<std::vector<TokenId>> ids = encode(render_completion(prompt.text, prompt.suffix), tokenizer);
    if (!ids.ok()) {
      return Error(Code::kInvalidArgument, "{}: {}", prompt.suffix ? "suffix" : "prompt",
                   ids.error().message());
    }
    out.ids = std::move(*ids);
    return out;
  }
  for (const TokenId id : *prompt.ids) {
    if (id >= 0 && id < tokenizer.vocab_size()) continue;
    return Error(Code::kInvalidArgument, "prompt: found token id {}, expected 0 to {}", id,
                 tokenizer.vocab_size() - 1);
  }
  out.ids = *prompt.ids;
  return out;
}

// Where the prompts that end behind a marked message part from this one. Each costs a rendering, so the last few count.
std::vector<int64_t> cache_points(const Conversation& conversation, const Tokenizer& tokenizer, const PromptFormat& format,
                                  const std::vector<TokenId>& ids) {
  constexpr size_t kMostMarks = 4;
  std::vector<int64_t> points;
  const auto& messages = conversation.messages;
  for (size_t i = messages.size() > 0 ? messages.size() - 1 : 0; i-- > 0 && points.size() < kMostMarks;) {
    if (!messages[i].cache_point) continue;
    Conversation beginning = conversation;
    beginning.messages.resize(i + 1);
    const auto shorter = encode(render(beginning, format), tokenizer);
    if (!shorter.ok()) continue;
    const auto parts = std::mismatch(ids.begin(), ids.end(), shorter->begin(), shorter->end()).first;
    points.push_back(parts - ids.begin());
  }
  std::sort(points.begin(), points.end());
  return points;
}

Result<PreparedPrompt> prepare_conversation(const Conversation& conversation, const Tokenizer& tokenizer,
                                            const PromptFormat& format) {
  const RenderedPrompt prompt = render(conversation, format);
  Result<std::vector<TokenId>> ids = encode(prompt, tokenizer);
  // The control tokens were checked when the gateway started, all but those of tasks.
  if (!ids.ok()) {
    const bool has_task =
        std::ranges::any_of(conversation.messages, [](const Message& message) { return message.task.has_value(); });
    return Error(has_task ? Code::kUnimplemented : Code::kInternal, "{}", ids.error().message());
  }
  PreparedPrompt out{.ids = std::move(*ids), .output = output_options(conversation, prompt, format.version)};
  out.cache_points = cache_points(conversation, tokenizer, format, out.ids);
  return out;
}

// As few turns less as it takes; the last turn alone when nothing else fits.
Result<PreparedPrompt> prepare_shortened(const GenerationRequest& request, const Tokenizer& tokenizer,
                                         const PromptSettings& settings, PreparedPrompt whole) {
  // A bound that nothing would fit beside costs no turns.
  const int64_t answer =
      std::min(request.max_tokens.value_or(settings.context_tokens / 4), settings.context_tokens / 2);
  const auto fits = [&](const PreparedPrompt& prompt) {
    return std::ssize(prompt.ids) <= settings.context_tokens - answer;
  };
  const auto without = [&](int64_t turns) {
    return prepare_conversation(without_oldest_turns(request.conversation, turns), tokenizer,
                                settings.format);
  };
  const int64_t most = num_turns(request.conversation) - 1;
  if (fits(whole) || most < 1) return whole;
  int64_t too_few = 0, enough = most;
  while (enough - too_few > 1) {
    const int64_t turns = (too_few + enough) / 2;
    ASSIGN_OR_RETURN(const PreparedPrompt prompt, without(turns));
    (fits(prompt) ? enough : too_few) = turns;
  }
  return without(enough);
}

}  // namespace

int64_t fewest_tokens(const GenerationRequest& request, size_t longest_token_bytes) {
  size_t bytes = 0;
  for (const Message& message : request.conversation.messages) bytes += message.content.size();
  for (const RawPrompt& prompt : request.raw_prompts) bytes = std::max(bytes, prompt.text.size());
  return static_cast<int64_t>(bytes / std::max<size_t>(longest_token_bytes, 1));
}

size_t longest_token_bytes(const Tokenizer& tokenizer) {
  size_t longest = 0;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    longest = std::max(longest, tokenizer.token_bytes(id).size());
  }
  return longest;
}

Status check_servable(const Conversation& conversation, const PromptFormat& format) {
  for (const Message& message : conversation.messages) {
    if (message.task && format.profile != PromptProfile::kReference) {
      return Error(Code::kUnimplemented,
                   "task: quick instructions require `serve --prompt-profile reference`");
    }
    if (message.images.empty()) continue;
    return Error(Code::kUnimplemented,
                 "{}: this model takes text only, found an image; leave it out or describe it in words",
                 message.images.front().place);
  }
  return {};
}

Result<std::vector<PreparedPrompt>> prepare_prompts(const GenerationRequest& request,
                                                    const Tokenizer& tokenizer,
                                                    const PromptSettings& settings) {
  std::vector<PreparedPrompt> out;
  for (const RawPrompt& prompt : request.raw_prompts) {
    ASSIGN_OR_RETURN(PreparedPrompt prepared, prepare_raw(prompt, tokenizer));
    out.push_back(std::move(prepared));
  }
  if (!out.empty()) return out;
  RETURN_IF_ERROR(check_servable(request.conversation, settings.format));
  ASSIGN_OR_RETURN(PreparedPrompt prompt,
                   prepare_conversation(request.conversation, tokenizer, settings.format));
  if (request.drops_old_turns) {
    ASSIGN_OR_RETURN(prompt, prepare_shortened(request, tokenizer, settings, std::move(prompt)));
  }
  out.push_back(std::move(prompt));
  return out;
}

}  // namespace deepinfer
