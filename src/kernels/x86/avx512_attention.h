// Sparse attention and index scores in 512-bit registers, for both AVX-512 tables (private to the kernels room). To be
// included below avx512_linear.h. Each of the sums is a product of small matrices of bf16 numbers and runs on its panels:
//
//   scores         lanes = heads, columns = channels, one row of activations a key
//   weighted sums  lanes = channels, columns = keys of a chunk, one row of activations a head
//
// so the bits are those of kernels/ref. Numbers that the dot instruction would flush send the part to fp32 multiply-adds.

constexpr int64_t kHeadTile = kChunkGroups * kRowGroup;  // heads of a task

inline __m512 exp16(__m512 x) {  // exp_f32 of sixteen values, the same operations in the same order
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(kLog2e)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-kLn2High), x);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(-kLn2Low), r);
  __m512 p = _mm512_set1_ps(kExpPolynomial[0]);
#pragma GCC unroll 6
  for (int i = 1; i < 6; ++i) p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExpPolynomial[i]));
  p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0f));
  const __m512i exponent = _mm512_slli_epi32(_mm512_cvtps_epi32(n), 23);
  const __m512 scaled = _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), exponent));
  __m512 result = _mm512_mask_mov_ps(scaled, _mm512_cmp_ps_mask(x, _mm512_set1_ps(kExpLowest), _CMP_LT_OQ), _mm512_setzero_ps());
  result = _mm512_mask_mov_ps(result, _mm512_cmp_ps_mask(x, _mm512_set1_ps(kExpHighest), _CMP_GT_OQ), _mm512_set1_ps(__builtin_inff()));
  return _mm512_mask_mov_ps(result, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), x);
}

// Sixteen vectors of sixteen numbers: lane j of vector i changes places with lane i of vector j.
inline void transpose16(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // 4 x 4 quarters of the vectors i, i + 4, i + 8, i + 12
    const __m512i a = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88), b = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    const __m512i c = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88), d = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    t[i] = _mm512_shuffle_i32x4(a, c, 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
    t[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
    t[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

// ---- rows of the caches as bf16 in exchanged pairs -----------------------------------------------------------------------

inline __m512i exchange_pairs(__m512i words) { return _mm512_rol_epi32(words, 16); }

// 32 numbers of fp32, exact in bf16, to exchanged pairs.
inline void store_exact(Bf16* out, __m512 low, __m512 high) {
  const __m256i first = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(low), 16));
  const __m256i second = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(high), 16));
  _mm512_storeu_si512(out, exchange_pairs(_mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1)));
}

inline __m512 decode_e4m3(__m128i codes) {
  const __m512i wide = _mm512_cvtepu8_epi32(codes), magnitude = _mm512_and_si512(wide, _mm512_set1_epi32(0x7f));
  const __m512i normal = _mm512_add_epi32(_mm512_slli_epi32(magnitude, 20), _mm512_set1_epi32(120 << 23));
  const __mmask16 is_subnormal = _mm512_cmplt_epu32_mask(magnitude, _mm512_set1_epi32(8));
  const __mmask16 is_nan = _mm512_cmpeq_epi32_mask(magnitude, _mm512_set1_epi32(0x7f));
  __m512 value = _mm512_mask_mul_ps(_mm512_castsi512_ps(normal), is_subnormal, _mm512_cvtepi32_ps(magnitude), _mm512_set1_ps(0x1p-9f));
  value = _mm512_mask_mov_ps(value, is_nan, _mm512_set1_ps(__builtin_nanf("")));
  return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(value), _mm512_slli_epi32(_mm512_and_si512(wide, _mm512_set1_epi32(0x80)), 24)));
}

// Sixteen values of an FP4 row (eight bytes, the low nibble first).
inline __m512 decode_e2m1(const std::byte* packed) {
  uint64_t bits;
  __builtin_memcpy(&bits, packed, sizeof(bits));
  const __m512i halves = _mm512_inserti64x4(_mm512_set1_epi32(static_cast<int>(bits)), _mm256_set1_epi32(static_cast<int>(bits >> 32)), 1);
  const __m512i shifts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  const __m512 values = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
  return _mm512_permutexvar_ps(_mm512_srlv_epi32(halves, shifts), values);  // takes four bits of a lane
}

