// Products in 512-bit registers on fp32 multiply-adds: for processors without dot products of bf16 pairs, or with slow ones,
// and for numbers that those would flush (private to the kernels room). Included by avx512_linear.h.
//
// Activations are widened to fp32 ahead, so that a multiply-add takes its activation by a broadcast from memory. Of each block
// of 32 columns the sixteen even columns come first, then the odd ones: the halves of sixteen pairs.

constexpr int64_t kWideNumbers = 32768;  // activations of few rows: 128 KiB of stack
constexpr int64_t kWideFewRows = 16;     // up to here panels cost more than decoding twice
constexpr int64_t kWideColumns = 128;    // 4 groups x 128 columns of fp32 = 32 KiB
constexpr int64_t kWideTileRows = 5;     // 5 rows x 4 groups of sums in registers

constexpr int64_t wide_columns(int64_t columns) { return (columns + kSumBlock - 1) / kSumBlock * kSumBlock; }

// `columns` numbers of a row of activations, which go on to a whole pair; what is behind them in the last block is not read.
inline void widen_row(const Bf16* x, int64_t columns, float* out) {
  for (int64_t k = 0; k < columns; k += kSumBlock) {
    const int64_t pairs = std::min(kSumBlock, columns - k + 1) / 2;
    const auto mask = static_cast<__mmask16>((1u << pairs) - 1);
    const __m512i block = _mm512_maskz_loadu_epi32(mask, x + k);
    _mm512_storeu_ps(out + k, upper_number(block));
    _mm512_storeu_ps(out + k + 16, lower_number(block));
  }
}
// Place of column k of a widened row.
inline int64_t wide_place(int64_t k) { return k / kSumBlock * kSumBlock + k % 2 * 16 + k % kSumBlock / 2; }

// ---- few rows: weights are decoded in registers --------------------------------------------------------------------------

