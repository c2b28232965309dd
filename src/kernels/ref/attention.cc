// Sparse attention with sinks (docs/spec/model.md 4.5) and index scores (5).
#include <algorithm>
#include <cmath>

#include "kernels/elementary.h"
#include "kernels/quantize.h"
#include "kernels/ref/ref_ops.h"

namespace deepinfer::ref {
namespace {

// All rows of the list as fp32, window first. Returns their number.
int64_t unpack_list(const AttentionList& list, int64_t dim, float* rows) {
  for (int32_t i = 0; i < list.num_window; ++i, rows += dim) unpack_window_row(list.window[i], dim, rows);
  for (int32_t i = 0; i < list.num_compressed; ++i, rows += dim) unpack_compressed_row(list.compressed[i], dim, rows);
  return list.num_window + list.num_compressed;
}

// Weighted sum and denominator of one chunk, added to what the earlier chunks left. Scores become weights in place.
void add_chunk(float* scores, const float* rows, int64_t count, int64_t dim, float* peak, float* total, float* sum) {
  const float old_peak = *peak;
  for (int64_t i = 0; i < count; ++i) *peak = std::max(*peak, scores[i]);
  const float factor = exp_f32(old_peak - *peak);
  const float chunk_total = block_sum(count, [&](float partial, int64_t i) {
    const float weight = exp_f32(scores[i] - *peak);
    scores[i] = round_bf16(weight);
    return partial + weight;
  });
  *total = std::fma(*total, factor, chunk_total);
  for (int64_t d = 0; d < dim; ++d) {
    const float chunk_sum = block_sum(count, [&](float partial, int64_t i) {
      return std::fma(scores[i], rows[i * dim + d], partial);
    });
    sum[d] = std::fma(sum[d], factor, chunk_sum);
  }
}

// `scores` and `sum` are scratch of [rows of the list] and [head_dim].
void attend_head(const AttentionArgs& args, const AttentionList& list, const Bf16* query, float sink, const float* rows,
                 float* scores, float* sum, Bf16* out) {
  const int64_t dim = args.head_dim, count = list.num_window + list.num_compressed;
  for (int64_t i = 0; i < count; ++i) {
    const float dot = block_sum(dim, [&](float partial, int64_t d) {
      return std::fma(to_float(query[d]), rows[i * dim + d], partial);
    });
    scores[i] = dot * args.softmax_scale;
  }
  float peak = -INFINITY, total = 0;
  std::fill_n(sum, dim, 0.0f);
  for (int64_t begin = 0; begin < count;) {
    const int64_t end = args.chunk_end(list, begin);
    add_chunk(scores + begin, rows + begin * dim, end - begin, dim, &peak, &total, sum);
    begin = end;
  }
  total += exp_f32(sink - peak);
  for (int64_t d = 0; d < dim; ++d) out[d] = to_bf16(sum[d] / total);
}

}  // namespace

void attend(const AttentionArgs& args, int64_t token, int64_t first_head, int64_t heads, std::byte* scratch) {
  const AttentionList& list = args.lists[token];
  auto* rows = reinterpret_cast<float*>(scratch);
  const int64_t count = unpack_list(list, args.head_dim, rows);
  float* scores = rows + count * args.head_dim;
  float* sum = scores + count;
  for (int64_t head = first_head; head < first_head + heads; ++head) {
    const int64_t offset = (token * args.num_heads + head) * args.head_dim;
    if (count == 0) {
      std::fill_n(args.out + offset, args.head_dim, Bf16{0});
    } else {
      attend_head(args, list, args.query + offset, args.sinks[head], rows, scores, sum, args.out + offset);
    }
  }
}

void index_scores(const IndexScoreArgs& args) {
  const IndexKeys& keys = args.keys;
  const int64_t dim = keys.dim;
  float key[1024];
  CHECK(dim <= 1024);
  float* score = args.scores;
  for (const RowRun& run : args.runs) {
    for (int64_t j = run.first; j < run.first + run.count; ++j, ++score) {
      const std::byte* block = keys.blocks[j / keys.rows_per_block];
      const int64_t slot = j % keys.rows_per_block;
      const std::byte* scales = block + keys.rows_per_block * index_code_bytes(dim);
      unpack_index_row(block + slot * index_code_bytes(dim), scales + slot * index_scale_bytes(dim), dim, key);
      float sum = 0;
      for (int64_t head = 0; head < args.num_heads; ++head) {
        const float* query = args.query + head * dim;
        const float dot =
            block_sum(dim, [&](float partial, int64_t d) { return std::fma(query[d], key[d], partial); });
        sum = std::fma(args.head_weights[head], std::max(dot, 0.0f), sum);
      }
      *score = sum;
    }
  }
}

}  // namespace deepinfer::ref
