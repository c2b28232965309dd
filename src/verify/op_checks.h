// The checks of golden/ops: one function an op, in the op_*.cc file of its subject. Each makes the inputs
// that ops/manifest.json names, runs the engine's own functions, and compares with the stored outputs.
#pragma once

#include <string>
#include <string_view>

#include "checkpoint/config.h"
#include "json/json.h"
#include "verify/bench.h"
#include "verify/generator_calls.h"
#include "verify/golden_file.h"
#include "verify/recorder.h"

namespace deepinfer::golden {

// What a check function works with. All borrowed for the call.
struct OpCheck {
  std::string name;       // of the op in the manifest
  GeneratorCalls inputs;  // as the manifest writes them
  std::string directory;  // golden/ops
  std::string model_directory;
  const GoldenFile& file;
  Bench& bench;
  Recorder& recorder;

  void compare(std::string_view item, std::string_view measure, double error, double allowed,
               std::string note = "") const {
    recorder.compare(fmt::format("ops/{} {}", name, item), measure, error, allowed, std::move(note));
  }
  void skip(std::string_view item, std::string why) const {
    recorder.skip(fmt::format("ops/{} {}", name, item), std::move(why));
  }
};

// Runs every op that the manifest lists, in its order. A damaged manifest is the error; a damaged op is a
// failed check.
Status check_ops(const std::string& golden_directory, const std::string& model_directory, Bench& bench,
                 Recorder& recorder);

// op_formats.cc
Status check_tables(OpCheck& op);
Status check_quantizers(OpCheck& op);
// op_products.cc
Status check_gemm(OpCheck& op);
Status check_expert(OpCheck& op);
Status check_output_projection(OpCheck& op);
Status check_heads(OpCheck& op);
// op_streams.cc
Status check_rms_norm(OpCheck& op);
Status check_rope(OpCheck& op);
Status check_hyper_connections(OpCheck& op);
// op_attention.cc
Status check_compressor(OpCheck& op);
Status check_indexer(OpCheck& op);
Status check_sparse_attention(OpCheck& op);
// op_choices.cc
Status check_router(OpCheck& op);
Status check_sampling(OpCheck& op);
// op_engram.cc
Status check_engram_constants(OpCheck& op);
Status check_engram_hash(OpCheck& op);
Status check_engram_apply(OpCheck& op);

// Constants of the released model (docs/spec/model.md 1.1) that the true-size ops depend on.
inline constexpr float kNormEps = 1e-20f;
inline constexpr int64_t kHidden = 5120;
inline constexpr int64_t kHeadDim = 512;
inline constexpr int64_t kIndexHeadDim = 128;
inline constexpr int64_t kRotaryDim = 64;
inline constexpr float kSwigluLimit = 10.0f;
inline constexpr double kCompressTheta = 160000;
inline constexpr RopeScaling kYarn{
    .factor = 16, .beta_fast = 32, .beta_slow = 1, .original_max_position_embeddings = 65536};

// Limits of sums whose order is free (docs/verify.md).
inline constexpr double kSumLimit = 1e-5;

}  // namespace deepinfer::golden
