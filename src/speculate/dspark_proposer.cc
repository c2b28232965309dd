#include <algorithm>
#include <cmath>

#include "checkpoint/config.h"
#include "speculate/calibration.h"
#include "speculate/draft_walk.h"
#include "speculate/proposer.h"

namespace deepinfer {
namespace {

// Kept of a draft's distribution in rejection mode. Any support is lossless as long as drafts are drawn from
// it; the likeliest 64 hold nearly all of a sharp distribution in half a KiB instead of half a MiB.
constexpr int64_t kSupport = 64;

class DsparkProposer : public Proposer {
 public:
  DsparkProposer(Model& model, const ProposerOptions& options)
      : model_(model),
        options_(options),
        block_(model.config().dspark_block_size),
        used_(std::min(options.max_drafts, block_)),
        sampler_(model.config().vocab_size) {}

  Status propose(std::span<const DraftTask> tasks) override {
    const auto most = static_cast<size_t>(model_.max_drafting());
    for (size_t first = 0; first < tasks.size(); first += most) {
      RETURN_IF_ERROR(run(tasks.subspan(first, std::min(most, tasks.size() - first))));
    }
    return {};
  }

 private:
  Status run(std::span<const DraftTask> tasks) {
    starts_.clear();
    std::vector<DraftWalk> walks;
    for (const DraftTask& task : tasks) {
      starts_.push_back({task.state, task.last_token});
      walks.emplace_back(task.constraint);
      task.out->position = Model::length(*task.state) + 1;
    }
    ASSIGN_OR_RETURN(const DraftOutput drafts,
                     model_.draft(starts_, [&](size_t start, int64_t position, std::span<const float> logits) {
                       return choose(tasks[start], walks[start], position, logits);
                     }));
    for (size_t s = 0; s < tasks.size(); ++s) {
      Draft& out = *tasks[s].out;
      for (int64_t k = 0; k < std::ssize(out.ids); ++k) {
        const float raw = drafts.confidence[s * static_cast<size_t>(block_) + static_cast<size_t>(k)];
        out.scores.push_back(calibrated(raw, temperature_of(options_.temperatures, k)));
      }
    }
    return {};
  }

  // In deterministic mode with the random word that the target will use at this position, so that they often
  // agree.
  int32_t choose(const DraftTask& task, DraftWalk& walk, int64_t position, std::span<const float> logits) {
    Draft& out = *task.out;
    const int64_t k = position - out.position;
    if (k >= used_ || walk.ended()) return 0;  // nobody reads it
    const SamplingParams& params = *task.sampling;
    const bool is_masked = walk.fill_mask(mask_, std::ssize(logits));
    if (is_masked || params.adjusts_logits()) {
      adjusted_.assign(logits.begin(), logits.end());
      logits = adjusted_;
    }
    if (is_masked) apply_mask(mask_, adjusted_);
    if (params.adjusts_logits()) {
      counts_ = *task.counts;
      for (const int32_t id : out.ids) ++counts_[id];
      adjust_logits(params, counts_, adjusted_);
    }
    const Result<int32_t> id = draw(params, position, k, logits);
    if (!id.ok() || !walk.take(*id)) {
      walk.end();
      return 0;
    }
    out.ids.push_back(*id);
    if (options_.sampling == SpeculationSampling::kRejection) out.masses.push_back(masses_);
    return *id;
  }

  Result<int32_t> draw(const SamplingParams& params, int64_t position, int64_t k, std::span<const float> logits) {
    if (options_.sampling == SpeculationSampling::kDeterministic) return sampler_.sample(logits, params, position);
    RETURN_IF_ERROR(sampler_.masses(logits, params, kSupport, masses_));
    return masses_.draw(random_word(params.seed, position, Purpose::kDraft, k));
  }

  Model& model_;
  const ProposerOptions options_;
  const int64_t block_, used_;
  Sampler sampler_;
  std::vector<DraftStart> starts_;
  std::vector<uint32_t> mask_;
  std::vector<float> adjusted_;
  Masses masses_;
  TokenCounts counts_;
};

}  // namespace

std::unique_ptr<Proposer> make_dspark_proposer(Model& model, const ProposerOptions& options) {
  if (model.max_drafting() == 0) return nullptr;
  return std::make_unique<DsparkProposer>(model, options);
}

}  // namespace deepinfer
