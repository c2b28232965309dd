// A small per-thread cache from pieces to ids: words repeat, and a hit costs one comparison (private to the room).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/bpe.h"

namespace deepinfer {

uint64_t next_tokenizer_serial();

// bpe.encode(piece, ids), remembered for short pieces. `serial` names the tokenizer.
void encode_piece_cached(const Bpe& bpe, uint64_t serial, std::string_view piece, std::vector<int32_t>& ids);

}  // namespace deepinfer
