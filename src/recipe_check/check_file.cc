#include <fstream>

#include "recipe_check/replay.h"

namespace deepinfer {

Result<std::string> renamed_for_v41(const std::string& v4_json) {
  ASSIGN_OR_RETURN(JsonValue file, parse_json(v4_json));
  JsonValue* tokens = file.find("added_tokens");
  if (tokens == nullptr || tokens->array() == nullptr) {
    return Error(Code::kInvalidArgument, "added_tokens: not found, expected an array");
  }
  for (JsonValue& token : *tokens->array()) {
    const JsonRef id = JsonRef(token)["id"];
    JsonValue* content = token.find("content");
    if (content == nullptr || !id.int64().ok()) continue;
    if (*id.int64() == 128799) *content = "<｜System｜>";
    if (*id.int64() == 129264) *content = "<｜image｜>";
    if (*id.int64() == 129279) *content = "<|place_holder_mm_span_0442|>";
  }
  return to_json(file);
}

Result<RecordResult> check_recipe_record(const JsonValue& json, const CheckTokenizers& tokenizers) {
  const JsonRef record(json);
  if (const auto object = record.object(); !object.ok()) return object.error();
  RecordResult result;
  result.id = text_of(record["id"]) + text_of(record["name"]);
  Comparison compare(result);
  const std::string area = text_of(record["area"]), kind = text_of(record["kind"]);
  if (area.empty() && kind.empty()) {
    return Error(Code::kInvalidArgument,
                 "found a record without \"area\" and \"kind\", expected one of them");
  }
  for (const char* field : {"input", "expected"}) {
    if (area.empty()) break;
    if (!record[field].present()) {
      return Error(Code::kInvalidArgument, "{}: not found, expected an object", field);
    }
    if (const auto object = record[field].object(); !object.ok()) return object.error();
  }
  if (!area.empty() && !check_official(area, record, tokenizers, compare)) {
    return Error(Code::kInvalidArgument, "area: found \"{}\", expected an area of the official package",
                 area);
  }
  if (area.empty() && !check_own(kind, record, tokenizers, compare)) {
    return Error(Code::kInvalidArgument, "kind: found \"{}\", expected a kind of docs/spec/recipe.md 14", kind);
  }
  if (const auto reason = known_difference(result.id);
      !reason.empty() && result.kind == RecordResult::Kind::kFailed) {
    result.kind = RecordResult::Kind::kKnownDifference;
    result.reason = reason;
  }
  return result;
}

Result<std::vector<RecordResult>> check_recipe_file(const std::string& path,
                                                    const CheckTokenizers& tokenizers) {
  std::ifstream file(path);
  if (!file) return Error(Code::kNotFound, "{}: cannot be read", path);
  std::vector<RecordResult> results;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (line.empty()) continue;
    const Result<JsonValue> json = parse_json(line);
    if (!json.ok()) return json.error().in(fmt::format("{}, line {}", path, number));
    Result<RecordResult> result = check_recipe_record(*json, tokenizers);
    if (!result.ok()) return result.error().in(fmt::format("{}, line {}", path, number));
    if (result->id.empty()) result->id = fmt::format("line {}", number);
    results.push_back(std::move(*result));
  }
  if (file.bad()) return Error(Code::kIo, "{}: cannot be read to its end", path);
  if (results.empty())
    return Error(Code::kInvalidArgument, "{}: no records, expected one JSON object a line", path);
  return results;
}

}  // namespace deepinfer
