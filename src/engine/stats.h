// Numbers that one thread writes and any thread reads.
#pragma once

#include <array>
#include <atomic>

#include "engine/engine.h"

namespace deepinfer {

inline constexpr size_t kNumStats = sizeof(EngineStats) / sizeof(int64_t);

// Each number is its own relaxed atomic: readers want values, not a moment in common. store() has one caller.
class StatsBoard {
 public:
  void store(const EngineStats& stats);
  EngineStats load() const;

 private:
  std::array<std::atomic<int64_t>, kNumStats> values_{};
};

}  // namespace deepinfer
