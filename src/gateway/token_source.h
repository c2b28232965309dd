// What the gateway needs of an engine: the seam at which tests put a scripted one.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/engine.h"

namespace deepinfer {

// Thread-safe. The contracts are those of Engine.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  // The id of answer 0; answer i of request.n has the id after i more.
  virtual Result<uint64_t> submit(EngineRequest request, EventSink sink) = 0;
  virtual void cancel(uint64_t id) = 0;
  // The text is complete (a stop sequence, the end of its calls): the answer ends with FinishReason::kStop.
  virtual void finish(uint64_t id) = 0;
  // The reader of this answer is slow: no more of its tokens are wanted until resume(). A hint that an engine
  // may ignore; tokens that come all the same are kept by the gateway as ids. Unknown ids are ignored.
  virtual void pause(uint64_t id) { (void)id; }
  virtual void resume(uint64_t id) { (void)id; }
  virtual EngineStats stats() const = 0;
  virtual int64_t max_context_tokens() const = 0;
  virtual int64_t vocab_size() const = 0;  // of the rows that tokens are drawn from
};

// The engine as a source; borrowed, it outlives the source.
std::unique_ptr<TokenSource> make_token_source(Engine& engine);

}  // namespace deepinfer
