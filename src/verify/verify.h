// Golden data against the engine, check by check. The data is a directory in the format of docs/verify.md:
//
//   ops/manifest.json, ops/*.safetensors     single operations at the sizes of the released model
//   tiny/engram_constants.safetensors        token map and hash constants of the model under test
//   tiny/prompts/*.safetensors               prompts with the intermediate results of a forward pass
//
// Each part is used where it is present. Nothing here decides what is right: the data and its limits do.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/ops.h"
#include "model/weights_cache.h"

namespace deepinfer {

struct VerifyOptions {
  std::string model_directory;
  std::string golden_directory;
  std::string isa = "auto";  // a table of kernels/ops.h
  Numerics numerics = Numerics::kExact;
  int threads = 1;
  std::optional<WeightsCache> weights_cache = std::nullopt;
};

// One comparison: the largest error found beside the largest allowed.
struct VerifyCheck {
  enum class Outcome { kPassed, kFailed, kSkipped };
  std::string name;  // "ops/rmsnorm y.5120", "tiny/p064 logits"
  Outcome outcome = Outcome::kFailed;
  std::string measure;  // what the error counts: "bf16 ulps", "relative rms", "mismatches", ...
  double error = 0;
  double allowed = 0;
  std::string note;  // more numbers, or why it failed or was skipped
};

struct VerifyReport {
  std::string isa, summation_order;  // what ran
  std::vector<VerifyCheck> checks;
  int64_t top1_equal = 0;  // rows of logits whose largest entry is the golden one, over all prompts
  int64_t top1_rows = 0;

  int64_t count(VerifyCheck::Outcome outcome) const;
  bool passed() const { return count(VerifyCheck::Outcome::kFailed) == 0; }
};

// Runs every check that the directory has data for; `on_check` sees each as soon as it is known. A check that
// can't be made (a damaged file, a missing tensor) is a failed check. Errors: kNotFound when the directory
// has neither part, kInvalidArgument for an unknown isa, and whatever loading the model returns.
Result<VerifyReport> verify_golden(const VerifyOptions& options,
                                   const std::function<void(const VerifyCheck&)>& on_check = {});

// One line of text, without a line break; the closing summary; the whole report as one JSON object.
std::string verify_line(const VerifyCheck& check);
std::string verify_summary(const VerifyReport& report);
std::string verify_json(const VerifyReport& report);

}  // namespace deepinfer
