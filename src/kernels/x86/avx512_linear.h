// Products in 512-bit registers, for the AVX-512 tables (private to the kernels room). To be included inside
// the namespace of a table, below its target pragma and after all standard headers; the includer has defined
//
//   kNativeDot                       there is an instruction for dot products of bf16 pairs
//   native_dot(acc, w, x)            that instruction: the upper number of each pair first, then the lower;
//                                    deleted where there is none
//   Fp8Decoder                       see Decoder
//   dot_bytes, Int8Decoder           see avx512_int8.h
//
// Lanes are output rows, never terms of one sum, so the bits are those of kernels/ref. Weights become vectors
// of bf16 pairs (lane = row, pair = two columns) in registers for up to 64 rows of activations, and in a
// panel that stays in the first cache level for more.
//
// The dot instruction takes denormal operands and results for zero, which numbers like these never meet:
//   weights E2M1 or E4M3, times a scale within 2^+-32;  weights in bf16, and activations, 0 or 2^-40 .. 2^60
//   in magnitude
// Chunks with other numbers run on fp32 multiply-adds (avx512_wide.h), with the same bits, and so does everything in
// tables without the instruction.

// ---- vectors of pairs --------------------------------------------------------------------------------------------------

inline __m512i load512(const void* address) { return _mm512_loadu_si512(address); }

// The same two columns of one row of activations in every lane.
inline __m512i broadcast_pair(const Bf16* x) {
  int32_t pair;
  __builtin_memcpy(&pair, x, sizeof(pair));
  return _mm512_set1_epi32(pair);
}

inline __m512 upper_number(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}
inline __m512 lower_number(__m512i pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }

// Columns of a line of 64 bytes (kernels/matrix.h), and the pairs they become.
template <MatrixKind kKind>
inline constexpr int64_t kLineColumns = kKind == MatrixKind::kFp8 ? 4 : kKind == MatrixKind::kFp4 ? 8 : 2;
template <MatrixKind kKind>
inline constexpr int kLinePairs = static_cast<int>(kLineColumns<kKind> / 2);
template <MatrixKind kKind>
inline constexpr int64_t kBlockLines = kSumBlock / kLineColumns<kKind>;

// load() takes a line of 64 bytes, pair<p>() makes the vector of columns 2 p and 2 p + 1 of it.
template <MatrixKind kKind>
struct Decoder;

template <>
struct Decoder<MatrixKind::kFp8> : Fp8Decoder {
  Decoder() : Fp8Decoder() {}  // written out, so that it has the target of the others
};

template <>
struct Decoder<MatrixKind::kFp4> {
  // bf16 of the sixteen E2M1 codes, twice: the look-up takes five bits and the fifth is a neighbour's.
  alignas(64) static constexpr uint16_t kValues[32] = {
      0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0,
      0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0};
  __m512i table;
  Decoder() : table(load512(kValues)) {}

  using Line = __m512i;
  inline Line load(const std::byte* bytes) const { return load512(bytes); }
  template <int kPair>
  inline __m512i pair(Line codes) const {
    return _mm512_permutexvar_epi16(kPair == 0 ? codes : _mm512_srli_epi16(codes, 4 * kPair), table);
  }
};

template <>
struct Decoder<MatrixKind::kBf16> {
  Decoder() {}
  using Line = __m512i;
  inline Line load(const std::byte* bytes) const { return load512(bytes); }
  template <int kPair>
  inline __m512i pair(Line numbers) const {
    return numbers;
  }
};

// Calls step<p>() for the pairs of a line, ascending.
template <MatrixKind kKind, typename Step>
inline void for_pairs(const Step& step) {
  step.template operator()<0>();
  if constexpr (kLinePairs<kKind> > 1) step.template operator()<1>();
  if constexpr (kLinePairs<kKind> > 2) {
    step.template operator()<2>();
    step.template operator()<3>();
  }
}

