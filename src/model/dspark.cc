// DSpark drafts (docs/spec/model.md 9):
//
//   main_x_p = RMS(main_proj [mean of the streams at the inputs of the target layers]), for every processed position
//   each stage keeps its own window rows of main_x; one draft pass runs [y, noise, noise, ...] at p + 1 ... through the
//   stages, every row attending to the window rows up to p and to all rows of the pass
//   logits_k = head RMS(x_k) + markov_head markov_embed(d_k);  d_{k+1} chosen from logits_k;  confidence_k = proj [x_k; e_k]
#include <algorithm>

#include "model/forward_pass.h"
#include "model/model_impl.h"

namespace deepinfer {
namespace {

void run_stage(ForwardPass& pass, Block block, bool goes_on, Left& left) {
  pass.add(ListDraftWindow{block}, {});
  const InputPhases input =
      project_input(pass, block, enter_sublayer(pass, {block, Sublayer::kAttention}, left), nullptr);
  left = attend_and_project(pass, block, input, Program::kNone, Program::kNone);
  const Phase x = enter_sublayer(pass, {block, Sublayer::kFfn}, left);
  const HcRef next = {block + 1, Sublayer::kAttention};
  left = experts(pass, block, x, goes_on ? &next : nullptr);
  pass.run();
}

// Chooses the drafts one after another, the k-th of every start together; logits already hold the head's part.
void run_markov_chain(ForwardPass& pass, std::span<const DraftStart> starts, const DraftChooser& choose,
                      std::span<int32_t> ids) {
  Workspace& ws = pass.ws;
  const int64_t vocab = pass.config.vocab_size, hidden = pass.config.hidden_size, rank = pass.config.dspark_markov_rank;
  const int64_t block = pass.config.dspark_block_size, width = hidden + rank, count = std::ssize(starts);
  const int64_t width_stride = (width + 1) / 2 * 2, rank_stride = (rank + 1) / 2 * 2;
  const Ref<Bf16> features = ws.paired.at(), embeddings = ws.paired.at(count * width_stride);
  for (int64_t k = 0; k < block; ++k) {
    for (int64_t s = 0; s < count; ++s) ws.ids[s] = k == 0 ? starts[s].next_id : ids[s * block + k - 1];
    pass.add(GatherMarkov{count, k, ws.ids.at(), ws.x.at(), ws.draft_features.at(), ws.markov_rows.at()}, {});
    const Phase joined = pass.add(
        MakeOperands{count, width, ws.draft_features.at(), {.paired = features, .quantized = {}, .int8 = {}}}, {});
    const Phase alone = pass.add(
        MakeOperands{count, rank, ws.markov_rows.at(), {.paired = embeddings, .quantized = {}, .int8 = {}}}, {});
    const MatrixRef confidence = {kWholeModel, MatrixName::kConfidence},
                    markov = {kWholeModel, MatrixName::kMarkovHead};
    pass.add(Products{{Product{confidence, {features, {}, count, width_stride}, ws.draft_confidence.at(k), {}, block},
                       Product{markov, {embeddings, {}, count, rank_stride}, ws.markov_logits.at(), {}, vocab}},
                      2},
             {joined, alone});
    pass.add(AddMarkov{count, k, ws.markov_logits.at(), ws.logits.at()}, {});
    pass.run();
    for (int64_t s = 0; s < count; ++s) {
      const int64_t row = s * block + k;
      ids[row] = choose(static_cast<size_t>(s), pass.rows[row].position + 1,
                        {ws.logits.data() + row * vocab, static_cast<size_t>(vocab)});
    }
  }
}

}  // namespace

void capture_target(ForwardPass& pass, int64_t target) {
  const int64_t width = pass.config.hidden_size * std::ssize(pass.config.dspark_target_layer_ids);
  pass.add(MeanOfStreams{pass.num_rows(), target, width, pass.ws.h.at(), pass.ws.main_hidden.at()}, {});
}

void write_dspark_rows(ForwardPass& pass) {
  Workspace& ws = pass.ws;
  const ModelConfig& config = pass.config;
  const int64_t rows = pass.num_rows(), hidden = config.hidden_size;
  const int64_t width = hidden * std::ssize(config.dspark_target_layer_ids);
  pass.observe("main_hidden", config.num_hidden_layers, ws.main_hidden.data(), rows * width);
  const Ref<Bf16> quantized = ws.quantized.at();
  pass.add(SetAngles{RopeKind::kPlain}, {});
  const Phase operand =
      pass.add(MakeOperands{rows, width, ws.main_hidden.at(), {.paired = {}, .quantized = quantized, .int8 = {}}}, {});
  const Phase projected = pass.add(
      Products{{Product{{kWholeModel, MatrixName::kMainProj}, {quantized, {}, rows, width}, {}, ws.x.at(), hidden}}, 1},
      {operand});
  const Phase x =
      pass.add(NormRows{{kWholeModel, NormName::kDsparkMain}, rows, hidden, ws.x.at(), ws.x.at(), pass.x_operands()},
               {projected});
  for (int64_t stage = 0; stage < config.num_nextn_predict_layers; ++stage) {
    const auto block = static_cast<Block>(config.num_hidden_layers + stage);
    make_window_rows(pass, block, pass.add(Products{{window_row_product(pass, block)}, 1}, {x}));
    pass.add(StoreWindow{block, ws.window_rows.at()}, {});
    pass.run();
    observe_window_rows(pass, block);
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
  int32_t* ids = impl_->workspace.ids.data();
  std::fill_n(ids, rows, static_cast<int32_t>(config.dspark_noise_token_id));
  for (const auto& [sequence, next_id] : starts) {
    const auto first_row = std::ssize(impl_->rows);
    ids[first_row] = next_id;
    for (int64_t k = 0; k < block; ++k) {
      impl_->rows.push_back({.sequence = sequence,
                             .position = sequence->length + k,
                             .first_row = first_row,
                             .first_position = sequence->length});
    }
  }
  ForwardPass pass = impl_->begin(nullptr);
  embed(pass);
  pass.add(SetAngles{RopeKind::kPlain}, {});
  Left left;
  for (int64_t stage = 0; stage < config.num_nextn_predict_layers; ++stage) {
    run_stage(pass, static_cast<Block>(config.num_hidden_layers + stage), stage + 1 < config.num_nextn_predict_layers,
              left);
  }
  const Phase folded = pass.add(FoldRows{rows}, {left.phase});
  head(pass, {kWholeModel, NormName::kDsparkFinal}, rows, impl_->workspace.x.at(), folded);
  pass.run();
  const auto size = static_cast<size_t>(rows);
  impl_->draft_ids.resize(size);
  run_markov_chain(pass, starts, choose, impl_->draft_ids);
  Workspace& ws = impl_->workspace;
  return DraftOutput{impl_->draft_ids,
                     {ws.logits.data(), size * static_cast<size_t>(config.vocab_size)},
                     {ws.draft_confidence.data(), size}};
}

}  // namespace deepinfer
