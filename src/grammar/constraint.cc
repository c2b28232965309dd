// Free text, trigger, grammar: where one answer stands, token by token.
#include <algorithm>
#include <array>

#include "grammar/compiled.h"

namespace deepinfer {

bool fill_next_mask(xgrammar::GrammarMatcher& matcher, TokenMask mask) {
  int64_t size = std::ssize(mask);
  DLTensor tensor = {.data = mask.data(),
                     .device = {kDLCPU, 0},
                     .ndim = 1,
                     .dtype = xgrammar::GetBitmaskDLType(),
                     .shape = &size,
                     .strides = nullptr,
                     .byte_offset = 0};
  return matcher.FillNextTokenBitmask(&tensor);
}

namespace {

constexpr int64_t kMaxRollback = 64;
// Tokens of white space in a row, at most, where it means nothing and something else can follow: JSON would
// let a model write it for ever.
constexpr int kMaxSpaces = 8;

// What is the same for all answers of a request.
struct Shared {
  AnswerShape shape;
  std::vector<size_t> borders;      // of each prefix of the trigger, its longest proper border
  std::vector<uint32_t> free_mask;  // empty: nothing is forbidden
};

class State : public ConstraintState {
 public:
  explicit State(std::shared_ptr<const Shared> shared) : shared_(std::move(shared)) {
    if (shape().trigger_ids.empty()) now_.phase = Phase::kBehind;
    force_at_budget();
    if (shape().grammar != nullptr) matcher_.emplace(shape().grammar->start());
  }

  bool fill_mask(TokenMask mask) override {
    switch (now_.phase) {
      case Phase::kFree:
        if (shared_->free_mask.empty()) return false;
        std::copy(shared_->free_mask.begin(), shared_->free_mask.end(), mask.begin());
        return true;
      case Phase::kForced: {
        std::fill(mask.begin(), mask.end(), 0);
        const auto id = static_cast<uint32_t>(forced_id());
        mask[id / 32] |= uint32_t{1} << id % 32;
        return true;
      }
      case Phase::kBehind:
        if (!matcher_ || matcher_->IsTerminated() || !fill_next_mask(*matcher_, mask)) return false;
        if (spaces() != nullptr && now_.num_spaces >= kMaxSpaces) take_spaces_off(mask);
        return true;
    }
    return false;
  }

  Status accept(int32_t id) override {
    Place next = now_;
    next.in_grammar = false;
    switch (now_.phase) {
      case Phase::kFree:
        if (is_forbidden(id)) return refused(id);
        ++next.num_free;
        if (shape().bound_id == id) {
          next.phase = Phase::kForced;
          next.matched = 0;
        } else {
          next.matched = advance(now_.matched, id);
          if (next.matched == shape().trigger_ids.size()) next.phase = Phase::kBehind;
        }
        break;
      case Phase::kForced:
        if (id != forced_id()) return refused(id);
        if (++next.matched == shape().trigger_ids.size()) next.phase = Phase::kBehind;
        break;
      case Phase::kBehind:
        // Behind the end, anything: a row that runs for nothing.
        if (!matcher_ || matcher_->IsTerminated()) break;
        if (is_space(id) && ++next.num_spaces > kMaxSpaces && !space_is_needed()) return refused(id);
        if (!matcher_->AcceptToken(id)) return refused(id);
        if (!is_space(id)) next.num_spaces = 0;
        next.in_grammar = true;
        break;
    }
    history_[static_cast<size_t>(num_accepted_++ % kMaxRollback)] = now_;
    now_ = next;
    force_at_budget();
    return {};
  }

  void rollback(int64_t n) override {
    CHECK(n >= 0 && n <= std::min(num_accepted_, kMaxRollback));
    int in_grammar = 0;
    for (; n > 0; --n) {
      in_grammar += now_.in_grammar ? 1 : 0;
      now_ = history_[static_cast<size_t>(--num_accepted_ % kMaxRollback)];
    }
    if (in_grammar > 0) matcher_->Rollback(in_grammar);
  }

  int64_t max_rollback() const override { return kMaxRollback; }