// Scales of the 16 rows of a group for one block, fp32. Requires a kind with scales.
template <MatrixKind kKind>
inline __m512 block_scales(const MatrixView& w, int64_t group, int64_t block) {
  __m512i bytes;
  if constexpr (kKind == MatrixKind::kFp8) {
    bytes = _mm512_set1_epi32(w.scales[group / 2 * w.num_blocks() + block]);
  } else {
    const uint8_t* scales = w.scales + (group * w.num_blocks() + block) * kRowGroup;
    bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
  }
  // 2^(b - 127); b = 0 is the subnormal 2^-127, b = 255 is NaN.
  __m512i bits = _mm512_max_epu32(_mm512_slli_epi32(bytes, 23), _mm512_set1_epi32(0x00400000));
  const __mmask16 is_nan = _mm512_cmpeq_epi32_mask(bytes, _mm512_set1_epi32(255));
  bits = _mm512_mask_mov_epi32(bits, is_nan, _mm512_set1_epi32(0x7fc00000));
  return _mm512_castsi512_ps(bits);
}

// ---- results -----------------------------------------------------------------------------------------------------------

// bf(x) of sixteen numbers; NaN stays NaN.
inline __m256i narrow(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  rounded = _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

// Sixteen outputs of row i of the call from output `row` on; `lanes` of them exist.
inline void store_outputs(const OutputRows& y, int64_t i, int64_t row, int64_t lanes, __m512 values) {
  const auto mask = static_cast<__mmask16>(lanes >= kRowGroup ? 0xffff : (1u << lanes) - 1);
  if (y.f32 != nullptr) {
    _mm512_mask_storeu_ps(y.f32 + i * y.stride + row, mask, values);
  } else {
    _mm256_mask_storeu_epi16(y.bf16 + i * y.stride + row, mask, narrow(values));
  }
}

// ---- few rows: weights are decoded in registers --------------------------------------------------------------------------

// Where a line takes longer to multiply than to come, the processor's own prefetching loses its way at the ends of pages; where
// memory is the limit a hint only costs (one row of FP4, single thread of Zen 4: 275 us with, 252 without; four: 482, 560).
constexpr int kFetchDistance = 2048;  // bytes
template <int kDotsPerLine>
inline constexpr bool kFetchesAhead = kDotsPerLine >= 5;
inline void fetch_ahead(const std::byte* line) {
  _mm_prefetch(reinterpret_cast<const char*>(line + kFetchDistance), _MM_HINT_T0);
}

// Rows [first, first + kTokens) of the call times kGroups row groups: kGroups streams from memory, one load of an
// activation for all of them.
template <MatrixKind kKind, int kTokens, int kGroups>
void stream_groups(const LinearTask& task, int64_t group, int64_t first) {
  const MatrixView& w = task.weights;
  const Decoder<kKind> decoder;
  const std::byte* lines[kGroups];
  const Bf16* x[kTokens];
  __m512 total[kGroups][kTokens];
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; ++g) lines[g] = w.data + (group + g) * w.group_bytes();
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) x[t] = task.x.row(first + t);
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; ++g) {
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
#pragma GCC unroll 2
    for (int64_t i = 0; i < kBlockLines<kKind>; ++i) {
      typename Decoder<kKind>::Line line[kGroups];
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; ++g) {
        if constexpr (kFetchesAhead<kLinePairs<kKind> * kTokens>) fetch_ahead(lines[g]);
        line[g] = decoder.load(lines[g]);
        lines[g] += 64;
      }
      for_pairs<kKind>([&]<int kPair>() {
        __m512i pairs[kGroups];
#pragma GCC unroll 8
        for (int g = 0; g < kGroups; ++g) pairs[g] = decoder.template pair<kPair>(line[g]);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) {
          const __m512i value = broadcast_pair(x[t] + 2 * kPair);
#pragma GCC unroll 8
          for (int g = 0; g < kGroups; ++g) acc[g][t] = native_dot(acc[g][t], pairs[g], value);
        }
      });
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) x[t] += kLineColumns<kKind>;
    }
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      if constexpr (kKind == MatrixKind::kBf16) {
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) total[g][t] = _mm512_add_ps(total[g][t], acc[g][t]);
      } else {
        const __m512 scales = block_scales<kKind>(w, group + g, block);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) total[g][t] = _mm512_add_ps(total[g][t], _mm512_mul_ps(acc[g][t], scales));
      }
    }
  }
  if constexpr (kKind == MatrixKind::kBf16) {  // a last block of fewer columns, perhaps an odd number of them
    if (const int64_t rest = w.cols % kSumBlock; rest != 0) {
      for (int g = 0; g < kGroups; ++g) {
        for (int t = 0; t < kTokens; ++t) {
          __m512 acc = _mm512_setzero_ps();
          for (int64_t k = 0; k < rest; k += 2) {
            const __m512i pairs = load512(lines[g] + k / 2 * 64), value = broadcast_pair(x[t] + k);
            acc = _mm512_fmadd_ps(upper_number(pairs), upper_number(value), acc);
            if (k + 1 < rest) acc = _mm512_fmadd_ps(lower_number(pairs), lower_number(value), acc);
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

// Calls run<rows>(first row) for tiles of `count` rows that share one decoding of a weight: up to kMost, as even as may be.
template <int64_t kMost, typename Run>
inline void for_stream_tiles(int64_t count, const Run& run) {
  for (int64_t t = 0; t < count;) {
    const int64_t parts = (count - t + kMost - 1) / kMost, rows = (count - t + parts - 1) / parts;
    switch (rows) {
      case 1: run.template operator()<1>(t); break;
      case 2: run.template operator()<2>(t); break;
      case 3: run.template operator()<3>(t); break;
      case 4: run.template operator()<4>(t); break;
      case 5: run.template operator()<5>(t); break;
      case 6: run.template operator()<6>(t); break;
      case 7: run.template operator()<7>(t); break;
      default: run.template operator()<8>(t); break;
    }
    t += rows;
  }
}

// Groups that a tile takes at once: a sum waits for its last addition, so about eight of them have to be in flight, and no
// more have room in the registers.
template <int kTokens>
inline constexpr int kStreamGroups = kTokens <= 2 ? 4 : kTokens <= 6 ? 2 : 1;

template <MatrixKind kKind>
void stream_chunk(const LinearTask& task, int64_t first_group, int64_t num_groups) {
  for_stream_tiles<8>(task.x.count, [&]<int kTokens>(int64_t t) {
    constexpr int kGroups = kStreamGroups<kTokens>;
    int64_t group = first_group;
    const int64_t end = first_group + num_groups;
    for (; group + kGroups <= end; group += kGroups) stream_groups<kKind, kTokens, kGroups>(task, group, t);
    for (; group < end; ++group) stream_groups<kKind, kTokens, 1>(task, group, t);
  });
}

// ---- many rows: weights are decoded into a panel -------------------------------------------------------------------------

constexpr int64_t kPanelColumns = 256;  // 4 groups x 256 columns of bf16 = 32 KiB
constexpr int64_t kTileRows = 6;        // 6 rows x 2 groups of sums in registers
constexpr int64_t kMaxRows = 256;       // rows of activations that share a panel; bounds the stack
constexpr int64_t kFewRows = 64;        // up to here decoding for eight rows at a time costs no more than a panel

struct Panel {
  alignas(64) __m512i pairs[kChunkGroups][kPanelColumns / 2];
  bool scaled = false;  // the scales are in the numbers, because they and the activations are far from the ends of fp32
};

// Pairs of bf16 numbers times 2^(scale - 127): zeros and NaN stay.
inline __m512i multiply_pairs(__m512i pairs, __m512i scale_step) {
  const __m512i magnitude = _mm512_and_si512(pairs, _mm512_set1_epi32(0x7fff7fff));
  const __mmask32 finite = _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(0x7f80));
  const __mmask32 changes = _mm512_mask_test_epi16_mask(finite, magnitude, magnitude);
  return _mm512_mask_add_epi16(pairs, changes, pairs, scale_step);
}

template <MatrixKind kKind>
bool scales_are_moderate(const MatrixView& w, int64_t group, int64_t num_groups, int64_t first_block, int64_t blocks) {
  if constexpr (kKind == MatrixKind::kBf16) return true;
  uint8_t low = 255, high = 0;
  const int64_t width = kKind == MatrixKind::kFp4 ? kRowGroup : 1;
  for (int64_t g = group; g < group + num_groups; ++g) {
    const int64_t row = kKind == MatrixKind::kFp4 ? g : g / 2;
    const uint8_t* scales = w.scales + (row * w.num_blocks() + first_block) * width;
    for (int64_t i = 0; i < blocks * width; ++i) {
      low = std::min(low, scales[i]);
      high = std::max(high, scales[i]);
    }
  }
  return low >= 127 - 32 && high <= 127 + 32;
}

template <MatrixKind kKind>
void decode_panel(const MatrixView& w, int64_t group, int64_t num_groups, int64_t first, int64_t columns, Panel& panel) {
  const Decoder<kKind> decoder;
  const int64_t first_block = first / kSumBlock, blocks = static_cast<int64_t>(ceil_div(columns, kSumBlock));
  panel.scaled = scales_are_moderate<kKind>(w, group, num_groups, first_block, blocks);
  for (int64_t g = 0; g < num_groups; ++g) {
    const std::byte* line = w.data + (group + g) * w.group_bytes() + first / kLineColumns<kKind> * 64;
    __m512i* out = panel.pairs[g];
    for (int64_t block = 0; block < blocks; ++block) {
      __m512i step = _mm512_setzero_si512();
      if constexpr (kKind != MatrixKind::kBf16) {
        if (panel.scaled) {  // of fp32 exponents, moved to both bf16 exponents of the lane
          const __m512i bits = _mm512_castps_si512(block_scales<kKind>(w, group + g, first_block + block));
          const __m512i upper = _mm512_slli_epi32(_mm512_sub_epi32(_mm512_srli_epi32(bits, 23), _mm512_set1_epi32(127)), 23);
          step = _mm512_or_si512(upper, _mm512_srli_epi32(upper, 16));
        }
      }
      const int64_t lines = std::min(kBlockLines<kKind>, (columns - block * kSumBlock + kLineColumns<kKind> - 1) / kLineColumns<kKind>);
      for (int64_t i = 0; i < lines; ++i, line += 64, out += kLinePairs<kKind>) {
        const auto codes = decoder.load(line);
        for_pairs<kKind>([&]<int kPair>() {
          const __m512i pairs = decoder.template pair<kPair>(codes);
          out[kPair] = kKind == MatrixKind::kBf16 ? pairs : multiply_pairs(pairs, step);
        });
      }
    }
  }
}

// kTokens rows times two groups of the panel: sums [row][kChunkGroups][16] go on from block to block.
template <MatrixKind kKind, bool kScaled, int kTokens>
void multiply_tile(const MatrixView& w, const Panel& panel, int64_t group, int64_t first_group, int64_t first,
                   int64_t columns, const Bf16* const* rows, float (*sums)[kChunkGroups][kRowGroup]) {
  const __m512i* w0 = panel.pairs[first_group];
  const __m512i* w1 = panel.pairs[first_group + 1];
  const Bf16* x[kTokens];
  __m512 total[kTokens][2];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    x[t] = rows[t] + first;
    total[t][0] = _mm512_load_ps(sums[t][first_group]);
    total[t][1] = _mm512_load_ps(sums[t][first_group + 1]);
  }
  // Adds a block's sums to the totals.
  const auto finish = [&](int64_t begin, __m512(&acc)[kTokens][2]) {
    __m512 s0 = _mm512_setzero_ps(), s1 = s0;
    if constexpr (!kScaled) {
      s0 = block_scales<kKind>(w, group + first_group, (first + begin) / kSumBlock);
      if (group + first_group + 1 < w.num_groups()) {
        s1 = block_scales<kKind>(w, group + first_group + 1, (first + begin) / kSumBlock);
      }
    }
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      if constexpr (!kScaled) {
        acc[t][0] = _mm512_mul_ps(acc[t][0], s0);
        acc[t][1] = _mm512_mul_ps(acc[t][1], s1);
      }
      total[t][0] = _mm512_add_ps(total[t][0], acc[t][0]);
      total[t][1] = _mm512_add_ps(total[t][1], acc[t][1]);
    }
  };
  int64_t begin = 0;
  for (; begin + kSumBlock <= columns; begin += kSumBlock) {
    __m512 acc[kTokens][2];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) acc[t][0] = acc[t][1] = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int p = 0; p < kSumBlock / 2; ++p) {
      const __m512i v0 = _mm512_load_si512(w0 + p), v1 = _mm512_load_si512(w1 + p);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        const __m512i value = broadcast_pair(x[t] + 2 * p);
        acc[t][0] = native_dot(acc[t][0], v0, value);
        acc[t][1] = native_dot(acc[t][1], v1, value);
      }
    }
    finish(begin, acc);
    w0 += kSumBlock / 2;
    w1 += kSumBlock / 2;
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) x[t] += kSumBlock;
  }
  if constexpr (kKind == MatrixKind::kBf16) {  // a last block of fewer columns, perhaps an odd number of them
    if (begin < columns) {
      __m512 acc[kTokens][2];
      for (int t = 0; t < kTokens; ++t) {
        acc[t][0] = acc[t][1] = _mm512_setzero_ps();
        for (int64_t k = 0; k < columns - begin; k += 2) {
          const __m512i value = broadcast_pair(x[t] + k);
          for (int g = 0; g < 2; ++g) {
            const __m512i pairs = g == 0 ? w0[k / 2] : w1[k / 2];
            acc[t][g] = _mm512_fmadd_ps(upper_number(pairs), upper_number(value), acc[t][g]);
            if (k + 1 < columns - begin) acc[t][g] = _mm512_fmadd_ps(lower_number(pairs), lower_number(value), acc[t][g]);
          }
        }
      }
      finish(begin, acc);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    _mm512_store_ps(sums[t][first_group], total[t][0]);
    _mm512_store_ps(sums[t][first_group + 1], total[t][1]);
  }
}

