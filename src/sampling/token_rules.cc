#include "sampling/token_rules.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace deepinfer {
namespace {

using Words = std::vector<uint32_t>;

void set_bit(Words& words, int32_t id, int64_t vocab_size) {
  if (id >= 0 && id < vocab_size) words[static_cast<size_t>(id) / 32] |= uint32_t{1} << (id % 32);
}

void clear_bits(Words& words, const std::vector<int32_t>& ids, int64_t vocab_size) {
  Words cleared(words.size());
  for (const int32_t id : ids) set_bit(cleared, id, vocab_size);
  for (size_t i = 0; i < words.size(); ++i) words[i] &= ~cleared[i];
}

// What may come before and from `late_from` on.
struct Masks {
  Words early, late;
  int64_t late_from = 0;
};

Masks masks_of(const TokenRules& rules, int64_t vocab_size) {
  Masks masks;
  masks.late_from = rules.late_from;
  masks.late.assign(static_cast<size_t>(mask_words(vocab_size)), rules.allowed ? 0 : ~uint32_t{0});
  for (const int32_t id : rules.allowed.value_or(std::vector<int32_t>())) set_bit(masks.late, id, vocab_size);
  clear_bits(masks.late, rules.forbidden, vocab_size);
  masks.early = masks.late;
  clear_bits(masks.early, rules.late, vocab_size);
  return masks;
}

class RestrictedState : public ConstraintState {
 public:
  RestrictedState(std::unique_ptr<ConstraintState> inner, std::shared_ptr<const Masks> masks)
      : inner_(std::move(inner)), masks_(std::move(masks)) {}

  bool fill_mask(TokenMask mask) override {
    if (inner_ == nullptr || !inner_->fill_mask(mask)) std::fill(mask.begin(), mask.end(), ~uint32_t{0});
    const Words& rules = num_accepted_ < masks_->late_from ? masks_->early : masks_->late;
    uint32_t any = 0;
    for (size_t i = 0; i < rules.size(); ++i) any |= mask[i] & rules[i];
    for (size_t i = 0; i < rules.size() && any != 0; ++i) mask[i] &= rules[i];
    return true;
  }
  Status accept(int32_t token_id) override {
    if (inner_ != nullptr) RETURN_IF_ERROR(inner_->accept(token_id));
    ++num_accepted_;
    return {};
  }
  void rollback(int64_t n) override {
    if (inner_ != nullptr) inner_->rollback(n);
    num_accepted_ -= n;
  }
  int64_t max_rollback() const override {
    return inner_ != nullptr ? inner_->max_rollback() : std::numeric_limits<int64_t>::max();
  }

 private:
  const std::unique_ptr<ConstraintState> inner_;
  const std::shared_ptr<const Masks> masks_;
  int64_t num_accepted_ = 0;
};

class Restriction : public OutputConstraint {
 public:
  Restriction(std::shared_ptr<const OutputConstraint> inner, std::shared_ptr<const Masks> masks)
      : inner_(std::move(inner)), masks_(std::move(masks)) {}

  std::unique_ptr<ConstraintState> start() const override {
    return std::make_unique<RestrictedState>(inner_ == nullptr ? nullptr : inner_->start(), masks_);
  }

 private:
  const std::shared_ptr<const OutputConstraint> inner_;
  const std::shared_ptr<const Masks> masks_;
};

}  // namespace

std::shared_ptr<const OutputConstraint> restrict_tokens(std::shared_ptr<const OutputConstraint> inner,
                                                        const TokenRules& rules, int64_t vocab_size) {
  if (rules.empty()) return inner;
  return std::make_shared<Restriction>(std::move(inner), std::make_shared<const Masks>(masks_of(rules, vocab_size)));
}

}  // namespace deepinfer
