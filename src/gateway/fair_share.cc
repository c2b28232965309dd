#include "gateway/fair_share.h"

#include <algorithm>

namespace deepinfer {

FairShare::Ticket::Ticket(FairShare& share, std::string client, uint64_t connection, int64_t answers, int priority)
    : share_(share), client_(std::move(client)), connection_(connection), answers_(answers), priority_(priority) {}

FairShare::Ticket::~Ticket() {
  share_.give_back(client_, connection_, answers_);
}

Result<std::shared_ptr<FairShare::Ticket>> FairShare::admit(const std::string& client, uint64_t connection,
                                                            int64_t answers) {
  const std::lock_guard lock(mu_);
  Held& held = held_[client];
  int64_t& own = held.by_connection[connection];
  const int64_t of_client = held.answers + answers, of_connection = own + answers;
  const bool asks_for_one = own == 0 && answers == 1;
  if (of_connection > std::max<int64_t>(1, places_ / 4) || (of_client > places_ / 2 && !asks_for_one)) {
    const int64_t before = of_connection > places_ / 4 ? own : held.answers;
    if (own == 0) held.by_connection.erase(connection);
    if (held.answers == 0) held_.erase(client);
    return Error(Code::kResourceExhausted,
                 "You have {} answers that run or wait, and ask for {} more; a connection may have {}, a client {}.",
                 before, answers, places_ / 4, places_ / 2);
  }
  held.answers = of_client;
  own = of_connection;
  const int priority = of_client <= std::max<int64_t>(1, running_ / 2)       ? 1
                       : of_connection <= std::max<int64_t>(1, running_ / 4) ? 2
                                                                             : 3;
  return std::make_shared<Ticket>(*this, client, connection, answers, priority);
}

void FairShare::give_back(const std::string& client, uint64_t connection, int64_t answers) {
  const std::lock_guard lock(mu_);
  const auto held = held_.find(client);
  held->second.answers -= answers;
  const auto own = held->second.by_connection.find(connection);
  own->second -= answers;
  if (own->second == 0) held->second.by_connection.erase(own);
  if (held->second.answers == 0) held_.erase(held);
}

}  // namespace deepinfer
