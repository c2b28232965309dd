// Which rows run the decoder half, from tokens alone. The oracle applies the rule row by row.
#include "cache/context.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace deepinfer {
namespace {

constexpr int32_t kUser = 1, kAssistant = 2, kEnd = 3, kText = 9;
constexpr int64_t kTail = 12;
const TurnTokens kTurns = {.assistant = {kAssistant}, .end = {kUser, kEnd}};

int64_t stable(const std::vector<int32_t>& prompt, int64_t tail = kTail) {
  return first_decoder_row(ContextMode::kStable, prompt, kTurns, tail);
}

// Does row i run the decoder half, of a prompt of n tokens that was continued by the rest?
bool runs(const std::vector<int32_t>& tokens, int64_t n, int64_t i, int64_t tail) {
  if (i >= n) return true;
  for (int64_t mark = i; mark < std::min(i + tail, n); ++mark) {
    if (mark == n - 1 || tokens[mark] == kAssistant) return true;
  }
  for (int64_t j = i; j >= 0; --j) {
    if (tokens[j] == kAssistant) return true;
    if (tokens[j] == kUser || tokens[j] == kEnd) return false;
  }
  return false;
}

int64_t first_by_rows(const std::vector<int32_t>& tokens, int64_t n, int64_t tail) {
  int64_t first = n;
  while (first > 0 && runs(tokens, n, first - 1, tail)) --first;
  return first;
}

std::vector<int32_t> text(int64_t count) { return std::vector<int32_t>(static_cast<size_t>(count), kText); }

void append(std::vector<int32_t>& tokens, std::initializer_list<int32_t> control, int64_t count) {
  tokens.insert(tokens.end(), control);
  tokens.insert(tokens.end(), static_cast<size_t>(count), kText);
}

TEST(ContextTest, APromptWithoutTurnsRunsItsTail) {
  EXPECT_EQ(stable(text(100)), 100 - kTail);
  EXPECT_EQ(stable(text(5)), 0);
}

TEST(ContextTest, ExactRunsEverythingAndBoundedTheTail) {
  std::vector<int32_t> chat = text(50);
  append(chat, {kAssistant}, 30);
  EXPECT_EQ(first_decoder_row(ContextMode::kExact, chat, kTurns, kTail), 0);
  EXPECT_EQ(first_decoder_row(ContextMode::kBounded, chat, kTurns, kTail), 81 - kTail);
}

TEST(ContextTest, AShortMessageContinuesTheAnswerBeforeIt) {
  std::vector<int32_t> chat = text(50);
  append(chat, {kAssistant}, 30);  // ends at 81
  append(chat, {kEnd, kUser}, 5);
  append(chat, {kAssistant}, 0);
  EXPECT_EQ(stable(chat), 50 - kTail + 1);
}

TEST(ContextTest, ALongMessageBeginsAnew) {
  std::vector<int32_t> chat = text(50);
  append(chat, {kAssistant}, 30);
  append(chat, {kEnd, kUser}, 2 * kTail);
  append(chat, {kAssistant}, 0);
  EXPECT_EQ(stable(chat), std::ssize(chat) - kTail);
}

TEST(ContextTest, EqualsTheRuleRowByRow) {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 rng(seed);
    std::vector<int32_t> tokens;
    const int64_t n = 1 + rng() % 120, tail = 1 + rng() % 20;
    const uint32_t rare = 2 + rng() % 30;
    for (int64_t i = 0; i < n; ++i) {
      tokens.push_back(rng() % rare == 0 ? static_cast<int32_t>(1 + rng() % 3) : kText);
    }
    ASSERT_EQ(stable(tokens, tail), first_by_rows(tokens, n, tail));
  }
}

// Why the state that an answer leaves serves the next turn: where the stretch of the next prompt reaches back into the
// answer, it begins where the answer's own did.
TEST(ContextTest, TheStretchOfTheNextTurnBeginsWhereTheAnswersDidOrBehindIt) {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 rng(seed);
    const int64_t tail = 1 + rng() % 20;
    std::vector<int32_t> chat;
    int64_t before = -1, spoken = 0;
    for (int turn = 0; turn < 6; ++turn) {
      append(chat, {kUser}, rng() % (2 * static_cast<uint32_t>(tail)));
      append(chat, {kAssistant}, rng() % 2);  // the kind of answer is said behind it
      const int64_t first = stable(chat, tail);
      if (before >= 0 && first <= spoken) {
        ASSERT_EQ(first, before);
      }
      before = first;
      append(chat, {}, rng() % 40);
      spoken = std::ssize(chat);
      chat.push_back(kEnd);
    }
  }
}

TEST(ContextTest, NamesAreReadAndWritten) {
  for (const ContextMode mode : {ContextMode::kExact, ContextMode::kStable, ContextMode::kBounded}) {
    EXPECT_EQ(context_mode_of(context_mode_name(mode)), mode);
  }
  EXPECT_FALSE(context_mode_of("Stable").has_value());
}

}  // namespace
}  // namespace deepinfer
