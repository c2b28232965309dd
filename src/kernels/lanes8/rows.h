// What works on single rows, with eight lanes: operands, norms, rotation, hyper-connections, SwiGLU, Engram gate (private to
// the kernels room); to be included as lanes8/linear.h is. Element by element the same operations as kernels/ref. Long sums
// keep their order: chains of eight blocks run side by side, and lanes are streams of results, never terms of one sum.

// ref::block_sum with eight blocks side by side.
template <typename AddTerm>
inline float block_sum8(int64_t count, AddTerm&& add) {
  float total = 0;
  int64_t begin = 0;
  for (; begin + 8 * kSumBlock <= count; begin += 8 * kSumBlock) {
    float partial[8] = {};
    for (int64_t i = begin; i < begin + kSumBlock; ++i) {
#pragma GCC unroll 8
      for (int b = 0; b < 8; ++b) partial[b] = add(partial[b], i + b * kSumBlock);
    }
    for (const float part : partial) total += part;
  }
  for (; begin < count; begin += kSumBlock) {
    float partial = 0;
    for (int64_t i = begin; i < std::min(begin + kSumBlock, count); ++i) partial = add(partial, i);
    total += partial;
  }
  return total;
}

float sum_squares(const Bf16* x, int64_t count) {
  return block_sum8(count, [x](float partial, int64_t i) {
    const float value = to_float(x[i]);
    return __builtin_fmaf(value, value, partial);
  });
}

float inverse_rms(const Bf16* x, int64_t count, float eps) {
  return 1.0f / std::sqrt(sum_squares(x, count) / static_cast<float>(count) + eps);
}

// Q8 of one block as an operand.
void quantize_block(const Bf16* x, Bf16* values) {
  F8 v[4], amax = set8(1e-4f);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    v[i] = load_bf16(x + 8 * i);
    amax = max8(abs8(v[i]), amax);  // a NaN is passed over
  }
  const float scale = e8m0_to_float(power_of_two_ceiling(largest_lane(amax) * (1.0f / 448.0f)));
  const F8 scale8 = set8(scale), inverse = set8(1.0f / scale);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    store_exchanged(values + 8 * i, mul8(round_e4m3(mul8(v[i], inverse)), scale8));
  }
}

void quantize_rows(const Bf16* x, int64_t rows, int64_t cols, Bf16* values) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t k = row * cols; k < (row + 1) * cols; k += 32) quantize_block(x + k, values + k);
  }
}

void encode_int8(const Bf16* values, int64_t rows, int64_t cols, Int8Block* blocks) {
  const int64_t num_blocks = cols / kSumBlock;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t block = row * num_blocks; block < (row + 1) * num_blocks; ++block) {
      const Bf16* x = values + block * kSumBlock;
      F8 v[4], largest = set8(kInt8Least), check = zero8();
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        v[i] = load_bf16(x + 8 * i);
        largest = max8(abs8(v[i]), largest);
        check = add8(check, mul8(v[i], zero8()));  // NaN where a number is not finite
      }
      Int8Block& out = blocks[block];
      float checks[8];
      store8(checks, check);
      if (std::any_of(checks, checks + 8, [](float zero) { return zero != 0; })) {
        out = {.codes = {}, .minus_12_sum = 0, .scale = NAN};
        continue;
      }
      const float scale = e8m0_to_float(power_of_two_ceiling(largest_lane(largest) * (1.0f / 127.0f)));
      const F8 inverse = set8(1.0f / scale);
      int32_t sum = 0;
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        float codes[8];
        store8(codes, round8(mul8(v[i], inverse)));
        for (int j = 0; j < 8; ++j) {
          const auto code = static_cast<int32_t>(codes[kInt8Order[j] ^ 1]);
          out.codes[8 * i + j] = static_cast<int8_t>(code);
          sum += code;
        }
      }
      out.minus_12_sum = -12 * sum;
      out.scale = 0.5f * scale;
    }
  }
}

void pair_rows(const Bf16* x, int64_t rows, int64_t cols, Bf16* values) {
  const int64_t width = (cols + 1) / 2 * 2;
  for (int64_t row = 0; row < rows; ++row) {
    const Bf16* in = x + row * cols;
    Bf16* out = values + row * width;
    out[width - 2] = {};
    int64_t k = 0;
    for (; k + 8 <= cols; k += 8) exchange_pairs(in + k, out + k);
    for (; k < cols; ++k) out[k ^ 1] = in[k];
  }
}

void rms_norm(const Bf16* x, const Bf16* weight, int64_t rows, int64_t cols, float eps, Bf16* out) {
  for (int64_t row = 0; row < rows; ++row) {
    const Bf16* in = x + row * cols;
    const float statistic = inverse_rms(in, cols, eps);
    int64_t d = 0;
    for (; d + 8 <= cols; d += 8) {
      const F8 scaled = mul8(load_bf16(in + d), set8(statistic));
      store_bf16(out + row * cols + d, mul8(scaled, load_bf16(weight + d)));
    }
    for (; d < cols; ++d) out[row * cols + d] = to_bf16(to_float(in[d]) * statistic * to_float(weight[d]));
  }
}