 private:
  enum class Phase { kFree, kForced, kBehind };
  struct Place {
    Phase phase = Phase::kFree;
    size_t matched = 0;  // ids of the trigger
    int64_t num_free = 0;
    int num_spaces = 0;       // tokens of white space in a row
    bool in_grammar = false;  // the last id was taken by the grammar
  };

  const AnswerShape& shape() const { return shared_->shape; }
  TokenId forced_id() const { return shape().trigger_ids[now_.matched]; }
  Status refused(int32_t id) const {
    return Error(Code::kInvalidArgument, "token {} is not allowed here: the grammar forbids it", id);
  }
  bool is_forbidden(int32_t id) const {
    return std::find(shape().forbidden_ids.begin(), shape().forbidden_ids.end(), id) !=
           shape().forbidden_ids.end();
  }

  const std::vector<uint32_t>* spaces() const {
    return shape().grammar == nullptr ? nullptr : shape().grammar->spaces();
  }
  bool is_space(int32_t id) const {
    return spaces() != nullptr && id >= 0 && static_cast<size_t>(id) / 32 < spaces()->size() &&
           ((*spaces())[static_cast<size_t>(id) / 32] >> id % 32 & 1) != 0;
  }
  // Unless nothing else is left.
  bool take_spaces_off(TokenMask mask) const {
    bool others = false;
    for (size_t i = 0; i < mask.size() && !others; ++i) others = (mask[i] & ~(*spaces())[i]) != 0;
    for (size_t i = 0; i < mask.size() && others; ++i) mask[i] &= ~(*spaces())[i];
    return others;
  }
  bool space_is_needed() {
    std::vector<uint32_t> mask(spaces()->size());
    return fill_next_mask(*matcher_, mask) && !take_spaces_off(mask);
  }

  // Knuth, Morris and Pratt.
  size_t advance(size_t matched, int32_t id) const {
    const std::vector<TokenId>& trigger = shape().trigger_ids;
    while (matched > 0 && trigger[matched] != id) matched = shared_->borders[matched - 1];
    return trigger[matched] == id ? matched + 1 : 0;
  }

  // Of a trigger that has begun by itself, the rest is forced.
  void force_at_budget() {
    if (now_.phase == Phase::kFree && shape().free_tokens && now_.num_free >= *shape().free_tokens)
      now_.phase = Phase::kForced;
  }

  const std::shared_ptr<const Shared> shared_;  // with the other answers of the request
  Place now_;
  std::optional<xgrammar::GrammarMatcher> matcher_;
  std::array<Place, kMaxRollback> history_;
  int64_t num_accepted_ = 0;
};

class ShapeConstraint : public OutputConstraint {
 public:
  explicit ShapeConstraint(Shared shared) : shared_(std::make_shared<const Shared>(std::move(shared))) {}
  std::unique_ptr<ConstraintState> start() const override { return std::make_unique<State>(shared_); }

 private:
  const std::shared_ptr<const Shared> shared_;
};

}  // namespace

std::shared_ptr<const OutputConstraint> make_constraint(AnswerShape shape, int64_t vocab_size) {
  Shared shared;
  const std::vector<TokenId>& trigger = shape.trigger_ids;
  shared.borders.assign(trigger.size(), 0);
  for (size_t i = 1, border = 0; i < trigger.size(); ++i) {
    while (border > 0 && trigger[border] != trigger[i]) border = shared.borders[border - 1];
    if (trigger[border] == trigger[i]) ++border;
    shared.borders[i] = border;
  }
  std::erase_if(shape.forbidden_ids, [vocab_size](TokenId id) { return id < 0 || id >= vocab_size; });
  if (!shape.forbidden_ids.empty()) {
    shared.free_mask.assign(static_cast<size_t>(mask_words(vocab_size)), ~uint32_t{0});
    for (const TokenId id : shape.forbidden_ids)
      shared.free_mask[static_cast<size_t>(id) / 32] &= ~(uint32_t{1} << id % 32);
  }
  shared.shape = std::move(shape);
  return std::make_shared<ShapeConstraint>(std::move(shared));
}

}  // namespace deepinfer
