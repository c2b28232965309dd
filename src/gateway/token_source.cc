#include "gateway/token_source.h"

namespace deepinfer {
namespace {

class EngineTokenSource : public TokenSource {
 public:
  explicit EngineTokenSource(Engine& engine) : engine_(engine) {}
  Result<uint64_t> submit(EngineRequest request, EventSink sink) override {
    return engine_.submit(std::move(request), std::move(sink));
  }
  void cancel(uint64_t id) override { engine_.cancel(id); }
  void finish(uint64_t id) override { engine_.finish(id); }
  void pause(uint64_t id) override { engine_.pause(id); }
  void resume(uint64_t id) override { engine_.resume(id); }
  EngineStats stats() const override { return engine_.stats(); }
  int64_t max_context_tokens() const override { return engine_.max_context_tokens(); }
  int64_t vocab_size() const override { return engine_.vocab_size(); }

 private:
  Engine& engine_;
};

}  // namespace

std::unique_ptr<TokenSource> make_token_source(Engine& engine) {
  return std::make_unique<EngineTokenSource>(engine);
}

}  // namespace deepinfer
