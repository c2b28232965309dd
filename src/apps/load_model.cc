#include "apps/load_model.h"

#include <algorithm>
#include <thread>

#include "apps/progress_bar.h"
#include "checkpoint/checkpoint.h"

namespace deepinfer {

Result<Tokenizer> load_tokenizer(const std::string& model_directory) {
  return Tokenizer::load(model_directory + "/tokenizer.json");
}

Result<std::unique_ptr<Model>> load_model(const std::string& model_directory, const Tokenizer& tokenizer,
                                          ModelOptions options) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(model_directory));
  const ModelConfig& config = checkpoint.config();
  if (options.num_threads == 0)
    options.num_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  options.max_context_tokens = std::min(options.max_context_tokens, config.max_position_embeddings);
  ProgressBar bar("loading");
  return Model::load(
      checkpoint, engram_token_map(tokenizer, config.vocab_size), options,
      [&bar](uint64_t done_bytes, uint64_t total_bytes) { bar.update(done_bytes, total_bytes); });
}

}  // namespace deepinfer