// Rows [first, first + kTokens) of the call, widened in x, times kGroups row groups.
template <MatrixKind kKind, int kTokens, int kGroups>
void wide_stream_groups(const LinearTask& task, int64_t group, int64_t first, const float* rows, int64_t stride) {
  const MatrixView& w = task.weights;
  const Decoder<kKind> decoder;
  const std::byte* lines[kGroups];
  const float* x[kTokens];
  __m512 total[kGroups][kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) x[t] = rows + t * stride;
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; ++g) {
    lines[g] = w.data + (group + g) * w.group_bytes();
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) total[g][t] = _mm512_setzero_ps();
  }
  const int64_t whole_blocks = w.cols / kSumBlock;
  for (int64_t block = 0; block < whole_blocks; ++block) {
    __m512 acc[kGroups][kTokens];
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) acc[g][t] = _mm512_setzero_ps();
    }
    for (int64_t i = 0; i < kBlockLines<kKind>; ++i) {
      typename Decoder<kKind>::Line line[kGroups];
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; ++g) {
        fetch_ahead(lines[g]);
        line[g] = decoder.load(lines[g]);
        lines[g] += 64;
      }
      for_pairs<kKind>([&]<int kPair>() {
        __m512 even[kGroups], odd[kGroups];
#pragma GCC unroll 8
        for (int g = 0; g < kGroups; ++g) {
          const __m512i pairs = decoder.template pair<kPair>(line[g]);
          even[g] = upper_number(pairs);
          odd[g] = lower_number(pairs);
        }
        const int64_t place = i * kLinePairs<kKind> + kPair;
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) {
          const __m512 x_even = _mm512_set1_ps(x[t][place]), x_odd = _mm512_set1_ps(x[t][place + 16]);
#pragma GCC unroll 8
          for (int g = 0; g < kGroups; ++g) {
            acc[g][t] = _mm512_fmadd_ps(odd[g], x_odd, _mm512_fmadd_ps(even[g], x_even, acc[g][t]));
          }
        }
      });
    }
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) x[t] += kSumBlock;
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      __m512 scales = _mm512_set1_ps(1.0f);
      if constexpr (kKind != MatrixKind::kBf16) scales = block_scales<kKind>(w, group + g, block);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        if constexpr (kKind != MatrixKind::kBf16) acc[g][t] = _mm512_mul_ps(acc[g][t], scales);
        total[g][t] = _mm512_add_ps(total[g][t], acc[g][t]);
      }
    }
  }
  if constexpr (kKind == MatrixKind::kBf16) {  // a last block of fewer columns, perhaps an odd number of them
    if (const int64_t rest = w.cols % kSumBlock; rest != 0) {
      for (int g = 0; g < kGroups; ++g) {
        for (int t = 0; t < kTokens; ++t) {
          __m512 acc = _mm512_setzero_ps();
          for (int64_t k = 0; k < rest; ++k) {
            const __m512i pairs = load512(lines[g] + k / 2 * 64);
            acc = _mm512_fmadd_ps(k % 2 == 0 ? upper_number(pairs) : lower_number(pairs), _mm512_set1_ps(x[t][wide_place(k)]), acc);
          }
          total[g][t] = _mm512_add_ps(total[g][t], acc);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; ++g) {
    const int64_t row = (group + g) * kRowGroup;
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) store_outputs(task.y, first + t, row, w.rows - row, total[g][t]);
  }
}

// Row groups [first_group, end) for all rows, as many rows at a time as have room.
template <MatrixKind kKind>
void wide_stream(const LinearTask& task, int64_t first_group, int64_t end) {
  const int64_t stride = wide_columns(task.weights.cols), most = std::clamp<int64_t>(kWideNumbers / stride, 1, 8);
  alignas(64) float rows[kWideNumbers];
  for (int64_t start = 0; start < task.x.count; start += most) {
    const int64_t count = std::min(most, task.x.count - start);
    for (int64_t t = 0; t < count; ++t) widen_row(task.x.row(start + t), task.weights.cols, rows + t * stride);
    for_stream_tiles<8>(count, [&]<int kTokens>(int64_t t) {
      constexpr int kGroups = kStreamGroups<kTokens>;
      int64_t group = first_group;
      for (; group + kGroups <= end; group += kGroups) {
        wide_stream_groups<kKind, kTokens, kGroups>(task, group, start + t, rows + t * stride, stride);
      }
      for (; group < end; ++group) wide_stream_groups<kKind, kTokens, 1>(task, group, start + t, rows + t * stride, stride);
    });
  }
}

// ---- many rows: weights are decoded into a panel -------------------------------------------------------------------------

struct WidePanel {
  alignas(64) float values[kChunkGroups][kWideColumns][kRowGroup];
  bool scaled = false;  // as in Panel
};

template <MatrixKind kKind>
void decode_wide_panel(const MatrixView& w, int64_t group, int64_t num_groups, int64_t first, int64_t columns, bool ordinary,
                       WidePanel& panel) {
  const Decoder<kKind> decoder;
  const int64_t first_block = first / kSumBlock, blocks = static_cast<int64_t>(ceil_div(columns, kSumBlock));
  panel.scaled = ordinary && scales_are_moderate<kKind>(w, group, num_groups, first_block, blocks);
  for (int64_t g = 0; g < num_groups; ++g) {
    const std::byte* line = w.data + (group + g) * w.group_bytes() + first / kLineColumns<kKind> * 64;
    float* out = panel.values[g][0];
    for (int64_t block = 0; block < blocks; ++block) {
      __m512 scales = _mm512_set1_ps(1.0f);
      if constexpr (kKind != MatrixKind::kBf16) {
        if (panel.scaled) scales = block_scales<kKind>(w, group + g, first_block + block);
      }
      const int64_t lines = std::min(kBlockLines<kKind>, (columns - block * kSumBlock + kLineColumns<kKind> - 1) / kLineColumns<kKind>);
      for (int64_t i = 0; i < lines; ++i, line += 64, out += kLineColumns<kKind> * kRowGroup) {
        const auto codes = decoder.load(line);
        for_pairs<kKind>([&]<int kPair>() {
          const __m512i pairs = decoder.template pair<kPair>(codes);
          __m512 even = upper_number(pairs), odd = lower_number(pairs);
          if constexpr (kKind != MatrixKind::kBf16) even = _mm512_mul_ps(even, scales), odd = _mm512_mul_ps(odd, scales);
          _mm512_store_ps(out + 2 * kPair * kRowGroup, even);
          _mm512_store_ps(out + (2 * kPair + 1) * kRowGroup, odd);
        });
      }
    }
  }
}

// kTokens rows times kGroups groups of the panel; the sums go on from block to block.
template <MatrixKind kKind, int kTokens, int kGroups>
void wide_tile(const MatrixView& w, const WidePanel& panel, int64_t group, int64_t num_groups, int64_t first, int64_t columns,
               const float (*x)[kWideColumns], float (*sums)[kChunkGroups][kRowGroup]) {
  for (int64_t begin = 0; begin < columns; begin += kSumBlock) {
    __m512 acc[kTokens][kGroups];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) acc[t][g] = _mm512_setzero_ps();
    }
    const auto add_column = [&](int64_t k, int64_t place) __attribute__((always_inline)) {
      __m512 v[kGroups];
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) v[g] = _mm512_load_ps(panel.values[g][begin + k]);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        const __m512 value = _mm512_set1_ps(x[t][begin + place]);
#pragma GCC unroll 4
        for (int g = 0; g < kGroups; ++g) acc[t][g] = _mm512_fmadd_ps(v[g], value, acc[t][g]);
      }
    };
    const int64_t length = std::min(kSumBlock, columns - begin);
    if (length == kSumBlock) {
#pragma GCC unroll 4
      for (int64_t p = 0; p < kSumBlock / 2; ++p) {
        add_column(2 * p, p);
        add_column(2 * p + 1, 16 + p);
      }
    } else {  // a last block of fewer columns, perhaps an odd number of them
      for (int64_t k = 0; k < length; ++k) add_column(k, wide_place(k));
    }
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      __m512 scales = _mm512_set1_ps(1.0f);
      if constexpr (kKind != MatrixKind::kBf16) {
        if (!panel.scaled && g < num_groups) scales = block_scales<kKind>(w, group + g, (first + begin) / kSumBlock);
      }
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        if constexpr (kKind != MatrixKind::kBf16) acc[t][g] = _mm512_mul_ps(acc[t][g], scales);
        _mm512_store_ps(sums[t][g], _mm512_add_ps(_mm512_load_ps(sums[t][g]), acc[t][g]));
      }
    }
  }
}

