// A regular file opened for reading at positions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/status.h"

namespace deepinfer {

// Owns the descriptor, so what was checked and what is read are the same file even when its name is reused.
// Thread-safe.
class ReadFile {
 public:
  // kNotFound when there is no such file, kIo for any other reason: no permission, a directory, a pipe (which
  // is refused without waiting for its other end).
  static Result<ReadFile> open(const std::string& path);
  ~ReadFile();
  ReadFile(ReadFile&& other) noexcept;
  ReadFile& operator=(ReadFile&& other) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // when it was opened

  // Fills `out` from `offset` on, in pieces of at most 64 MiB; after each calls on_bytes with the bytes it
  // brought. kDataLoss when the file ends before, kIo when the system refuses.
  Status read(uint64_t offset, std::span<std::byte> out,
              const std::function<void(uint64_t)>& on_bytes = {}) const;

  // The whole file as text, unless it is larger than `limit` (kResourceExhausted).
  static Result<std::string> read_text(const std::string& path, uint64_t limit);

 private:
  ReadFile(std::string path, int descriptor, uint64_t size)
      : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

  std::string path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

}  // namespace deepinfer
