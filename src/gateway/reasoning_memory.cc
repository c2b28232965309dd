#include "gateway/reasoning_memory.h"

namespace deepinfer {
namespace {

size_t bytes_of(const std::string& call_id, const std::string& reasoning) {
  return 2 * call_id.size() + reasoning.size();
}

}  // namespace

void ReasoningMemory::keep(const std::string& call_id, const std::string& reasoning) {
  const size_t bytes = bytes_of(call_id, reasoning);
  const std::lock_guard lock(mu_);
  if (bytes > max_bytes_ || by_call_id_.count(call_id) > 0) return;
  entries_.push_front({call_id, reasoning});
  by_call_id_[call_id] = entries_.begin();
  for (bytes_ += bytes; bytes_ > max_bytes_; entries_.pop_back()) {
    const Entry& oldest = entries_.back();
    bytes_ -= bytes_of(oldest.call_id, oldest.reasoning);
    by_call_id_.erase(oldest.call_id);
  }
}

int ReasoningMemory::restore(Conversation& conversation) {
  if (!conversation.thinking || !conversation.tools_active()) return 0;
  int restored = 0;
  const std::lock_guard lock(mu_);
  for (Message& message : conversation.messages) {
    if (message.reasoning || message.tool_calls.empty()) continue;
    const auto found = by_call_id_.find(message.tool_calls.front().id);
    if (found == by_call_id_.end()) continue;
    entries_.splice(entries_.begin(), entries_, found->second);  // the newest again
    message.reasoning = found->second->reasoning;
    ++restored;
  }
  return restored;
}

}  // namespace deepinfer
