#include "verify/tiny_checks.h"

#include <algorithm>
#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "tokenizer/tokenizer.h"
#include "verify/compare.h"
#include "verify/engram_constants.h"

namespace deepinfer::golden {
namespace {

constexpr int64_t kRowsPerCall = 256;

std::vector<std::string> list_prompts(const std::string& golden_directory) {
  std::vector<std::string> paths;
  std::error_code ignored;  // an unreadable directory has no prompts
  for (const auto& entry : std::filesystem::directory_iterator(golden_directory + "/tiny/prompts", ignored)) {
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

Status check_constants(const std::string& path, const ModelConfig& config,
                       const std::vector<int32_t>& token_map, Recorder& recorder) {
  ASSIGN_OR_RETURN(const GoldenFile file, GoldenFile::open(path));
  ASSIGN_OR_RETURN(const auto hashes, make_engram_hashes(config));
  const CountMismatches compare = [&](std::string_view item, int64_t mismatches) {
    recorder.compare(fmt::format("tiny/engram_constants {}", item), kMismatches,
                     static_cast<double>(mismatches), 0);
  };
  RETURN_IF_ERROR(compare_token_map(file, token_map, compare));
  return compare_hash_constants(file, hashes, compare);
}

Status check_prompt(const std::string& name, const std::string& path, Model& model, Recorder& recorder,
                    RowErrors& errors, RowErrors& best) {
  ASSIGN_OR_RETURN(const GoldenFile file, GoldenFile::open(path));
  if (file.contains("token_types")) {
    recorder.skip("tiny/" + name, "image prompt: needs the vision tower (not built yet)");
    return Status();
  }
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, file.read<int32_t>("ids", {-1}));
  if (ids.empty() || std::ssize(ids) > model.options().max_context_tokens) {
    return Error(Code::kInvalidArgument, "{}: ids: found {}, expected 1 to {}", path, ids.size(),
                 model.options().max_context_tokens);
  }
  PromptCheck prompt{name, file, std::move(ids), model, recorder};
  const size_t before = recorder.num_checks();
  RETURN_IF_ERROR(check_layers(prompt, errors));
  RETURN_IF_ERROR(check_logits(prompt, best));
  if (recorder.num_checks() == before) {
    return Error(Code::kInvalidArgument, "{}: none of its tensors is one that can be checked", path);
  }
  return Status();
}

// Over all prompts together: 99 % of the rows are within the tight limit, nearly all cached rows are equal.
void compare_most_rows(const RowErrors& errors, Numerics numerics, Recorder& recorder) {
  for (const auto& [item, rows] : errors) {
    if (rows.empty()) continue;
    const auto equal = std::count(rows.begin(), rows.end(), 0.0);
    const std::string note = fmt::format("{} rows, {} equal", rows.size(), equal);
    if (is_cached_item(item)) {
      recorder.compare("tiny/all " + item, "rows different",
                       1 - static_cast<double>(equal) / static_cast<double>(rows.size()), kCachedRowsDiffer,
                       note);
    } else {
      recorder.compare("tiny/all " + item, "row rms, 99 %", quantile(rows, kMostRowsShare),
                       most_rows(item, numerics), note);
    }
  }
}

// Rounding amplifies one unit in the last place to noise, but not in every row of a short prompt: a fault of the draft
// stages or their heads leaves no row as it was.
void compare_best_rows(const RowErrors& best, Numerics numerics, Recorder& recorder) {
  for (const auto& [item, rows] : best) {
    recorder.compare("tiny/all " + item, "best row rms", *std::min_element(rows.begin(), rows.end()),
                     numerics == Numerics::kExact ? kBestRow : kMostFastRows,
                     fmt::format("{} rows of prompts of at most {} tokens", rows.size(), kShortPrompt));
  }
}

// Positions that the prompts need: their own and what is decoded behind them.
int64_t longest_context(const std::vector<std::string>& paths) {
  int64_t longest = 1;
  for (const std::string& path : paths) {
    const auto file = GoldenFile::open(path);
    if (!file.ok()) continue;  // its own check says why
    int64_t length = 0;
    for (const char* name : {"ids", "dec.f32.tokens"}) {
      const auto shape = file->shape(name);
      if (shape.ok() && shape->size() == 1) length += (*shape)[0];
    }
    longest = std::max(longest, length);
  }
  return longest;
}

}  // namespace

bool has_prompts(const std::string& golden_directory) {
  return !list_prompts(golden_directory).empty();
}

Status check_tiny(const VerifyOptions& options, Recorder& recorder) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(options.model_directory));
  ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::load(options.model_directory + "/tokenizer.json"));
  const ModelConfig& config = checkpoint.config();
  const auto token_map = engram_token_map(tokenizer, config.vocab_size);
  const std::vector<std::string> paths = list_prompts(options.golden_directory);
  ModelOptions model_options{
      .isa = options.isa, .numerics = options.numerics, .num_threads = options.threads};
  model_options.max_context_tokens = std::min(longest_context(paths), config.max_position_embeddings);
  model_options.max_batch_tokens = kRowsPerCall;
  ASSIGN_OR_RETURN(const auto model, Model::load(checkpoint, token_map, model_options, {},
                                               options.weights_cache ? &*options.weights_cache : nullptr));

  const std::string constants = options.golden_directory + "/tiny/engram_constants.safetensors";
  if (std::filesystem::exists(constants)) {
    const Status status = check_constants(constants, config, token_map, recorder);
    if (!status.ok()) recorder.fail("tiny/engram_constants", status.error().message());
  }
  RowErrors errors, best;
  for (const std::string& path : paths) {
    const std::string name = std::filesystem::path(path).stem().string();
    const Status status = check_prompt(name, path, *model, recorder, errors, best);
    if (!status.ok()) recorder.fail("tiny/" + name, status.error().message());
  }
  compare_most_rows(errors, options.numerics, recorder);
  compare_best_rows(best, options.numerics, recorder);
  return Status();
}

}  // namespace deepinfer::golden
