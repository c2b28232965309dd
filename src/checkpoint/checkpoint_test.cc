#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>

#include "checkpoint/fake_checkpoint.h"
#include "checkpoint/tensor_list.h"

namespace deepinfer {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

class CheckpointTest : public ::testing::Test {
 protected:
  std::vector<std::string> faults() {
    const Status written = fake_.write();
    EXPECT_TRUE(written.ok()) << written.error().message();
    return Checkpoint::inspect(fake_.directory()).faults;
  }
  size_t shard_of(std::string_view name) const {
    for (size_t shard = 0; shard < fake_.shards.size(); ++shard) {
      for (const FakeTensor& tensor : fake_.shards[shard]) {
        if (tensor.name == name) return shard;
      }
    }
    return fake_.shards.size();
  }
  std::string index_path() const { return fake_.directory() + "/model.safetensors.index.json"; }

  FakeCheckpoint fake_{small_config_text(), 4};
};

TEST_F(CheckpointTest, ASoundDirectoryOpens) {
  ASSERT_THAT(faults(), IsEmpty());
  const auto checkpoint = Checkpoint::open(fake_.directory());
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ(checkpoint->tensors().size(), expected_tensors(checkpoint->config()).size());
  EXPECT_TRUE(checkpoint->contains("mtp.1.markov_head.embed.weight"));
  EXPECT_TRUE(checkpoint->contains("vision.blocks.0.attn.wqkv.bias"));
  EXPECT_THAT(checkpoint->files(), SizeIs(4));
  EXPECT_THAT(checkpoint->unused_tensors(), IsEmpty());
}

TEST_F(CheckpointTest, ASingleFileWithoutIndexOpens) {
  FakeCheckpoint single(small_config_text(), 1);
  ASSERT_TRUE(single.write().ok());
  std::filesystem::remove(single.directory() + "/model.safetensors.index.json");
  std::filesystem::rename(single.shard_path(0), single.directory() + "/model.safetensors");
  EXPECT_THAT(Checkpoint::inspect(single.directory()).faults, IsEmpty());
}

TEST_F(CheckpointTest, NamesMayCarryThePrefixModel) {
  for (auto& shard : fake_.shards) {
    for (FakeTensor& tensor : shard) tensor.name = "model." + tensor.name;
  }
  ASSERT_THAT(faults(), IsEmpty());
  EXPECT_TRUE(Checkpoint::open(fake_.directory())->contains("embed.weight"));
}

TEST_F(CheckpointTest, BytesAreReadByName) {
  ASSERT_THAT(faults(), IsEmpty());
  const std::string path = fake_.shard_path(shard_of("norm.weight"));
  uint64_t offset = 0;
  {
    const auto checkpoint = Checkpoint::open(fake_.directory());
    offset = checkpoint->tensors().find("norm.weight")->second.offset;
  }
  std::FILE* file = std::fopen(path.c_str(), "r+b");
  std::fseek(file, static_cast<long>(offset), SEEK_SET);
  std::fputs("first", file);
  std::fclose(file);

  const auto checkpoint = Checkpoint::open(fake_.directory());
  std::vector<std::byte> bytes(checkpoint->tensors().find("norm.weight")->second.size_bytes);
  uint64_t heard = 0;
  ASSERT_TRUE(checkpoint->read("norm.weight", bytes, [&](uint64_t piece) { heard += piece; }).ok());
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(bytes.data()), 6), std::string_view("first\0", 6));
  EXPECT_EQ(heard, bytes.size());
}

TEST_F(CheckpointTest, ReadingTellsWhatIsWrong) {
  ASSERT_THAT(faults(), IsEmpty());
  const auto checkpoint = Checkpoint::open(fake_.directory());
  std::vector<std::byte> bytes(checkpoint->tensors().find("norm.weight")->second.size_bytes);
  EXPECT_EQ(checkpoint->read("nothing", bytes).error().code(), Code::kNotFound);
  EXPECT_EQ(checkpoint->read("norm.weight", std::span(bytes).first(3)).error().code(),
            Code::kInvalidArgument);
  std::filesystem::resize_file(fake_.shard_path(shard_of("norm.weight")), 100);
  EXPECT_EQ(checkpoint->read("norm.weight", bytes).error().code(), Code::kDataLoss);
}

TEST_F(CheckpointTest, ADirectoryWithoutConfigIsNotFound) {
  EXPECT_EQ(Checkpoint::open(fake_.directory()).error().code(), Code::kNotFound);
  EXPECT_EQ(Checkpoint::open(fake_.directory() + "/none").error().code(), Code::kNotFound);
  EXPECT_FALSE(Checkpoint::inspect(fake_.directory()).found);
}

