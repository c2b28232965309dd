// The cut between the halves (docs/spec/model.md 12.3): in the first decoder layer every row feeds the compressor, and
// only rows from the sequence's decoder_first on go further. Rows behind the cut leave the pass; the others move
// together, so that every later part sees a smaller call. What a row computes does not depend on the rows beside it.
#include <algorithm>

#include "model/forward_pass.h"

namespace deepinfer {

void drop_encoder_rows(ForwardPass& pass, std::vector<Row>& kept) {
  const auto runs_decoder = [](const Row& row) {
    return row.position >= row.sequence->cut.decoder_first || row.sequence->cut.mask_decoder;
  };
  if (std::all_of(pass.rows.begin(), pass.rows.end(), runs_decoder)) return;
  Workspace& ws = pass.ws;
  const int64_t hidden = pass.config.hidden_size;
  const int64_t targets = hidden * std::ssize(pass.config.dspark_target_layer_ids);
  kept.clear();
  for (int64_t from = 0; from < pass.num_rows(); ++from) {
    Row row = pass.rows[from];
    if (!runs_decoder(row)) continue;
    const auto to = std::ssize(kept);
    const bool continues = to > 0 && kept.back().span == row.span;
    row.first_row = continues ? kept.back().first_row : to;
    row.first_position = continues ? kept.back().first_position : row.position;
    kept.push_back(row);
    if (to == from) continue;
    std::copy_n(ws.h.data() + from * 4 * hidden, 4 * hidden, ws.h.data() + to * 4 * hidden);
    std::copy_n(ws.x.data() + from * hidden, hidden, ws.x.data() + to * hidden);
    ws.mix[to] = ws.mix[from];
    std::copy_n(ws.main_hidden.data() + from * targets, targets, ws.main_hidden.data() + to * targets);
  }
  pass.rows = kept;
  pass.add(MakeOperands{pass.num_rows(), hidden, ws.x.at(), pass.x_operands()}, {});
  pass.run();
}

}  // namespace deepinfer
