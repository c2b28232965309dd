#include "apps/make_checkpoint_command.h"

#include <filesystem>
#include <memory>
#include <string>

#include "apps/progress_bar.h"
#include "checkpoint/synthetic.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

constexpr char kMakeCheckpointExamples[] =
    R"(Writes config.json, model.safetensors.index.json, one shard a layer and tokenizer.json: the released format with the
true widths, fewer layers and experts, small Engram tables, random values of realistic magnitude, no vision. The text
it generates means nothing; its speed is that of the real model, layer for layer. 8 layers take about 10 GB with
32 experts and 18 GB with 64. With the released tokenizer.json the directory has its 99,092 Engram classes, and other
engines read it too; a tokenizer_config.json in the same folder is copied.

Examples:
  deepinfer make-checkpoint --preset flash --layers 8 --experts 64 --out build/flash-8x64
  deepinfer make-checkpoint --layers 8 --experts 32 --tokenizer V4/tokenizer.json --out build/flash-8x32
  deepinfer make-checkpoint --preset tiny --layers 6 --experts 4 --out build/tiny)";

constexpr char kTokenizerConfig[] = "tokenizer_config.json";

struct MakeCheckpointOptions {
  std::string preset = "flash";
  SyntheticOptions synthetic;
  std::string out;
  std::string tokenizer = "models/mini/tokenizer.json";
};

// The tiny model takes the vocabulary of its tokenizer, so that every prompt fits.
int64_t vocab_size(SyntheticPreset preset, const Tokenizer& tokenizer) {
  return preset == SyntheticPreset::kFlash ? 129280 : tokenizer.vocab_size();
}

Status copy_file(const std::filesystem::path& from, const std::string& to) {
  std::error_code error;
  std::filesystem::copy_file(from, to, error);
  if (error) return Error(Code::kIo, "{}: can't be written: {}", to, error.message());
  return {};
}

Status make_checkpoint(MakeCheckpointOptions options) {
  SyntheticOptions& synthetic = options.synthetic;
  synthetic.preset = options.preset == "flash" ? SyntheticPreset::kFlash : SyntheticPreset::kTiny;
  ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::load(options.tokenizer));
  synthetic.vocab_size = vocab_size(synthetic.preset, tokenizer);
  for (const int32_t token_class : engram_token_map(tokenizer, synthetic.vocab_size)) {
    synthetic.engram_classes = std::max<int64_t>(synthetic.engram_classes, token_class + 1);
  }
  {
    ProgressBar bar("writing");
    RETURN_IF_ERROR(write_synthetic_checkpoint(
        options.out, synthetic,
        [&bar](uint64_t done_bytes, uint64_t total_bytes) { bar.update(done_bytes, total_bytes); }));
  }
  RETURN_IF_ERROR(copy_file(options.tokenizer, options.out + "/tokenizer.json"));
  // Other engines ask for the configuration beside it.
  const std::filesystem::path config = std::filesystem::path(options.tokenizer).replace_filename(kTokenizerConfig);
  if (std::filesystem::exists(config)) RETURN_IF_ERROR(copy_file(config, options.out + "/" + kTokenizerConfig));
  print_output("{}: {} layers, {} experts each; look at it with: deepinfer inspect --model {}\n", options.out,
               synthetic.num_layers, synthetic.num_experts, options.out);
  return {};
}

int run_make_checkpoint(const MakeCheckpointOptions& options) {
  const Status status = make_checkpoint(options);
  return status.ok() ? kExitOk : fail(status.error());
}

}  // namespace

Command add_make_checkpoint_command(CLI::App& program) {
  auto options = std::make_shared<MakeCheckpointOptions>();  // shared by the parser's targets and the run function
  CLI::App* parser = program.add_subcommand("make-checkpoint", "write a checkpoint of random numbers, to measure with");
  parser->footer(kMakeCheckpointExamples);
  parser->fallthrough();  // so that --log-level may follow the command
  parser->add_option("--preset", options->preset, "widths of the released Flash model, or tiny ones")
      ->check(CLI::IsMember({"flash", "tiny"}))
      ->capture_default_str();
  parser->add_option("--layers", options->synthetic.num_layers, "layers, 6 to 40")->capture_default_str();
  parser->add_option("--experts", options->synthetic.num_experts, "routed experts a layer, up to 384")
      ->capture_default_str();
  parser->add_option("--seed", options->synthetic.seed, "same seed, same bytes")->capture_default_str();
  add_path_option(*parser, "--out", options->out, "directory to write, new or empty")->required();
  add_path_option(*parser, "--tokenizer", options->tokenizer,
                  "tokenizer.json to put beside the weights; the Engram sizes follow its classes")
      ->capture_default_str();
  return {parser, [options] { return run_make_checkpoint(*options); }};
}

}  // namespace deepinfer
