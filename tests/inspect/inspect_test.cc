// The command `deepinfer inspect` as its user sees it: output and exit codes of the real program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "checkpoint/fake_checkpoint.h"
#include "json/json.h"

namespace deepinfer {
namespace {

using ::testing::HasSubstr;

struct Output {
  std::string text;
  int exit_code = -1;
};

Output run(const std::string& arguments) {
  Output output;
  std::FILE* pipe = ::popen((DEEPINFER_PROGRAM " inspect " + arguments + " 2>&1").c_str(), "r");
  char buffer[4096];
  for (size_t count = 0; (count = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;)
    output.text.append(buffer, count);
  output.exit_code = WEXITSTATUS(::pclose(pipe));
  return output;
}

// A missing shard, a wrong dtype, a wrong shape, a truncated shard and an unsupported config value.
void plant_five_faults(FakeCheckpoint& fake) {
  *fake.config.find("text_config")->find("scoring_func") = JsonValue("softmax");
  fake.tensor("norm.weight").dtype_name = "F32";
  fake.tensor("norm.weight").size_bytes *= 2;
  fake.tensor("mtp.1.attn.attn_sink").shape = {2, 2};
  ASSERT_TRUE(fake.write().ok());
  std::filesystem::remove(fake.shard_path(1));
  std::filesystem::resize_file(fake.shard_path(2), std::filesystem::file_size(fake.shard_path(2)) - 1);
}

void expect_five_faults(const std::string& text) {
  EXPECT_THAT(text, HasSubstr("config.json: text_config.scoring_func: found"));
  EXPECT_THAT(text, HasSubstr("model-0.safetensors: norm.weight: found F32 [64], expected BF16 [64]"));
  EXPECT_THAT(text, HasSubstr("model-1.safetensors: not found"));
  EXPECT_THAT(text, HasSubstr("model-2.safetensors: truncated: found"));
  EXPECT_THAT(text,
              HasSubstr("model-3.safetensors: mtp.1.attn.attn_sink: found F32 [2, 2], expected F32 [4]"));
}

TEST(InspectCommand, NamesAllFiveFaultsOfABrokenDirectory) {
  FakeCheckpoint fake(small_config_text(), 4);
  plant_five_faults(fake);
  const Output output = run("--model " + fake.directory());
  EXPECT_EQ(output.exit_code, 1);
  EXPECT_THAT(output.text, HasSubstr(": 5 faults\n"));
  expect_five_faults(output.text);
}

TEST(InspectCommand, ListsFaultsAsJson) {
  FakeCheckpoint fake(small_config_text(), 4);
  plant_five_faults(fake);
  const Output output = run("--json --model " + fake.directory());
  EXPECT_EQ(output.exit_code, 1);
  const auto json = parse_json(output.text);
  ASSERT_TRUE(json.ok()) << output.text;
  ASSERT_EQ(json->find("faults")->array()->size(), 5u);
  std::string faults;
  for (const JsonValue& fault : *json->find("faults")->array()) faults += *fault.string() + "\n";
  expect_five_faults(faults);
}

TEST(InspectCommand, DescribesASoundDirectory) {
  FakeCheckpoint fake(small_config_text(), 4);
  ASSERT_TRUE(fake.write().ok());
  const Output output = run("--model " + fake.directory());
  EXPECT_EQ(output.exit_code, 0);
  EXPECT_THAT(output.text, HasSubstr("10 layers (6 encoder, 4 decoder)"));
  EXPECT_THAT(output.text, HasSubstr("routed experts"));
  EXPECT_THAT(output.text, HasSubstr("weights in 4 files"));
}

// docs/spec/model.md 1.2 and 12.1.
TEST(InspectCommand, PlansTheReleasedModelsMemory) {
  FakeCheckpoint flash(flash_config_text(), 48);
  if (const Status written = flash.write(); !written.ok()) {
    GTEST_SKIP() << "THE FILE SYSTEM REFUSES SPARSE FILES OF THIS SIZE: " << written.error().message();
  }
  const Output output = run("--json --model " + flash.directory());
  EXPECT_EQ(output.exit_code, 0);
  const auto json = parse_json(output.text);
  ASSERT_TRUE(json.ok()) << output.text;
  EXPECT_EQ(json->find("total")->find("tensors")->int64(), 96'085);
  EXPECT_EQ(json->find("total")->find("parameters")->int64(), 763'205'315'794);
  EXPECT_EQ(json->find("total")->find("bytes")->int64(), 510'286'023'000);
  const JsonValue& memory = *json->find("memory");
  EXPECT_EQ(memory.find("kv_block_bytes")->int64(), 113'920);
  EXPECT_EQ(memory.find("kv_bytes_per_token")->number(), 890.0);
  EXPECT_EQ(memory.find("sequence_state_bytes")->int64(),
            5'872'416 + 32 + 86'016);  // windows, to 64 bytes; rings
  EXPECT_EQ(memory.find("resident_weight_bytes")->int64(), 510'286'023'000 - 823'685'120 - 146'851'840);
}

TEST(InspectCommand, AMissingDirectoryIsAFaultAndNoModelIsWrongUsage) {
  const Output missing = run("--model /nonexistent");
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.text, HasSubstr("config.json: can't open"));
  EXPECT_EQ(run("").exit_code, 2);
  EXPECT_EQ(run("--help").exit_code, 0);
}

}  // namespace
}  // namespace deepinfer