TEST_F(CheckpointTest, FivePlantedFaultsAreAllNamedAtOnce) {
  fake_.config.find("text_config")->find("hidden_act")->operator=(JsonValue("gelu"));
  fake_.tensor("norm.weight").dtype_name = "F32";
  fake_.tensor("norm.weight").size_bytes *= 2;
  FakeTensor& sink = fake_.tensor("layers.9.attn.attn_sink");
  sink.shape = {2, 2};
  ASSERT_TRUE(fake_.write().ok());
  const size_t missing = 1, truncated = 2;
  ASSERT_NE(shard_of("norm.weight"), missing);
  ASSERT_NE(shard_of("layers.9.attn.attn_sink"), missing);
  std::filesystem::remove(fake_.shard_path(missing));
  const auto size = std::filesystem::file_size(fake_.shard_path(truncated));
  std::filesystem::resize_file(fake_.shard_path(truncated), size - 1);

  EXPECT_THAT(
      Checkpoint::inspect(fake_.directory()).faults,
      ElementsAre(R"(config.json: text_config.hidden_act: found "gelu", expected "silu")",
                  "model-0.safetensors: norm.weight: found F32 [64], expected BF16 [64]",
                  AllOf(StartsWith("model-1.safetensors: not found"), HasSubstr("names it for")),
                  fmt::format("model-2.safetensors: truncated: found {} bytes, expected {}", size - 1, size),
                  "model-3.safetensors: layers.9.attn.attn_sink: found F32 [2, 2], expected F32 [4]"));
  const auto opened = Checkpoint::open(fake_.directory());
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(opened.error().message(), HasSubstr(": 5 faults\n"));
}

TEST_F(CheckpointTest, AMissingTensorIsNamedWithItsShape) {
  auto& shard = fake_.shards[shard_of("layers.4.engram.embed.scale")];
  std::erase_if(shard, [](const FakeTensor& tensor) { return tensor.name == "layers.4.engram.embed.scale"; });
  EXPECT_THAT(faults(),
              ElementsAre("model.safetensors.index.json: layers.4.engram.embed.scale: not found, expected "
                          "F8_E8M0 [340, 1]"));
}

TEST_F(CheckpointTest, AWrongScaleShapeIsNamed) {
  FakeTensor& scale = fake_.tensor("layers.0.attn.wq_a.scale");
  scale.shape = {scale.shape[1], scale.shape[0]};
  ASSERT_NE(scale.shape[0], scale.shape[1]);
  EXPECT_THAT(
      faults(),
      ElementsAre(HasSubstr("layers.0.attn.wq_a.scale: found F8_E8M0 [2, 1], expected F8_E8M0 [1, 2]")));
}

TEST_F(CheckpointTest, ATensorInAnotherShardThanTheIndexSaysIsNamed) {
  ASSERT_TRUE(fake_.write().ok());
  auto& from = fake_.shards[0];
  const FakeTensor moved = from.back();
  from.pop_back();
  fake_.shards[1].push_back(moved);
  ASSERT_TRUE(write_safetensors(fake_.shard_path(0), fake_.shards[0]).ok());
  ASSERT_TRUE(write_safetensors(fake_.shard_path(1), fake_.shards[1]).ok());
  EXPECT_THAT(
      Checkpoint::inspect(fake_.directory()).faults,
      ElementsAre(fmt::format("model-1.safetensors: {}: found here, but model.safetensors.index.json says "
                              "model-0.safetensors",
                              moved.name)));
}

TEST_F(CheckpointTest, ATensorInTwoShardsIsNamed) {
  fake_.shards[1].push_back(fake_.tensor("embed.weight"));
  ASSERT_TRUE(fake_.write().ok());
  EXPECT_THAT(
      Checkpoint::inspect(fake_.directory()).faults,
      Contains(HasSubstr("model.safetensors.index.json: line 1")));  // the index names it twice as well
}

TEST_F(CheckpointTest, ATensorThatTheIndexNamesButNoShardHoldsIsNamed) {
  ASSERT_TRUE(fake_.write().ok());
  const std::string lost = fake_.shards[2].back().name;
  fake_.shards[2].pop_back();
  ASSERT_TRUE(write_safetensors(fake_.shard_path(2), fake_.shards[2]).ok());
  EXPECT_THAT(Checkpoint::inspect(fake_.directory()).faults,
              ElementsAre(HasSubstr("model-2.safetensors: " + lost +
                                    ": not found, but model.safetensors.index.json")));
}

