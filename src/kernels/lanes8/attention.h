// Sparse attention and index scores with eight lanes (private to the kernels room); to be included as lanes8/linear.h is.
// Lanes are heads (scores), channels (weighted sums) or keys (index), never terms of one sum, so the bits are those of
// kernels/ref.

void unpack_window_row8(const std::byte* row, int64_t dim, float* x) {
  const auto* scales = reinterpret_cast<const uint8_t*>(row) + dim;
  for (int64_t i = 0; i < dim; i += 8) {
    const F8 scale = set8(e8m0_to_float(scales[i / 32]));
    store8(x + i, mul8(load_e4m3(row + i), scale));
  }
}

void unpack_compressed_row8(const std::byte* row, int64_t dim, float* x) {
  const auto* scales = reinterpret_cast<const uint8_t*>(row) + dim / 2;
  for (int64_t i = 0; i < dim; i += 8) {
    const F8 scale = set8(e4m3_to_float(scales[i / 16]));
    store8(x + i, mul8(load_e2m1(row + i / 2), scale));
  }
}

void unpack_index_row8(const std::byte* codes, const std::byte* scales, int64_t dim, float* x) {
  for (int64_t i = 0; i < dim; i += 8) {
    const F8 scale = set8(e8m0_to_float(static_cast<uint8_t>(scales[i / 32])));
    store8(x + i, mul8(load_e2m1(codes + i / 2), scale));
  }
}

constexpr int64_t kKeyTile = 8;

// Dot products of up to eight fp32 rows with eight queries at once: lane = query. query_t: [dim][query_stride].
template <int kRows>
inline void dot_tile(const float* rows, int64_t dim, const float* query_t, int64_t query_stride, F8* dots) {
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) dots[i] = zero8();
  for (int64_t begin = 0; begin < dim; begin += kSumBlock) {
    F8 partial[kRows];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) partial[i] = zero8();
    for (int64_t d = begin; d < begin + kSumBlock; ++d) {
      const F8 query = load8(query_t + d * query_stride);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        partial[i] = fma8(query, set8(rows[i * dim + d]), partial[i]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) dots[i] = add8(dots[i], partial[i]);
  }
}

// [heads][dim] to [dim][8 * ceil(heads / 8)], missing heads zero.
template <typename Load>
void transpose_queries(int64_t heads, int64_t dim, int64_t stride, Load&& load, float* query_t) {
  for (int64_t d = 0; d < dim; ++d) {
    for (int64_t h = 0; h < stride; ++h) query_t[d * stride + h] = h < heads ? load(h, d) : 0.0f;
  }
}

// Scores of eight heads against all rows: scores[i * 8].
void attention_scores(const float* rows, int64_t count, int64_t dim, const float* query_t, F8 scale, float* scores) {
  int64_t i = 0;
  F8 dots[kKeyTile];
  for (; i + kKeyTile <= count; i += kKeyTile) {
    dot_tile<kKeyTile>(rows + i * dim, dim, query_t, 8, dots);
    for (int64_t j = 0; j < kKeyTile; ++j) store8(scores + (i + j) * 8, mul8(dots[j], scale));
  }
  for (; i < count; ++i) {
    dot_tile<1>(rows + i * dim, dim, query_t, 8, dots);
    store8(scores + i * 8, mul8(dots[0], scale));
  }
}

// Turns the scores of eight heads into the weights of the sum, chunk by chunk; factors[c * 8] is what chunk c makes of
// the sums before it. Returns the denominators.
F8 softmax_weights(const AttentionArgs& args, const AttentionList& list, int64_t count, F8 sinks, float* scores,
                       float* factors) {
  F8 peak = set8(-INFINITY), total = zero8();
  for (int64_t begin = 0; begin < count; factors += 8) {
    const int64_t end = args.chunk_end(list, begin);
    const F8 old_peak = peak;
    for (int64_t i = begin; i < end; ++i) peak = max8(load8(scores + i * 8), peak);
    const F8 factor = exp8(sub8(old_peak, peak));
    store8(factors, factor);
    F8 chunk_total = zero8();
    for (; begin < end; begin += kSumBlock) {
      F8 partial = zero8();
      for (int64_t i = begin; i < std::min(begin + kSumBlock, end); ++i) {
        const F8 weight = exp8(sub8(load8(scores + i * 8), peak));
        store8(scores + i * 8, round_bf16(weight));
        partial = add8(partial, weight);
      }
      chunk_total = add8(chunk_total, partial);
    }
    begin = end;
    total = fma8(total, factor, chunk_total);
  }
  return add8(total, exp8(sub8(sinks, peak)));
}

