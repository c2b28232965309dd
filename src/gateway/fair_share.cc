#include "gateway/fair_share.h"

#include <algorithm>

namespace deepinfer {

FairShare::Ticket::Ticket(std::shared_ptr<State> state, std::string client, uint64_t connection, int64_t answers,
                          int priority)
    : state_(std::move(state)),
      client_(std::move(client)),
      connection_(connection),
      answers_(answers),
      priority_(priority) {}

FairShare::Ticket::~Ticket() {
  const std::lock_guard lock(state_->mu);
  const auto held = state_->held.find(client_);
  held->second.answers -= answers_;
  const auto own = held->second.by_connection.find(connection_);
  own->second -= answers_;
  if (own->second == 0) held->second.by_connection.erase(own);
  if (held->second.answers == 0) state_->held.erase(held);
}

Result<std::shared_ptr<FairShare::Ticket>> FairShare::admit(const std::string& client, uint64_t connection,
                                                            int64_t answers) {
  const std::lock_guard lock(state_->mu);
  Held& held = state_->held[client];
  int64_t& own = held.by_connection[connection];
  const int64_t of_client = held.answers + answers, of_connection = own + answers;
  const bool asks_for_one = own == 0 && answers == 1;
  if (of_connection > std::max<int64_t>(1, places_ / 4) || (of_client > places_ / 2 && !asks_for_one)) {
    const int64_t before = of_connection > places_ / 4 ? own : held.answers;
    if (own == 0) held.by_connection.erase(connection);
    if (held.answers == 0) state_->held.erase(client);
    return Error(Code::kResourceExhausted,
                 "You have {} answers that run or wait, and ask for {} more; a connection may have {}, a client {}.",
                 before, answers, places_ / 4, places_ / 2);
  }
  held.answers = of_client;
  own = of_connection;
  const int priority = of_client <= std::max<int64_t>(1, running_ / 2)       ? 1
                       : of_connection <= std::max<int64_t>(1, running_ / 4) ? 2
                                                                             : 3;
  return std::make_shared<Ticket>(state_, client, connection, answers, priority);
}

}  // namespace deepinfer
