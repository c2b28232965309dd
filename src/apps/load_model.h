// From a checkpoint directory to a model that can run, with a progress bar.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

// DIR/tokenizer.json.
Result<Tokenizer> load_tokenizer(const std::string& model_directory);

// Settles what depends on the machine and the checkpoint: num_threads 0 is one a core, and max_context_tokens is
// lowered to what the checkpoint allows. True when it was lowered.
bool settle_options(const ModelConfig& config, ModelOptions& options);

// Shows a bar on stderr when that is a terminal. weights_cache_directory: apps/weights_cache.h.
Result<std::unique_ptr<Model>> load_model(const Checkpoint& checkpoint, const Tokenizer& tokenizer,
                                          const ModelOptions& options, const std::string& weights_cache_directory = {});

}  // namespace deepinfer
