// Engram at the sizes of the released model: constants, hashed rows, lookup values, gate (docs/spec/model.md 6).
#include "model/engram_hash.h"
#include "tokenizer/tokenizer.h"
#include "verify/compare.h"
#include "verify/engram_constants.h"
#include "verify/op_checks.h"

namespace deepinfer::golden {
namespace {

constexpr int64_t kColumns = 24;
constexpr int64_t kLayers = 2;
constexpr int64_t kVocab = 129280;

// The Engram keys of the released config.json.
Result<std::vector<EngramLayerHash>> released_hashes() {
  ModelConfig config;
  config.engram_layer_ids = {1, 14};
  config.engram_num_embeddings = {384006168, 384016682};
  config.engram_max_ngram_size = 4;
  config.engram_vocab_size = 16000000;
  config.engram_n_heads = 8;
  config.engram_compressed_vocab_size = 99092;
  return make_engram_hashes(config);
}

// Compressed ids of the current token and three before it. Before the start, and from an image span (mask 0)
// on backwards, they are the pad.
std::array<int64_t, kEngramTokens> ngram_ids(std::span<const int64_t> classes, std::span<const uint8_t> mask,
                                             int64_t position, int64_t pad) {
  std::array<int64_t, kEngramTokens> ids;
  ids.fill(pad);
  for (int64_t back = 0; back < kEngramTokens && position >= back && mask[position - back] != 0; ++back) {
    ids[back] = classes[position - back];
  }
  return ids;
}

Status compare_rows(OpCheck& op, std::string_view item, const std::vector<EngramLayerHash>& hashes,
                    std::span<const int64_t> classes, std::span<const uint8_t> mask, int64_t pad) {
  const auto positions = static_cast<int64_t>(classes.size());
  ASSIGN_OR_RETURN(const auto stored, op.file.read<int32_t>(item, {positions, kLayers, kColumns}));
  std::vector<int64_t> found(stored.size());
  for (int64_t position = 0; position < positions; ++position) {
    const auto ids = ngram_ids(classes, mask, position, pad);
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      hashes[layer].rows(ids, std::span(found).subspan((position * kLayers + layer) * kColumns, kColumns));
    }
  }
  const std::vector<int64_t> expected(stored.begin(), stored.end());
  op.compare(item, kMismatches, static_cast<double>(count_mismatches<int64_t>(expected, found)), 0,
             fmt::format("{} positions", positions));
  return Status();
}

}  // namespace

Status check_engram_constants(OpCheck& op) {
  const CountMismatches compare = [&](std::string_view item, int64_t mismatches) {
    op.compare(item, kMismatches, static_cast<double>(mismatches), 0);
  };
  ASSIGN_OR_RETURN(const auto hashes, released_hashes());
  RETURN_IF_ERROR(compare_hash_constants(op.file, hashes, compare));
  ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::load(op.model_directory + "/tokenizer.json"));
  if (tokenizer.vocab_size() != kVocab) {
    op.skip("token_map", fmt::format("needs the released tokenizer of {} ids; the model's has {}", kVocab,
                                     tokenizer.vocab_size()));
    return Status();
  }
  return compare_token_map(op.file, engram_token_map(tokenizer, kVocab), compare);
}

Status check_engram_hash(OpCheck& op) {
  ASSIGN_OR_RETURN(const GoldenFile constants,
                   GoldenFile::open(op.directory + "/engram_constants.safetensors"));
  ASSIGN_OR_RETURN(const auto token_map, constants.read<int32_t>("token_map", {kVocab}));
  ASSIGN_OR_RETURN(const auto ids, op.file.read<int32_t>("ids", {-1}));
  ASSIGN_OR_RETURN(const auto mask, op.file.read_codes("mask", {static_cast<int64_t>(ids.size())}));
  ASSIGN_OR_RETURN(const auto hashes, released_hashes());
  constexpr int64_t kPadTokenId = 2;
  const int64_t pad = token_map[kPadTokenId];
  std::vector<int64_t> classes;
  for (const int32_t id : ids) {
    if (id < 0 || id >= kVocab) {
      return Error(Code::kInvalidArgument, "{}: ids: found {}, expected 0 to {}", op.file.path(), id,
                   kVocab - 1);
    }
    classes.push_back(token_map[id]);
  }
  RETURN_IF_ERROR(compare_rows(op, "rows_text", hashes, classes, std::vector<uint8_t>(ids.size(), 1), pad));
  return compare_rows(op, "rows_masked", hashes, classes, mask, pad);
}

Status check_engram_apply(OpCheck& op) {
  constexpr int64_t kTokens = 2, kRowDim = 256, kInput = kColumns * kRowDim, kOutput = 5 * kHidden;
  ASSIGN_OR_RETURN(const auto codes, op.inputs.e4m3("rows", kTokens * kInput));
  ASSIGN_OR_RETURN(const auto scales, op.inputs.e8m0("scales", kTokens * kInput / 32));
  std::vector<Bf16> e;
  for (size_t i = 0; i < codes.size(); ++i)
    e.push_back(to_bf16(e4m3_to_float(codes[i]) * e8m0_to_float(scales[i / 32])));
  ASSIGN_OR_RETURN(const auto expected_e, op.file.read<Bf16>("e", {kTokens, kInput}));
  op.compare("e", kMismatches, static_cast<double>(count_mismatches<Bf16>(expected_e, e)), 0);

  ASSIGN_OR_RETURN(const auto wkv_codes, op.inputs.e4m3("wkv", kOutput * kInput));
  ASSIGN_OR_RETURN(const auto wkv_scales, op.inputs.e8m0("scale", kOutput / 32 * kInput / 32));
  ASSIGN_OR_RETURN(const Matrix wkv, Matrix::pack_fp8(kOutput, kInput, wkv_codes, wkv_scales));
  const Product found_kv = op.bench.quantized_product(wkv.view(), e);
  ASSIGN_OR_RETURN(const auto kv, op.file.read<Bf16>("kv", {kTokens, kOutput}));
  op.compare("kv", kBf16Ulps, worst_bf16_ulps(widen(kv), widen(found_kv.y), kOutput), 1);

  ASSIGN_OR_RETURN(auto h, op.inputs.bf16("token 0", 4 * kHidden));
  ASSIGN_OR_RETURN(const auto second, op.inputs.bf16("token 1", 4 * kHidden));
  h.insert(h.end(), second.begin(), second.end());
  ASSIGN_OR_RETURN(const auto q_weight, op.inputs.bf16("q_weight", 4 * kHidden));
  ASSIGN_OR_RETURN(const auto k_weight, op.inputs.bf16("k_weight", 4 * kHidden));
  op.bench.ops().engram_gate({.hidden = kHidden,
                              .norm_eps = kNormEps,
                              .q_weight = q_weight.data(),
                              .k_weight = k_weight.data(),
                              .key_value = kv.data(),
                              .h = h.data()},
                             kTokens);
  ASSIGN_OR_RETURN(const auto expected, op.file.read_bf16("h_out", {kTokens, 4, kHidden}));
  op.compare("h_out", kBf16Ulps, worst_bf16_ulps(expected, widen(h), kHidden), 1);
  return Status();
}

}  // namespace deepinfer::golden
