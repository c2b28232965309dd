// What the model thought before it called tools, for clients that lose it. Private to the room.
//
// Source: docs/spec/recipe.md 7.1: agents send a call back without its reasoning; the model then goes on as if it had
// not thought, and the prompt no longer begins with what the KV cache holds.
#pragma once

#include <list>
#include <mutex>
#include <string>
#include <unordered_map>

#include "recipe/conversation.h"

namespace deepinfer {

// Thoughts by the id of the call that followed; the ids are drawn at random, so a client that knows one was told
// it. The oldest go when all together are larger than the limit. Thread-safe.
class ReasoningMemory {
 public:
  explicit ReasoningMemory(size_t max_bytes) : max_bytes_(max_bytes) {}

  void keep(const std::string& call_id, const std::string& reasoning);
  // Gives assistant messages with calls the reasoning that they lack; how many. Touches nothing when the
  // prompt would not show it.
  int restore(Conversation& conversation);

 private:
  struct Entry {
    std::string call_id;
    std::string reasoning;
  };

  const size_t max_bytes_;
  std::mutex mu_;
  std::list<Entry> entries_;  // guarded by mu_; the newest first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_call_id_;  // guarded by mu_
  size_t bytes_ = 0;                                                        // guarded by mu_
};

}  // namespace deepinfer
