// Code tables and block quantizers (docs/spec/model.md 4.1): all exact.
#include <algorithm>
#include <cmath>

#include "kernels/quantize.h"
#include "verify/compare.h"
#include "verify/op_checks.h"

namespace deepinfer::golden {
namespace {

constexpr int64_t kBf16Patterns = 65536;
constexpr int64_t kBlock = 32;

bool is_nan(Bf16 value) {
  return (value.bits & 0x7fff) > 0x7f80;
}

// Encodes every bf16 number; patterns that are NaN are informative only.
template <typename Encode>
Status check_encode_table(OpCheck& op, std::string_view name, Encode&& encode) {
  ASSIGN_OR_RETURN(const auto expected, op.file.read_codes(name, {kBf16Patterns}));
  int64_t mismatches = 0;
  for (int64_t bits = 0; bits < kBf16Patterns; ++bits) {
    const Bf16 value{static_cast<uint16_t>(bits)};
    if (!is_nan(value) && encode(to_float(value)) != expected[bits]) ++mismatches;
  }
  op.compare(name, kMismatches, static_cast<double>(mismatches), 0);
  return Status();
}

template <typename Decode>
Status check_decode_table(OpCheck& op, std::string_view name, Decode&& decode) {
  ASSIGN_OR_RETURN(const auto expected, op.file.read<float>(name, {256}));
  std::vector<float> found(256);
  for (int code = 0; code < 256; ++code) found[code] = decode(static_cast<uint8_t>(code));
  op.compare(name, kMismatches, static_cast<double>(count_mismatches(expected, found)), 0);
  return Status();
}

Status check_fp4_values(OpCheck& op) {
  ASSIGN_OR_RETURN(const auto f32, op.file.read<float>("fp4_dequant_f32", {255, 16}));
  ASSIGN_OR_RETURN(const auto bf16, op.file.read<Bf16>("fp4_dequant_bf16", {255, 16}));
  std::vector<float> found;
  std::vector<Bf16> rounded;
  for (int scale = 0; scale < 255; ++scale) {
    for (int code = 0; code < 16; ++code) {
      found.push_back(e2m1_to_float(static_cast<uint8_t>(code)) * e8m0_to_float(static_cast<uint8_t>(scale)));
      rounded.push_back(to_bf16(found.back()));
    }
  }
  op.compare("fp4_dequant_f32", kMismatches, static_cast<double>(count_mismatches(f32, found)), 0);
  op.compare("fp4_dequant_bf16", kMismatches, static_cast<double>(count_mismatches<Bf16>(bf16, rounded)), 0);
  return Status();
}

// p2c of positive numbers; the quantizers have floors, so that it never meets a zero.
Status check_power_of_two_ceiling(OpCheck& op, std::string_view name, float divisor) {
  ASSIGN_OR_RETURN(const auto x, op.file.read<float>("p2c.x", {-1}));
  ASSIGN_OR_RETURN(const auto expected, op.file.read<float>(name, {static_cast<int64_t>(x.size())}));
  int64_t mismatches = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] > 0 && e8m0_to_float(power_of_two_ceiling(x[i] * (1.0f / divisor))) != expected[i]) ++mismatches;
  }
  op.compare(name, kMismatches, static_cast<double>(mismatches), 0);
  return Status();
}

// One quantizer on all blocks within its contract: codes, scales, and the values that they stand for.
struct QuantizerCheck {
  std::string_view name;
  int64_t code_bytes;  // of a block of 32
  int64_t scale_bytes;
  void (*pack)(const Bf16* x, uint8_t* codes, uint8_t* scales);
  void (*unpack)(const uint8_t* codes, const uint8_t* scales, float* x);
};

