// What a KV store has to know of a model's blocks.
#pragma once

#include "store/store.h"

namespace deepinfer {

class Model;

// Options with payload and group lengths set; identity, place and size are the caller's. A block has one group for each
// KV source layer (docs/spec/decisions.md 8); beyond four, the last group takes the rest.
store::StoreOptions block_shape(const Model& model);

}  // namespace deepinfer