// Each returns whether the row's numbers, and with them its products, keep away from the ends of fp32.
bool unpack_window(const std::byte* row, int64_t dim, Bf16* out) {
  const auto* scales = reinterpret_cast<const uint8_t*>(row) + dim;
  bool ordinary = true;
  for (int64_t i = 0; i < dim; i += 32) {
    const uint8_t code = scales[i / 32];
    ordinary = ordinary && code >= 127 - 22 && code <= 127 + 50;  // quantize_q8 makes none below
    const __m512 scale = _mm512_set1_ps(e8m0_to_float(code));
    const auto* codes = reinterpret_cast<const __m128i*>(row + i);
    store_exact(out + i, _mm512_mul_ps(decode_e4m3(_mm_loadu_si128(codes)), scale),
                _mm512_mul_ps(decode_e4m3(_mm_loadu_si128(codes + 1)), scale));
  }
  return ordinary;
}

void unpack_compressed(const std::byte* row, int64_t dim, Bf16* out) {
  const auto* scales = reinterpret_cast<const uint8_t*>(row) + dim / 2;
  for (int64_t i = 0; i < dim; i += 32) {
    const __m512 low = _mm512_set1_ps(e4m3_to_float(scales[i / 16])), high = _mm512_set1_ps(e4m3_to_float(scales[i / 16 + 1]));
    store_exact(out + i, _mm512_mul_ps(decode_e2m1(row + i / 2), low), _mm512_mul_ps(decode_e2m1(row + i / 2 + 8), high));
  }
}

// ---- attention -----------------------------------------------------------------------------------------------------------

// A thread's memory for one token and up to kHeadTile heads.
struct AttentionScratch {
  AttentionScratch(std::byte* memory, int64_t count, int64_t dim) {
    rows = reinterpret_cast<Bf16*>(memory);
    scores = reinterpret_cast<float(*)[kChunkGroups][kRowGroup]>(rows + (count + 1) * dim);
    sums = reinterpret_cast<float*>(scores + count);
  }
  Bf16* rows;                                // [count + 1][dim] in exchanged pairs, the last one zero
  float (*scores)[kChunkGroups][kRowGroup];  // [count]
  float* sums;                               // [kHeadTile][dim]
};

// Sixteen queries of a panel of columns; heads beyond the last are zero.
void load_queries(const Bf16* query, int64_t heads, int64_t dim, int64_t first, int64_t columns, __m512i* pairs) {
  for (int64_t k = 0; k < columns; k += 32) {
    __m512i r[16];
    for (int64_t h = 0; h < 16; ++h) {
      r[h] = h < heads ? exchange_pairs(load512(query + h * dim + first + k)) : _mm512_setzero_si512();
    }
    transpose16(r);
    std::memcpy(pairs + k / 2, r, sizeof(r));
  }
}

// All rows times the groups of a panel without scales.
template <bool kNative>
void multiply_plain(const Panel& panel, int64_t groups, int64_t first, int64_t columns, const Bf16* const* rows, int64_t count,
                    float (*sums)[kChunkGroups][kRowGroup]) {
  if constexpr (kNative) {
    multiply_panel<MatrixKind::kBf16, true>({}, panel, 0, groups, first, columns, rows, count, sums);
  } else {
    multiply_wide(panel, groups, first, columns, rows, count, sums);
  }
}

template <bool kNative>
void score_heads(const Bf16* query, int64_t heads, int64_t dim, int64_t count, const Bf16* const* rows, float scale,
                 float (*scores)[kChunkGroups][kRowGroup]) {
  Panel panel;
  const int64_t groups = static_cast<int64_t>(ceil_div(static_cast<size_t>(heads), kRowGroup));
  if (groups % 2 != 0) std::memset(panel.pairs[groups], 0, sizeof(panel.pairs[0]));
  std::memset(scores, 0, static_cast<size_t>(count) * sizeof(scores[0]));
  for (int64_t first = 0; first < dim; first += kPanelColumns) {
    const int64_t columns = std::min(kPanelColumns, dim - first);
    for (int64_t g = 0; g < groups; ++g) {
      load_queries(query + g * kRowGroup * dim, heads - g * kRowGroup, dim, first, columns, panel.pairs[g]);
    }
    multiply_plain<kNative>(panel, groups, first, columns, rows, count, scores);
  }
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t g = 0; g < groups; ++g) {
      _mm512_store_ps(scores[i][g], _mm512_mul_ps(_mm512_load_ps(scores[i][g]), _mm512_set1_ps(scale)));
    }
  }
}

