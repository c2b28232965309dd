#include "apps/generate_command.h"

#include <memory>
#include <string>
#include <vector>

#include "sampling/sampling.h"

namespace deepinfer {
namespace {

struct GenerateOptions {
  std::string model_directory;
  std::string prompt;
  std::string messages_file;
  std::vector<int32_t> ids;
  bool raw = false;
  std::string thinking = "on";
  int64_t max_tokens = 256;
  SamplingParams sampling;
  int threads = 0;
  bool json = false;
};

constexpr char kExamples[] = R"(Examples:
  deepinfer generate --model models/mini --prompt "What is 34 + 57?"
  deepinfer generate --model models/mini --messages chat.json --thinking off --json
  deepinfer generate --model models/mini --ids 0,17,42 --max-tokens 16 --temperature 0)";

void add_input_options(CLI::App& parser, GenerateOptions& options) {
  parser.add_option("--model", options.model_directory, "directory of the checkpoint")->required();
  auto* input = parser.add_option_group("input", "exactly one of");
  input->add_option("--prompt", options.prompt, "text of one user message");
  input->add_option("--messages", options.messages_file, "JSON file with an array of chat messages");
  input->add_option("--ids", options.ids, "token ids, taken as they are")->delimiter(',');
  input->require_option(1);
  parser.add_flag("--raw", options.raw, "take --prompt as plain text, without the chat format");
  parser.add_option("--thinking", options.thinking, "let the model think first")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
}

void add_output_options(CLI::App& parser, GenerateOptions& options) {
  parser.add_option("--max-tokens", options.max_tokens, "at most so many new tokens")->capture_default_str();
  parser.add_option("--temperature", options.sampling.temperature, "0 takes the likeliest token")
      ->capture_default_str();
  parser.add_option("--top-p", options.sampling.top_p, "probability mass to draw from")
      ->capture_default_str();
  parser.add_option("--seed", options.sampling.seed, "same seed, same text")->capture_default_str();
  parser.add_option("--threads", options.threads, "compute threads, 0 for one a core")->capture_default_str();
  parser.add_flag("--json", options.json, "print one JSON object at the end instead of streaming text");
}

int run_generate(const GenerateOptions&) {
  return fail(Error(Code::kUnimplemented, "generate: the model is not in this build yet"));
}

}  // namespace

Command add_generate_command(CLI::App& program) {
  auto options = std::make_shared<GenerateOptions>();  // shared by the parser's targets and the run function
  CLI::App* parser = program.add_subcommand("generate", "continue one prompt and stream the text");
  parser->footer(kExamples);
  add_input_options(*parser, *options);
  add_output_options(*parser, *options);
  return {parser, [options] { return run_generate(*options); }};
}

}  // namespace deepinfer
