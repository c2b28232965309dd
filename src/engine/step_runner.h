// The seam between planning and executing: start() hands a batch over, finish() waits for its answer. At depth 0 the
// batch runs inside start(), at depth 1 on a thread of its own while the engine thread plans the next one. A processor
// beside the CPU would be a third kind.
#pragma once

#include <memory>

#include "engine/executor.h"

namespace deepinfer {

// One batch at a time: start, finish, start, ... Called by the engine thread.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  // `batch` stays alive and untouched by the caller until finish() returned.
  virtual void start(Batch& batch) = 0;
  virtual void finish() = 0;
};

// Borrows the executor.
std::unique_ptr<StepRunner> make_step_runner(Executor& executor, int depth);

}  // namespace deepinfer
