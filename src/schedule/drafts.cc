#include "schedule/drafts.h"

#include <algorithm>
#include <numeric>

namespace deepinfer {
namespace {

bool comes_first(const DraftChoice::Candidate& a, const DraftChoice::Candidate& b) {
  return a.survival > b.survival || (a.survival == b.survival && a.sequence < b.sequence);
}

void list(std::span<const DraftView> views, std::span<const float> DraftView::*scores, DraftChoice& choice) {
  choice.candidates.clear();
  for (int32_t s = 0; s < std::ssize(views); ++s) {
    for (const float survival : views[static_cast<size_t>(s)].*scores)
      choice.candidates.push_back({survival, s});
  }
  // Drafts of one sequence keep their order: their survivals never rise.
  std::stable_sort(choice.candidates.begin(), choice.candidates.end(), comes_first);
}

// The budget and what it promises; `beyond` sequences take part without drafts.
void find_budget(std::span<const DraftView> views, int64_t beyond, const DraftCosts& costs,
                 int64_t max_drafts, DraftChoice& choice) {
  list(views, &DraftView::budget, choice);
  const auto sequences = std::ssize(views) + beyond;
  const auto most = std::min(max_drafts, std::ssize(choice.candidates));
  double tokens = static_cast<double>(sequences), best_rate = 0;
  choice.total = 0;
  choice.tokens = tokens;
  choice.seconds = costs.rows.seconds(sequences) + costs.beside;
  const bool known = costs.rows.seconds(sequences) > 0;
  if (known) best_rate = tokens / choice.seconds;
  for (int64_t drafts = 1; drafts <= most; ++drafts) {
    tokens += choice.candidates[static_cast<size_t>(drafts - 1)].survival;
    const double seconds = costs.rows.seconds(sequences + drafts) + costs.beside;
    if (known && tokens / seconds <= best_rate) continue;
    choice.total = drafts;
    choice.tokens = tokens;
    choice.seconds = known ? seconds : 0;
    if (known) best_rate = tokens / seconds;
  }
}

}  // namespace

void choose_drafts(std::span<const DraftView> views, const DraftCosts& costs, int64_t max_drafts,
                   DraftChoice& choice) {
  find_budget(views, 0, costs, max_drafts, choice);
  list(views, &DraftView::newest, choice);
  choice.drafts.assign(views.size(), 0);
  choice.total = std::min(choice.total, std::ssize(choice.candidates));
  choice.tokens = static_cast<double>(views.size());
  for (int64_t i = 0; i < choice.total; ++i) {
    const DraftChoice::Candidate& candidate = choice.candidates[static_cast<size_t>(i)];
    ++choice.drafts[static_cast<size_t>(candidate.sequence)];
    choice.tokens += candidate.survival;
  }
}

void choose_drafting(std::span<const DraftView> views, const CostCurve& rows, const CostCurve& draft_pass,
                     int64_t max_drafts, DraftingChoice& choice) {
  const auto count = std::ssize(views);
  choice.drafting.assign(views.size(), false);
  choice.count = 0;
  if (count == 0) return;
  choice.sums.clear();
  for (const DraftView& view : views) {
    choice.sums.push_back(std::accumulate(view.budget.begin(), view.budget.end(), 0.0f));
  }
  choice.order.resize(views.size());
  std::iota(choice.order.begin(), choice.order.end(), 0);
  std::stable_sort(choice.order.begin(), choice.order.end(),
                   [&](int32_t a, int32_t b) { return choice.sums[a] > choice.sums[b]; });
  choice.taken.clear();
  for (const int32_t index : choice.order) choice.taken.push_back(views[static_cast<size_t>(index)]);
  const double alone = rows.seconds(count);
  double best = alone > 0 ? static_cast<double>(count) / alone : 0;
  if (alone == 0) choice.count = count;
  constexpr double kWorthIt = 1.01;  // what is less than the estimates can tell
  // Halves, quarters, ... of them: sizes between change little, and a scan of all would cost their square.
  for (int64_t size = count; size > 0 && alone > 0; size /= 2) {
    find_budget(std::span(choice.taken).first(static_cast<size_t>(size)), count - size,
                {rows, draft_pass.seconds(size)}, max_drafts, choice.choice);
    const double rate = choice.choice.tokens / choice.choice.seconds;
    if (choice.choice.total == 0 || rate <= kWorthIt * best) continue;
    best = rate;
    choice.count = size;
  }
  for (int64_t i = 0; i < choice.count; ++i) choice.drafting[static_cast<size_t>(choice.order[i])] = true;
}

// ---- policy
// ----------------------------------------------------------------------------------------------------------

namespace {

constexpr int64_t kChoiceSteps = 8;     // for which the choice of whom to draft for stands
constexpr int64_t kProbeSteps = 64;     // at least, between drafts that are made to see whether they pay
constexpr double kProbeShare = 256;     // and the time of so many draft passes
constexpr float kProfileWeight = 0.2f;  // of the newest scores in what is expected of the next
constexpr double kForget = 0.995;       // of promises, a verification

}  // namespace

DraftPolicy::DraftPolicy(int64_t max_drafts, Budget budget)
    : max_drafts_(std::min(max_drafts, kMaxDrafts)), budget_(budget) {
  float survival = 1;  // until more is known, seven of ten
  for (float& value : common_.survival) value = survival *= 0.7f;
}

double DraftPolicy::kept() const {
  return std::clamp(accepted_ / promised_, 0.1, 1.5);
}

void DraftPolicy::observe_verified(double promised, double accepted) {
  promised_ = kForget * promised_ + promised;
  accepted_ = kForget * accepted_ + accepted;
}

void DraftPolicy::plan(std::span<DraftCandidate> candidates, const CostCurve& rows, int64_t max_rows) {
  choose_whom_to_draft_for(candidates, rows, max_rows);
  newest_.resize(candidates.size() * kMaxDrafts);
  views_.clear();
  for (size_t i = 0; i < candidates.size(); ++i) {
    const DraftCandidate& candidate = candidates[i];
    const auto count = std::min<size_t>(candidate.scores.size(), static_cast<size_t>(max_drafts_));
    const auto newest = std::span(newest_).subspan(i * kMaxDrafts, count);
    auto survival = static_cast<float>(kept());
    for (size_t k = 0; k < count; ++k) newest[k] = std::min(survival *= candidate.scores[k], 1.0f);
    const bool own = candidate.profile != nullptr && candidate.profile->known;
    views_.push_back(
        {.budget =
             budget_ == Budget::kNewest
                 ? std::span<const float>(newest)
                 : std::span<const float>(own ? candidate.profile->survival : common_.survival).first(count),
         .newest = newest});
  }
  const double beside = drafting_choice_.count > 0 ? pass_.seconds(drafting_choice_.count) : 0;
  choose_drafts(views_, {rows, beside}, max_rows, choice_);
  for (size_t i = 0; i < candidates.size(); ++i) {
    DraftCandidate& candidate = candidates[i];
    candidate.drafts = choice_.drafts[i];
    if (candidate.profile == nullptr || views_[i].newest.empty()) continue;
    DraftProfile& profile = *candidate.profile;
    if (!profile.known) profile = {common_.survival, true};
    for (size_t k = 0; k < views_[i].newest.size(); ++k) {
      const float newest = views_[i].newest[k];
      profile.survival[k] += kProfileWeight * (newest - profile.survival[k]);
      common_.survival[k] +=
          kProfileWeight / static_cast<float>(candidates.size()) * (newest - common_.survival[k]);
    }
  }
}

// Decided again every few steps, or when another number of sequences decodes. Where drafts don't pay they are
// still made now and then, so that a change is seen.
void DraftPolicy::choose_whom_to_draft_for(std::span<DraftCandidate> candidates, const CostCurve& rows,
                                           int64_t max_rows) {
  const auto count = std::ssize(candidates);
  ++choice_age_;
  ++probe_age_;
  const bool stands = count == choice_count_ && choice_age_ < kChoiceSteps;
  if (!stands && count > 0) {
    choice_age_ = 0;
    choice_count_ = count;
    views_.clear();
    for (const DraftCandidate& candidate : candidates) {
      const bool may = candidate.profile != nullptr && candidate.may_draft;
      const bool own = may && candidate.profile->known;
      views_.push_back({.budget = std::span<const float>(own ? candidate.profile->survival : common_.survival)
                                      .first(may ? static_cast<size_t>(max_drafts_) : 0),
                        .newest = {}});
    }
    choose_drafting(views_, rows, pass_, max_rows, drafting_choice_);
    drafting_ = drafting_choice_.count > 0;
  }
  const double step = rows.seconds(count), pass = pass_.seconds(count);
  const double pause = step > 0 ? std::max(static_cast<double>(kProbeSteps), kProbeShare * pass / step) : 0;
  const bool probe = !drafting_ && static_cast<double>(probe_age_) >= pause;
  if (drafting_ || probe) probe_age_ = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const bool may = candidates[i].profile != nullptr && candidates[i].may_draft;
    candidates[i].make =
        may && (probe || (i < drafting_choice_.drafting.size() && drafting_choice_.drafting[i]));
  }
  if (probe) choice_age_ = kChoiceSteps;  // the next step decides by what it has seen
}

}  // namespace deepinfer
