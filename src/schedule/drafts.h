// How many drafts of which sequence the next step verifies, and for which sequences drafts are worth making:
// pure functions of probabilities and costs. docs/speculation.md; docs/spec/model.md 9.5.
//
// A step over n sequences and B draft rows is expected to give n + (sum of the survival of those drafts)
// tokens and to take T(n + B) + D, where T is the pass over rows and D the draft pass for the step after it.
// Both are learnt while running (cost_curve.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/cost_curve.h"

namespace deepinfer {

// One decoding sequence. Survival of its drafts: the probability that draft k and all before it are accepted,
// so never rising.
struct DraftView {
  std::span<const float> budget;  // decides how many rows the step gets; must not depend on this step's
                                  // drafts where losslessness needs that (rejection mode)
  std::span<const float> newest;  // decides whose; as many as can be verified
};

struct DraftCosts {
  const CostCurve& rows;  // seconds of a pass over so many rows
  double beside = 0;      // seconds of the step whatever is chosen: the draft pass
};

struct DraftChoice {
  std::vector<int64_t> drafts;  // a sequence
  int64_t total = 0;
  double tokens = 0;   // expected
  double seconds = 0;  // expected; 0: not known

  // Scratch, kept so that a step allocates nothing.
  struct Candidate {
    float survival = 0;
    int32_t sequence = 0;
  };
  std::vector<Candidate> candidates;
};

// Maximizes tokens / seconds over all budgets of at most max_drafts, the fewest drafts among equals; gives
// them to the drafts of the highest newest survival, lower sequence first. While no cost is known, all drafts
// are verified.
void choose_drafts(std::span<const DraftView> views, const DraftCosts& costs, int64_t max_drafts,
                   DraftChoice& choice);

// Whether drafting for sequences of these expected survivals promises more tokens a second than none at all:
// how many of them, those with the largest sums first. `views[i].budget` is what is expected of sequence i.
struct DraftingChoice {
  std::vector<bool> drafting;
  int64_t count = 0;

  std::vector<int32_t> order;
  std::vector<float> sums;
  std::vector<DraftView> taken;
  DraftChoice choice;
};
void choose_drafting(std::span<const DraftView> views, const CostCurve& rows, const CostCurve& draft_pass,
                     int64_t max_drafts, DraftingChoice& choice);

inline constexpr int64_t kMaxDrafts = 8;

// What is expected of the drafts of one sequence: survivals, averaged over the last steps.
struct DraftProfile {
  std::array<float, kMaxDrafts> survival = {};
  bool known = false;
};

// A decoding sequence as the policy sees it.
struct DraftCandidate {
  DraftProfile* profile = nullptr;     // null: it takes no drafts
  std::span<const float> scores = {};  // of its drafts at hand: accepted, given that those before were
  bool may_draft = false;              // it has room for drafts behind the token that it draws now
  // Decided.
  int64_t drafts = 0;
  bool make = false;  // drafts behind the token that it draws now
};

// The two choices over many steps, and what they are corrected by: how much of what the scores promise is
// kept, what draft passes cost, and a draft now and then where they don't pay at present. Owned by one
// thread.
class DraftPolicy {
 public:
  enum class Budget {
    kNewest,  // by the scores at hand, where nothing can depend on what is verified (deterministic mode)
    kOlder,   // by those of earlier steps (rejection mode; specs engine 5.2)
  };
  DraftPolicy(int64_t max_drafts, Budget budget);

  // Decides for all sequences that decode in the next step; at most max_rows drafts.
  void plan(std::span<DraftCandidate> candidates, const CostCurve& rows, int64_t max_rows);
  // Of the last plan: drafts, and the seconds expected for the step and its draft pass (0: not known).
  int64_t total() const { return choice_.total; }
  double seconds() const { return choice_.seconds; }
  // Whether a sequence that begins to decode gets a draft behind its first token.
  bool drafting() const { return drafting_; }

  void observe_pass(int64_t sequences, double seconds) { pass_.observe(sequences, seconds); }
  // Verified drafts were promised to give so many tokens by their scores, and gave so many.
  void observe_verified(double promised, double accepted);

 private:
  double kept() const;
  void choose_whom_to_draft_for(std::span<DraftCandidate> candidates, const CostCurve& rows,
                                int64_t max_rows);

  const int64_t max_drafts_;
  const Budget budget_;
  DraftProfile common_;  // of all sequences, for those that have none of their own yet
  CostCurve pass_;
  double promised_ = 1, accepted_ = 1;  // lately
  bool drafting_ = true;
  int64_t choice_age_ = 0, choice_count_ = -1;  // of drafting_choice_: steps, and how many decoded then
  int64_t probe_age_ = 0;                       // steps since drafts were last made

  std::vector<float> newest_;  // [candidates][kMaxDrafts]
  std::vector<DraftView> views_;
  DraftChoice choice_;
  DraftingChoice drafting_choice_;
};

}  // namespace deepinfer
