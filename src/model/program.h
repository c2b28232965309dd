// A list of ops with what each waits for. Whoever runs it may run at once whatever does not wait for each other.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "base/status.h"
#include "base/thread_pool.h"
#include "model/op.h"

namespace deepinfer {

class Program {
 public:
  using Phase = Region::Phase;  // an op's number; those of earlier runs stay valid, as ops that have ended
  using Need = Region::Need;    // same_share: a backend that cuts both ops alike may wait for the same part only
  static constexpr Phase kNone = Region::kNone;
  static constexpr int kMaxOps = 40;

  struct EntryNeed {
    int16_t op = 0;  // its place in entries()
    bool same_share = false;
  };
  struct Entry {
    Op op;
    std::array<EntryNeed, Region::kMaxNeeds> needs;
    int num_needs = 0;
    std::span<const EntryNeed> all_needs() const { return {needs.data(), static_cast<size_t>(num_needs)}; }
  };

  StreamRefs streams;  // of all ops

  template <typename AnOp>
  Phase add(const AnOp& op, std::initializer_list<Need> needs) {
    CHECK(count_ < kMaxOps && needs.size() <= Region::kMaxNeeds);
    Entry& entry = entries_[count_];
    entry.op.template emplace<AnOp>(op);
    entry.num_needs = 0;
    for (const Need& need : needs) {
      CHECK(need.phase < num_run_ + count_);
      if (need.phase < num_run_) continue;  // has ended
      entry.needs[entry.num_needs++] = {static_cast<int16_t>(need.phase - num_run_), need.same_share};
    }
    return num_run_ + count_++;
  }
  // The ops so far;
  std::span<const Entry> entries() const { return {entries_.data(), static_cast<size_t>(count_)}; }
  // After a run: room for the next ops.
  void clear() {
    num_run_ += count_;
    count_ = 0;
  }

 private:
  Phase num_run_ = 0;
  int count_ = 0;
  std::array<Entry, kMaxOps> entries_;
};

}  // namespace deepinfer
