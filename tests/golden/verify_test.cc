// The engine against golden data that lies around: the reference's, beside the repository or at
// DEEPINFER_SHARED, and the mini model's own. And the checker itself: damaged data must fail.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "base/read_file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/fake_checkpoint.h"
#include "checkpoint/safetensors.h"
#include "shared_data.h"
#include "tensor/formats.h"
#include "verify/verify.h"

namespace deepinfer {
namespace {

namespace fs = std::filesystem;
using enum VerifyCheck::Outcome;

struct Subject {
  std::string name;
  std::string model_directory;
  std::string golden_directory;
};

Subject shared_subject() {
  const std::string golden = shared_path("golden");
  return {"shared", golden + "/tiny", golden};
}
Subject mini_subject() {
  const std::string mini = source_path("models/mini");
  return {"mini", mini, mini + "/golden"};
}

std::string failures(const VerifyReport& report) {
  std::string lines;
  for (const VerifyCheck& check : report.checks) {
    if (check.outcome == kFailed) lines += verify_line(check) + "\n";
  }
  return lines;
}

const VerifyCheck* find_check(const VerifyReport& report, std::string_view name) {
  const auto found = std::find_if(report.checks.begin(), report.checks.end(),
                                  [&](const auto& check) { return check.name == name; });
  return found == report.checks.end() ? nullptr : &*found;
}

class GoldenTest : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    const Subject& subject = GetParam();
    REQUIRE_DATA(subject.golden_directory + "/tiny/prompts");
    scratch_ = fs::path(testing::TempDir()) / ("golden_test_" + subject.name + std::to_string(::getpid()));
  }
  void TearDown() override { fs::remove_all(scratch_); }

  // A copy of one prompt in a directory of its own; returns the file.
  std::string copy_prompt(const std::string& file_name) {
    fs::create_directories(scratch_ / "tiny/prompts");
    const fs::path copy = scratch_ / "tiny/prompts" / file_name;
    fs::copy_file(fs::path(GetParam().golden_directory) / "tiny/prompts" / file_name, copy);
    fs::permissions(copy, fs::perms::owner_write, fs::perm_options::add);
    return copy.string();
  }
  // The shortest prompt without an image.
  std::string first_prompt() const {
    std::string first = "p999";
    for (const auto& entry : fs::directory_iterator(GetParam().golden_directory + "/tiny/prompts")) {
      first = std::min(first, entry.path().filename().string());
    }
    return first;
  }
  Result<VerifyReport> verify_copy() const {
    return verify_golden(
        {.model_directory = GetParam().model_directory, .golden_directory = scratch_.string()});
  }

  fs::path scratch_;
};

// Changes a tensor of a safetensors file in place: edit(its dtype name, its bytes).
void edit_tensor(const std::string& path, const std::string& tensor,
                 const std::function<void(std::string_view dtype, std::span<char> bytes)>& edit) {
  auto file = ReadFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message();
  const auto header = read_safetensors_header(*file);
  ASSERT_TRUE(header.ok()) << header.error().message();
  for (const SafetensorsEntry& entry : header->entries) {
    if (entry.name != tensor) continue;
    std::fstream stream(path, std::ios::binary | std::ios::in | std::ios::out);
    std::vector<char> bytes(entry.size_bytes);
    stream.seekg(static_cast<std::streamoff>(entry.offset));
    stream.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    edit(entry.dtype_name, bytes);
    stream.seekp(static_cast<std::streamoff>(entry.offset));
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    ASSERT_TRUE(stream.good());
    return;
  }
  FAIL() << path << " has no tensor " << tensor;
}

