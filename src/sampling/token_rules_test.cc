#include "sampling/token_rules.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

constexpr int64_t kVocab = 40;

// Allows one id after the other.
class Sequence : public OutputConstraint {
 public:
  explicit Sequence(std::vector<int32_t> ids) : ids_(std::move(ids)) {}
  std::unique_ptr<ConstraintState> start() const override { return std::make_unique<State>(ids_); }

 private:
  struct State : ConstraintState {
    explicit State(std::vector<int32_t> ids) : ids(std::move(ids)) {}
    bool fill_mask(TokenMask mask) override {
      if (next == ids.size()) return false;
      std::fill(mask.begin(), mask.end(), 0u);
      mask[static_cast<size_t>(ids[next]) / 32] = 1u << (ids[next] % 32);
      return true;
    }
    Status accept(int32_t id) override {
      if (id != ids[next]) return Error(Code::kInvalidArgument, "another id");
      ++next;
      return {};
    }
    void rollback(int64_t n) override { next -= static_cast<size_t>(n); }
    int64_t max_rollback() const override { return 3; }
    const std::vector<int32_t> ids;
    size_t next = 0;
  };
  const std::vector<int32_t> ids_;
};

std::vector<int32_t> allowed(ConstraintState& state) {
  std::vector<uint32_t> mask(static_cast<size_t>(mask_words(kVocab)));
  std::vector<int32_t> ids;
  const bool restricts = state.fill_mask(mask);
  for (int32_t id = 0; id < kVocab; ++id) {
    if (!restricts || (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0) ids.push_back(id);
  }
  return ids;
}

TEST(TokenRules, WithoutAnyNothingIsAdded) {
  EXPECT_EQ(restrict_tokens(nullptr, {}, kVocab), nullptr);
  const auto inner = std::make_shared<Sequence>(std::vector<int32_t>{1});
  EXPECT_EQ(restrict_tokens(inner, {.late = {5}}, kVocab), inner);
}

TEST(TokenRules, OnlyAllowedIdsAndNeverForbiddenOnes) {
  const auto rules =
      restrict_tokens(nullptr, {.allowed = std::vector<int32_t>{3, 39, 33, 77, -1}, .forbidden = {33}}, kVocab);
  const auto state = rules->start();
  EXPECT_EQ(allowed(*state), (std::vector<int32_t>{3, 39}));
}

TEST(TokenRules, LateIdsComeAfterSoManyAndARollbackCountsBack) {
  const auto state = restrict_tokens(nullptr, {.late = {0, 1}, .late_from = 2}, kVocab)->start();
  EXPECT_EQ(allowed(*state).front(), 2);
  ASSERT_TRUE(state->accept(5).ok());
  EXPECT_EQ(allowed(*state).front(), 2);
  ASSERT_TRUE(state->accept(5).ok());
  EXPECT_EQ(allowed(*state).front(), 0);
  state->rollback(1);
  EXPECT_EQ(allowed(*state).front(), 2);
}

TEST(TokenRules, AGrammarWinsWhereBothAllowNothing) {
  const auto inner = std::make_shared<Sequence>(std::vector<int32_t>{7, 0});
  const auto state = restrict_tokens(inner, {.late = {0}, .late_from = 9}, kVocab)->start();
  EXPECT_EQ(allowed(*state), std::vector<int32_t>{7});
  EXPECT_FALSE(state->accept(8).ok());
  ASSERT_TRUE(state->accept(7).ok());
  EXPECT_EQ(allowed(*state), std::vector<int32_t>{0});  // the grammar's end
  ASSERT_TRUE(state->accept(0).ok());
  EXPECT_EQ(std::ssize(allowed(*state)), kVocab - 1);
  EXPECT_EQ(state->max_rollback(), 3);
  state->rollback(2);
  EXPECT_EQ(allowed(*state), std::vector<int32_t>{7});
}

}  // namespace
}  // namespace deepinfer
