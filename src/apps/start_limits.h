// Whether this machine can hold what a command is about to start: asked before the first large allocation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/memory_plan.h"

namespace deepinfer {

// What the machine and its administrator allow this process. Every bound says in words what it is.
struct StartLimits {
  struct Bound {
    uint64_t most = 0;
    std::string what;
  };
  std::vector<Bound> memory = {};         // bytes that may be in use
  std::vector<Bound> address_space = {};  // bytes that may be mapped
  std::vector<Bound> threads = {};        // that may be started now
};

// Of this process. `root` stands before /proc and /sys; limits of the kernel (getrlimit) are added when it is empty.
StartLimits read_start_limits(const std::string& root = "");

struct StartNeeds {
  EngineMemoryPlan plan;
  int64_t context_blocks = 1;              // KV blocks of one whole context
  uint64_t threads = 1;                    // most at once
  std::string thread_flags = "--threads";  // that lower their number
};

// kResourceExhausted: one sentence with both numbers and the flag that helps.
Status check_start(const StartNeeds& needs, const StartLimits& limits);

}  // namespace deepinfer
