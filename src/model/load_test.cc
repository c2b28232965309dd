// Loading the mini model: progress, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint/checkpoint.h"
#include "model/model.h"
#include "source_path.h"

namespace deepinfer {
namespace {

Result<Checkpoint> mini() {
  return Checkpoint::open(source_path("models/mini"));
}

TEST(LoadTest, ProgressRisesFromPieceToPieceUntilEveryByteIsThere) {
  const auto checkpoint = mini();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  uint64_t text_bytes = 0;  // without the routing bias of images
  for (const auto& [name, location] : checkpoint->tensors()) {
    if (name.ends_with("gate.bias_vl")) continue;
    text_bytes += location.size_bytes;
  }

  std::vector<uint64_t> done;
  const auto progress = [&](uint64_t done_bytes, uint64_t total_bytes) {
    EXPECT_EQ(total_bytes, text_bytes);
    EXPECT_GT(done_bytes, done.empty() ? 0 : done.back());
    done.push_back(done_bytes);
  };
  // Any map with the right number of classes loads.
  std::vector<int32_t> map(static_cast<size_t>(checkpoint->config().vocab_size));
  for (size_t id = 0; id < map.size(); ++id) {
    map[id] = static_cast<int32_t>(std::min<int64_t>(static_cast<int64_t>(id),
                                                     checkpoint->config().engram_compressed_vocab_size - 1));
  }
  const auto model = Model::load(*checkpoint, map, {.max_context_tokens = 128}, progress);
  ASSERT_TRUE(model.ok()) << model.error().message();
  EXPECT_GT(done.size(), 1u);
  EXPECT_EQ(done.back(), text_bytes);
}

TEST(LoadTest, ThePlanIsWhatIsAllocated) {
  const auto checkpoint = mini();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  std::vector<int32_t> map(static_cast<size_t>(checkpoint->config().vocab_size));
  for (size_t id = 0; id < map.size(); ++id) {
    map[id] = static_cast<int32_t>(
        std::min<int64_t>(static_cast<int64_t>(id), checkpoint->config().engram_compressed_vocab_size - 1));
  }
  for (const Numerics numerics : {Numerics::kExact, Numerics::kFast}) {
    const ModelOptions options = {
        .numerics = numerics, .num_threads = 3, .max_context_tokens = 700, .max_sequences = 5, .max_batch_tokens = 77};
    const auto plan = Model::plan(*checkpoint, options);
    const auto model = Model::load(*checkpoint, map, options);
    ASSERT_TRUE(plan.ok() && model.ok());
    EXPECT_EQ(plan->total_bytes(), (*model)->memory_plan().total_bytes());
    EXPECT_GT(plan->weight_bytes, uint64_t{4} << 20);
    EXPECT_EQ(plan->kv_blocks, 5u * 6u);
  }
}

TEST(LoadTest, ATokenMapOfAnotherVocabularyIsRefused) {
  const auto checkpoint = mini();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  const auto model = Model::load(*checkpoint, std::vector<int32_t>(7, 0), {});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code(), Code::kInvalidArgument);
  EXPECT_NE(model.error().message().find('7'), std::string::npos) << model.error().message();
}

TEST(LoadTest, AnUnknownInstructionSetIsRefused) {
  const auto checkpoint = mini();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  const std::vector<int32_t> map(static_cast<size_t>(checkpoint->config().vocab_size), 0);
  const auto model = Model::load(*checkpoint, map, {.isa = "mmx"});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace deepinfer
