// DSpark drafts (model-v41 9):
//
//   main_x_p = RMS(main_proj [mean of the streams at the inputs of the target layers]), for every processed position
//   each stage keeps its own window rows of main_x; one draft pass runs [y, noise, noise, ...] at p + 1 ... through the
//   stages, every row attending to the window rows up to p and to all rows of the pass
//   logits_k = head RMS(x_k) + markov_head markov_embed(d_k);  d_{k+1} chosen from logits_k;  confidence_k = proj [x_k; e_k]
#include <algorithm>
#include <cstring>

#include "model/forward_pass.h"
#include "model/model_impl.h"

namespace deepinfer {
namespace {

// All rows of the pass share one list: window rows of the sequence, then the rows of the pass.
void list_draft_rows(ForwardPass& pass, int64_t window_layer) {
  Workspace& ws = pass.ws;
  const Row& first = pass.rows[0];
  const std::byte** pointers = ws.window_pointers.data();
  int32_t count = 0;
  const int64_t oldest = std::max(first.position - pass.layout.window, first.sequence->cut.decoder_first);
  for (int64_t p = std::max<int64_t>(0, oldest); p < first.position; ++p) {
    pointers[count++] = first.sequence->window_row(window_layer, p);
  }
  for (int64_t i = 0; i < pass.num_rows(); ++i) {
    pointers[count++] = ws.window_rows.data() + i * pass.layout.window_row_bytes;
  }
  for (int64_t i = 0; i < pass.num_rows(); ++i) ws.lists[i] = {.window = pointers, .num_window = count};
}

void run_stage(ForwardPass& pass, const BlockWeights& weights, int64_t window_layer) {
  Workspace& ws = pass.ws;
  hc_enter(pass, weights.hc_attn, weights.attn_norm);
  const ActivationRows x = pass.quantize(ws.x.data(), pass.num_rows(), pass.config.hidden_size);
  make_window_rows(pass, weights, x);
  project_query(pass, weights, x);
  list_draft_rows(pass, window_layer);
  attend_and_project(pass, weights);
  hc_leave(pass);
  hc_enter(pass, weights.hc_ffn, weights.ffn_norm);
  experts(pass, weights.moe, window_layer);
  hc_leave(pass);
}

// Chooses the drafts one after another; logits already hold the head's part.
void run_markov_chain(ForwardPass& pass, const DsparkWeights& weights, const Bf16* x, int32_t next_id,
                      const DraftChooser& choose, DraftOutput& out) {
  Workspace& ws = pass.ws;
  const int64_t vocab = pass.config.vocab_size, hidden = pass.config.hidden_size, rank = pass.config.dspark_markov_rank;
  std::vector<float> markov(static_cast<size_t>(vocab));
  std::vector<Bf16> features(static_cast<size_t>(hidden + rank));
  int32_t previous = next_id;
  for (int64_t k = 0; k < pass.num_rows(); ++k) {
    const Bf16* embedding = weights.markov_embed.as<Bf16>() + previous * rank;
    std::copy_n(x + k * hidden, hidden, features.begin());
    std::copy_n(embedding, rank, features.begin() + hidden);
    float& confidence = out.confidence.emplace_back();
    pass.ops.linear(pass.kernel, weights.confidence.view(), pass.pair(features.data(), 1, hidden + rank),
                    {.f32 = &confidence, .stride = 1});
    pass.ops.linear(pass.kernel, weights.markov_head.view(), pass.pair(embedding, 1, rank),
                    {.f32 = markov.data(), .stride = vocab});
    float* logits = ws.logits.data() + k * vocab;
    for (int64_t v = 0; v < vocab; ++v) logits[v] += markov[v];
    previous = choose({logits, static_cast<size_t>(vocab)}, pass.rows[k].position + 1);
    out.ids.push_back(previous);
  }
  out.logits = {ws.logits.data(), static_cast<size_t>(pass.num_rows() * vocab)};
}

}  // namespace

void capture_target(ForwardPass& pass, int64_t target) {
  Workspace& ws = pass.ws;
  const int64_t hidden = pass.config.hidden_size, width = hidden * std::ssize(pass.config.dspark_target_layer_ids);
  for (int64_t row = 0; row < pass.num_rows(); ++row) {
    const Bf16* h = ws.h.data() + row * 4 * hidden;
    Bf16* out = ws.main_hidden.data() + row * width + target * hidden;
    for (int64_t d = 0; d < hidden; ++d) {
      float sum = to_float(h[d]);
      for (int stream = 1; stream < 4; ++stream) sum += to_float(h[stream * hidden + d]);
      out[d] = to_bf16(sum / 4.0f);
    }
  }
}

void write_dspark_rows(ForwardPass& pass, const DsparkWeights& weights) {
  Workspace& ws = pass.ws;
  const int64_t rows = pass.num_rows(), hidden = pass.config.hidden_size;
  const int64_t width = hidden * std::ssize(pass.config.dspark_target_layer_ids);
  pass.observe("main_hidden", pass.config.num_hidden_layers, ws.main_hidden.data(), rows * width);
  pass.linear(weights.main_proj, pass.quantize(ws.main_hidden.data(), rows, width), ws.main_x.data());
  pass.rms_norm(ws.main_x.data(), weights.main_norm, rows, ws.main_x.data());
  pass.set_cos_sin(RopeKind::kPlain);
  for (size_t stage = 0; stage < weights.stages.size(); ++stage) {
    make_window_rows(pass, weights.stages[stage], pass.quantize(ws.main_x.data(), rows, hidden));
    store_window_rows(pass, pass.config.num_hidden_layers + static_cast<int64_t>(stage));
  }
}

Result<DraftOutput> Model::draft(Sequence& sequence, int32_t next_id, const DraftChooser& choose) {
  const ModelConfig& config = impl_->config;
  if (!impl_->weights.dspark) {
    return Error(Code::kUnimplemented, "draft: this checkpoint has no DSpark stages (num_nextn_predict_layers is 0)");
  }
  if (sequence.length == 0) return Error(Code::kInvalidArgument, "draft: the sequence is empty");
  if (next_id < 0 || next_id >= config.vocab_size) {
    return Error(Code::kInvalidArgument, "draft: found id {}, expected below {}", next_id, config.vocab_size);
  }
  if (sequence.length + config.dspark_block_size > impl_->options.max_context_tokens) {
    return Error(Code::kInvalidArgument, "draft: positions up to {} needed, the context ends at {}",
                 sequence.length + config.dspark_block_size, impl_->options.max_context_tokens);
  }
  impl_->rows.clear();
  std::vector<int32_t> ids(static_cast<size_t>(config.dspark_block_size), config.dspark_noise_token_id);
  ids[0] = next_id;
  for (int64_t k = 0; k < config.dspark_block_size; ++k) {
    impl_->rows.push_back({.sequence = &sequence, .position = sequence.length + k, .first_position = sequence.length});
  }
  const DsparkWeights& weights = *impl_->weights.dspark;
  ForwardPass pass = impl_->begin(nullptr);
  impl_->embed(pass, ids);
  pass.set_cos_sin(RopeKind::kPlain);
  for (size_t stage = 0; stage < weights.stages.size(); ++stage) {
    run_stage(pass, weights.stages[stage], config.num_hidden_layers + static_cast<int64_t>(stage));
  }
  Workspace& ws = impl_->workspace;
  const int64_t rows = pass.num_rows(), hidden = config.hidden_size;
  pass.ops.hc_fold(pass.kernel, ws.h.data(), ws.pre.data(), 4, rows, hidden, ws.x.data());
  pass.rms_norm(ws.x.data(), weights.norm, rows, ws.y.data());
  pass.ops.linear(pass.kernel, impl_->weights.head.view(), pass.pair(ws.y.data(), rows, hidden),
                  {.f32 = ws.logits.data(), .stride = config.vocab_size});
  DraftOutput out;
  run_markov_chain(pass, weights, ws.x.data(), next_id, choose, out);
  return out;
}

}  // namespace deepinfer
