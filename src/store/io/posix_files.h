// What the io_uring and the thread back end share: files by descriptor, directories, locks.
#pragma once

#include "base/aligned_buffer.h"
#include "store/io/io_backend.h"

namespace deepinfer::store {

class PosixFile : public IoFile {
 public:
  PosixFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~PosixFile() override;
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }

 private:
  int fd_;
  std::string path_;
};

class PosixBackend : public IoBackend {
 public:
  Status make_directory(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& path) override;
  // Direct where the file system allows it.
  Result<std::shared_ptr<IoFile>> open(const std::string& path, OpenMode mode) override;
  Result<uint64_t> size(IoFile& file) override;
  Status allocate(IoFile& file, uint64_t size_bytes) override;
  Status truncate(IoFile& file, uint64_t size_bytes) override;
  Status punch(IoFile& file, uint64_t offset, uint64_t length) override;
  Status remove(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status sync_directory(const std::string& path) override;
  Result<std::unique_ptr<IoLock>> lock(const std::string& path) override;
  Result<Space> space(const std::string& path) override;
};

// kUnavailable when the kernel or the container refuses io_uring.
Result<std::unique_ptr<IoBackend>> make_uring_backend();
std::unique_ptr<IoBackend> make_thread_backend();

}  // namespace deepinfer::store
