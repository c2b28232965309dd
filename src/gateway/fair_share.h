// Who may ask for how much at a time, and whose answers come first. One client must not be able to keep all others
// waiting. Private to the room.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"

namespace deepinfer {

// Thread-safe. A client is an address; every answer counts, also those of one request.
class FairShare {
  struct State;

 public:
  // What one submission holds, until it is destroyed; an engine may keep it for longer than there is a FairShare.
  class Ticket {
   public:
    Ticket(std::shared_ptr<State> state, std::string client, uint64_t connection, int64_t answers, int priority);
    ~Ticket();
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    // Of the engine: 1 within the client's share of what runs at once, 2 when its connection has no more than its
    // share, 3 beyond both.
    int priority() const { return priority_; }

   private:
    const std::shared_ptr<State> state_;  // shared with the FairShare and its other tickets
    const std::string client_;
    const uint64_t connection_;
    const int64_t answers_;
    const int priority_;
  };

  // `running`: answers that advance at once; `waiting`: those that may wait.
  FairShare(int64_t running, int64_t waiting) : running_(running), places_(running + waiting) {}

  // kResourceExhausted: a connection holds a quarter of all places, or a client half of them. A connection that has
  // none may always ask for one answer.
  Result<std::shared_ptr<Ticket>> admit(const std::string& client, uint64_t connection, int64_t answers);

 private:
  struct Held {
    int64_t answers = 0;
    std::map<uint64_t, int64_t> by_connection;
  };
  struct State {
    std::mutex mu;
    std::map<std::string, Held> held;  // guarded by mu; of clients that hold any
  };

  const int64_t running_, places_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace deepinfer