// Rows of the next tile: six, or what leaves no tile of one or two rows behind, which would wait for their
// own sums.
inline int64_t tile_rows(int64_t rest) {
  if (rest == kTileRows || rest >= kTileRows + 3) return kTileRows;
  return rest <= 4 ? rest : rest == 5 ? 3 : 4;
}

// Calls multiply<rows of the tile>(its first row) for the tiles of `count` rows.
template <typename Multiply>
inline void for_tiles(int64_t count, const Multiply& multiply) {
  for (int64_t t = 0; t < count;) {
    const int64_t tile = tile_rows(count - t);
    switch (tile) {
      case 1:
        multiply.template operator()<1>(t);
        break;
      case 2:
        multiply.template operator()<2>(t);
        break;
      case 3:
        multiply.template operator()<3>(t);
        break;
      case 4:
        multiply.template operator()<4>(t);
        break;
      default:
        multiply.template operator()<kTileRows>(t);
        break;
    }
    t += tile;
  }
}

// Two groups of the panel at a time stay in the first cache level while the rows pass by.
template <MatrixKind kKind, bool kScaled>
void multiply_panel(const MatrixView& w, const Panel& panel, int64_t group, int64_t num_groups, int64_t first,
                    int64_t columns, const Bf16* const* rows, int64_t count, float (*sums)[kChunkGroups][kRowGroup]) {
  for (int64_t g = 0; g < num_groups; g += 2) {
    for_tiles(count, [&]<int kTokens>(int64_t t) {
      multiply_tile<kKind, kScaled, kTokens>(w, panel, group, g, first, columns, rows + t, sums + t);
    });
  }
}

