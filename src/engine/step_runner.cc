#include "engine/step_runner.h"

#include <semaphore>
#include <thread>

namespace deepinfer {
namespace {

class InlineRunner : public StepRunner {
 public:
  explicit InlineRunner(Executor& executor) : executor_(executor) {}
  void start(Batch& batch) override { executor_.run(batch); }
  void finish() override {}

 private:
  Executor& executor_;
};

class ThreadRunner : public StepRunner {
 public:
  explicit ThreadRunner(Executor& executor) : executor_(executor), thread_([this] { loop(); }) {}
  ~ThreadRunner() override {
    batch_ = nullptr;
    started_.release();
  }
  void start(Batch& batch) override {
    batch_ = &batch;
    started_.release();
  }
  void finish() override { finished_.acquire(); }

 private:
  void loop() {
    for (started_.acquire(); batch_ != nullptr; started_.acquire()) {
      executor_.run(*batch_);
      finished_.release();
    }
  }

  Executor& executor_;
  Batch* batch_ = nullptr;  // handed over by the semaphores
  std::binary_semaphore started_{0}, finished_{0};
  std::jthread thread_;     // last member: joined before the rest goes
};

}  // namespace

std::unique_ptr<StepRunner> make_step_runner(Executor& executor, int depth) {
  if (depth == 0) return std::make_unique<InlineRunner>(executor);
  return std::make_unique<ThreadRunner>(executor);
}

}  // namespace deepinfer
