// Calls of a history and their results. Private to the room.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

namespace deepinfer {

// Which calls wait for their results, in their order. Histories are long and ids are the client's to choose: ordered
// containers, in which no choice of ids is slow.
class OpenCalls {
 public:
  bool is_open(const std::string& id) const { return places_.count(id) > 0; }
  bool is_answered(const std::string& id) const { return answered_.count(id) > 0; }
  bool all_answered() const { return open_.empty(); }
  const std::string& first_open() const { return open_.begin()->second; }
  std::vector<std::string> open_ids() const {
    std::vector<std::string> ids;
    for (const auto& [place, id] : open_) ids.push_back(id);
    return ids;
  }

  void open(const std::string& id) {
    places_[id] = ++last_place_;
    open_[last_place_] = id;
  }
  void answer(const std::string& id) {
    const auto place = places_.extract(id);
    open_.erase(place.mapped());
    answered_.insert(id);
  }
  void forget_answered() { answered_.clear(); }

 private:
  std::map<size_t, std::string> open_;
  std::map<std::string, size_t> places_;  // of the open ones
  std::set<std::string> answered_;
  size_t last_place_ = 0;
};

}  // namespace deepinfer
