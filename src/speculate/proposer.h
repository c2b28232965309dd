// Who proposes the tokens after the one drawn last, and what a proposal is. The front of the room.
//
// A proposal never changes what an answer says in the default mode, only how many of its tokens come in one
// step (docs/speculation.md). So a proposer may fail, know nothing or be wrong.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/model.h"
#include "sampling/constraint.h"
#include "sampling/penalties.h"
#include "sampling/sampling.h"

namespace deepinfer {

// What was proposed for one answer.
struct Draft {
  int64_t position = -1;  // of ids[0]; good as long as the answer ends just before it
  std::vector<int32_t> ids;
  std::vector<float> scores;   // that ids[k] is accepted, given that those before it were; in [0, 1]
  std::vector<Masses> masses;  // rejection mode: what ids[k] was drawn from; empty: ids are certain
  int32_t origin = 0;          // for the proposer that made it

  void clear() {
    position = -1;
    ids.clear();
    scores.clear();
    masses.clear();
  }
};

// One answer to propose for. Everything is borrowed for the call.
struct DraftTask {
  Sequence* state = nullptr;              // its length is the position of `last_token`
  int32_t last_token = 0;                 // drawn, not yet computed
  std::span<const int32_t> history = {};  // all tokens, last_token included; only where wants_history()
  const SamplingParams* sampling = nullptr;
  const TokenCounts* counts = nullptr;
  ConstraintState* constraint = nullptr;  // what may follow last_token; null: anything. As it was after the call
  Draft* out = nullptr;  // was cleared; left empty when there is nothing to propose
};

// Owned by the executor thread.
class Proposer {
 public:
  virtual ~Proposer() = default;
  virtual bool wants_history() const { return false; }
  virtual Status propose(std::span<const DraftTask> tasks) = 0;
  // Of `verified` drafts of a proposal the first `accepted` were right.
  virtual void learn(const Draft& /*draft*/, int64_t /*verified*/, int64_t /*accepted*/) {}
};

struct ProposerOptions {
  int64_t max_drafts = 5;
  SpeculationSampling sampling = SpeculationSampling::kDeterministic;
  std::vector<float> temperatures =
      {};  // of DSpark's confidences, one a position (calibration.h); absent ones are 1
};

// DSpark's stages (docs/spec/model.md 9). Borrows the model. Null when the checkpoint has none.
std::unique_ptr<Proposer> make_dspark_proposer(Model& model, const ProposerOptions& options);
// What followed the last tokens where they stood before (ngram.h).
std::unique_ptr<Proposer> make_ngram_proposer(const ProposerOptions& options);

}  // namespace deepinfer