// All rows times kGroups groups of the panel.
template <MatrixKind kKind, int kGroups>
void wide_tiles(const MatrixView& w, const WidePanel& panel, int64_t group, int64_t num_groups, int64_t first, int64_t columns,
                const float (*x)[kWideColumns], int64_t count, float (*sums)[kChunkGroups][kRowGroup]) {
  for (int64_t t = 0; t < count;) {
    const auto run = [&]<int kTokens>() {
      wide_tile<kKind, kTokens, kGroups>(w, panel, group, num_groups, first, columns, x + t, sums + t);
      t += kTokens;
    };
    const int64_t rest = count - t;  // tiles of three to five: one of one or two rows would wait for its sums
    if (rest == 1) run.template operator()<1>();
    else if (rest == 2) run.template operator()<2>();
    else if (rest == 3 || rest == 6) run.template operator()<3>();
    else if (rest == 4 || rest == 7 || rest == 8) run.template operator()<4>();
    else run.template operator()<kWideTileRows>();
  }
}

template <MatrixKind kKind>
void wide_panel_chunk(const LinearTask& task, int64_t group, int64_t num_groups, bool ordinary) {
  const MatrixView& w = task.weights;
  WidePanel panel;
  alignas(64) float sums[kMaxRows][kChunkGroups][kRowGroup];
  alignas(64) float x[kMaxRows][kWideColumns];
  for (int64_t g = num_groups; g < kChunkGroups; ++g) std::memset(panel.values[g], 0, sizeof(panel.values[g]));
  for (int64_t start = 0; start < task.x.count; start += kMaxRows) {
    const int64_t count = std::min(kMaxRows, task.x.count - start);
    std::memset(sums, 0, static_cast<size_t>(count) * sizeof(sums[0]));
    for (int64_t first = 0; first < w.cols; first += kWideColumns) {
      const int64_t columns = std::min(kWideColumns, w.cols - first);
      decode_wide_panel<kKind>(w, group, num_groups, first, columns, ordinary, panel);
      for (int64_t i = 0; i < count; ++i) widen_row(task.x.row(start + i) + first, columns, x[i]);
      wide_tiles<kKind, kChunkGroups>(w, panel, group, num_groups, first, columns, x, count, sums);
    }
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t g = 0; g < num_groups; ++g) {
        const int64_t row = (group + g) * kRowGroup;
        store_outputs(task.y, start + i, row, w.rows - row, _mm512_load_ps(sums[i][g]));
      }
    }
  }
}

// The same of a panel of bf16 pairs: columns [first, first + columns) of at most kMaxRows rows.
inline void multiply_wide(const Panel& pairs, int64_t groups, int64_t first, int64_t columns, const Bf16* const* rows,
                          int64_t count, float (*sums)[kChunkGroups][kRowGroup]) {
  WidePanel panel;
  alignas(64) float x[kMaxRows][kWideColumns];
  for (int64_t g = groups; g < kChunkGroups; ++g) std::memset(panel.values[g], 0, sizeof(panel.values[g]));
  for (int64_t begin = 0; begin < columns; begin += kWideColumns) {
    const int64_t part = std::min(kWideColumns, columns - begin);
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t k = 0; k < part; k += 2) {
        const __m512i pair = pairs.pairs[g][(begin + k) / 2];
        _mm512_store_ps(panel.values[g][k], upper_number(pair));
        _mm512_store_ps(panel.values[g][k + 1], lower_number(pair));
      }
    }
    for (int64_t i = 0; i < count; ++i) widen_row(rows[i] + first + begin, part, x[i]);
    groups <= 2 ? wide_tiles<MatrixKind::kBf16, 2>({}, panel, 0, groups, 0, part, x, count, sums)
                : wide_tiles<MatrixKind::kBf16, kChunkGroups>({}, panel, 0, groups, 0, part, x, count, sums);
  }
}
