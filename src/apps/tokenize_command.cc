#include "apps/tokenize_command.h"

#include <ctime>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "json/json.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

struct TokenizeOptions {
  std::string model_directory;
  std::string tokenizer_file;
  bool no_added_tokens = false;
  bool skip_special = false;
  bool stats = false;
};

constexpr char kTokenizeExamples[] =
    R"(Reads {"text": "..."} lines from standard input and writes {"ids":[...]} lines. A line that cannot be read gives
{"error":"line N: ..."}, the rest goes on, and the exit code is 1.

Examples:
  echo '{"text": "Hello, world!"}' | deepinfer tokenize --model models/mini
  deepinfer tokenize --tokenizer tokenizer.json --no-added-tokens < texts.jsonl > ids.jsonl)";

constexpr char kDetokenizeExamples[] =
    R"(Reads {"ids": [...]} lines from standard input and writes {"text":"..."} lines. A line that cannot be read gives
{"error":"line N: ..."}, the rest goes on, and the exit code is 1.

Examples:
  echo '{"ids": [19923, 14, 2058, 3]}' | deepinfer detokenize --tokenizer tokenizer.json)";

// What `tokenize --stats` reports: encoding alone, without reading and writing JSON, in processor time, which
// other programs on the machine disturb least.
struct EncodeStats {
  size_t bytes = 0, tokens = 0;
  std::clock_t time = 0;

  void print() const {
    const double seconds = static_cast<double>(time) / CLOCKS_PER_SEC;
    print_note("{} bytes, {} tokens, {:.3f} s, {:.1f} MB/s\n", bytes, tokens, seconds,
               seconds > 0 ? bytes / seconds / 1e6 : 0.0);
  }
};

Result<Tokenizer> load_tokenizer(const TokenizeOptions& options) {
  if (!options.tokenizer_file.empty()) return Tokenizer::load(options.tokenizer_file);
  return Tokenizer::load(options.model_directory + "/tokenizer.json");
}

Result<std::vector<TokenId>> read_ids(const JsonRef& list, int64_t vocab_size) {
  ASSIGN_OR_RETURN(const auto elements, list.array());
  std::vector<TokenId> ids;
  for (const JsonRef& element : elements) {
    ASSIGN_OR_RETURN(const int64_t id, element.int64());
    if (id < 0 || id >= vocab_size) {
      return Error(Code::kInvalidArgument, "{}: found {}, expected 0 to {}", element.path(), id, vocab_size - 1);
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

Status tokenize_line(const Tokenizer& tokenizer, const JsonRef& line, Tokenizer::AddedTokens added,
                     EncodeStats& stats, JsonWriter& answer) {
  ASSIGN_OR_RETURN(const std::string text, line["text"].string());
  const std::clock_t start = std::clock();
  const std::vector<TokenId> ids = tokenizer.encode(text, added);
  stats.time += std::clock() - start;
  stats.bytes += text.size();
  stats.tokens += ids.size();
  answer.key("ids").begin_array();
  for (const TokenId id : ids) answer.value(id);
  answer.end_array();
  return {};
}

Status detokenize_line(const Tokenizer& tokenizer, const JsonRef& line, Tokenizer::SpecialTokens special,
                       JsonWriter& answer) {
  ASSIGN_OR_RETURN(const std::vector<TokenId> ids, read_ids(line["ids"], tokenizer.vocab_size()));
  answer.member("text", tokenizer.decode(ids, special));
  return {};
}

using AnswerLine = std::function<Status(const JsonRef& line, JsonWriter& answer)>;

Status answer_line(const std::string& line, const AnswerLine& answer, std::string& out) {
  ASSIGN_OR_RETURN(const JsonValue value, parse_json(line));
  JsonWriter writer(out);
  writer.begin_object();
  RETURN_IF_ERROR(answer(JsonRef(value), writer));
  writer.end_object();
  return {};
}

// One answer for each line of standard input, written at once so that a program can talk to us line by line.
int answer_lines(const AnswerLine& answer) {
  int exit_code = kExitOk;
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    std::string out;
    if (const Status status = answer_line(line, answer, out); !status.ok()) {
      out.clear();
      const std::string message = status.error().in(fmt::format("line {}", number)).message();
      JsonWriter(out).begin_object().member("error", message).end_object();
      exit_code = kExitFailed;
    }
    out += '\n';
    write_output(out);
    if (!flush_output().ok()) return kExitFailed;  // main() says why
  }
  return exit_code;
}

int run_tokenize(const TokenizeOptions& options) {
  const auto tokenizer = load_tokenizer(options);
  if (!tokenizer.ok()) return fail(tokenizer.error());
  const auto added =
      options.no_added_tokens ? Tokenizer::AddedTokens::kAsText : Tokenizer::AddedTokens::kRecognise;
  EncodeStats stats;
  const int exit_code = answer_lines([&](const JsonRef& line, JsonWriter& answer) {
    return tokenize_line(*tokenizer, line, added, stats, answer);
  });
  if (options.stats) stats.print();
  return exit_code;
}

int run_detokenize(const TokenizeOptions& options) {
  const auto tokenizer = load_tokenizer(options);
  if (!tokenizer.ok()) return fail(tokenizer.error());
  const auto special =
      options.skip_special ? Tokenizer::SpecialTokens::kSkip : Tokenizer::SpecialTokens::kKeep;
  return answer_lines([&](const JsonRef& line, JsonWriter& answer) {
    return detokenize_line(*tokenizer, line, special, answer);
  });
}

void add_tokenizer_options(CLI::App& parser, TokenizeOptions& options) {
  auto* source = parser.add_option_group("tokenizer", "exactly one of");
  add_path_option(*source, "--model", options.model_directory, "directory with a tokenizer.json");
  add_path_option(*source, "--tokenizer", options.tokenizer_file, "the tokenizer.json itself");
  source->require_option(1);
}

}  // namespace

Command add_tokenize_command(CLI::App& program) {
  auto options = std::make_shared<TokenizeOptions>();  // shared by the parser's targets and the run function
  CLI::App* parser =
      program.add_subcommand("tokenize", "text to token ids, JSON lines on standard input and output");
  parser->footer(kTokenizeExamples);
  add_tokenizer_options(*parser, *options);
  parser->add_flag("--no-added-tokens", options->no_added_tokens,
                   "take the spelling of added tokens as plain text");
  parser->add_flag("--stats", options->stats, "at the end, print bytes, tokens, processor time and speed");
  return {parser, [options] { return run_tokenize(*options); }};
}

Command add_detokenize_command(CLI::App& program) {
  auto options = std::make_shared<TokenizeOptions>();  // shared by the parser's targets and the run function
  CLI::App* parser =
      program.add_subcommand("detokenize", "token ids to text, JSON lines on standard input and output");
  parser->footer(kDetokenizeExamples);
  add_tokenizer_options(*parser, *options);
  parser->add_flag("--skip-special", options->skip_special, "leave out special tokens");
  return {parser, [options] { return run_detokenize(*options); }};
}

}  // namespace deepinfer
