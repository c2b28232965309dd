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
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

constexpr char kMini[] = DEEPINFER_SOURCE_DIR "/models/mini";

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
  std::ifstream file(std::string(kMini) + "/golden/teacher.jsonl");
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

TEST(TeacherTest, LossWithinOnePercentAndTheSameLikeliestTokens) {
  const std::vector<TeacherPrompt> prompts = read_prompts();
  ASSERT_EQ(prompts.size(), 200u);
  const auto checkpoint = Checkpoint::open(kMini);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  const auto tokenizer = Tokenizer::load(std::string(kMini) + "/tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message();
  const int64_t vocab = checkpoint->config().vocab_size;
  const auto model = Model::load(*checkpoint, engram_token_map(*tokenizer, vocab), {.num_threads = 2});
  ASSERT_TRUE(model.ok()) << model.error().message();

  double loss = 0, teacher_loss = 0;
  int64_t equal = 0, count = 0;
  for (const TeacherPrompt& prompt : prompts) {
    auto sequence = (*model)->make_sequence();
    ASSERT_TRUE(sequence.ok()) << sequence.error().message();
    const SequenceSpan span{sequence->get(), 0, prompt.ids, LogitsRows::kAll};
    const auto logits = (*model)->forward({&span, 1});
    ASSERT_TRUE(logits.ok()) << logits.error().message();
    for (size_t i = 0; i < prompt.top1.size(); ++i) {
      const size_t target = static_cast<size_t>(prompt.loss_from) + i;
      const auto row = logits->subspan((target - 1) * static_cast<size_t>(vocab), static_cast<size_t>(vocab));
      loss += loss_of(row, prompt.ids[target]);
      equal += std::max_element(row.begin(), row.end()) - row.begin() == prompt.top1[i];
    }
    count += std::ssize(prompt.top1);
    teacher_loss += prompt.loss * static_cast<double>(prompt.top1.size());
  }
  std::printf("loss %.6f, trainer %.6f (%+.2f %%); likeliest token equal %ld of %ld (%.2f %%)\n",
              loss / static_cast<double>(count), teacher_loss / static_cast<double>(count),
              100 * (loss / teacher_loss - 1), equal, count, 100.0 * static_cast<double>(equal) / static_cast<double>(count));
  EXPECT_NEAR(loss / teacher_loss, 1, 0.01);
  EXPECT_GE(equal * 100, count * 98);
}

}  // namespace
}  // namespace deepinfer