template <MatrixKind kKind>
void panel_chunk(const LinearTask& task, int64_t group, int64_t num_groups) {
  const MatrixView& w = task.weights;
  Panel panel;
  alignas(64) float sums[kMaxRows][kChunkGroups][kRowGroup];
  const Bf16* rows[kMaxRows];
  if (num_groups % 2 != 0) std::memset(panel.pairs[num_groups], 0, sizeof(panel.pairs[0]));
  for (int64_t start = 0; start < task.x.count; start += kMaxRows) {
    const int64_t count = std::min(kMaxRows, task.x.count - start);
    for (int64_t i = 0; i < count; ++i) rows[i] = task.x.row(start + i);
    std::memset(sums, 0, static_cast<size_t>(count) * sizeof(sums[0]));
    for (int64_t first = 0; first < w.cols; first += kPanelColumns) {
      const int64_t columns = std::min(kPanelColumns, w.cols - first);
      decode_panel<kKind>(w, group, num_groups, first, columns, panel);
      if constexpr (kKind != MatrixKind::kBf16) {
        if (!panel.scaled) {
          multiply_panel<kKind, false>(w, panel, group, num_groups, first, columns, rows, count, sums);
          continue;
        }
      }
      multiply_panel<kKind, true>(w, panel, group, num_groups, first, columns, rows, count, sums);
    }
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t g = 0; g < num_groups; ++g) {
        const int64_t row = (group + g) * kRowGroup;
        store_outputs(task.y, start + i, row, w.rows - row, _mm512_load_ps(sums[i][g]));
      }
    }
  }
}

