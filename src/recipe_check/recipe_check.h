// Replays recorded requests and outputs through api and recipe: the vectors of docs/spec/recipe.md 14 and those made by
// running the official package 0.2.0. What differs on purpose is listed in known_differences.cc with its
// reason; what this server does not do is skipped with its reason.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "json/json.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

struct RecordResult {
  enum class Kind { kPassed, kFailed, kKnownDifference, kSkipped };
  std::string id;  // of the record, or its line
  Kind kind = Kind::kPassed;
  std::string reason = {};                    // kKnownDifference, kSkipped
  std::vector<std::string> differences = {};  // "prompt: found ..., expected ..."
  // Of each difference, what it is of and all that was found.
  std::vector<std::pair<std::string, std::string>> found = {};
};

// The released tokenizers; records that need one are skipped without.
struct CheckTokenizers {
  const Tokenizer* v4 = nullptr;
  const Tokenizer* v41 = nullptr;
};

// `tokenizer.json` of V4 with the names that V4.1 gives some of its ids.
Result<std::string> renamed_for_v41(const std::string& v4_json);

// One line each. kInvalidArgument names the line that is not a record; kNotFound a file that cannot be read.
Result<std::vector<RecordResult>> check_recipe_file(const std::string& path,
                                                    const CheckTokenizers& tokenizers);

// One record, known differences applied.
Result<RecordResult> check_recipe_record(const JsonValue& record, const CheckTokenizers& tokenizers);

}  // namespace deepinfer
