// The rows of a batch.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "model/engram_hash.h"
#include "model/kv_arena.h"
#include "model/op.h"

namespace deepinfer {

// One row of a call: one position of one sequence.
struct Row {
  Sequence* sequence = nullptr;
  int64_t position = 0;
  int64_t first_row = 0;       // the span's first row in this pass
  int64_t first_position = 0;  // and its position
  int32_t span = 0;            // the span's number in the call
  bool wants_logits = false;
  std::array<int32_t, kEngramTokens> engram_ids = {};  // compressed id of this position, then of those before it
};

// The first window row that a row sees; each half of the model has its own.
inline int64_t first_window_row(const Row& row, int64_t window, Half half) {
  const int64_t first = half == Half::kEncoder ? row.sequence->cut.encoder_first : row.sequence->cut.decoder_first;
  return std::max(row.position - window + 1, first);
}

// Whether the row finishes a group of `ratio` rows, and its latent is to be made.
inline bool finishes_latent(const Row& row, int64_t ratio) {
  return ratio != 2 || (row.position % 2 == 1 && row.position >= row.sequence->cut.write_first);
}

}  // namespace deepinfer
