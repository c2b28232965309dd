// DSpark drafts (docs/spec/model.md 9):
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

// The rows of a sequence share one list: its window rows, then its rows of the pass.
void list_draft_rows(ForwardPass& pass, int64_t window_layer) {
  Workspace& ws = pass.ws;
  const std::byte** pointers = ws.window_pointers.data();
  for (int64_t i = 0; i < pass.num_rows(); ++i) {
    const Row& row = pass.rows[i];
    if (i > row.first_row) {
      ws.lists[i] = ws.lists[row.first_row];
      continue;
    }
    const std::byte** const list = pointers;
    const int64_t oldest = std::max(row.position - pass.layout.window, row.sequence->cut.decoder_first);
    for (int64_t p = std::max<int64_t>(0, oldest); p < row.position; ++p) {
      *pointers++ = row.sequence->window_row(window_layer, p);
    }
    for (int64_t k = 0; k < pass.config.dspark_block_size; ++k) {
      *pointers++ = ws.window_rows.data() + (i + k) * pass.layout.window_row_bytes;
    }
    ws.lists[i] = {.window = list, .num_window = static_cast<int32_t>(pointers - list)};
  }
}

void run_stage(ForwardPass& pass, const BlockWeights& weights, int64_t window_layer, const BlockWeights* next) {
  list_draft_rows(pass, window_layer);
  const InputPhases input =
      project_input(pass, weights, hc_enter(pass, weights.hc_attn, weights.attn_norm), nullptr);
  attend_and_project(pass, weights, input, Region::kNone, Region::kNone);
  const Phase x = hc_enter(pass, weights.hc_ffn, weights.ffn_norm);
  experts(pass, weights.moe, window_layer, x, next != nullptr ? &next->hc_attn : nullptr);
  pass.run_region();
}

// Chooses the drafts one after another, the k-th of every start together; logits already hold the head's
// part.
void run_markov_chain(ForwardPass& pass, const DsparkWeights& weights, const Bf16* x,
                      std::span<const DraftStart> starts, const DraftChooser& choose, std::span<int32_t> ids,
                      std::span<float> confidence) {
  Workspace& ws = pass.ws;
  const int64_t vocab = pass.config.vocab_size, hidden = pass.config.hidden_size, rank = pass.config.dspark_markov_rank;
  const int64_t block = pass.config.dspark_block_size, width = hidden + rank, count = std::ssize(starts);
  for (int64_t k = 0; k < block; ++k) {
    for (int64_t s = 0; s < count; ++s) {
      const int32_t previous = k == 0 ? starts[s].next_id : ids[s * block + k - 1];
      const Bf16* embedding = weights.markov_embed.as<Bf16>() + previous * rank;
      std::copy_n(x + (s * block + k) * hidden, hidden, ws.draft_features.data() + s * width);
      std::copy_n(embedding, rank, ws.draft_features.data() + s * width + hidden);
      std::copy_n(embedding, rank, ws.markov_rows.data() + s * rank);
    }
    pass.linear_paired(weights.confidence, ws.draft_features.data(), count, {.f32 = &confidence[k], .stride = block});
    pass.linear_paired(weights.markov_head, ws.markov_rows.data(), count,
                       {.f32 = ws.markov_logits.data(), .stride = vocab});
    for (int64_t s = 0; s < count; ++s) {
      const int64_t row = s * block + k;
      float* logits = ws.logits.data() + row * vocab;
      const float* markov = ws.markov_logits.data() + s * vocab;
      for (int64_t v = 0; v < vocab; ++v) logits[v] += markov[v];
      ids[row] =
          choose(static_cast<size_t>(s), pass.rows[row].position + 1, {logits, static_cast<size_t>(vocab)});
    }
  }
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
  pass.linear_quantized(weights.main_proj, ws.main_hidden.data(), ws.x.data());
  pass.set_cos_sin(RopeKind::kPlain);
  Phase x = pass.add_rows(rows, 8 * hidden, {}, [&](int64_t begin, int64_t end, int) {
    Bf16* main_x = pass.ws.x.data() + begin * pass.config.hidden_size;
    pass.rms_norm(main_x, weights.main_norm, end - begin, main_x);
    pass.make_operands(begin, end);
  });
  for (size_t stage = 0; stage < weights.stages.size(); ++stage) {
    const BlockWeights& block = weights.stages[stage];
    make_window_rows(pass, block, pass.add_linear({x}, {window_row_task(pass, block)}));
    pass.run_region();
    const int64_t window_layer = pass.config.num_hidden_layers + static_cast<int64_t>(stage);
    observe_window_rows(pass, window_layer);
    store_window_rows(pass, window_layer);
  }
}

