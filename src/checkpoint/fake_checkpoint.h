// A checkpoint directory made for a test: right in every name, shape and offset until the test breaks it. Its
// data is all holes, so even one of the released size takes no room on a file system that has sparse files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoint/config.h"
#include "checkpoint/presets.h"
#include "json/json.h"
#include "tensor/tensor.h"

namespace deepinfer {

struct FakeTensor {
  std::string name;
  std::string dtype_name;
  Shape shape;
  uint64_t size_bytes = 0;
};

class FakeCheckpoint {
 public:
  // Makes the directory (removed again by the destructor). Tensors are dealt to the shards in runs of equal
  // length.
  FakeCheckpoint(std::string_view config_text, size_t num_shards);
  ~FakeCheckpoint();
  FakeCheckpoint(const FakeCheckpoint&) = delete;

  const std::string& directory() const { return directory_; }
  static std::string shard_name(size_t shard) { return "model-" + std::to_string(shard) + ".safetensors"; }
  std::string shard_path(size_t shard) const { return directory_ + "/" + shard_name(shard); }

  // What write() will write; break it before.
  JsonValue config;
  std::vector<std::vector<FakeTensor>> shards;
  FakeTensor& tensor(std::string_view name);

  // config.json, index and shards. kIo when the file system refuses (files of this size, say).
  Status write() const;

 private:
  std::string directory_;
};

// One file: the header for `tensors`, then a hole for their data.
Status write_safetensors(const std::string& path, const std::vector<FakeTensor>& tensors);
Status write_text(const std::string& path, std::string_view text);

}  // namespace deepinfer
