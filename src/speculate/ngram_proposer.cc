#include <algorithm>
#include <array>

#include "speculate/draft_walk.h"
#include "speculate/ngram.h"
#include "speculate/proposer.h"

namespace deepinfer {

NgramMatch find_ngram(std::span<const int32_t> tokens, int64_t min_length, int64_t max_length,
                      int64_t max_count) {
  const auto size = std::ssize(tokens);
  NgramMatch best;
  // `end`: a place behind an earlier occurrence. The newest of the longest wins.
  for (int64_t end = size - 1; end >= min_length && best.length < max_length; --end) {
    int64_t length = 0;
    while (length < std::min(max_length, end) && tokens[end - 1 - length] == tokens[size - 1 - length])
      ++length;
    if (length < min_length || length <= best.length) continue;
    best = {length,
            tokens.subspan(static_cast<size_t>(end), static_cast<size_t>(std::min(max_count, size - end)))};
  }
  return best;
}

namespace {

constexpr int64_t kShortest = 2, kLongest = 8;

class NgramProposer : public Proposer {
 public:
  explicit NgramProposer(const ProposerOptions& options) : max_drafts_(options.max_drafts) {}
  bool wants_history() const override { return true; }

  Status propose(std::span<const DraftTask> tasks) override {
    for (const DraftTask& task : tasks) {
      const NgramMatch match = find_ngram(task.history, kShortest, kLongest, max_drafts_);
      if (match.length == 0) continue;
      Draft& out = *task.out;
      out.position = std::ssize(task.history);
      DraftWalk walk(task.constraint);
      for (const int32_t id : match.continuation) {
        if (!walk.take(id)) break;
        out.ids.push_back(id);
      }
      out.origin = static_cast<int32_t>(match.length);
      const Count& count = counts_[static_cast<size_t>(match.length)];
      out.scores.assign(out.ids.size(), static_cast<float>(count.accepted / count.tested));
    }
    return {};
  }

  void learn(const Draft& draft, int64_t verified, int64_t accepted) override {
    constexpr double kDecay = 0.98;  // of a step, so that a change of text is seen
    Count& count = counts_[static_cast<size_t>(draft.origin)];
    count.tested = count.tested * kDecay + static_cast<double>(std::min(verified, accepted + 1));
    count.accepted = count.accepted * kDecay + static_cast<double>(accepted);
  }

 private:
  struct Count {
    double tested = 2, accepted = 1;  // half of them, until more is known
  };
  const int64_t max_drafts_;
  std::array<Count, kLongest + 1> counts_;  // by the length that agreed
};

}  // namespace

std::unique_ptr<Proposer> make_ngram_proposer(const ProposerOptions& options) {
  return std::make_unique<NgramProposer>(options);
}

}  // namespace deepinfer