TEST_F(CheckpointTest, AnIndexCannotLeadOutOfTheDirectory) {
  ASSERT_TRUE(fake_.write().ok());
  ASSERT_TRUE(write_text(index_path(), R"({"weight_map":{"embed.weight":"../other","head.weight":7}})").ok());
  const auto found = Checkpoint::inspect(fake_.directory()).faults;
  EXPECT_THAT(found, Contains(HasSubstr("weight_map.embed.weight: found '../other'")));
  EXPECT_THAT(found, Contains(HasSubstr("weight_map.head.weight: found integer, expected string")));
}

TEST_F(CheckpointTest, AnIndexEntryThatNamesNoFileIsOneFault) {
  ASSERT_TRUE(fake_.write().ok());
  for (const JsonValue& shard : {JsonValue("../x"), JsonValue(""), JsonValue("."), JsonValue(".."),
                                 JsonValue(), JsonValue(std::string("model-0.safetensors\0", 20))}) {
    JsonValue index = *parse_json(*ReadFile::read_text(index_path(), 1 << 20));
    JsonValue broken = index;
    broken.find("weight_map")->object()->front().value = shard;
    ASSERT_TRUE(write_text(index_path(), to_json(broken)).ok());
    EXPECT_THAT(Checkpoint::inspect(fake_.directory()).faults,
                ElementsAre(StartsWith("model.safetensors.index.json: weight_map.embed.weight: found ")))
        << to_json(shard);
    ASSERT_TRUE(write_text(index_path(), to_json(index)).ok());
  }
}

TEST_F(CheckpointTest, AFaultIsOneLineWhateverTheFilesSay) {
  fake_.tensor("norm.weight").name = "norm\n.weight\x1b[31m";
  ASSERT_TRUE(fake_.write().ok());
  std::filesystem::remove(fake_.shard_path(1));
  fake_.shards[0][0].shape = {1};
  for (const std::string& fault : faults())
    EXPECT_EQ(fault.find_first_of("\n\x1b"), std::string::npos) << fault;
}

// One fault for the file, none for each tensor that it would have held.
TEST_F(CheckpointTest, ASingleFileThatCantBeUsedIsOneFault) {
  const std::string path = fake_.directory() + "/model.safetensors";
  ASSERT_TRUE(write_text(fake_.directory() + "/config.json", small_config_text()).ok());
  const auto expect_one_fault = [&](std::string_view reason) {
    EXPECT_THAT(Checkpoint::inspect(fake_.directory()).faults,
                ElementsAre(AllOf(StartsWith("model.safetensors: "), HasSubstr(reason))));
    std::filesystem::remove(path);
  };
  ASSERT_TRUE(write_text(path, "short").ok());
  expect_one_fault("truncated");
  std::filesystem::create_directory(path);
  expect_one_fault("not a regular file");
  std::filesystem::create_symlink("model.safetensors", path);
  expect_one_fault("symbolic links");
  std::filesystem::create_symlink("nowhere", path);
  expect_one_fault("No such file");
}

TEST_F(CheckpointTest, ABrokenIndexIsOneFault) {
  ASSERT_TRUE(fake_.write().ok());
  for (const char* text : {"", "[]", "{}", R"({"weight_map":[]})"}) {
    ASSERT_TRUE(write_text(index_path(), text).ok());
    EXPECT_THAT(Checkpoint::inspect(fake_.directory()).faults,
                ElementsAre(StartsWith("model.safetensors.index.json: ")))
        << text;
  }
}

TEST_F(CheckpointTest, ADirectoryWithoutWeightsIsOneFault) {
  ASSERT_TRUE(write_text(fake_.directory() + "/config.json", small_config_text()).ok());
  EXPECT_THAT(Checkpoint::inspect(fake_.directory()).faults,
              ElementsAre("model.safetensors.index.json: not found, and no model.safetensors either"));
}

TEST_F(CheckpointTest, AnUnfoldedCheckpointIsRecognised) {
  fake_.shards[0].push_back({"layers.0.hc_attn_norm.weight", "BF16", {64}, 128});
  EXPECT_THAT(faults(), ElementsAre(StartsWith("layers.0.hc_attn_norm.weight: found 1 tensors like this")));
}

