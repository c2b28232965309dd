// Products with eight lanes, for the tables that have them (private to the kernels room). To be included inside the namespace
// of a table, below its target pragma, all standard headers and its lanes (x86/avx2_lanes.h, arm/neon_lanes.h). Lanes are
// output rows, never terms of one sum, so the bits are those of kernels/ref.

// One block of 32 columns of a row group as fp32 [32][16].
using WeightBlock = float[kSumBlock][kRowGroup];

// The block's elements, and the scales of its 16 rows.
void decode_block(const MatrixView& w, int64_t group, int64_t block, int64_t length, WeightBlock& out, float* scales) {
  const std::byte* data = w.data + group * w.group_bytes();
  switch (w.kind) {
    case MatrixKind::kFp8:
      for (int64_t k = 0; k < kSumBlock; k += 4) decode_fp8_line(data + (block * kSumBlock + k) * 16, out + k);
      std::fill_n(scales, kRowGroup, e8m0_to_float(w.scales[group * kRowGroup / 32 * w.num_blocks() + block]));
      return;
    case MatrixKind::kFp4: {
      for (int64_t k = 0; k < kSumBlock; k += 8) decode_fp4_line(data + (block * kSumBlock + k) * 8, out + k);
      const uint8_t* codes = w.scales + (group * w.num_blocks() + block) * kRowGroup;
      for (int64_t r = 0; r < kRowGroup; ++r) scales[r] = e8m0_to_float(codes[r]);
      return;
    }
    case MatrixKind::kBf16:
    case MatrixKind::kF32:
      for (int64_t k = 0; k < length; k += 2) decode_bf16_line(data + (block * kSumBlock + k) * 32, out + k);
      std::fill_n(scales, kRowGroup, 1.0f);
      return;
  }
}

constexpr int kTokenTile = 4;

// acc[t] += (sum over the block of w x_t) * w_scale for `count` <= 4 tokens: eight independent chains.
template <int kCount>
inline void accumulate_block(const WeightBlock& w, int64_t length, const float (*x)[kSumBlock], const float* scales,
                             float (*acc)[kRowGroup]) {
  F8 low[kCount], high[kCount];
#pragma GCC unroll 4
  for (int t = 0; t < kCount; ++t) low[t] = high[t] = zero8();
  for (int64_t k = 0; k < length; ++k) {
    const F8 w_low = load8(w[k]), w_high = load8(w[k] + 8);
#pragma GCC unroll 4
    for (int t = 0; t < kCount; ++t) {
      const F8 value = set8(x[t][k]);
      low[t] = fma8(w_low, value, low[t]);
      high[t] = fma8(w_high, value, high[t]);
    }
  }
  const F8 s_low = load8(scales), s_high = load8(scales + 8);
#pragma GCC unroll 4
  for (int t = 0; t < kCount; ++t) {
    store8(acc[t], add8(load8(acc[t]), mul8(low[t], s_low)));
    store8(acc[t] + 8, add8(load8(acc[t] + 8), mul8(high[t], s_high)));
  }
}

// The block's columns of a row of activations as fp32, in order.
void widen_block(const Bf16* pairs, int64_t length, float* x) {
  for (int64_t k = 0; k < length; ++k) x[k] = to_float(pairs[k ^ 1]);
}

template <int kCount>
void accumulate_tile(const WeightBlock& w, const ActivationRows& x, int64_t first, int64_t block, int64_t length,
                     const float* scales, float (*acc)[kRowGroup]) {
  alignas(32) float values[kCount][kSumBlock];
#pragma GCC unroll 4
  for (int t = 0; t < kCount; ++t) widen_block(x.row(first + t) + block * kSumBlock, length, values[t]);
  accumulate_block<kCount>(w, length, values, scales, acc);
}

constexpr int64_t kMaxTokens = 64;  // tokens that share one decoding of a weight block; bounds the stack

void store_outputs(const float (*acc)[kRowGroup], int64_t first, int64_t count, int64_t row, int64_t lanes,
                   const OutputRows& y) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t r = 0; r < lanes; ++r) {
      const int64_t index = (first + i) * y.stride + row + r;
      if (y.f32 != nullptr) {
        y.f32[index] = acc[i][r];
      } else {
        y.bf16[index] = to_bf16(acc[i][r]);
      }
    }
  }
}

void linear_group(const MatrixView& w, int64_t group, const ActivationRows& x, const OutputRows& y) {
  const int64_t lanes = std::min(kRowGroup, w.rows - group * kRowGroup);
  for (int64_t first = 0; first < x.count; first += kMaxTokens) {
    const int64_t count = std::min(kMaxTokens, x.count - first);
    alignas(32) float acc[kMaxTokens][kRowGroup];
    std::fill_n(&acc[0][0], count * kRowGroup, 0.0f);
    for (int64_t block = 0; block < w.num_blocks(); ++block) {
      const int64_t length = std::min(kSumBlock, w.cols - block * kSumBlock);
      alignas(32) WeightBlock weights;
      alignas(32) float scales[kRowGroup];
      decode_block(w, group, block, length, weights, scales);
      int64_t t = 0;
      for (; t + kTokenTile <= count; t += kTokenTile) {
        accumulate_tile<kTokenTile>(weights, x, first + t, block, length, scales, acc + t);
      }
      for (; t < count; ++t) accumulate_tile<1>(weights, x, first + t, block, length, scales, acc + t);
    }
    store_outputs(acc, first, count, group * kRowGroup, lanes, y);
  }
}

// FP4 weights and INT8 activations: whole numbers within a block.
void int8_group(const MatrixView& w, int64_t group, const ActivationRows& x, const OutputRows& y) {
  const int64_t lanes = std::min(kRowGroup, w.rows - group * kRowGroup);
  for (int64_t first = 0; first < x.count; first += kMaxTokens) {
    const int64_t count = std::min(kMaxTokens, x.count - first);
    float acc[kMaxTokens][kRowGroup];
    std::fill_n(&acc[0][0], count * kRowGroup, 0.0f);
    for (int64_t block = 0; block < w.num_blocks(); ++block) {
      const std::byte* lines = w.data + group * w.group_bytes() + block * kSumBlock * 8;
      const uint8_t* codes = w.scales + (group * w.num_blocks() + block) * kRowGroup;
      float scales[kRowGroup];
      for (int64_t r = 0; r < kRowGroup; ++r) scales[r] = e8m0_to_float(codes[r]);
      const Int8Weights weights = decode_int8(lines);
      for (int64_t t = 0; t < count; ++t) {
        const Int8Block& values = x.int8_row(first + t)[block];
        F8 sums[2];
        multiply_int8(weights, values, sums);
        for (int half = 0; half < 2; ++half) {
          float* out = acc[t] + 8 * half;
          store8(out, fma8(sums[half], mul8(load8(scales + 8 * half), set8(values.scale)), load8(out)));
        }
      }
    }
    store_outputs(acc, first, count, group * kRowGroup, lanes, y);
  }
}

void linear_groups(const LinearTask& task, int64_t first, int64_t end) {
  const bool fast = task.weights.kind == MatrixKind::kFp4 && task.x.int8 != nullptr;
  for (int64_t group = first; group < end; ++group) {
    fast ? int8_group(task.weights, group, task.x, task.y) : linear_group(task.weights, group, task.x, task.y);
  }
}