// One chunk of the online softmax for sixteen heads: weights[head][kAttentionChunk] in exchanged pairs. Returns what the
// older sums are multiplied by; `tiny` tells of weights whose products the dot instruction would flush.
inline __m512 weigh_chunk(const float (*scores)[kChunkGroups][kRowGroup], int64_t group, int64_t count, __m512* peak,
                          __m512* total, Bf16 (*weights)[kAttentionChunk], bool* tiny) {
  const __m512 old_peak = *peak;
  for (int64_t i = 0; i < count; ++i) *peak = _mm512_max_ps(_mm512_load_ps(scores[i][group]), *peak);
  const __m512 factor = exp16(_mm512_sub_ps(old_peak, *peak));
  __m512 chunk_total = _mm512_setzero_ps();
  __mmask16 is_tiny = 0;
  for (int64_t begin = 0; begin < count; begin += kSumBlock) {
    __m512 partial = _mm512_setzero_ps();
    __m512i pairs[16];
    for (int64_t p = 0; p < 16; ++p) {
      __m512i numbers[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
      for (int64_t j = 0; j < 2; ++j) {
        const int64_t i = begin + 2 * p + j;
        if (i >= count) continue;
        const __m512 weight = exp16(_mm512_sub_ps(_mm512_load_ps(scores[i][group]), *peak));
        partial = _mm512_add_ps(partial, weight);
        is_tiny |= _mm512_cmplt_epu32_mask(_mm512_sub_epi32(_mm512_castps_si512(weight), _mm512_set1_epi32(1)),
                                           _mm512_set1_epi32((127 - 86) << 23));
        numbers[j] = _mm512_cvtepu16_epi32(narrow(weight));
      }
      pairs[p] = _mm512_or_si512(_mm512_slli_epi32(numbers[0], 16), numbers[1]);
    }
    transpose16(pairs);
    for (int64_t h = 0; h < 16; ++h) _mm512_storeu_si512(weights[h] + begin, pairs[h]);
    chunk_total = _mm512_add_ps(chunk_total, partial);
  }
  *tiny = *tiny || is_tiny != 0;
  *total = _mm512_fmadd_ps(*total, factor, chunk_total);
  return factor;
}

// sums[h][d] = sums[h][d] * factors[h] + sum over the chunk's rows of weights[h][i] rows[i][d].
template <bool kNative>
void add_chunk(const Bf16* rows, int64_t count, int64_t dim, int64_t heads, const Bf16* const* weights,
               const float* factors, const Bf16* zeros, float* sums) {
  // Lane d of a pair vector: the upper number from the first row, the lower one from the second, both at place d ^ 1.
  alignas(64) uint16_t places[2][32];
  for (uint16_t d = 0; d < 32; ++d) {
    places[d / 16][d % 16 * 2 + 1] = d ^ 1;
    places[d / 16][d % 16 * 2] = static_cast<uint16_t>(32 + (d ^ 1));
  }
  const __m512i place[2] = {_mm512_load_si512(places[0]), _mm512_load_si512(places[1])};
  Panel panel;
  alignas(64) float chunk[kHeadTile][kChunkGroups][kRowGroup];
  for (int64_t first = 0; first < dim; first += kHeadTile) {
    const int64_t groups = std::min(kHeadTile, dim - first) / kRowGroup;
    for (int64_t i = 0; i < count; i += 2) {
      const Bf16* upper = rows + i * dim + first;
      const Bf16* lower = i + 1 < count ? upper + dim : zeros;
      for (int64_t g = 0; g < groups; ++g) {
        panel.pairs[g][i / 2] = _mm512_permutex2var_epi16(load512(upper + g / 2 * 32), place[g % 2], load512(lower + g / 2 * 32));
      }
    }
    std::memset(chunk, 0, static_cast<size_t>(heads) * sizeof(chunk[0]));
    multiply_plain<kNative>(panel, groups, 0, count, weights, heads, chunk);
    for (int64_t h = 0; h < heads; ++h) {
      const __m512 factor = _mm512_set1_ps(factors[h]);
      float* sum = sums + h * dim + first;
      for (int64_t g = 0; g < groups; ++g, sum += kRowGroup) {
        _mm512_storeu_ps(sum, _mm512_fmadd_ps(_mm512_loadu_ps(sum), factor, _mm512_load_ps(chunk[h][g])));
      }
    }
  }
}

void attend(const AttentionArgs& args, int64_t token, int64_t first, int64_t heads, std::byte* memory) {
  const int64_t dim = args.head_dim;
  const AttentionList& list = args.lists[token];
  const int64_t count = list.num_window + list.num_compressed;
  const int64_t offset = (token * args.num_heads + first) * dim;
  if (count == 0) {
    std::fill_n(args.out + offset, heads * dim, Bf16{0});
    return;
  }
  const AttentionScratch scratch(memory, count, dim);
  bool ordinary = true;
  for (int32_t i = 0; i < list.num_window; ++i) {
    ordinary = unpack_window(list.window[i], dim, scratch.rows + i * dim) && ordinary;
  }
  for (int32_t i = 0; i < list.num_compressed; ++i) {
    unpack_compressed(list.compressed[i], dim, scratch.rows + (list.num_window + i) * dim);
  }
  Bf16* zeros = scratch.rows + count * dim;
  std::fill_n(zeros, dim, Bf16{0});

  const Bf16* query = args.query + offset;
  const bool native = kNativeDot && ordinary && is_ordinary({.values = query, .count = heads, .stride = dim}, dim);
  const Bf16* rows[kMaxRows];
  for (int64_t begin = 0; begin < count; begin += kMaxRows) {
    const int64_t part = std::min(kMaxRows, count - begin);
    for (int64_t i = 0; i < part; ++i) rows[i] = scratch.rows + (begin + i) * dim;
    native ? score_heads<kNativeDot>(query, heads, dim, part, rows, args.softmax_scale, scratch.scores + begin)
           : score_heads<false>(query, heads, dim, part, rows, args.softmax_scale, scratch.scores + begin);
  }

  const int64_t groups = static_cast<int64_t>(ceil_div(static_cast<size_t>(heads), kRowGroup));
  __m512 peak[kChunkGroups], total[kChunkGroups];
  for (int64_t g = 0; g < groups; ++g) {
    peak[g] = _mm512_set1_ps(-__builtin_inff());
    total[g] = _mm512_setzero_ps();
  }
  std::memset(scratch.sums, 0, static_cast<size_t>(heads * dim) * sizeof(float));
  alignas(64) Bf16 weights[kHeadTile][kAttentionChunk];
  alignas(64) float factors[kHeadTile];
  const Bf16* weight_rows[kHeadTile];
  for (int64_t h = 0; h < kHeadTile; ++h) weight_rows[h] = weights[h];
  for (int64_t begin = 0; begin < count;) {
    const int64_t end = args.chunk_end(list, begin);
    bool tiny = false;
    for (int64_t g = 0; g < groups; ++g) {
      _mm512_store_ps(factors + g * kRowGroup, weigh_chunk(scratch.scores + begin, g, end - begin, &peak[g], &total[g],
                                                           weights + g * kRowGroup, &tiny));
    }
    const Bf16* chunk_rows = scratch.rows + begin * dim;
    native && !tiny ? add_chunk<kNativeDot>(chunk_rows, end - begin, dim, heads, weight_rows, factors, zeros, scratch.sums)
                    : add_chunk<false>(chunk_rows, end - begin, dim, heads, weight_rows, factors, zeros, scratch.sums);
    begin = end;
  }

  alignas(64) float sinks[kHeadTile] = {}, totals[kHeadTile];
  std::copy_n(args.sinks + first, heads, sinks);
  for (int64_t g = 0; g < groups; ++g) {
    const __m512 sink = exp16(_mm512_sub_ps(_mm512_load_ps(sinks + g * kRowGroup), peak[g]));
    _mm512_store_ps(totals + g * kRowGroup, _mm512_add_ps(total[g], sink));
  }
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t d = 0; d < dim; d += kRowGroup) {
      const __m512 value = _mm512_div_ps(_mm512_loadu_ps(scratch.sums + h * dim + d), _mm512_set1_ps(totals[h]));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(args.out + offset + h * dim + d), narrow(value));
    }
  }
}

