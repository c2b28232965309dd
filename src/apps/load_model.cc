#include "apps/load_model.h"

#include <algorithm>
#include <optional>
#include <thread>

#include "apps/progress_bar.h"
#include "apps/weights_cache.h"
#include "checkpoint/checkpoint.h"

namespace deepinfer {

namespace {

ProgressFunction show(ProgressBar& bar) {
  return [&bar](uint64_t done_bytes, uint64_t total_bytes) { bar.update(done_bytes, total_bytes); };
}

}  // namespace

Result<Tokenizer> load_tokenizer(const std::string& model_directory) {
  return Tokenizer::load(model_directory + "/tokenizer.json");
}

bool settle_options(const ModelConfig& config, ModelOptions& options) {
  if (options.num_threads == 0)
    options.num_threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, ThreadPool::kMostThreads);
  const bool lowered = options.max_context_tokens > config.max_position_embeddings;
  options.max_context_tokens = std::min(options.max_context_tokens, config.max_position_embeddings);
  return lowered;
}

Result<std::unique_ptr<Model>> load_model(const Checkpoint& checkpoint, const Tokenizer& tokenizer,
                                          const ModelOptions& options, const std::string& weights_cache_directory) {
  std::optional<WeightsCache> cache;
  ProgressBar writing("caching");
  {
    ProgressBar naming("naming");
    cache = find_weights_cache(weights_cache_directory, checkpoint, options.num_threads, show(naming), show(writing));
  }
  ProgressBar loading("loading");
  return Model::load(checkpoint, engram_token_map(tokenizer, checkpoint.config().vocab_size), options, show(loading),
                     cache ? &*cache : nullptr);
}

}  // namespace deepinfer
