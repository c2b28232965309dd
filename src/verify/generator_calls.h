// The generator calls in the `inputs` text of an op (docs/verify.md, "Generated inputs"): which seeds and parameters
// its data was made with. An op asks for them by name and says how many elements it takes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/formats.h"
#include "tensor/tensor.h"

namespace deepinfer::golden {

// A seed that may depend on two counters: base + i * per_i + j * per_j.
struct SeedFormula {
  uint64_t base = 0, per_i = 0, per_j = 0;
  uint64_t at(uint64_t i, uint64_t j) const { return base + i * per_i + j * per_j; }
};

// "bias_vl f32(seed 503, sh 25) [384]" in the part "backbone: ...". Lists of seeds make a call each.
struct GeneratorCall {
  std::string section;  // the word before the colon of its part; empty without one
  std::string name, kind;
  SeedFormula seed;
  std::vector<int> parameters;  // e0, sh or base
  bool absolute = false;        // "|bf16(...)|"
  Shape shape;                  // empty when the text gives none; -1 for a length that is no number
};

// Immutable after parse().
class GeneratorCalls {
 public:
  // kInvalidArgument for text with calls that can't be read.
  static Result<GeneratorCalls> parse(std::string_view inputs);

  // The n-th call of that name; the name may be any ending of the words in front of the call, and begin with a section
  // and a colon. kNotFound.
  Result<const GeneratorCall*> find(std::string_view name, int n = 0) const;

  // The elements of a call of this kind. kInvalidArgument when the text says another kind or size.
  Result<std::vector<uint8_t>> packed_bytes(std::string_view name, int64_t count, int n = 0) const;
  Result<std::vector<uint8_t>> e4m3(std::string_view name, int64_t count, int n = 0) const;
  Result<std::vector<uint8_t>> e8m0(std::string_view name, int64_t count, int n = 0) const;
  Result<std::vector<Bf16>> bf16(std::string_view name, int64_t count, int n = 0) const;
  Result<std::vector<float>> f32(std::string_view name, int64_t count, int n = 0) const;

 private:
  Result<const GeneratorCall*> checked(std::string_view name, std::string_view kind, int64_t count, int n) const;

  std::string text_;
  std::vector<GeneratorCall> calls_;
};

}  // namespace deepinfer::golden