void rotate(Bf16* x, int64_t rows, int64_t heads, int64_t dim, int64_t rotary_dim,
            const float* const* cos_sin, Ops::Rotation rotation) {
  if (rotary_dim % 8 != 0) return ref::rotate(x, rows, heads, dim, rotary_dim, cos_sin, rotation);
  const F8 direction = set8(rotation == Ops::Rotation::kForward ? 1.0f : -1.0f);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t head = 0; head < heads; ++head) {
      Bf16* pairs = x + (row * heads + head) * dim + dim - rotary_dim;
      for (int64_t i = 0; i < rotary_dim; i += 8) {  // four pairs (a, b)
        store_bf16(pairs + i, rotate_pairs(load_bf16(pairs + i), load8(cos_sin[row] + i), direction));
      }
    }
  }
}

void swiglu(const Bf16* gate, const Bf16* up, const float* weights, int64_t rows, int64_t cols,
            float limit, Bf16* out) {
  if (cols % 8 != 0) return ref::swiglu(gate, up, weights, rows, cols, limit, out);
  const F8 high = set8(limit), low = set8(-limit);
  for (int64_t row = 0; row < rows; ++row) {
    const F8 weight = set8(weights != nullptr ? weights[row] : 1.0f);
    for (int64_t i = row * cols; i < (row + 1) * cols; i += 8) {
      const F8 g = min8(high, load_bf16(gate + i));
      const F8 u = min8(high, max8(low, load_bf16(up + i)));
      store_bf16(out + i, mul8(weight, mul8(mul8(g, sigmoid8(g)), u)));
    }
  }
}

void sum_rows(const Bf16* x, const int32_t* index, int64_t count, int64_t rows, int64_t cols,
              Columns columns, Bf16* out) {
  if (cols % 8 != 0) return ref::sum_rows(x, index, count, rows, cols, columns, out);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t d = columns.first; d < columns.end; d += 8) {
      F8 sum = zero8();
      for (int64_t i = 0; i < count; ++i) sum = add8(sum, load_bf16(x + index[row * count + i] * cols + d));
      store_bf16(out + row * cols + d, sum);
    }
  }
}

// ---- hyper-connections -------------------------------------------------------------------------------------------------

// Block sums of kRows rows for blocks [first, last): sums[row][block][kHcSumStride] = 24 products, then squares.
// kBlocks of them run side by side.
template <int kRows, int kBlocks>
void hc_block_sums(const MatrixView& fn, const Bf16* h, int64_t width, int64_t first, int64_t last, float* sums) {
  const int64_t num_blocks = fn.num_blocks(), group_bytes = fn.group_bytes();
  int64_t block = first;
  for (; block + kBlocks <= last; block += kBlocks) {
    F8 acc[kRows][kBlocks][3];
    float squares[kRows][kBlocks] = {};
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) acc[r][b][0] = acc[r][b][1] = acc[r][b][2] = zero8();
    }
    const std::byte* column = fn.data + block * kSumBlock * 32;  // eight numbers of each group of rows
    const Bf16* x = h + block * kSumBlock;
    for (int64_t i = 0; i < kSumBlock; ++i, column += 32, ++x) {
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) {
        F8 w[3];
#pragma GCC unroll 3
        for (int g = 0; g < 3; ++g) {
          w[g] = load8(reinterpret_cast<const float*>(column + g * group_bytes + b * kSumBlock * 32));
        }
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const float value = to_float(x[r * width + b * kSumBlock]);
          const F8 values = set8(value);
          squares[r][b] = __builtin_fmaf(value, value, squares[r][b]);
#pragma GCC unroll 3
          for (int g = 0; g < 3; ++g) acc[r][b][g] = fma8(w[g], values, acc[r][b][g]);
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) {
        float* out = sums + (r * num_blocks + block + b) * kHcSumStride;
#pragma GCC unroll 3
        for (int g = 0; g < 3; ++g) store8(out + 8 * g, acc[r][b][g]);
        out[24] = squares[r][b];
      }
    }
  }
  if constexpr (kBlocks > 1) hc_block_sums<kRows, 1>(fn, h, width, block, last, sums);
}

void hc_sums(const HcParams& params, const Bf16* h, int64_t rows, int64_t hidden, int64_t first, int64_t end, float* sums) {
  const MatrixView& fn = params.fn;
  const int64_t width = 4 * hidden;
  if (width % kSumBlock != 0) return ref::hc_sums(params, h, rows, hidden, first, end, sums);
  int64_t row = 0;
  for (; row + kHcRowTile <= rows; row += kHcRowTile) {
    hc_block_sums<kHcRowTile, 1>(fn, h + row * width, width, first, end, sums + row * fn.num_blocks() * kHcSumStride);
  }
  for (; row < rows; ++row) {
    hc_block_sums<1, 4>(fn, h + row * width, width, first, end, sums + row * fn.num_blocks() * kHcSumStride);
  }
}