template <typename T>
std::span<T> as(std::span<char> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

// Turns the sign and an exponent bit of the last element of a bf16 or fp32 tensor, or the lowest bit of an
// integer.
void damage(const std::string& path, const std::string& tensor) {
  edit_tensor(path, tensor, [](std::string_view dtype, std::span<char> bytes) {
    if (dtype[0] == 'I') {
      bytes[bytes.size() - (dtype == "I64" ? 8 : 4)] ^= 1;
    } else {
      bytes.back() = 0x44;
    }
  });
}

TEST_P(GoldenTest, EngineMeetsEveryLimit) {
  const Subject& subject = GetParam();
  const auto report = verify_golden(
      {.model_directory = subject.model_directory, .golden_directory = subject.golden_directory, .threads = 2});
  ASSERT_TRUE(report.ok()) << report.error().message();
  EXPECT_TRUE(report->passed()) << failures(*report);
  EXPECT_GT(report->count(kPassed), 20);
  EXPECT_GT(report->top1_rows, 0);
}

// A check that no longer happens would not fail.
TEST_P(GoldenTest, EveryStoredResultOfAPromptHasItsCheck) {
  constexpr std::string_view kOneShot = "one.f32.";
  const std::string copy = copy_prompt(first_prompt());
  const auto report = verify_copy();
  ASSERT_TRUE(report.ok()) << report.error().message();
  const auto file = SafetensorsFile::load(copy);
  ASSERT_TRUE(file.ok()) << file.error().message();
  for (const std::string& name : file->names()) {
    if (!name.starts_with(kOneShot) || name.ends_with("margin")) continue;
    const std::string item = name.substr(kOneShot.size(), name.find('.', kOneShot.size()) - kOneShot.size());
    const std::string check = item == "logits" ? "one.logits" : item;
    EXPECT_NE(find_check(*report, "tiny/" + fs::path(copy).stem().string() + " " + check), nullptr) << name;
  }
}

TEST_P(GoldenTest, OneDamagedValueFailsItsCheck) {
  const std::string name = first_prompt();
  for (const auto& [tensor, item] : {std::pair{"one.f32.ffn_out", "ffn_out"},
                                     {"one.f32.win", "win"},
                                     {"one.f32.route_idx", "route_idx"},
                                     {"engram_rows", "engram_rows"}}) {
    fs::remove_all(scratch_);
    const std::string copy = copy_prompt(name);
    ASSERT_NO_FATAL_FAILURE(damage(copy, tensor));
    const auto report = verify_copy();
    ASSERT_TRUE(report.ok()) << report.error().message();
    EXPECT_FALSE(report->passed()) << tensor;
    const std::string check_name = "tiny/" + fs::path(name).stem().string() + " " + item;
    const VerifyCheck* check = find_check(*report, check_name);
    ASSERT_NE(check, nullptr) << check_name;
    EXPECT_EQ(check->outcome, kFailed) << check_name;
  }
}

// Faults that are small beside the noise of a free run, each in a copy of the data or of the checkpoint.
class PlantedFaultTest : public GoldenTest {
 protected:
  // Copies of the model and of its prompts; shards that are not to be changed stay links.
  void copy_model(const std::string& changed_shard) {
    const fs::path model = scratch_ / "model";
    fs::create_directories(model);
    for (const auto& entry : fs::directory_iterator(GetParam().model_directory)) {
      const fs::path copy = model / entry.path().filename();
      if (entry.path().filename() == changed_shard) {
        fs::copy_file(entry.path(), copy);
        fs::permissions(copy, fs::perms::owner_write, fs::perm_options::add);
      } else if (entry.is_regular_file()) {
        fs::create_symlink(fs::absolute(entry.path()), copy);
      }
    }
  }
  Result<VerifyReport> verify_with_model() const {
    return verify_golden(
        {.model_directory = (scratch_ / "model").string(), .golden_directory = scratch_.string(), .threads = 2});
  }
  // The checks that fail, by name; the copies without a fault have none.
  static std::vector<std::string> failed(const Result<VerifyReport>& report) {
    std::vector<std::string> names;
    if (!report.ok()) {
      ADD_FAILURE() << report.error().message();
      return names;
    }
    for (const VerifyCheck& check : report->checks) {
      if (check.outcome == kFailed) names.push_back(check.name);
    }
    return names;
  }
};

void scale_bf16(std::span<char> bytes, float factor) {
  for (Bf16& value : as<Bf16>(bytes)) value = to_bf16(to_float(value) * factor);
}

TEST_P(PlantedFaultTest, AWeightOfADraftStageTwoPercentOff) {
  if (GetParam().name != "shared") GTEST_SKIP() << "the mini model's data has no drafts";
  for (const char* tensor : {"mtp.1.ffn_norm.weight", "mtp.2.markov_head.head.weight", "mtp.2.norm.weight",
                             "mtp.2.confidence_head.proj.weight"}) {
    fs::remove_all(scratch_);
    for (const char* prompt : {"p001.safetensors", "p002.safetensors"}) copy_prompt(prompt);
    constexpr const char* kShard = "model-00005-of-00007.safetensors";
    copy_model(kShard);
    ASSERT_EQ(failed(verify_with_model()), std::vector<std::string>()) << "before the fault";
    ASSERT_NO_FATAL_FAILURE(edit_tensor((scratch_ / "model" / kShard).string(), tensor,
                                        [](std::string_view, std::span<char> bytes) { scale_bf16(bytes, 1.02f); }));
    const auto names = failed(verify_with_model());
    EXPECT_FALSE(names.empty()) << tensor;
    for (const std::string& name : names) EXPECT_NE(name.find("draft"), std::string::npos) << tensor << ": " << name;
  }
}

// The FP4 value next to one of a row: as a code one step off.
float next_fp4(float value, float scale) {
  const float steps = std::fabs(value) / scale;
  const float next = steps < 2 ? steps + 0.5f : steps < 4 ? steps + 1 : steps - 2;
  return std::copysign(next * scale, value);
}

TEST_P(PlantedFaultTest, OneCodeOfACompressedRow) {
  const std::string name = GetParam().name == "shared" ? "p015.safetensors" : "p016.safetensors";
  const std::string check = "tiny/" + name.substr(0, 4) + " ck codes";
  std::mt19937 rng(20261201);
  for (int round = 0; round < 6; ++round) {
    fs::remove_all(scratch_);
    const std::string copy = copy_prompt(name);
    ASSERT_NO_FATAL_FAILURE(edit_tensor(copy, "one.f32.ck.6", [&](std::string_view, std::span<char> bytes) {
      const std::span<Bf16> row = as<Bf16>(bytes);
      const size_t block = rng() % (row.size() / 16) * 16;
      float largest = 0;
      for (size_t i = block; i < block + 16; ++i) largest = std::max(largest, std::fabs(to_float(row[i])));
      const size_t at = block + rng() % 16;
      row[at] = to_bf16(next_fp4(to_float(row[at]), largest / 6));
    }));
    const auto names = failed(verify_copy());
    EXPECT_NE(std::find(names.begin(), names.end(), check), names.end()) << "round " << round;
  }
}

TEST_P(PlantedFaultTest, OneRowOfLogitsHalfAsLargeAgain) {
  const std::string name = GetParam().name == "shared" ? "p064.safetensors" : "p036.safetensors";
  std::vector<std::string> tensors = {"one.f32.logits"};
  if (GetParam().name == "shared") {
    tensors.insert(tensors.end(), {"dec.f32.logits", "dec.f32.draft_logits", "split.f32.33.logits"});
  }
  for (const std::string& tensor : tensors) {
    fs::remove_all(scratch_);
    const std::string copy = copy_prompt(name);
    ASSERT_NO_FATAL_FAILURE(edit_tensor(copy, tensor, [&](std::string_view, std::span<char> bytes) {
      const std::span<float> logits = as<float>(bytes);
      const size_t vocab = GetParam().name == "shared" ? 512 : 2048;
      for (float& logit : logits.subspan(7 * vocab, vocab)) logit *= 1.5f;
    }));
    EXPECT_FALSE(failed(verify_copy()).empty()) << tensor;
  }
}

INSTANTIATE_TEST_SUITE_P(Data, PlantedFaultTest, testing::Values(shared_subject(), mini_subject()),
                         [](const auto& info) { return info.param.name; });

TEST_P(GoldenTest, ATruncatedPromptIsAFailedCheckThatNamesTheFile) {
  const std::string name = first_prompt();
  const std::string copy = copy_prompt(name);
  fs::resize_file(copy, fs::file_size(copy) - 1);
  const auto report = verify_copy();
  ASSERT_TRUE(report.ok()) << report.error().message();
  EXPECT_FALSE(report->passed());
  EXPECT_NE(failures(*report).find(copy), std::string::npos) << failures(*report);
}

// The context is as long as the longest prompt needs, up to what the model allows.
TEST_P(GoldenTest, AVeryLongPromptIsChecked) {
  constexpr int64_t kLength = 9000;
  const auto checkpoint = Checkpoint::open(GetParam().model_directory);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  const int64_t vocab = checkpoint->config().vocab_size, longest = checkpoint->config().max_position_embeddings;
  fs::create_directories(scratch_ / "tiny/prompts");
  const Status written = write_safetensors((scratch_ / "tiny/prompts/long.safetensors").string(),
                                           {{"ids", "I32", {kLength}, kLength * 4},  // zeros, all of it
                                            {"split.f32.8999.logits", "F32", {2, vocab}, 2 * vocab * 4ull}});
  ASSERT_TRUE(written.ok()) << written.error().message();
  const auto report = verify_copy();
  ASSERT_TRUE(report.ok()) << report.error().message();
  if (longest < kLength) {
    EXPECT_NE(failures(*report).find(fmt::format("found 9000, expected 1 to {}", longest)), std::string::npos);
  } else {
    EXPECT_NE(find_check(*report, "tiny/long split.8999.logits"), nullptr) << failures(*report);
  }
}

INSTANTIATE_TEST_SUITE_P(Data, GoldenTest, testing::Values(shared_subject(), mini_subject()),
                         [](const auto& info) { return info.param.name; });

class VerifyErrorsTest : public testing::Test {
 protected:
  VerifyErrorsTest() : directory_(testing::TempDir() + "verify_errors_" + std::to_string(::getpid())) {
    fs::create_directories(directory_ + "/ops");
  }
  ~VerifyErrorsTest() override { fs::remove_all(directory_); }
  void write_manifest(const std::string& text) { std::ofstream(directory_ + "/ops/manifest.json") << text; }
  Result<VerifyReport> verify() const {
    return verify_golden({.model_directory = directory_, .golden_directory = directory_});
  }
  const std::string directory_;
};

TEST_F(VerifyErrorsTest, ADirectoryWithoutGoldenDataIsNotFound) {
  const auto report = verify();
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code(), Code::kNotFound);
  EXPECT_NE(report.error().message().find("tiny/prompts/*.safetensors"), std::string::npos);
}

