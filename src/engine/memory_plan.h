// What an engine and its model need of memory, known before either exists.
#pragma once

#include <cstdint>
#include <string>

#include "engine/engine.h"
#include "model/model.h"

namespace deepinfer {

struct EngineMemoryPlan {
  MemoryPlan model;
  int64_t max_running = 0;   // answers at once
  uint64_t index_bytes = 0;  // of the prefix cache
  uint64_t swap_bytes = 0;   // for answers that are pre-empted

  uint64_t total_bytes() const { return model.total_bytes() + index_bytes + swap_bytes; }
  std::string text() const;  // one line, for people
};

int64_t planned_max_running(const ModelOptions& model, const EngineOptions& engine);
int64_t planned_swap_blocks(const MemoryPlan& model, const EngineOptions& engine);
EngineMemoryPlan plan_engine_memory(const MemoryPlan& plan, const ModelOptions& model, const EngineOptions& engine);

}  // namespace deepinfer