void pack_q8(const Bf16* x, uint8_t* codes, uint8_t* scales) {
  scales[0] = quantize_q8(x, codes);
}
void unpack_q8(const uint8_t* codes, const uint8_t* scales, float* x) {
  std::byte row[window_row_bytes(kBlock)];
  std::memcpy(row, codes, kBlock);
  std::memcpy(row + kBlock, scales, 1);
  unpack_window_row(row, kBlock, x);
}
void pack_q4i(const Bf16* x, uint8_t* codes, uint8_t* scales) {
  scales[0] = quantize_q4i(x, codes);
}
void unpack_q4i(const uint8_t* codes, const uint8_t* scales, float* x) {
  unpack_index_row(reinterpret_cast<const std::byte*>(codes), reinterpret_cast<const std::byte*>(scales),
                   kBlock, x);
}
void pack_q4k(const Bf16* x, uint8_t* codes, uint8_t* scales) {
  scales[0] = quantize_q4k(x, codes);
  scales[1] = quantize_q4k(x + 16, codes + 8);
}
void unpack_q4k(const uint8_t* codes, const uint8_t* scales, float* x) {
  std::byte row[compressed_row_bytes(kBlock)];
  std::memcpy(row, codes, 16);
  std::memcpy(row + 16, scales, 2);
  unpack_compressed_row(row, kBlock, x);
}

constexpr QuantizerCheck kQuantizers[] = {
    {"q8", 32, 1, pack_q8, unpack_q8},
    {"q4i", 16, 1, pack_q4i, unpack_q4i},
    {"q4k", 16, 2, pack_q4k, unpack_q4k},
};

// Blocks whose largest value is above 3e38 are informative only.
bool within_contract(std::span<const Bf16> block) {
  return std::all_of(block.begin(), block.end(), [](Bf16 x) { return std::fabs(to_float(x)) <= 3e38f; });
}

Status check_quantizer(OpCheck& op, const QuantizerCheck& quantizer, std::span<const Bf16> x) {
  const std::string name(quantizer.name);
  const int64_t blocks = static_cast<int64_t>(x.size()) / kBlock;
  ASSIGN_OR_RETURN(const auto codes, op.file.read_codes(name + ".code", {blocks, quantizer.code_bytes}));
  ASSIGN_OR_RETURN(const auto scales, op.file.read_codes(name + ".scale", {blocks, quantizer.scale_bytes}));
  ASSIGN_OR_RETURN(const auto values, op.file.read_bf16(name + ".sim", {blocks, kBlock}));
  int64_t wrong_codes = 0, wrong_scales = 0, wrong_values = 0, compared = 0;
  for (int64_t block = 0; block < blocks; ++block) {
    const auto source = x.subspan(block * kBlock, kBlock);
    if (!within_contract(source)) continue;
    ++compared;
    std::vector<uint8_t> code(quantizer.code_bytes), scale(quantizer.scale_bytes);
    std::vector<float> value(kBlock);
    quantizer.pack(source.data(), code.data(), scale.data());
    quantizer.unpack(code.data(), scale.data(), value.data());
    const auto at = [block](const auto& all, int64_t length) {
      return std::span(all).subspan(block * length, length);
    };
    wrong_codes += count_mismatches<uint8_t>(at(codes, quantizer.code_bytes), code);
    wrong_scales += count_mismatches<uint8_t>(at(scales, quantizer.scale_bytes), scale);
    wrong_values += count_mismatches(at(values, kBlock), value);
  }
  const std::string note = fmt::format("{} blocks", compared);
  op.compare(name + ".code", kMismatches, static_cast<double>(wrong_codes), 0, note);
  op.compare(name + ".scale", kMismatches, static_cast<double>(wrong_scales), 0, note);
  op.compare(name + ".sim", kMismatches, static_cast<double>(wrong_values), 0, note);
  return Status();
}

}  // namespace

Status check_tables(OpCheck& op) {
  RETURN_IF_ERROR(check_decode_table(op, "e4m3_decode", e4m3_to_float));
  RETURN_IF_ERROR(check_decode_table(op, "e8m0_decode", e8m0_to_float));
  RETURN_IF_ERROR(check_encode_table(op, "e4m3_encode", float_to_e4m3));
  RETURN_IF_ERROR(check_encode_table(op, "e2m1_encode", float_to_e2m1));
  RETURN_IF_ERROR(check_fp4_values(op));
  RETURN_IF_ERROR(check_power_of_two_ceiling(op, "p2c.inv448", 448.0f));
  return check_power_of_two_ceiling(op, "p2c.inv6", 6.0f);
}

Status check_quantizers(OpCheck& op) {
  ASSIGN_OR_RETURN(const auto x, op.file.read<Bf16>("x", {-1, kBlock}));
  for (const QuantizerCheck& quantizer : kQuantizers) RETURN_IF_ERROR(check_quantizer(op, quantizer, x));
  return Status();
}

}  // namespace deepinfer::golden
