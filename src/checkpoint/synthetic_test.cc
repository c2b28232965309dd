#include "checkpoint/synthetic.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "checkpoint/presets.h"
#include "tensor/formats.h"

namespace deepinfer {
namespace {

class SyntheticTest : public testing::Test {
 protected:
  SyntheticTest() {
    std::string pattern = std::filesystem::temp_directory_path() / "deepinfer_synthetic_XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  ~SyntheticTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  static SyntheticOptions tiny(int64_t layers, uint64_t seed = 0) {
    return {.preset = SyntheticPreset::kTiny, .num_layers = layers, .num_experts = 4, .seed = seed, .engram_classes = 200};
  }
  std::string file_text(const std::string& name) const {
    std::ifstream file(directory_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string directory_;
};

TEST_F(SyntheticTest, WhatIsWrittenOpensAsACheckpoint) {
  const std::string made = directory_ + "/made";  // does not exist yet
  uint64_t last_done = 0, last_total = 1;
  ASSERT_TRUE(write_synthetic_checkpoint(made, tiny(10), [&](uint64_t done, uint64_t total) {
                EXPECT_GT(done, last_done);
                last_done = done;
                last_total = total;
              }).ok());
  EXPECT_EQ(last_done, last_total);
  const auto checkpoint = Checkpoint::open(made);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  EXPECT_TRUE(checkpoint->unused_tensors().empty());
  EXPECT_EQ(checkpoint->config().num_hidden_layers, 10);
  EXPECT_EQ(checkpoint->files().size(), 1u + 10 + 2);  // a shard a layer and stage, one for the rest
}

TEST_F(SyntheticTest, TheConfigIsSoundForEveryNumberOfLayersAndKeepsTheTrueWidths) {
  const auto released = parse_model_config(flash_config_text());
  ASSERT_TRUE(released.ok());
  for (int64_t layers = 6; layers <= 40; ++layers) {
    const auto text = synthetic_config({.preset = SyntheticPreset::kFlash, .num_layers = layers, .num_experts = 32, .seed = 0, .engram_classes = 99092});
    ASSERT_TRUE(text.ok()) << text.error().message();
    const auto config = parse_model_config(*text);
    ASSERT_TRUE(config.ok()) << layers << ": " << config.error().message();
    EXPECT_EQ(config->hidden_size, released->hidden_size);
    EXPECT_EQ(config->moe_intermediate_size, released->moe_intermediate_size);
    EXPECT_EQ(config->vocab_size, released->vocab_size);
    EXPECT_EQ(config->n_routed_experts, 32);
    EXPECT_EQ(config->dspark_n_routed_experts, 32);
    EXPECT_EQ(config->first_decoder_layer(), layers / 2);
    EXPECT_EQ(config->engram_layer_ids.size(), 2u);
    EXPECT_FALSE(config->vision);
  }
}

TEST_F(SyntheticTest, SameSeedSameBytes) {
  for (const auto& [name, seed] : {std::pair{"a", 1}, {"b", 1}, {"c", 2}}) {
    ASSERT_TRUE(write_synthetic_checkpoint(directory_ + "/" + name, tiny(6, seed)).ok());
  }
  const std::string shard = "/model-00002-of-00009.safetensors";
  ASSERT_FALSE(file_text("a" + shard).empty());
  EXPECT_EQ(file_text("a" + shard), file_text("b" + shard));
  EXPECT_NE(file_text("a" + shard), file_text("c" + shard));
}

TEST_F(SyntheticTest, ValuesHaveTheMagnitudesOfAModel) {
  ASSERT_TRUE(write_synthetic_checkpoint(directory_, tiny(6)).ok());
  const auto checkpoint = Checkpoint::open(directory_);
  ASSERT_TRUE(checkpoint.ok());
  const auto rms_of_fp8 = [&](const std::string& name) {
    const TensorLocation& codes = checkpoint->tensors().find(name + ".weight")->second;
    const TensorLocation& scales = checkpoint->tensors().find(name + ".scale")->second;
    std::vector<std::byte> code_bytes(codes.size_bytes), scale_bytes(scales.size_bytes);
    EXPECT_TRUE(checkpoint->read(name + ".weight", code_bytes).ok());
    EXPECT_TRUE(checkpoint->read(name + ".scale", scale_bytes).ok());
    double sum = 0;
    for (size_t i = 0; i < code_bytes.size(); ++i) {
      const size_t row = i / codes.shape[1], col = i % codes.shape[1];
      const float value = e4m3_to_float(static_cast<uint8_t>(code_bytes[i])) *
                          e8m0_to_float(static_cast<uint8_t>(scale_bytes[row / 32 * scales.shape[1] + col / 32]));
      sum += double{value} * value;
    }
    return std::sqrt(sum / static_cast<double>(code_bytes.size()));
  };
  EXPECT_NEAR(rms_of_fp8("layers.0.attn.wq_a") * 8, 1.0, 0.6);  // 64 columns
}

TEST_F(SyntheticTest, OptionsOutOfRangeAreRefused) {
  const auto code_of = [&](SyntheticOptions options) {
    const auto config = synthetic_config(options);
    return config.ok() ? std::string("ok") : config.error().message();
  };
  EXPECT_EQ(code_of({.preset = SyntheticPreset::kFlash, .num_layers = 5, .num_experts = 64, .seed = 0, .engram_classes = 100}), "layers: found 5, expected 6 to 40");
  EXPECT_EQ(code_of({.preset = SyntheticPreset::kFlash, .num_layers = 41, .num_experts = 64, .seed = 0, .engram_classes = 100}), "layers: found 41, expected 6 to 40");
  EXPECT_EQ(code_of({.preset = SyntheticPreset::kFlash, .num_layers = 8, .num_experts = 5, .seed = 0, .engram_classes = 100}), "experts: found 5, expected 6 to 384");
  EXPECT_EQ(code_of({.preset = SyntheticPreset::kFlash, .num_layers = 8, .num_experts = 385, .seed = 0, .engram_classes = 100}), "experts: found 385, expected 6 to 384");
  EXPECT_EQ(code_of({.preset = SyntheticPreset::kFlash, .num_layers = 8, .num_experts = 64, .seed = 0, .engram_classes = 0}),
            "classes of the tokenizer: found 0, expected 1 to 129280 (vocab_size)");
}

TEST_F(SyntheticTest, ADirectoryWithFilesIsNotTouched) {
  std::ofstream(directory_ + "/notes.txt") << "mine";
  const Status status = write_synthetic_checkpoint(directory_, tiny(6));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), Code::kInvalidArgument);
  EXPECT_NE(status.error().message().find("expected an empty directory"), std::string::npos);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
}

TEST_F(SyntheticTest, AFileInPlaceOfTheDirectoryIsAnError) {
  std::ofstream(directory_ + "/file") << "mine";
  const Status status = write_synthetic_checkpoint(directory_ + "/file/below", tiny(6));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), Code::kIo);
}

// The limit on a file's size stands for a disk that fills up while we write.
TEST_F(SyntheticTest, AFullDiskSaysWhereItEnded) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {20'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = write_synthetic_checkpoint(directory_, tiny(6));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), Code::kResourceExhausted) << status.error().message();
  EXPECT_NE(status.error().message().find("after 20000 bytes"), std::string::npos) << status.error().message();
}

TEST_F(SyntheticTest, ADiskWithTooLittleRoomIsFoundOutBefore) {
  std::error_code error;
  const auto space = std::filesystem::space(directory_, error);
  if (error || space.available > uint64_t{280} << 30) GTEST_SKIP() << "more free space than the largest checkpoint takes";
  const Status status = write_synthetic_checkpoint(directory_, {.preset = SyntheticPreset::kFlash, .num_layers = 40, .num_experts = 384, .seed = 0, .engram_classes = 100});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), Code::kResourceExhausted);
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

}  // namespace
}  // namespace deepinfer
