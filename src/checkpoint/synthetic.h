// A checkpoint of random numbers in the released format: the true widths, fewer layers and experts, small Engram tables.
// It lets anyone measure a machine, or test another engine's loader, without the 510 GB of the real one. Text only.
//
// Values have the magnitudes of a trained model: matrices about 1 / sqrt(columns), scales that fill the range of the
// codes, norms near 1. The same options give the same bytes.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "checkpoint/checkpoint.h"

namespace deepinfer {

enum class SyntheticPreset { kFlash, kTiny };

struct SyntheticOptions {
  SyntheticPreset preset = SyntheticPreset::kFlash;
  int64_t num_layers = 8;    // 6 to 40; half of them decoder layers
  int64_t num_experts = 64;  // of a layer; DSpark stages have as many, at most those of the preset
  uint64_t seed = 0;
  int64_t vocab_size = 0;      // 0: that of the preset
  int64_t engram_classes = 0;  // classes of the tokenizer that will stand beside it (tokenizer/tokenizer.h)
};

// The config.json of these options: layer lists shortened consistently, Engram tables cut to consecutive primes from
// 1/1000 of the released size. kInvalidArgument for options out of range.
Result<std::string> synthetic_config(const SyntheticOptions& options);

// Writes config.json, index and shards (one a layer) into `directory`, which is made if it does not exist.
// kInvalidArgument when it holds anything, kResourceExhausted when the disk is full or will be, kIo. After a failure the
// files written so far are left.
Status write_synthetic_checkpoint(const std::string& directory, const SyntheticOptions& options,
                                  const ProgressFunction& progress = {});

}  // namespace deepinfer