using Float4 [[gnu::vector_size(16)]] = float;
using Double4 [[gnu::vector_size(32)]] = double;

// Adds the block sums of one row, products in fp64, and makes its mix.
void hc_finish_row(const HcParams& params, const float* sums, int64_t width, float* m, HcMix* mix) {
  Double4 acc[6] = {};
  float squares = 0;
  for (int64_t block = 0; block < params.fn.num_blocks(); ++block, sums += kHcSumStride) {
#pragma GCC unroll 6
    for (int i = 0; i < 6; ++i) {
      Float4 part;
      std::memcpy(&part, sums + 4 * i, sizeof(part));
      acc[i] += __builtin_convertvector(part, Double4);
    }
    squares += sums[24];
  }
  const float rho = 1.0f / std::sqrt(squares / static_cast<float>(width) + params.norm_eps);
#pragma GCC unroll 6
  for (int i = 0; i < 6; ++i) {
    const Float4 product = __builtin_convertvector(acc[i], Float4) * rho;
    std::memcpy(m + 4 * i, &product, sizeof(product));
  }
  *mix = ref::finish_mix(params, m);
}

void hc_finish(const HcParams& params, const float* sums, int64_t rows, int64_t hidden, float* products, HcMix* mixes) {
  for (int64_t row = 0; row < rows; ++row) {
    hc_finish_row(params, sums + row * params.fn.num_blocks() * kHcSumStride, 4 * hidden, products + row * 24, mixes + row);
  }
}

void hc_fold(const Bf16* h, const float* weights, int64_t weight_stride, int64_t rows,
             int64_t hidden, Columns columns, Bf16* x) {
  if (hidden % 8 != 0) return ref::hc_fold(h, weights, weight_stride, rows, hidden, columns, x);
  for (int64_t row = 0; row < rows; ++row) {
    const Bf16* streams = h + row * 4 * hidden;
    F8 w[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) w[i] = set8(weights[row * weight_stride + i]);
    for (int64_t d = columns.first; d < columns.end; d += 8) {
      F8 sum = mul8(w[0], load_bf16(streams + d));
#pragma GCC unroll 4
      for (int i = 1; i < 4; ++i) sum = add8(sum, mul8(w[i], load_bf16(streams + i * hidden + d)));
      store_bf16(x + row * hidden + d, sum);
    }
  }
}

void hc_unfold(const Bf16* y, const HcMix* mixes, int64_t rows, int64_t hidden, Columns columns, Bf16* h) {
  if (hidden % 8 != 0) return ref::hc_unfold(y, mixes, rows, hidden, columns, h);
  for (int64_t row = 0; row < rows; ++row) {
    Bf16* streams = h + row * 4 * hidden;
    const HcMix& mix = mixes[row];
    for (int64_t d = columns.first; d < columns.end; d += 8) {
      F8 old[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) old[i] = load_bf16(streams + i * hidden + d);
      const F8 value = load_bf16(y + row * hidden + d);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        F8 sum = mul8(set8(mix.c[0][j]), old[0]);
#pragma GCC unroll 4
        for (int i = 1; i < 4; ++i) sum = add8(sum, mul8(set8(mix.c[i][j]), old[i]));
        store_bf16(streams + j * hidden + d, add8(mul8(set8(mix.p[j]), value), sum));
      }
    }
  }
}

// ---- Engram ------------------------------------------------------------------------------------------------------------

float gate_of(const EngramGateArgs& args, int64_t stream, const Bf16* h, const Bf16* key) {
  const Bf16* qw = args.q_weight + stream * args.hidden;
  const Bf16* kw = args.k_weight + stream * args.hidden;
  const float product = block_sum8(args.hidden, [&](float partial, int64_t d) {
    return __builtin_fmaf(to_float(h[d]) * (to_float(qw[d]) * to_float(kw[d])), to_float(key[d]), partial);
  });
  const float statistic = inverse_rms(h, args.hidden, args.norm_eps) * inverse_rms(key, args.hidden, args.norm_eps);
  const float dot = product * statistic * (1.0f / std::sqrt(static_cast<float>(args.hidden)));
  return sigmoid_f32(std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6f)), dot));
}

void engram_gate(const EngramGateArgs& args, int64_t rows) {
  const int64_t hidden = args.hidden;
  if (hidden % 8 != 0) return ref::engram_gate(args, rows);
  for (int64_t i = 0; i < 4 * rows; ++i) {  // row i / 4, stream i % 4
    const Bf16* key = args.key_value + i / 4 * 5 * hidden;
    const Bf16* value = key + 4 * hidden;
    Bf16* h = args.h + i * hidden;
    const F8 gate = set8(gate_of(args, i % 4, h, key + i % 4 * hidden));
    for (int64_t d = 0; d < hidden; d += 8) {
      store_bf16(h + d, add8(load_bf16(h + d), mul8(gate, load_bf16(value + d))));
    }
  }
}