TEST_F(CheckpointTest, TensorsThatTheModelDoesNotUseAreNoted) {
  fake_.shards[0].push_back({"mtp.0.embed.weight", "F16", {4}, 8});
  ASSERT_THAT(faults(), IsEmpty());
  EXPECT_THAT(Checkpoint::open(fake_.directory())->unused_tensors(), ElementsAre("mtp.0.embed.weight"));
}

TEST_F(CheckpointTest, ManyFaultsAreCutShortWithTheirCount) {
  for (auto& shard : fake_.shards) {
    for (FakeTensor& tensor : shard) tensor.shape.push_back(1);
  }
  const size_t count = faults().size();
  ASSERT_GT(count, 100u);
  const std::string message = Checkpoint::open(fake_.directory()).error().message();
  EXPECT_THAT(message, HasSubstr(fmt::format("{} faults\n", count)));
  EXPECT_THAT(message, ::testing::EndsWith(fmt::format("… and {} more", count - 40)));
}

TEST_F(CheckpointTest, WithUnknownShapesTheShardsAreStillChecked) {
  fake_.config.find("text_config")->find("hidden_size")->operator=(JsonValue("wide"));
  ASSERT_TRUE(fake_.write().ok());
  std::filesystem::resize_file(fake_.shard_path(0), 5);
  EXPECT_THAT(Checkpoint::inspect(fake_.directory()).faults,
              ElementsAre(HasSubstr("hidden_size"), HasSubstr("model-0.safetensors: truncated")));
}

// docs/spec/model.md 1.2: the published totals.
TEST(FlashCheckpoint, TheReleasedModelsTensorsOpenAndCount) {
  FakeCheckpoint flash(flash_config_text(), 48);
  if (const Status written = flash.write(); !written.ok()) {
    GTEST_SKIP() << "THE FILE SYSTEM REFUSES SPARSE FILES OF THIS SIZE: " << written.error().message();
  }
  const auto checkpoint = Checkpoint::open(flash.directory());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  EXPECT_EQ(checkpoint->tensors().size(), 96'085u);
  uint64_t bytes = 0;
  for (const auto& [name, location] : checkpoint->tensors()) bytes += location.size_bytes;
  EXPECT_EQ(bytes, 510'286'023'000u);
}

TEST(FlashCheckpoint, ParametersAndBytesByKindAreThePublishedOnes) {
  const auto config = parse_model_config(flash_config_text());
  ASSERT_TRUE(config.ok());
  const struct {
    WeightKind kind;
    uint64_t tensors, parameters, bytes;
  } kTable[] = {
      {WeightKind::kAttention, 520, 5'064'696'320, 5'069'721'600},
      {WeightKind::kNorm, 80, 409'600, 819'200},
      {WeightKind::kHyperConnection, 240, 39'323'760, 157'295'040},
      {WeightKind::kRouter, 120, 78'673'920, 157'409'280},
      {WeightKind::kSharedExpert, 240, 1'415'577'600, 1'416'960'000},
      {WeightKind::kRoutedExpert, 92'160, 543'581'798'400, 288'777'830'400},
      {WeightKind::kCompressor, 11, 18'352'128, 36'704'256},
      {WeightKind::kIndexer, 32, 43'516'416, 45'130'752},
      {WeightKind::kEngramTable, 4, 196'613'849'600, 202'758'032'400},
      {WeightKind::kEngramProjection, 8, 314'654'720, 315'043'840},
      {WeightKind::kEmbeddingAndHead, 3, 1'323'832'320, 2'647'664'640},
      {WeightKind::kDspark, 2'401, 14'225'362'530, 7'932'874'632},
      {WeightKind::kVision, 259, 411'842'560, 823'685'120},
      {WeightKind::kAligner, 7, 73'425'920, 146'851'840},
  };
  const WeightTotals totals = count_weights(expected_tensors(*config));
  for (const auto& row : kTable) {
    const WeightCount& count = totals.by_kind[static_cast<size_t>(row.kind)];
    EXPECT_EQ(count.tensors, row.tensors) << weight_kind_name(row.kind);
    EXPECT_EQ(count.parameters, row.parameters) << weight_kind_name(row.kind);
    EXPECT_EQ(count.bytes, row.bytes) << weight_kind_name(row.kind);
  }
  EXPECT_EQ(totals.all.tensors, 96'085u);
  EXPECT_EQ(totals.all.parameters, 763'205'315'794u);
  EXPECT_EQ(totals.all.bytes, 510'286'023'000u);
}

}  // namespace
}  // namespace deepinfer
