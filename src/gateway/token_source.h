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
  virtual Result<uint64_t> submit(EngineRequest request, EventSink sink) = 0;
  virtual void cancel(uint64_t id) = 0;
  virtual EngineStats stats() const = 0;
  virtual int64_t max_context_tokens() const = 0;
};

// The engine as a source; borrowed, it outlives the source.
std::unique_ptr<TokenSource> make_token_source(Engine& engine);

}  // namespace deepinfer
