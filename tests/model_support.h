// What tests of models share: where they lie, and one loaded from there.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "checkpoint/checkpoint.h"
#include "model/model.h"
#include "shared_data.h"
#include "source_path.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

inline std::string model_directory(std::string_view name) {
  if (name == "mini") return source_path("models/mini");
  return shared_path("golden/tiny");
}

inline std::unique_ptr<Model> load_model(const std::string& directory, const ModelOptions& options) {
  auto checkpoint = Checkpoint::open(directory);
  if (!checkpoint.ok()) {
    ADD_FAILURE() << checkpoint.error().message();
    return nullptr;
  }
  auto tokenizer = Tokenizer::load(directory + "/tokenizer.json");
  if (!tokenizer.ok()) {
    ADD_FAILURE() << tokenizer.error().message();
    return nullptr;
  }
  auto model = Model::load(*checkpoint, engram_token_map(*tokenizer, checkpoint->config().vocab_size), options);
  if (!model.ok()) {
    ADD_FAILURE() << model.error().message();
    return nullptr;
  }
  return std::move(*model);
}

}  // namespace deepinfer