// ---- index scores ----------------------------------------------------------------------------------------------------------

constexpr int64_t kKeyTile = 48;  // eight tiles of rows, three of lanes

// One key row as bf16 in exchanged pairs. The numbers are E2M1 codes with a scale per 32 channels.
bool unpack_index(const std::byte* codes, const std::byte* scales, int64_t dim, Bf16* out) {
  bool ordinary = true;
  for (int64_t i = 0; i < dim; i += 32) {
    const auto code = static_cast<uint8_t>(scales[i / 32]);
    ordinary = ordinary && code >= 127 - 30 && code <= 127 + 30;
    const __m512 scale = _mm512_set1_ps(e8m0_to_float(code));
    store_exact(out + i, _mm512_mul_ps(decode_e2m1(codes + i / 2), scale), _mm512_mul_ps(decode_e2m1(codes + i / 2 + 8), scale));
  }
  return ordinary;
}

// Scores of sixteen keys: adds up the heads in ascending order, lane = key.
inline __m512 combine_heads(const float (*dots)[kChunkGroups][kRowGroup], int64_t groups, const float* weights,
                            int64_t heads, __m512 sum) {
  for (int64_t g = 0; g < groups; ++g) {
    __m512i r[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) r[i] = _mm512_load_si512(dots[i][g]);
    transpose16(r);
    const int64_t count = std::min(kRowGroup, heads - g * kRowGroup);
    for (int64_t h = 0; h < count; ++h) {
      const __m512 positive = _mm512_max_ps(_mm512_setzero_ps(), _mm512_castsi512_ps(r[h]));  // keeps NaN
      sum = _mm512_fmadd_ps(_mm512_set1_ps(weights[g * kRowGroup + h]), positive, sum);
    }
  }
  return sum;
}

