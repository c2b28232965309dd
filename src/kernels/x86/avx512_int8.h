// Products of FP4 weights and INT8 activations (fast mode) in 512-bit registers, for both AVX-512 tables (private to the
// kernels room). To be included below avx512_linear.h's pieces that it uses; the includer has defined
//
//   dot_bytes(acc, w, x)             acc + four products of an unsigned and a signed byte, in each of sixteen lanes
//   Int8Decoder: void line(const std::byte*, __m512i (&bytes)[2])    12 + twice the value, low nibbles, then high ones
//
// Lanes are output rows; sums within a block are whole numbers, so their order does not matter.

constexpr int kBlockVectors = 8;  // of bytes, four columns each, in a block of 32 columns

inline __m512i broadcast_codes(const int8_t* codes) {
  int32_t four;
  __builtin_memcpy(&four, codes, sizeof(four));
  return _mm512_set1_epi32(four);
}

// total + sums w_scale x_scale.
inline __m512 add_block(__m512 total, __m512i sums, __m512 weight_scales, float scale) {
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), _mm512_mul_ps(weight_scales, _mm512_set1_ps(scale)), total);
}

// Few rows: weights are decoded in registers.
template <int kTokens, int kGroups>
void stream_int8(const LinearTask& task, int64_t group, int64_t first) {
  const MatrixView& w = task.weights;
  const Int8Decoder decoder;
  const std::byte* lines[kGroups];
  const Int8Block* x[kTokens];
  __m512 total[kGroups][kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) x[t] = task.x.int8_row(first + t);
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; ++g) {
    lines[g] = w.data + (group + g) * w.group_bytes();
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) total[g][t] = _mm512_setzero_ps();
  }
  for (int64_t block = 0; block < w.num_blocks(); ++block) {
    __m512i sums[kGroups][kTokens];
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) sums[g][t] = _mm512_set1_epi32(x[t][block].minus_12_sum);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kBlockVectors; i += 2) {
      __m512i bytes[kGroups][2];
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; ++g) {
        if constexpr (kFetchesAhead<2 * kTokens>) fetch_ahead(lines[g]);
        decoder.line(lines[g], bytes[g]);
        lines[g] += 64;
      }
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) {
          const __m512i codes = broadcast_codes(x[t][block].codes + 4 * (i + half));
#pragma GCC unroll 8
          for (int g = 0; g < kGroups; ++g) sums[g][t] = dot_bytes(sums[g][t], bytes[g][half], codes);
        }
      }
    }
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      const __m512 scales = block_scales<MatrixKind::kFp4>(w, group + g, block);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) total[g][t] = add_block(total[g][t], sums[g][t], scales, x[t][block].scale);
    }
  }
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; ++g) {
    const int64_t row = (group + g) * kRowGroup;
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) store_outputs(task.y, first + t, row, w.rows - row, total[g][t]);
  }
}

inline void stream_int8_chunk(const LinearTask& task, int64_t first_group, int64_t num_groups) {
  for_stream_tiles<4>(task.x.count, [&]<int kTokens>(int64_t t) {
    constexpr int kGroups = kStreamGroups<kTokens>;
    int64_t group = first_group;
    const int64_t end = first_group + num_groups;
    for (; group + kGroups <= end; group += kGroups) stream_int8<kTokens, kGroups>(task, group, t);
    for (; group < end; ++group) stream_int8<kTokens, 1>(task, group, t);
  });
}

// Many rows: weights are decoded into a panel of bytes, and scales of fp32, that stay in the first cache level.
constexpr int64_t kInt8PanelBlocks = 8;

struct Int8Panel {
  alignas(64) __m512i bytes[kChunkGroups][kInt8PanelBlocks][kBlockVectors];
  alignas(64) __m512 scales[kChunkGroups][kInt8PanelBlocks];
};