#include "kernels/x86/avx512_int8.h"
#include "kernels/x86/avx512_wide.h"

// ---- one product ------------------------------------------------------------------------------------------------------------

// All numbers are 0 or 2^-40 .. 2^60 in magnitude.
bool is_ordinary(const ActivationRows& x, int64_t cols) {
  constexpr uint16_t kLeast = (127 - 40) << 7, kMost = (127 + 60) << 7;
  const __m512i least = _mm512_set1_epi16(kLeast), range = _mm512_set1_epi16(kMost - kLeast);
  __mmask32 strange = 0;
  for (int64_t i = 0; i < x.count; ++i) {
    const Bf16* row = x.row(i);
    for (int64_t k = 0; k < cols; k += 32) {
      const int64_t rest = (cols + 1) / 2 * 2 - k;  // whole pairs
      const auto mask = static_cast<__mmask32>(rest >= 32 ? ~0u : (1u << rest) - 1);
      const __m512i magnitude =
          _mm512_and_si512(_mm512_maskz_loadu_epi16(mask, row + k), _mm512_set1_epi16(0x7fff));
      const __mmask32 outside = _mm512_cmpgt_epu16_mask(_mm512_sub_epi16(magnitude, least), range);
      strange |= _mm512_mask_test_epi16_mask(outside, magnitude, magnitude);
    }
  }
  return strange == 0;
}

