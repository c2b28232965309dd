// From a checkpoint directory to a model that can run, with a progress bar.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

// DIR/tokenizer.json.
Result<Tokenizer> load_tokenizer(const std::string& model_directory);

// Shows a bar on stderr when that is a terminal. In `options`, num_threads 0 means one a core, and
// max_context_tokens is lowered to what the checkpoint allows. weights_cache_directory: apps/weights_cache.h.
Result<std::unique_ptr<Model>> load_model(const std::string& model_directory, const Tokenizer& tokenizer,
                                          ModelOptions options, const std::string& weights_cache_directory = {});

}  // namespace deepinfer
