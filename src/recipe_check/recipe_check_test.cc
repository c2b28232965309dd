// Recordings of the official package (tests/data/recipe), both files of vectors of the shared folder
// (DEEPINFER_SHARED, by default beside the repository), and the errors for files that are not such records.
#include "recipe_check/recipe_check.h"
#include "shared_data.h"
#include "tokenizer/released_tokenizer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "json/json.h"

namespace deepinfer {
namespace {

struct Counts {
  size_t passed = 0, failed = 0, known = 0, skipped = 0;
};

// Null where the file is not installed.
CheckTokenizers tokenizers() {
  static const std::string json = released_tokenizer_path();
  if (json.empty()) return {};
  static const std::string text = [] {
    std::ifstream file(json);
    std::ostringstream out;
    out << file.rdbuf();
    return out.str();
  }();
  static const Tokenizer v4 = *Tokenizer::parse(text, json);
  static const Tokenizer v41 = *Tokenizer::parse(*renamed_for_v41(text), json);
  return {&v4, &v41};
}

// What the records that differ on purpose give instead: a file of lines {"id", "found": {WHAT: TEXT}}. Such a record
// may differ from the package's, but not from day to day. DEEPINFER_WRITE_PINS=1 writes the file anew, for a change
// that is meant.
class Pins {
 public:
  explicit Pins(std::string name) : path_(source_path("tests/data/recipe/pinned/" + name + ".jsonl")) {
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) {
      const Result<JsonValue> pin = parse_json(line);
      EXPECT_TRUE(pin.ok()) << path_ << ": " << line;
      if (pin.ok()) pinned_[*JsonRef(*pin)["id"].string()] = *JsonRef(*pin)["found"].value();
    }
  }
  ~Pins() {
    if (writes_) {
      write();
      return;
    }
    for (const auto& [id, value] : pinned_) {
      EXPECT_TRUE(found_.count(id) > 0) << id << ": is pinned in " << path_ << ", and passes, fails or is gone";
    }
  }

  // Token ids are left out: not every machine has the tokenizer.
  void check(const RecordResult& result) {
    JsonValue::Object found;
    for (const auto& [what, text] : result.found) {
      if (!what.starts_with("token")) found.push_back({what, short_form(text)});
    }
    found_[result.id] = found;
    if (writes_) return;
    EXPECT_EQ(to_json(found_[result.id]), to_json(pinned_[result.id])) << result.id << ": is pinned in " << path_;
  }

