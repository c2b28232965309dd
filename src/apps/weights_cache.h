// Where the packed weights of a checkpoint are kept: one file in a directory of the user's (docs/formats/weights-cache.md).
#pragma once

#include <optional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "model/weights_cache.h"

namespace deepinfer {

// The file for this checkpoint in `directory`, which is made if it is not there; named by the digest of config.json and
// weights, which reads all of them once. Nothing for an empty `directory`, and where it can't be had, which the log says.
std::optional<WeightsCache> find_weights_cache(const std::string& directory, const Checkpoint& checkpoint, int threads,
                                               const ProgressFunction& on_digest = {}, const ProgressFunction& on_write = {});

}  // namespace deepinfer
