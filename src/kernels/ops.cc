#include "kernels/ops.h"

#include <algorithm>

#include "base/checked_math.h"
#include "kernels/ref/ref_ops.h"
#include "kernels/x86/avx2.h"

namespace deepinfer {

const Ops& ref::table() {
  static const Ops ops = {
      .name = "ref",
      .linear = linear,
      .quantize_rows = quantize_rows,
      .widen_rows = widen_rows,
      .rms_norm = rms_norm,
      .rotate = rotate,
      .hc_mix = hc_mix,
      .hc_fold = hc_fold,
      .hc_unfold = hc_unfold,
      .swiglu = swiglu,
      .sparse_attention = sparse_attention,
      .index_scores = index_scores,
      .engram_gate = engram_gate,
      .pool_pair = pool_pair,
  };
  return ops;
}

int64_t AttentionArgs::chunk_end(const AttentionList& list, int64_t begin) const {
  const int64_t window = list.num_window, total = window + list.num_compressed;
  const int64_t shift = std::max<int64_t>(0, window_columns - window);  // column of a compressed row, less its index
  const int64_t last = (begin < window ? begin : begin + shift) / kAttentionChunk * kAttentionChunk + kAttentionChunk;
  return last <= window ? last : std::clamp(last - shift, window, total);
}

size_t attention_scratch_bytes(int64_t max_list, int64_t head_dim) {
  // Rows, eight transposed queries, weights of eight heads and their factors between chunks.
  const int64_t max_chunks = max_list / kAttentionChunk + 2;
  const int64_t floats = max_list * head_dim + 8 * head_dim + 8 * max_list + 8 * max_chunks;
  return round_up(static_cast<size_t>(floats) * sizeof(float), 64);
}

size_t index_scratch_bytes(int64_t num_heads, int64_t index_head_dim) {
  const int64_t padded_heads = (num_heads + 7) / 8 * 8;
  return round_up(static_cast<size_t>((padded_heads + 8) * index_head_dim) * sizeof(float), 64);
}

Result<const Ops*> select_ops(std::string_view name) {
  if (name == "ref") return &ref::table();
  if (name == "avx2") {
    if (avx2::supported()) return &avx2::table();
    return Error(Code::kUnimplemented, "instruction set 'avx2': this processor lacks AVX2 or FMA");
  }
  if (name == "auto") return avx2::supported() ? &avx2::table() : &ref::table();
  return Error(Code::kInvalidArgument, "instruction set '{}' is unknown; expected auto, ref or avx2", name);
}

}  // namespace deepinfer
