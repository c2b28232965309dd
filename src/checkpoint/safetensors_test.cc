#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/read_file.h"
#include "checkpoint/fake_checkpoint.h"

namespace deepinfer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kHeader[] =
    R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[2,10]},"a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}})";
constexpr uint64_t kPrefix = 8 + sizeof(kHeader) - 1;

class SafetensorsTest : public ::testing::Test {
 protected:
  SafetensorsTest() : path_(::testing::TempDir() + "safetensors_test_" + std::to_string(::getpid())) {}
  ~SafetensorsTest() override { std::filesystem::remove(path_); }

  static std::string file_of(std::string_view header, std::string_view data) {
    std::string text(8, '\0');
    const uint64_t length = header.size();
    std::memcpy(text.data(), &length, 8);
    return text.append(header).append(data);
  }
  Result<SafetensorsFile> load(std::string_view bytes) {
    EXPECT_TRUE(write_text(path_, bytes).ok());
    return SafetensorsFile::load(path_);
  }
  std::vector<std::string> faults_of(std::string_view header, uint64_t file_bytes) {
    const auto parsed = parse_safetensors_header(header, kPrefix, file_bytes);
    if (!parsed.ok()) return {parsed.error().message()};
    return parsed->faults;
  }

  const std::string path_;
};

TEST_F(SafetensorsTest, TensorsAreFoundByNameWithTheirBytes) {
  const char header[] =
      R"({"__metadata__":{"format":"pt"},"x":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
      R"("e":{"dtype":"U8","shape":[0,3],"data_offsets":[8,8]},"y":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}})";
  const auto file = load(file_of(header, std::string("\0\0\x80\x3f\0\0\0\x40\x80\x3f", 10)));
  ASSERT_TRUE(file.ok()) << file.error().message();
  EXPECT_THAT(file->names(), ElementsAre("e", "x", "y"));
  EXPECT_EQ(file->find("x")->shape, (Shape{1, 2}));
  EXPECT_THAT(file->find("x")->as<float>(), ElementsAre(1.0f, 2.0f));
  EXPECT_EQ(to_float(file->find("y")->as<Bf16>()[0]), 1.0f);
  EXPECT_EQ(file->find("e")->size(), 0u);
  EXPECT_FALSE(file->contains("z"));
  EXPECT_EQ(file->find("z").error().code(), Code::kNotFound);
}

TEST_F(SafetensorsTest, TensorsAtOddOffsetsAreReadAsAnyOther) {
  const char header[] =
      R"({"u":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})";
  const auto file = load(file_of(header, std::string("\7\0\0\x80\x3f", 5)));
  ASSERT_TRUE(file.ok()) << file.error().message();
  EXPECT_THAT(file->find("x")->as<float>(), ElementsAre(1.0f));
  EXPECT_THAT(file->find("u")->codes(), ElementsAre(7));
}

TEST_F(SafetensorsTest, AMissingFileIsNotFound) {
  EXPECT_EQ(SafetensorsFile::load(path_ + ".none").error().code(), Code::kNotFound);
}

TEST_F(SafetensorsTest, AFileCutAtAnyByteIsRefused) {
  const std::string whole =
      file_of(R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})", std::string(12, '\1'));
  ASSERT_TRUE(load(whole).ok());
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(load(std::string_view(whole).substr(0, length)).ok()) << length;
  }
}

TEST_F(SafetensorsTest, AFileThatShrinksWhileItIsReadIsDataLoss) {
  ASSERT_TRUE(write_text(path_, file_of(kHeader, std::string(10, '\1'))).ok());
  const auto file = ReadFile::open(path_);
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(path_, kPrefix + 4);
  std::vector<std::byte> bytes(10);
  const Status status = file->read(kPrefix, bytes);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), Code::kDataLoss);
  EXPECT_THAT(status.error().message(), HasSubstr(path_));
}

