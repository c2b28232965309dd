// Engram (docs/spec/model.md 6), in front of a layer:
//
//   rows = hashes of the last four compressed ids;   e = the rows' values, column after column;   [key; value] = wkv e
//   h_c += sigmoid(sqrt-sign(h_c . qw_c kw_c . key_c)) * value, per stream c
#include "model/forward_pass.h"

namespace deepinfer {

void engram(ForwardPass& pass, int64_t engram_index, Block block) {
  Workspace& ws = pass.ws;
  const int64_t rows = pass.num_rows(), hidden = pass.config.hidden_size;
  const int64_t columns = (pass.config.engram_max_ngram_size - 1) * pass.config.engram_n_heads;
  const int64_t width = columns * pass.config.engram_head_dim;
  pass.add(HashEngram{engram_index}, {});
  pass.add(GatherEngram{block, rows * columns, ws.engram_rows.at(), ws.engram_embedding.at()}, {});
  const Phase operand = pass.add(
      MakeOperands{rows, width, ws.engram_embedding.at(), {.paired = {}, .quantized = ws.quantized.at(), .int8 = {}}},
      {});
  const InputRows e = {ws.quantized.at(), {}, rows, width};
  const Phase projected = pass.add(
      Products{{Product{{block, MatrixName::kEngramWkv}, e, {}, ws.engram_key_value.at(), 5 * hidden}}, 1}, {operand});
  pass.add(EngramGate{block, rows, ws.engram_key_value.at(), ws.h.at()}, {projected});
  pass.run();
  if (pass.is_wanted("engram_rows")) {
    pass.observer->indices("engram_rows", block, {ws.engram_rows.data(), static_cast<size_t>(rows * columns)});
  }
  pass.observe("engram_out", block, ws.h.data(), rows * 4 * hidden);
}

}  // namespace deepinfer
