// A checkpoint directory in the released format, opened and checked as a whole before any weight is used.
//
//   config.json, model.safetensors.index.json + shards (or one model.safetensors), tokenizer.json beside
//   them.
//
// Opening reads headers only: it verifies name, dtype, shape and scale shape of every tensor of
// docs/spec/model.md 11.1 (vision when config has it), offsets, overlaps and file sizes, and reports all faults at
// once. read() then brings bytes by pread. Names are accepted with or without a `model.` prefix; tensors that
// the model does not use are noted, not refused.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/read_file.h"
#include "base/status.h"
#include "checkpoint/config.h"
#include "checkpoint/safetensors.h"
#include "tensor/tensor.h"

namespace deepinfer {

// Called from the reading thread now and then, and once at the end: bytes done and bytes in all.
using ProgressFunction = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

// Where one tensor lies. Plain data.
struct TensorLocation {
  DType dtype = DType::kU8;
  Shape shape;
  size_t file_idx = 0;  // into Checkpoint::files()
  uint64_t offset = 0;  // of the first byte in that file
  uint64_t size_bytes = 0;
};

struct CheckpointReport;

// Immutable after open(); thread-safe. Keeps the shards open, so what was checked is what is read.
class Checkpoint {
 public:
  // All faults of the directory in one error, one a line ("file: tensor: found, expected"); kNotFound when
  // there is no config.json at all.
  static Result<Checkpoint> open(const std::string& directory);
  // The same for a caller that wants the faults one by one.
  static CheckpointReport inspect(const std::string& directory);

  Checkpoint(Checkpoint&&) noexcept;
  ~Checkpoint();

  const std::string& directory() const { return directory_; }
  const ModelConfig& config() const { return config_; }
  // Paths of the shards.
  std::vector<std::string> files() const;
  // Every tensor of the model by its released name (no `model.` prefix).
  const std::map<std::string, TensorLocation, std::less<>>& tensors() const { return tensors_; }
  const std::vector<std::string>& unused_tensors() const { return unused_tensors_; }
  bool contains(std::string_view name) const { return tensors_.contains(name); }

  // Reads one tensor's bytes into `out` (same size), in large pieces; after each piece on_bytes hears how
  // many bytes it brought. kNotFound, kInvalidArgument (size of `out`), kDataLoss (file shorter than
  // promised), kIo.
  Status read(std::string_view name, std::span<std::byte> out,
              const std::function<void(uint64_t piece_bytes)>& on_bytes = {}) const;

  // Bytes [offset, offset + size of `out`) of one tensor. kInvalidArgument when they reach beyond it; else as read().
  Status read_part(std::string_view name, uint64_t offset, std::span<std::byte> out) const;

 private:
  friend class CheckpointOpener;
  Checkpoint();

  std::string directory_;
  ModelConfig config_;
  std::vector<ReadFile> files_;
  std::map<std::string, TensorLocation, std::less<>> tensors_;
  std::vector<std::string> unused_tensors_;
};

// Everything that opening a directory found.
struct CheckpointReport {
  ModelConfig config;                    // what could be read of it
  std::vector<std::string> faults;       // sorted, one line each; empty for a sound directory
  bool found = false;                    // there is a config.json
  std::optional<Checkpoint> checkpoint;  // when there are no faults
};

}  // namespace deepinfer