int64_t Model::max_drafting() const {
  return impl_->weights.dspark ? impl_->options.max_batch_tokens / impl_->config.dspark_block_size : 0;
}

Result<DraftOutput> Model::draft(std::span<const DraftStart> starts, const DraftChooser& choose) {
  const ModelConfig& config = impl_->config;
  if (!impl_->weights.dspark) {
    return Error(Code::kUnimplemented, "draft: this checkpoint has no DSpark stages (num_nextn_predict_layers is 0)");
  }
  if (std::ssize(starts) > max_drafting()) {
    return Error(Code::kInvalidArgument, "draft: found {} sequences, expected at most {}", starts.size(),
                 max_drafting());
  }
  for (const auto& [sequence, next_id] : starts) {
    if (sequence->length == 0) return Error(Code::kInvalidArgument, "draft: a sequence is empty");
    if (next_id < 0 || next_id >= config.vocab_size) {
      return Error(Code::kInvalidArgument, "draft: found id {}, expected below {}", next_id,
                   config.vocab_size);
    }
  }
  const int64_t block = config.dspark_block_size, rows = std::ssize(starts) * block;
  if (rows == 0) return DraftOutput{};
  impl_->rows.clear();
  impl_->ids.assign(static_cast<size_t>(rows), config.dspark_noise_token_id);
  for (const auto& [sequence, next_id] : starts) {
    const auto first_row = std::ssize(impl_->rows);
    impl_->ids[first_row] = next_id;
    for (int64_t k = 0; k < block; ++k) {
      impl_->rows.push_back({.sequence = sequence,
                             .position = sequence->length + k,
                             .first_row = first_row,
                             .first_position = sequence->length});
    }
  }
  const DsparkWeights& weights = *impl_->weights.dspark;
  ForwardPass pass = impl_->begin(nullptr);
  impl_->embed(pass, impl_->ids);
  pass.set_cos_sin(RopeKind::kPlain);
  for (size_t stage = 0; stage < weights.stages.size(); ++stage) {
    const BlockWeights* next = stage + 1 < weights.stages.size() ? &weights.stages[stage + 1] : nullptr;
    run_stage(pass, weights.stages[stage], config.num_hidden_layers + static_cast<int64_t>(stage), next);
  }
  Workspace& ws = impl_->workspace;
  const int64_t hidden = config.hidden_size;
  pass.ops.hc_fold(ws.h.data(), ws.pre.data(), 4, rows, hidden, {0, hidden}, ws.x.data());
  pass.rms_norm(ws.x.data(), weights.norm, rows, ws.y.data());
  pass.linear_paired(impl_->weights.head, ws.y.data(), rows, {.f32 = ws.logits.data(), .stride = config.vocab_size});
  const auto size = static_cast<size_t>(rows);
  impl_->draft_ids.resize(size);
  impl_->draft_confidence.resize(size);
  run_markov_chain(pass, weights, ws.x.data(), starts, choose, impl_->draft_ids, impl_->draft_confidence);
  return DraftOutput{impl_->draft_ids,
                     {ws.logits.data(), size * static_cast<size_t>(config.vocab_size)},
                     impl_->draft_confidence};
}

}  // namespace deepinfer