// out[d] = bf(sum_i weights[i * 8] rows[i][d] / total) for 32 channels from d, chunk by chunk.
void weighted_sum32(const AttentionArgs& args, const AttentionList& list, const float* rows, int64_t count,
                    const float* weights, const float* factors, float total, Bf16* out) {
  const int64_t dim = args.head_dim;
  F8 sum[4] = {zero8(), zero8(), zero8(), zero8()};
  for (int64_t begin = 0; begin < count; factors += 8) {
    const int64_t end = args.chunk_end(list, begin);
    F8 chunk[4] = {zero8(), zero8(), zero8(), zero8()};
    for (; begin < end; begin += kSumBlock) {
      F8 partial[4] = {zero8(), zero8(), zero8(), zero8()};
      for (int64_t i = begin; i < std::min(begin + kSumBlock, end); ++i) {
        const F8 weight = set8(weights[i * 8]);
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) {
          partial[v] = fma8(weight, load8(rows + i * dim + 8 * v), partial[v]);
        }
      }
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) chunk[v] = add8(chunk[v], partial[v]);
    }
    begin = end;
    const F8 factor = set8(factors[0]);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) sum[v] = fma8(sum[v], factor, chunk[v]);
  }
  alignas(32) float values[32];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) store8(values + 8 * v, div8(sum[v], set8(total)));
  for (int d = 0; d < 32; ++d) out[d] = to_bf16(values[d]);
}

void attend(const AttentionArgs& args, int64_t token, int64_t first, int64_t num_heads, std::byte* scratch) {
  const int64_t dim = args.head_dim, last = first + num_heads;
  const AttentionList& list = args.lists[token];
  const int64_t count = list.num_window + list.num_compressed;
  const Bf16* query = args.query + token * args.num_heads * dim;
  Bf16* out = args.out + token * args.num_heads * dim;
  if (count == 0) {
    std::fill(out + first * dim, out + last * dim, Bf16{0});
    return;
  }
  auto* rows = reinterpret_cast<float*>(scratch);
  for (int32_t i = 0; i < list.num_window; ++i) unpack_window_row8(list.window[i], dim, rows + i * dim);
  for (int32_t i = 0; i < list.num_compressed; ++i) {
    unpack_compressed_row8(list.compressed[i], dim, rows + (list.num_window + i) * dim);
  }
  float* query_t = rows + count * dim;
  float* weights = query_t + 8 * dim;
  float* factors = weights + 8 * count;
  for (int64_t head = first; head < last; head += 8) {
    const int64_t heads = std::min<int64_t>(8, last - head);
    transpose_queries(heads, dim, 8, [&](int64_t h, int64_t d) { return to_float(query[(head + h) * dim + d]); },
                      query_t);
    alignas(32) float sinks[8] = {}, totals[8];
    std::copy_n(args.sinks + head, heads, sinks);
    attention_scores(rows, count, dim, query_t, set8(args.softmax_scale), weights);
    store8(totals, softmax_weights(args, list, count, load8(sinks), weights, factors));
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t d = 0; d < dim; d += 32) {
        weighted_sum32(args, list, rows + d, count, weights + h, factors + h, totals[h], out + (head + h) * dim + d);
      }
    }
  }
}

const std::byte* key_codes(const IndexKeys& keys, int64_t row, const std::byte** scales) {
  const std::byte* block = keys.blocks[row / keys.rows_per_block];
  const int64_t slot = row % keys.rows_per_block;
  *scales = block + keys.rows_per_block * index_code_bytes(keys.dim) + slot * index_scale_bytes(keys.dim);
  return block + slot * index_code_bytes(keys.dim);
}

// Scores of `count` <= 8 consecutive rows.
void score_rows(const IndexScoreArgs& args, int64_t first, int64_t count, const float* query_t, int64_t stride,
                float* key_rows, float* scores) {
  const int64_t dim = args.keys.dim;
  for (int64_t i = 0; i < count; ++i) {
    const std::byte* scales = nullptr;
    const std::byte* codes = key_codes(args.keys, first + i, &scales);
    unpack_index_row8(codes, scales, dim, key_rows + i * dim);
  }
  F8 sum = zero8();  // lane = key
  for (int64_t head = 0; head < args.num_heads; head += 8) {
    F8 dots[kKeyTile];
    dot_tile<kKeyTile>(key_rows, dim, query_t + head, stride, dots);
    transpose8(dots);  // now vector = head, lane = key
    for (int64_t h = 0; h < std::min<int64_t>(8, args.num_heads - head); ++h) {
      const F8 positive = max8(zero8(), dots[h]);
      sum = fma8(set8(args.head_weights[head + h]), positive, sum);
    }
  }
  alignas(32) float values[kKeyTile];
  store8(values, sum);
  std::copy_n(values, count, scores);
}

void index_scores(const IndexScoreArgs& args) {
  const int64_t dim = args.keys.dim, stride = (args.num_heads + 7) / 8 * 8;
  auto* query_t = reinterpret_cast<float*>(args.scratch);
  float* key_rows = query_t + dim * stride;
  transpose_queries(args.num_heads, dim, stride, [&](int64_t h, int64_t d) { return args.query[h * dim + d]; },
                    query_t);
  std::fill_n(key_rows, kKeyTile * dim, 0.0f);  // lanes beyond a short tile stay finite
  float* scores = args.scores;
  for (const RowRun& run : args.runs) {
    for (int64_t row = run.first; row < run.first + run.count; row += kKeyTile) {
      const int64_t count = std::min(kKeyTile, run.first + run.count - row);
      score_rows(args, row, count, query_t, stride, key_rows, scores);
      scores += count;
    }
  }
}
