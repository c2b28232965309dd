// What an answer may say next: the seam between the engine and whatever restricts it (the grammar room, a scripted one
// in tests). The engine asks before each draw and tells what was drawn; it knows no grammar.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"

namespace deepinfer {

// One bit an id, id i is bit i % 32 of word i / 32; a set bit is an id that may come next.
using TokenMask = std::span<uint32_t>;
inline int64_t mask_words(int64_t vocab_size) { return (vocab_size + 31) / 32; }

// Where one answer stands. A value of the tokens accepted so far and of nothing else, so it survives pre-emption and
// any batch. Owned by one answer, used by one thread at a time.
class ConstraintState {
 public:
  virtual ~ConstraintState() = default;
  // Fills all words of the mask and returns true, or returns false when every id may come next (the mask then holds
  // anything). After the end of the language (its end-of-answer id was accepted) every id may come.
  virtual bool fill_mask(TokenMask mask) = 0;
  // The answer goes on with this id. kInvalidArgument when the mask forbids it; the state is then unchanged.
  virtual Status accept(int32_t token_id) = 0;
  // Takes back the last n accepted ids; n is at most what was accepted and at most max_rollback().
  virtual void rollback(int64_t n) = 0;
  virtual int64_t max_rollback() const = 0;
};

// What a request asks its answers to keep to. Immutable and thread-safe; shared by the answers of a request.
class OutputConstraint {
 public:
  virtual ~OutputConstraint() = default;
  // The state of an answer before its first token.
  virtual std::unique_ptr<ConstraintState> start() const = 0;
};

// logits of ids without a bit become -inf.
void apply_mask(std::span<const uint32_t> mask, std::span<float> logits);

}  // namespace deepinfer
