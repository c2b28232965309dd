#include "kernels/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/checked_math.h"
#include "kernels/arm/neon.h"
#include "kernels/ref/ref_ops.h"
#include "kernels/tables.h"
#include "kernels/x86/avx2.h"
#include "kernels/x86/avx512.h"

namespace deepinfer {

namespace ref {

#include "kernels/op_table.h"

const Ops& table() {
  static const Ops ops = make_table("ref");
  return ops;
}

}  // namespace ref

void Ops::hc_mix(const HcParams& params, const Bf16* h, int64_t rows, int64_t hidden, float* products, HcMix* mixes,
                 std::byte* scratch) const {
  auto* sums = reinterpret_cast<float*>(scratch);
  for (int64_t first = 0; first < rows; first += kHcRowTile) {
    const int64_t count = std::min(kHcRowTile, rows - first);
    hc_sums(params, h + first * 4 * hidden, count, hidden, 0, params.fn.num_blocks(), sums);
    hc_finish(params, sums, count, hidden, products + first * 24, mixes + first);
  }
}

int64_t AttentionArgs::chunk_end(const AttentionList& list, int64_t begin) const {
  const int64_t window = list.num_window, total = window + list.num_compressed;
  const int64_t shift = std::max<int64_t>(0, window_columns - window);  // column of a compressed row, less its index
  const int64_t last = (begin < window ? begin : begin + shift) / kAttentionChunk * kAttentionChunk + kAttentionChunk;
  return last <= window ? last : std::clamp(last - shift, window, total);
}

size_t attention_scratch_bytes(int64_t max_list, int64_t head_dim) {
  // Rows as fp32, then eight transposed queries, weights of eight heads and their factors between chunks; or rows as bf16,
  // then scores and sums of 64 heads.
  const int64_t max_chunks = max_list / kAttentionChunk + 2;
  const int64_t floats = max_list * head_dim + 8 * head_dim + 8 * max_list + 8 * max_chunks;
  const int64_t tiled = (max_list + 1) * head_dim / 2 + 64 * max_list + 64 * head_dim;
  return round_up(static_cast<size_t>(std::max(floats, tiled)) * sizeof(float), 64);
}

size_t index_scratch_bytes(int64_t num_heads, int64_t index_head_dim) {
  const int64_t padded_heads = (num_heads + 7) / 8 * 8;
  return round_up(static_cast<size_t>((padded_heads + 8) * index_head_dim) * sizeof(float), 64);
}

size_t hc_scratch_bytes(int64_t hidden) {
  // Block sums of a tile of rows: 24 products and the sum of squares, padded to 32.
  return ceil_div(static_cast<size_t>(4 * hidden), kSumBlock) * kHcRowTile * kHcSumStride * sizeof(float);
}

namespace {

#if defined(__x86_64__)
constexpr bool kX86 = true, kArm = false;
#elif defined(__aarch64__)
constexpr bool kX86 = false, kArm = true;
#else
constexpr bool kX86 = false, kArm = false;
#endif

struct Table {
  std::string_view name;
  bool built;  // for this architecture
  const Ops& (*ops)();
  bool (*supported)();
  std::string_view needs;
  bool (*is_fast)() = [] { return true; };  // or the next is better
};

// The best first. The only list of tables: names, messages, help and tests follow it (tables.h).
constexpr Table kTables[] = {
    {"avx512bf16", kX86, avx512bf16::table, avx512bf16::supported,
     "AVX-512 with F, BW, DQ, VL, VBMI, VNNI and BF16", avx512bf16::is_fast},
    {"avx512vnni", kX86, avx512vnni::table, avx512vnni::supported, "AVX-512 with F, BW, DQ, VL, VBMI and VNNI"},
    {"avx512", kX86, avx512::table, avx512::supported, "AVX-512 with F, BW, DQ and VL"},
    {"avx2", kX86, avx2::table, avx2::supported, "AVX2 and FMA"},
    {"neon", kArm, neon::table, neon::supported, "NEON"},
    {"ref", true, ref::table, [] { return true; }, "nothing"},
};

}  // namespace

Result<const Ops*> select_ops(std::string_view name) {
  if (const char* forced = std::getenv("DEEPINFER_ISA"); forced != nullptr && name == "auto") name = forced;
  for (const Table& table : kTables) {
    if (name != "auto" && name != table.name) continue;
    if (table.supported() && (name == table.name || table.is_fast())) return &table.ops();
    if (name == table.name) {
      return Error(Code::kUnimplemented, "instruction set '{}': this processor lacks {}", name, table.needs);
    }
  }
  return Error(Code::kInvalidArgument, "instruction set '{}' is unknown; expected auto or one of {}", name,
               fmt::join(table_names(), ", "));
}

std::vector<std::string> table_names(TableSet set) {
  std::vector<std::string> names;
  for (const Table& table : kTables) {
    if (set == TableSet::kAll || table.built) names.emplace_back(table.name);
  }
  return names;
}

}  // namespace deepinfer
