// The engine against the trainer of models/mini, on held-out conversations (models/mini/golden/teacher.jsonl, written by
// tools/mini/golden.py): the loss of forced answers and the likeliest token at each of their positions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "checkpoint/checkpoint.h"
#include "json/json.h"
#include "model/model.h"
#include "source_path.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

const std::string kMini = source_path("models/mini");

struct TeacherPrompt {
  std::vector<int32_t> ids, top1;
  int64_t loss_from = 0;  // first predicted position
  double loss = 0;        // mean over the predicted positions
};

std::vector<int32_t> ids_of(const JsonValue& list) {
  std::vector<int32_t> ids;
  for (const JsonValue& id : *list.array()) ids.push_back(static_cast<int32_t>(*id.int64()));
  return ids;
}

std::vector<TeacherPrompt> read_prompts() {
  std::vector<TeacherPrompt> prompts;
  std::ifstream file(kMini + "/golden/teacher.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto json = parse_json(line);
    if (!json.ok()) {
      ADD_FAILURE() << json.error().message();
      continue;
    }
    prompts.push_back({ids_of(*json->find("ids")), ids_of(*json->find("top1")), *json->find("loss_from")->int64(),
                       *json->find("loss")->number()});
  }
  return prompts;
}

double loss_of(std::span<const float> logits, int32_t target) {
  const double peak = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - peak);
  return std::log(sum) + peak - logits[static_cast<size_t>(target)];
}

struct Score {
  double loss = 0, teacher_loss = 0;  // sums over the predicted positions
  int64_t count = 0, equal = 0;       // positions, and those with the trainer's likeliest token
  std::vector<int32_t> likeliest;
};

Score score_prompts(const std::vector<TeacherPrompt>& prompts, Numerics numerics) {
  Score score;
  const auto checkpoint = Checkpoint::open(kMini);
  const auto tokenizer = Tokenizer::load(kMini + "/tokenizer.json");
  if (!checkpoint.ok() || !tokenizer.ok()) {
    ADD_FAILURE() << (checkpoint.ok() ? tokenizer.error() : checkpoint.error()).message();
    return score;
  }
  const int64_t vocab = checkpoint->config().vocab_size;
  const auto model =
      Model::load(*checkpoint, engram_token_map(*tokenizer, vocab), {.numerics = numerics, .num_threads = 2});
  if (!model.ok()) {
    ADD_FAILURE() << model.error().message();
    return score;
  }
  EXPECT_EQ((*model)->summation_order(), summation_order(numerics));
  for (const TeacherPrompt& prompt : prompts) {
    auto sequence = (*model)->make_sequence();
    const SequenceSpan span{sequence->get(), 0, prompt.ids, LogitsRows::kAll};
    const auto logits = (*model)->forward({&span, 1});
    if (!logits.ok()) {
      ADD_FAILURE() << logits.error().message();
      return score;
    }
    for (size_t i = 0; i < prompt.top1.size(); ++i) {
      const size_t target = static_cast<size_t>(prompt.loss_from) + i;
      const auto row = logits->subspan((target - 1) * static_cast<size_t>(vocab), static_cast<size_t>(vocab));
      score.loss += loss_of(row, prompt.ids[target]);
      score.likeliest.push_back(static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
      score.equal += score.likeliest.back() == prompt.top1[i];
    }
    score.count += std::ssize(prompt.top1);
    score.teacher_loss += prompt.loss * static_cast<double>(prompt.top1.size());
  }
  std::printf("%s: loss %.6f, trainer %.6f (%+.2f %%); likeliest token equal %ld of %ld (%.2f %%)\n",
              std::string(summation_order(numerics)).c_str(), score.loss / static_cast<double>(score.count),
              score.teacher_loss / static_cast<double>(score.count),
              100 * (score.loss / score.teacher_loss - 1), score.equal, score.count,
              100.0 * static_cast<double>(score.equal) / static_cast<double>(score.count));
  return score;
}

TEST(TeacherTest, LossWithinOnePercentAndTheSameLikeliestTokensInBothModes) {
  const std::vector<TeacherPrompt> prompts = read_prompts();
  ASSERT_EQ(prompts.size(), 200u);
  const Score exact = score_prompts(prompts, Numerics::kExact),
              fast = score_prompts(prompts, Numerics::kFast);
  for (const Score* score : {&exact, &fast}) {
    EXPECT_NEAR(score->loss / score->teacher_loss, 1, 0.01);
    EXPECT_GE(score->equal * 100, score->count * 98);
  }
  ASSERT_EQ(exact.likeliest.size(), fast.likeliest.size());
  int64_t same = 0;
  for (size_t i = 0; i < exact.likeliest.size(); ++i) same += exact.likeliest[i] == fast.likeliest[i];
  std::printf("fast against exact: loss %+.3f %%; likeliest token equal %ld of %ld (%.2f %%)\n",
              100 * (fast.loss / exact.loss - 1), same, exact.count,
              100.0 * static_cast<double>(same) / static_cast<double>(exact.count));
  EXPECT_NE(exact.loss, fast.loss);  // the mode is at work
  EXPECT_GE(same * 100, exact.count * 98);
}

}  // namespace
}  // namespace deepinfer
