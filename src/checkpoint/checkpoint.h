// A checkpoint directory in the released format, opened and checked as a whole before any weight is used.
//
//   config.json, model.safetensors.index.json + shards (or one model.safetensors), tokenizer.json beside them.
//
// open() reads headers only: it verifies name, dtype, shape and scale shape of every tensor of model-v41 11.1 (vision
// when config has it), offsets, overlaps and file sizes, and reports all faults at once. load() then reads bytes by
// pread into aligned, populated memory. Names are accepted with or without a `model.` prefix; extra tensors are noted,
// not refused.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/status.h"
#include "checkpoint/config.h"
#include "tensor/tensor.h"

namespace deepinfer {

// Called from the reading thread now and then, and once at the end: bytes done and bytes in all.
using ProgressFunction = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

// Where one tensor lies. Plain data.
struct TensorLocation {
  DType dtype = DType::kU8;
  Shape shape;
  std::string file;     // path of the shard
  uint64_t offset = 0;  // of the first byte in the file
  uint64_t size_bytes = 0;
};

// Immutable after open(); thread-safe.
class Checkpoint {
 public:
  // All faults of the directory in one error, one a line ("file: tensor: found, expected").
  static Result<Checkpoint> open(const std::string& directory);

  const std::string& directory() const { return directory_; }
  const ModelConfig& config() const { return config_; }
  // Every tensor of the model by its released name (no `model.` prefix).
  const std::map<std::string, TensorLocation, std::less<>>& tensors() const { return tensors_; }
  const std::vector<std::string>& unused_tensors() const { return unused_tensors_; }
  bool contains(std::string_view name) const { return tensors_.contains(name); }

  // Reads one tensor's bytes into `out` (same size). kNotFound, kDataLoss (file shorter than promised), kIo.
  Status read(std::string_view name, std::span<std::byte> out) const;

 private:
  std::string directory_;
  ModelConfig config_;
  std::map<std::string, TensorLocation, std::less<>> tensors_;
  std::vector<std::string> unused_tensors_;
};

// The tensors of one plain safetensors file in memory, for golden data and tests. Owns the bytes.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> load(const std::string& path);

  bool contains(std::string_view name) const { return tensors_.contains(name); }
  // kNotFound with the file's name. The view borrows from this object.
  Result<TensorView> find(std::string_view name) const;
  std::vector<std::string> names() const;

 private:
  std::string path_;
  AlignedBuffer bytes_;
  std::map<std::string, TensorLocation, std::less<>> tensors_;
};

}  // namespace deepinfer