// Whether the dot product instruction may take the chunk's weights.
template <MatrixKind kKind>
bool weights_are_ordinary(const MatrixView& w, int64_t group, int64_t num_groups) {
  if constexpr (kKind != MatrixKind::kBf16) return true;
  const uint8_t* strange = w.scales + group;
  return std::all_of(strange, strange + num_groups, [](uint8_t flag) { return flag == 0; });
}

// Row groups [first, end) on fp32 multiply-adds.
template <MatrixKind kKind>
void run_wide(const LinearTask& task, int64_t first, int64_t end, bool ordinary) {
  if (task.x.count <= kWideFewRows && task.weights.cols <= kWideNumbers) return wide_stream<kKind>(task, first, end);
  for (int64_t group = first; group < end; group += kChunkGroups) {
    wide_panel_chunk<kKind>(task, group, std::min(kChunkGroups, end - group), ordinary);
  }
}

// Row groups [first, end) of a task, chunk by chunk; the activations are looked through once.
template <MatrixKind kKind>
void run_groups_of(const LinearTask& task, int64_t first, int64_t end) {
  const bool ordinary = is_ordinary(task.x, task.weights.cols);
  if constexpr (kNativeDot) {
    for (int64_t group = first; group < end; group += kChunkGroups) {
      const int64_t num_groups = std::min(kChunkGroups, end - group);
      if (!ordinary || !weights_are_ordinary<kKind>(task.weights, group, num_groups)) {
        run_wide<kKind>(task, group, group + num_groups, ordinary);
      } else if (task.x.count <= kFewRows) {
        stream_chunk<kKind>(task, group, num_groups);
      } else {
        panel_chunk<kKind>(task, group, num_groups);
      }
    }
  } else {
    run_wide<kKind>(task, first, end, ordinary);
  }
}

void linear_groups(const LinearTask& task, int64_t first, int64_t end) {
  switch (task.weights.kind) {
    case MatrixKind::kFp8: return run_groups_of<MatrixKind::kFp8>(task, first, end);
    case MatrixKind::kFp4:
      if (task.x.int8 == nullptr) return run_groups_of<MatrixKind::kFp4>(task, first, end);
      for (int64_t group = first; group < end; group += kChunkGroups) {
        int8_chunk(task, group, std::min(kChunkGroups, end - group));
      }
      return;
    case MatrixKind::kBf16:
    case MatrixKind::kF32:
      return run_groups_of<MatrixKind::kBf16>(task, first, end);
  }
}