inline void decode_int8_panel(const MatrixView& w, int64_t group, int64_t num_groups, int64_t first, int64_t blocks,
                              Int8Panel& panel) {
  const Int8Decoder decoder;
  for (int64_t g = 0; g < num_groups; ++g) {
    const std::byte* line = w.data + (group + g) * w.group_bytes() + first * (kBlockVectors / 2) * 64;
    for (int64_t block = 0; block < blocks; ++block) {
      panel.scales[g][block] = block_scales<MatrixKind::kFp4>(w, group + g, first + block);
      for (int i = 0; i < kBlockVectors; i += 2, line += 64) {
        __m512i bytes[2];
        decoder.line(line, bytes);
        panel.bytes[g][block][i] = bytes[0];
        panel.bytes[g][block][i + 1] = bytes[1];
      }
    }
  }
}

// kTokens rows times two groups of the panel.
template <int kTokens>
void multiply_int8_tile(const Int8Panel& panel, int64_t first_group, int64_t first, int64_t blocks,
                        const Int8Block* const* rows, float (*sums)[kChunkGroups][kRowGroup]) {
  __m512 total[kTokens][2];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    total[t][0] = _mm512_load_ps(sums[t][first_group]);
    total[t][1] = _mm512_load_ps(sums[t][first_group + 1]);
  }
  for (int64_t block = 0; block < blocks; ++block) {
    const __m512i* w0 = panel.bytes[first_group][block];
    const __m512i* w1 = panel.bytes[first_group + 1][block];
    const Int8Block* x[kTokens];
    __m512i acc[kTokens][2];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      x[t] = rows[t] + first + block;
      acc[t][0] = acc[t][1] = _mm512_set1_epi32(x[t]->minus_12_sum);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kBlockVectors; ++i) {
      const __m512i v0 = _mm512_load_si512(w0 + i), v1 = _mm512_load_si512(w1 + i);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        const __m512i codes = broadcast_codes(x[t]->codes + 4 * i);
        acc[t][0] = dot_bytes(acc[t][0], v0, codes);
        acc[t][1] = dot_bytes(acc[t][1], v1, codes);
      }
    }
    const __m512 s0 = panel.scales[first_group][block], s1 = panel.scales[first_group + 1][block];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      total[t][0] = add_block(total[t][0], acc[t][0], s0, x[t]->scale);
      total[t][1] = add_block(total[t][1], acc[t][1], s1, x[t]->scale);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    _mm512_store_ps(sums[t][first_group], total[t][0]);
    _mm512_store_ps(sums[t][first_group + 1], total[t][1]);
  }
}

inline void panel_int8_chunk(const LinearTask& task, int64_t group, int64_t num_groups) {
  const MatrixView& w = task.weights;
  Int8Panel panel;
  alignas(64) float sums[kMaxRows][kChunkGroups][kRowGroup];
  const Int8Block* rows[kMaxRows];
  if (num_groups % 2 != 0) {
    std::memset(panel.bytes[num_groups], 0, sizeof(panel.bytes[0]));
    std::memset(panel.scales[num_groups], 0, sizeof(panel.scales[0]));
  }
  for (int64_t start = 0; start < task.x.count; start += kMaxRows) {
    const int64_t count = std::min(kMaxRows, task.x.count - start);
    for (int64_t i = 0; i < count; ++i) rows[i] = task.x.int8_row(start + i);
    std::memset(sums, 0, static_cast<size_t>(count) * sizeof(sums[0]));
    for (int64_t first = 0; first < w.num_blocks(); first += kInt8PanelBlocks) {
      const int64_t blocks = std::min(kInt8PanelBlocks, w.num_blocks() - first);
      decode_int8_panel(w, group, num_groups, first, blocks, panel);
      for (int64_t g = 0; g < num_groups; g += 2) {
        for_tiles(count, [&]<int kTokens>(int64_t t) {
          multiply_int8_tile<kTokens>(panel, g, first, blocks, rows + t, sums + t);
        });
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t g = 0; g < num_groups; ++g) {
        const int64_t row = (group + g) * kRowGroup;
        store_outputs(task.y, start + i, row, w.rows - row, _mm512_load_ps(sums[i][g]));
      }
    }
  }
}

inline void int8_chunk(const LinearTask& task, int64_t group, int64_t num_groups) {
  task.x.count <= kFewRows ? stream_int8_chunk(task, group, num_groups) : panel_int8_chunk(task, group, num_groups);
}
