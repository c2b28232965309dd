#include "api/generation.h"

#include <algorithm>

#include "base/random.h"

namespace deepinfer {

Result<int64_t> resolve_max_tokens(const GenerationRequest& request, int64_t prompt_tokens, int64_t context_tokens,
                                   LongAnswer too_long) {
  const int64_t asked = request.max_tokens.value_or(0), left = context_tokens - prompt_tokens;
  const bool is_bound = too_long == LongAnswer::kClamp && left > 0;
  if (left < 0 || (asked > left && !is_bound)) {
    return Error(
        Code::kInvalidArgument,
        "This model's maximum context length is {} tokens. However, you requested {} tokens ({} in "
        "the messages, {} in the completion). Please reduce the length of the messages or completion.",
        context_tokens, prompt_tokens + asked, prompt_tokens, asked);
  }
  if (request.max_tokens) return std::min(asked, left);
  const Conversation& conversation = request.conversation;
  const int64_t usual = !conversation.thinking                                   ? 8192
                        : conversation.reasoning_effort == ReasoningEffort::kMax ? 131072
                                                                                 : 65536;
  return std::max<int64_t>(1, std::min(usual, left));
}

namespace {

// Where turns begin: at a message of the user that follows none.
bool begins_turn(const std::vector<Message>& messages, size_t i) {
  return messages[i].role == Role::kUser && (i == 0 || messages[i - 1].role != Role::kUser);
}

}  // namespace

int64_t num_turns(const Conversation& conversation) {
  int64_t turns = 0;
  for (size_t i = 0; i < conversation.messages.size(); ++i) turns += begins_turn(conversation.messages, i);
  return turns;
}

Conversation without_oldest_turns(const Conversation& conversation, int64_t count) {
  Conversation out = conversation;
  out.messages.clear();
  int64_t turn = 0;  // the one that is read, counted from 1
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const Message& message = conversation.messages[i];
    turn += begins_turn(conversation.messages, i);
    const bool dropped = turn > 0 && turn <= count && message.role != Role::kSystem &&
                         message.role != Role::kDeveloper && message.role != Role::kSystemReminder;
    if (!dropped) out.messages.push_back(message);
  }
  return out;
}

std::string make_call_id(uint64_t key, int64_t index) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  constexpr size_t kAlnum = 20, kDigits = 4;
  std::string id = fmt::format("call_{:02}_", index);
  for (uint32_t i = 0; i < kAlnum + kDigits; ++i) {
    const uint32_t word = philox4x32(key, {static_cast<uint32_t>(index), i, 0, 0})[0];
    id += i < kAlnum ? kAlphabet[word % kAlphabet.size()] : static_cast<char>('0' + word % 10);
  }
  return id;
}

// Walks the text once and remembers the brackets; a value that is missing becomes null, a key without one
// goes.
std::string close_cut_json(std::string_view text) {
  std::string closers;  // innermost last
  bool in_string = false, escaped = false;
  size_t safe = 0;  // everything before it can be closed by brackets alone
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (escaped) {
        escaped = false;
      } else if (c == '\\') {
        escaped = true;
      } else if (c == '"') {
        in_string = false;
      }
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '{') closers += '}';
    if (c == '[') closers += ']';
    if ((c == '}' || c == ']') && !closers.empty()) closers.pop_back();
    if (c == '{' || c == '[' || c == '}' || c == ']') safe = i + 1;
    if (c == ',') safe = i;
  }
  if (closers.empty() && !in_string) return std::string(text);
  std::string brackets(closers.rbegin(), closers.rend());
  // As much as parses: the text with its string closed, with a null for the value, or up to the last whole
  // member.
  const std::string whole(text);
  const std::string closed = in_string ? whole.substr(0, whole.size() - (escaped ? 1 : 0)) + '"' : whole;
  for (const std::string& attempt :
       {closed + brackets, closed + "null" + brackets, closed + ":null" + brackets}) {
    if (parse_json(attempt).ok()) return attempt;
  }
  return whole.substr(0, safe) + brackets;
}

}  // namespace deepinfer