TEST_F(VerifyErrorsTest, AManifestThatIsNoJsonIsAnErrorWithItsPath) {
  write_manifest("{");
  const auto report = verify();
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.error().message().find("ops/manifest.json"), std::string::npos);
}

TEST_F(VerifyErrorsTest, UnknownAndMissingOpsAreFailedChecks) {
  write_manifest(R"({"levitation": {"file": "ops/x.safetensors", "inputs": ""},
                     "quant": {"file": "ops/none.safetensors", "inputs": ""}, "rope": 7})");
  const auto report = verify();
  ASSERT_TRUE(report.ok()) << report.error().message();
  EXPECT_EQ(report->count(kFailed), 3);
  EXPECT_NE(failures(*report).find("no check for an op of this name"), std::string::npos);
  EXPECT_NE(failures(*report).find("ops/none.safetensors"), std::string::npos);
}

TEST_F(VerifyErrorsTest, AnUnknownInstructionSetIsRefused) {
  write_manifest("{}");
  const auto report =
      verify_golden({.model_directory = directory_, .golden_directory = directory_, .isa = "mmx"});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code(), Code::kInvalidArgument);
}

TEST(VerifyReportTest, TextAndJsonSayTheSame) {
  VerifyReport report;
  report.isa = "avx2";
  report.summation_order = "f32-block32";
  report.checks = {{"ops/x y", kPassed, "bf16 ulps", 0.5, 1, "2 rows"},
                   {"ops/z", kFailed, "mismatches", 3, 0, ""},
                   {"ops/vision", kSkipped, "", 0, 0, "not built"}};
  report.top1_equal = 9;
  report.top1_rows = 10;
  EXPECT_NE(verify_line(report.checks[0]).find("0.5 <= 1"), std::string::npos);
  EXPECT_NE(verify_line(report.checks[1]).find("FAIL"), std::string::npos);
  EXPECT_EQ(verify_summary(report),
            "1 checks passed, 1 failed, 1 skipped; top-1 agreement of logits 9 of 10 (90.0 %); table avx2, order "
            "f32-block32");
  EXPECT_EQ(
      verify_json(report),
      R"({"passed":false,"isa":"avx2","summation_order":"f32-block32",)"
      R"("counts":{"passed":1,"failed":1,"skipped":1},"top1":{"equal":9,"rows":10},"checks":[)"
      R"({"name":"ops/x y","outcome":"ok","measure":"bf16 ulps","error":0.5,"allowed":1.0,"note":"2 rows"},)"
      R"({"name":"ops/z","outcome":"FAIL","measure":"mismatches","error":3.0,"allowed":0.0},)"
      R"({"name":"ops/vision","outcome":"skipped","note":"not built"}]})");
}

}  // namespace
}  // namespace deepinfer
