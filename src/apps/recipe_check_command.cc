#include "apps/recipe_check_command.h"

#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "json/json.h"
#include "recipe_check/recipe_check.h"

namespace deepinfer {
namespace {

struct CheckOptions {
  std::vector<std::string> files;
  std::string tokenizer_file;
  bool json = false;
};

constexpr char kRecipeCheckExamples[] =
    R"(Each line of FILE is a record: of the specification (kind: encode, parse, ...) or made by running the official
package (area: render.chat, stream.resp, ...). Prints failed records with each difference, known differences and
skipped records with their reason, and the counts. Exit code 1 when a record failed or a file is none.

--tokenizer takes the tokenizer.json of DeepSeek-V4; without it token ids are not compared.

Examples:
  deepinfer recipe-check recipe-vectors.jsonl
  deepinfer recipe-check --json --tokenizer tokenizer.json vectors.jsonl > report.json)";

std::string_view kind_name(RecordResult::Kind kind) {
  switch (kind) {
    case RecordResult::Kind::kPassed:
      return "passed";
    case RecordResult::Kind::kFailed:
      return "failed";
    case RecordResult::Kind::kKnownDifference:
      return "known difference";
    case RecordResult::Kind::kSkipped:
      return "skipped";
  }
  return "";
}

size_t count(const std::vector<RecordResult>& results, RecordResult::Kind kind) {
  size_t n = 0;
  for (const RecordResult& result : results) n += result.kind == kind;
  return n;
}

void print_text(const std::string& file, const std::vector<RecordResult>& results) {
  for (const RecordResult& result : results) {
    if (result.kind == RecordResult::Kind::kPassed) continue;
    print_output("{}: {}{}{}\n", kind_name(result.kind), result.id, result.reason.empty() ? "" : ": ",
                 result.reason);
    if (result.kind != RecordResult::Kind::kFailed) continue;
    for (const std::string& difference : result.differences) print_output("    {}\n", difference);
  }
  print_output("{}: {} passed, {} failed, {} known differences, {} skipped\n", file,
               count(results, RecordResult::Kind::kPassed), count(results, RecordResult::Kind::kFailed),
               count(results, RecordResult::Kind::kKnownDifference),
               count(results, RecordResult::Kind::kSkipped));
}

void write_json(JsonWriter& json, const std::string& file, const std::vector<RecordResult>& results) {
  json.begin_object()
      .member("file", file)
      .member("passed", count(results, RecordResult::Kind::kPassed))
      .member("failed", count(results, RecordResult::Kind::kFailed))
      .member("known_differences", count(results, RecordResult::Kind::kKnownDifference))
      .member("skipped", count(results, RecordResult::Kind::kSkipped))
      .key("records")
      .begin_array();
  for (const RecordResult& result : results) {
    if (result.kind == RecordResult::Kind::kPassed) continue;
    json.begin_object().member("id", result.id).member("result", kind_name(result.kind));
    if (!result.reason.empty()) json.member("reason", result.reason);
    json.key("differences").begin_array();
    for (const std::string& difference : result.differences) json.value(difference);
    json.end_array().end_object();
  }
  json.end_array().end_object();
}

struct BothTokenizers {
  std::optional<Tokenizer> v4, v41;
};

Status load_tokenizers(const std::string& path, BothTokenizers& both) {
  if (path.empty()) return {};
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return Error(Code::kNotFound, "{}: cannot be read", path);
  ASSIGN_OR_RETURN(Tokenizer v4, Tokenizer::parse(text.str(), path));
  ASSIGN_OR_RETURN(const std::string renamed, renamed_for_v41(text.str()));
  ASSIGN_OR_RETURN(Tokenizer v41, Tokenizer::parse(renamed, path));
  both.v4.emplace(std::move(v4));
  both.v41.emplace(std::move(v41));
  return {};
}

int run(const CheckOptions& options) {
  BothTokenizers both;
  if (const Status loaded = load_tokenizers(options.tokenizer_file, both); !loaded.ok()) {
    return fail(loaded.error());
  }
  CheckTokenizers tokenizers;
  if (both.v4) tokenizers = {&*both.v4, &*both.v41};
  std::string out;
  JsonWriter json(out);
  if (options.json) json.begin_array();
  int exit_code = kExitOk;
  for (const std::string& file : options.files) {
    const auto results = check_recipe_file(file, tokenizers);
    if (!results.ok()) return fail(results.error());
    if (count(*results, RecordResult::Kind::kFailed) > 0) exit_code = kExitFailed;
    options.json ? write_json(json, file, *results) : print_text(file, *results);
  }
  if (options.json) {
    json.end_array();
    write_output(out + "\n");
  }
  return exit_code;
}

}  // namespace

Command add_recipe_check_command(CLI::App& program) {
  auto options = std::make_shared<CheckOptions>();  // shared by the parser's targets and the run function
  CLI::App* parser =
      program.add_subcommand("recipe-check", "recorded prompts and outputs against this program");
  parser->footer(kRecipeCheckExamples);
  parser->add_option("FILE", options->files, "JSON lines, one record each")->required();
  add_path_option(*parser, "--tokenizer", options->tokenizer_file, "tokenizer.json of DeepSeek-V4");
  parser->add_flag("--json", options->json, "one JSON array, an object for each file");
  return {parser, [options] { return run(*options); }};
}

}  // namespace deepinfer