TEST_F(SafetensorsTest, AHugeHeaderIsRefusedBeforeAnythingIsAllocated) {
  std::string bytes = file_of("{}", "");
  for (const uint64_t length : {uint64_t{100'000'001}, uint64_t{1} << 31, ~uint64_t{0}}) {
    std::memcpy(bytes.data(), &length, 8);
    ASSERT_TRUE(write_text(path_, bytes).ok());
    std::filesystem::resize_file(path_, uint64_t{3} << 30);  // long enough, sparse
    const auto file = SafetensorsFile::load(path_);
    ASSERT_FALSE(file.ok());
    EXPECT_THAT(file.error().message(), HasSubstr("found a header of " + std::to_string(length)));
  }
}

TEST_F(SafetensorsTest, AHeaderBeyondTheFileIsRefused) {
  std::string bytes = file_of("{}", "");
  bytes[1] = 1;
  EXPECT_EQ(load(bytes).error().code(), Code::kDataLoss);
}

TEST_F(SafetensorsTest, SoundLayoutHasNoFaults) {
  EXPECT_THAT(faults_of(kHeader, kPrefix + 10), IsEmpty());
}

TEST_F(SafetensorsTest, OverlapsGapsAndWrongLengthsAreFaults) {
  const auto entries = [](int a_begin, int a_end, int b_begin, int b_end) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}},)"
                       R"("b":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}}}})",
                       a_end - a_begin, a_begin, a_end, b_end - b_begin, b_begin, b_end);
  };
  EXPECT_THAT(faults_of(entries(0, 8, 4, 12), kPrefix + 12), ElementsAre("b: overlaps a by 4 bytes"));
  EXPECT_THAT(faults_of(entries(0, 12, 4, 8), kPrefix + 12), ElementsAre("b: overlaps a by 8 bytes"));
  EXPECT_THAT(faults_of(entries(0, 4, 6, 8), kPrefix + 8),
              ElementsAre("b: found 2 unused bytes before it, expected none"));
  EXPECT_THAT(faults_of(entries(2, 4, 4, 8), kPrefix + 8),
              ElementsAre("a: found 2 unused bytes before it, expected none"));
  EXPECT_THAT(faults_of(entries(0, 4, 4, 8), kPrefix + 9),
              ElementsAre("found 1 bytes behind the last tensor, expected none"));
  EXPECT_THAT(faults_of(entries(0, 4, 4, 8), kPrefix + 7),
              ElementsAre(fmt::format("truncated: found {} bytes, expected {}", kPrefix + 7, kPrefix + 8)));
}

TEST_F(SafetensorsTest, MalformedEntriesAreFaults) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
       "a: found 8 bytes in data_offsets, expected 12"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}})", "a.shape[0]: found -1"},
      {R"({"a":{"dtype":"F32","shape":[9223372036854775807,9],"data_offsets":[0,8]}})",
       "expected fewer than 2^64"},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})",
       "a.shape[0]: found number, expected integer"},
      {R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", "a.shape: found integer, expected array"},
      {R"({"a":{"dtype":4,"shape":[2],"data_offsets":[0,8]}})", "a.dtype: found integer, expected string"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "expected begin <= end"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})",
       "a.data_offsets: found 1 numbers, expected 2"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})", "a.data_offsets[0]: found integer"},
      {R"({"a":{"dtype":"X","shape":[2],"data_offsets":[0,18446744073709551615]}})", "overflow"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", "a.data_offsets: found nothing, expected array"},
      {R"({"a":7})", "a.dtype: found nothing"},
      {R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{}})", "key 'a' appears twice"},
      {R"([])", "header: found array, expected object"},
      {R"({"a":)", "header: line 1"},
  };
  for (const auto& [header, fault] : kCases) {
    EXPECT_THAT(faults_of(header, kPrefix + 8), ElementsAre(HasSubstr(fault))) << header;
  }
}

TEST_F(SafetensorsTest, ATypeThatIsNotReadIsRefusedByName) {
  const auto file = load(file_of(R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}})", "xx"));
  EXPECT_THAT(file.error().message(), HasSubstr("a: found F16"));
}

}  // namespace
}  // namespace deepinfer
