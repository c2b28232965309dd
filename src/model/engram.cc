// Engram (docs/spec/model.md 6), in front of a layer:
//
//   rows = hashes of the last four compressed ids;   e = the rows' values, column after column;   [key; value] = wkv e
//   h_c += sigmoid(sqrt-sign(h_c . qw_c kw_c . key_c)) * value, per stream c
#include "model/forward_pass.h"

namespace deepinfer {
namespace {

void hash_rows(ForwardPass& pass, const EngramLayerHash& hash, int32_t pad_id) {
  const int64_t columns = hash.num_columns();
  for (int64_t i = 0; i < pass.num_rows(); ++i) {
    const Row& row = pass.rows[i];
    std::array<int64_t, kEngramTokens> ids;
    for (int64_t back = 0; back < kEngramTokens; ++back) {
      ids[back] = row.position >= back ? row.engram_ids[back] : pad_id;
    }
    hash.rows(ids, {pass.ws.engram_rows.data() + i * columns, static_cast<size_t>(columns)});
  }
}

void gather(ForwardPass& pass, const EngramWeights& weights, int64_t count) {
  const int64_t dim = pass.config.engram_head_dim;
  Bf16* out = pass.ws.engram_embedding.data();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = pass.ws.engram_rows[i];
    const uint8_t* codes = weights.codes.as<uint8_t>() + row * dim;
    const uint8_t* scales = weights.scales.as<uint8_t>() + row * (dim / 32);
    for (int64_t d = 0; d < dim; ++d) *out++ = to_bf16(e4m3_to_float(codes[d]) * e8m0_to_float(scales[d / 32]));
  }
}

}  // namespace

void engram(ForwardPass& pass, const EngramWeights& weights, const EngramLayerHash& hash, int32_t pad_id,
            int64_t layer) {
  Workspace& ws = pass.ws;
  const int64_t rows = pass.num_rows(), columns = hash.num_columns(), hidden = pass.config.hidden_size;
  hash_rows(pass, hash, pad_id);
  if (pass.is_wanted("engram_rows")) {
    pass.observer->indices("engram_rows", layer, {ws.engram_rows.data(), static_cast<size_t>(rows * columns)});
  }
  gather(pass, weights, rows * columns);
  pass.linear_quantized(weights.wkv, ws.engram_embedding.data(), ws.engram_key_value.data());
  pass.add_rows(rows, 32 * hidden, {}, [&](int64_t begin, int64_t end, int) {
    const int64_t hidden = pass.config.hidden_size;
    pass.ops.engram_gate({.hidden = hidden,
                          .norm_eps = static_cast<float>(pass.config.rms_norm_eps),
                          .q_weight = weights.q_weight.data(),
                          .k_weight = weights.k_weight.data(),
                          .key_value = pass.ws.engram_key_value.data() + begin * 5 * hidden,
                          .h = pass.ws.h.data() + begin * 4 * hidden},
                         end - begin);
  });
  pass.run_region();
  pass.observe("engram_out", layer, ws.h.data(), rows * 4 * hidden);
}

}  // namespace deepinfer