void index_scores(const IndexScoreArgs& args) {
  const IndexKeys& keys = args.keys;
  const int64_t dim = keys.dim, heads = args.num_heads;
  if (heads > kHeadTile || dim > kPanelColumns) return avx2::table().index_scores(args);
  const int64_t groups = static_cast<int64_t>(ceil_div(static_cast<size_t>(heads), kRowGroup));
  Panel panel;
  alignas(64) Bf16 rows[kKeyTile][kPanelColumns];
  alignas(64) float dots[kKeyTile][kChunkGroups][kRowGroup];
  const Bf16* row_pointers[kKeyTile];
  for (int64_t i = 0; i < kKeyTile; ++i) row_pointers[i] = rows[i];

  // The query: sixteen heads at a time through the rows of the key tile, into a panel.
  bool query_ordinary = true;
  if (groups % 2 != 0) std::memset(panel.pairs[groups], 0, sizeof(panel.pairs[0]));
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t count = std::min(kRowGroup, heads - g * kRowGroup);
    for (int64_t h = 0; h < count; ++h) {
      const float* query = args.query + (g * kRowGroup + h) * dim;
      for (int64_t k = 0; k < dim; k += 32) {
        store_exact(rows[h] + k, _mm512_loadu_ps(query + k), _mm512_loadu_ps(query + k + 16));
      }
    }
    query_ordinary = query_ordinary && is_ordinary({.values = rows[0], .count = count, .stride = kPanelColumns}, dim);
    for (int64_t k = 0; k < dim; k += 32) {
      __m512i r[16];
      for (int64_t h = 0; h < 16; ++h) r[h] = h < count ? load512(rows[h] + k) : _mm512_setzero_si512();
      transpose16(r);
      std::memcpy(panel.pairs[g] + k / 2, r, sizeof(r));
    }
  }

  float* scores = args.scores;
  for (const RowRun& run : args.runs) {
    for (int64_t first = run.first; first < run.first + run.count; first += kKeyTile) {
      const int64_t count = std::min(kKeyTile, run.first + run.count - first);
      bool native = kNativeDot && query_ordinary;
      for (int64_t i = 0; i < count; ++i) {
        const std::byte* block = keys.blocks[(first + i) / keys.rows_per_block];
        const int64_t slot = (first + i) % keys.rows_per_block;
        const std::byte* scales = block + keys.rows_per_block * index_code_bytes(dim) + slot * index_scale_bytes(dim);
        native = unpack_index(block + slot * index_code_bytes(dim), scales, dim, rows[i]) && native;
      }
      std::memset(dots, 0, sizeof(dots));
      native ? multiply_plain<kNativeDot>(panel, groups, 0, dim, row_pointers, count, dots)
             : multiply_plain<false>(panel, groups, 0, dim, row_pointers, count, dots);
      for (int64_t i = 0; i < count; i += kRowGroup) {
        const __m512 sum = combine_heads(dots + i, groups, args.head_weights, heads, _mm512_setzero_ps());
        const int64_t lanes = std::min(kRowGroup, count - i);
        _mm512_mask_storeu_ps(scores + i, static_cast<__mmask16>((1u << lanes) - 1), sum);
      }
      scores += count;
    }
  }
}
