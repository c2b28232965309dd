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

Result<std::unique_ptr<Model>> load_model(const std::string& model_directory, const Tokenizer& tokenizer,
                                          ModelOptions options, const std::string& weights_cache_directory) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(model_directory));
  const ModelConfig& config = checkpoint.config();
  if (options.num_threads == 0)
    options.num_threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, ThreadPool::kMostThreads);
  options.max_context_tokens = std::min(options.max_context_tokens, config.max_position_embeddings);
  std::optional<WeightsCache> cache;
  ProgressBar writing("caching");
  {
    ProgressBar naming("naming");
    cache = find_weights_cache(weights_cache_directory, checkpoint, options.num_threads, show(naming), show(writing));
  }
  ProgressBar loading("loading");
  return Model::load(checkpoint, engram_token_map(tokenizer, config.vocab_size), options, show(loading),
                     cache ? &*cache : nullptr);
}

}  // namespace deepinfer