 private:
  // Long texts by their beginning, size and FNV-1a.
  static std::string short_form(const std::string& text) {
    constexpr size_t kLongest = 1000, kBeginning = 200;
    if (text.size() <= kLongest) return text;
    uint64_t hash = 0xcbf29ce484222325;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    size_t end = kBeginning;
    while ((static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
    return fmt::format("{} ... {} bytes, {:016x}", text.substr(0, end), text.size(), hash);
  }
  void write() const {
    std::ofstream file(path_);
    for (const auto& [id, value] : found_) {
      file << to_json(JsonValue(JsonValue::Object{{"id", id}, {"found", value}})) << "\n";
    }
  }

  const bool writes_ = std::getenv("DEEPINFER_WRITE_PINS") != nullptr;
  const std::string path_;
  std::map<std::string, JsonValue> pinned_, found_;
};

Counts check(const std::string& path, const CheckTokenizers& with, Pins* pins) {
  const auto results = check_recipe_file(path, with);
  EXPECT_TRUE(results.ok()) << results.error().message();
  Counts counts;
  if (!results.ok()) return counts;
  for (const RecordResult& result : *results) {
    switch (result.kind) {
      case RecordResult::Kind::kPassed:
        ++counts.passed;
        break;
      case RecordResult::Kind::kKnownDifference:
        ++counts.known;
        if (pins != nullptr) pins->check(result);
        break;
      case RecordResult::Kind::kSkipped:
        ++counts.skipped;
        break;
      case RecordResult::Kind::kFailed:
        ++counts.failed;
        for (const std::string& difference : result.differences) {
          ADD_FAILURE() << result.id << ": " << difference;
        }
    }
  }
  return counts;
}

// Without token ids, so without a tokenizer file.
TEST(RecipeCheck, TheRecordingsOfThisTreePass) {
  Counts all;
  Pins pins("recordings");
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tests/data/recipe"))) {
    if (entry.path().extension() != ".jsonl") continue;
    const Counts counts = check(entry.path().string(), {}, &pins);
    EXPECT_EQ(counts.failed, 0u) << entry.path();
    all.passed += counts.passed;
    all.known += counts.known;
    all.skipped += counts.skipped;
  }
  EXPECT_GE(all.passed, 530u) << all.known << " differ as known, " << all.skipped << " are skipped";
}

TEST(SharedData, OnlyAWholeFolderMayBeAbsent) {
  const char* before = std::getenv("DEEPINFER_SHARED");
  const std::string kept = before != nullptr ? before : "";
  ASSERT_EQ(setenv("DEEPINFER_SHARED", testing::TempDir().c_str(), 1), 0);
  EXPECT_FALSE(may_be_absent(shared_path("golden/tiny")));  // lost from a folder that is there
  ASSERT_EQ(setenv("DEEPINFER_SHARED", "/nonexistent/shared", 1), 0);
  EXPECT_TRUE(may_be_absent(shared_path("golden/tiny")));
  EXPECT_FALSE(may_be_absent(source_path("models/mini/config.json")));  // belongs to the tree
  before != nullptr ? setenv("DEEPINFER_SHARED", kept.c_str(), 1) : unsetenv("DEEPINFER_SHARED");
}

TEST(RecipeCheck, TheVectorsOfTheSpecificationPass) {
  REQUIRE_DATA(shared_path("specs/recipe-vectors.jsonl"));
  Pins pins("specification");
  const Counts counts = check(shared_path("specs/recipe-vectors.jsonl"), tokenizers(), &pins);
  EXPECT_EQ(counts.failed, 0u);
  EXPECT_GE(counts.passed, 80u);
}

TEST(RecipeCheck, TheVectorsOfTheOfficialPackagePass) {
  REQUIRE_DATA(shared_path("specs/recipe-official/vectors.jsonl"));
  Pins pins("official");
  const Counts counts = check(shared_path("specs/recipe-official/vectors.jsonl"), tokenizers(), &pins);
  EXPECT_EQ(counts.failed, 0u);
  EXPECT_GE(counts.passed, 700u);
}

std::string error_of(const std::string& content) {
  const std::string path = testing::TempDir() + "recipe_check_test.jsonl";
  std::ofstream(path) << content;
  const auto results = check_recipe_file(path, {});
  std::filesystem::remove(path);
  EXPECT_FALSE(results.ok());
  return results.ok() ? "" : results.error().message().substr(path.size());
}

TEST(RecipeCheck, FilesThatAreNoVectorsAreRefusedWithTheLine) {
  EXPECT_EQ(check_recipe_file("/nowhere/x.jsonl", {}).error().code(), Code::kNotFound);
  EXPECT_EQ(error_of(""), ": no records, expected one JSON object a line");
  EXPECT_TRUE(error_of("\n{\"kind\":\"meta\"}\n{").starts_with(", line 3: "));
  EXPECT_TRUE(error_of("[]").starts_with(", line 1: "));
  EXPECT_EQ(error_of("{}"), ", line 1: found a record without \"area\" and \"kind\", expected one of them");
  EXPECT_EQ(error_of("{\"kind\":\"poem\"}"),
            ", line 1: kind: found \"poem\", expected a kind of docs/spec/recipe.md 14");
}

// Whatever is missing in a record, it is told or differs; nothing ends the program.
TEST(RecipeCheck, RecordsWithoutTheirFieldsAreNoCrash) {
  EXPECT_EQ(error_of("{\"area\":\"number\"}"), ", line 1: input: not found, expected an object");
  EXPECT_TRUE(
      error_of("{\"area\":\"number\",\"input\":{},\"expected\":[]}").starts_with(", line 1: expected: "));
  for (const char* area : {"render.chat", "options", "error", "stream.chat", "max_tokens", "number", "encode",
                           "image_tokens", "image"}) {
    for (const char* input :
         {"{}", R"({"protocol":"messages","request":{"model":"m"},"pieces":[1,{}],"finish":"stop"})"}) {
      const std::string record = fmt::format(R"({{"area":"{}","input":{},"expected":{{}}}})", area, input);
      EXPECT_TRUE(check_recipe_record(*parse_json(record), {}).ok()) << record;
    }
  }
  for (const char* kind : {"literal", "encode", "convert_error", "parse", "sse", "tokenize", "numbers"}) {
    EXPECT_TRUE(check_recipe_record(*parse_json(fmt::format(R"({{"kind":"{}"}})", kind)), {}).ok()) << kind;
  }
}

TEST(RecipeCheck, ADifferenceIsToldWithWhatWasExpected) {
  const auto result = check_recipe_record(
      *parse_json(
          R"({"id":"x","area":"image_tokens","input":{"width":1,"height":1},"expected":{"token_count":1}})"),
      {});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->kind, RecordResult::Kind::kFailed);
  EXPECT_EQ(result->differences, std::vector<std::string>{"token_count: found 184, expected 1"});
}

}  // namespace
}  // namespace deepinfer
