// The seam below the store: files, and queues of reads, writes and syncs with deadlines.
//
// Three implementations: io_uring, threads (where io_uring is refused), and the simulated disk of the tests
// (simulated_disk.h), which fails, tears, hangs and loses power by a seed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace deepinfer::store {

inline constexpr size_t kPageBytes = 4096;  // everything starts at a multiple

// An open file. Thread-safe; closed by its destructor.
class IoFile {
 public:
  virtual ~IoFile() = default;
};

struct IoRequest {
  enum class Op : uint8_t { kRead, kWrite, kSync };
  Op op = Op::kRead;
  IoFile* file = nullptr;       // Borrowed; outlives the completion.
  uint64_t offset = 0;          // multiple of 4,096 for reads and writes
  std::span<std::byte> buffer;  // inside IoQueue::memory(), length a multiple of 4,096; empty for kSync
  uint64_t tag = 0;             // comes back in the completion
};

struct IoCompletion {
  uint64_t tag = 0;
  int error = 0;       // errno, 0 when done
  uint64_t bytes = 0;  // moved; less than asked is the caller's failure to handle
};

// Requests in flight of one owner. Thread-compatible. Destroying a queue with requests in flight waits a
// second for them; if they still hang, the memory they may write to is abandoned, never reused.
class IoQueue {
 public:
  virtual ~IoQueue() = default;
  // Memory for requests: aligned to pages, registered with the kernel where that is possible.
  virtual std::span<std::byte> memory() = 0;
  virtual size_t depth() const = 0;
  virtual size_t in_flight() const = 0;
  // Starts the requests. Requires in_flight() + requests.size() <= depth(). A sync covers the writes whose
  // completions were seen before.
  virtual void submit(std::span<const IoRequest> requests) = 0;
  // Up to out.size() completions in any order; returns when there is at least one or the deadline passed (0).
  virtual size_t wait(std::span<IoCompletion> out, Clock::time_point deadline) = 0;
};

struct Space {
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
};

enum class OpenMode { kReadOnly, kReadWrite, kCreate };

// Held until destroyed.
class IoLock {
 public:
  virtual ~IoLock() = default;
};

// Thread-safe. Errors: kNotFound, kIo (message names the file and the system's reason), kResourceExhausted
// when the drive is full.
class IoBackend {
 public:
  virtual ~IoBackend() = default;
  virtual std::string_view name() const = 0;

  virtual Status make_directory(const std::string& path) = 0;  // fine when it exists
  virtual Result<std::vector<std::string>> list(
      const std::string& path) = 0;  // names of files and directories
  virtual Result<std::shared_ptr<IoFile>> open(const std::string& path, OpenMode mode) = 0;
  virtual Result<uint64_t> size(IoFile& file) = 0;
  virtual Status allocate(IoFile& file, uint64_t size_bytes) = 0;  // the file is that long and has its space
  virtual Status truncate(IoFile& file, uint64_t size_bytes) = 0;
  virtual Status punch(IoFile& file, uint64_t offset,
                       uint64_t length) = 0;  // gives space back; reads as zeros
  virtual Status remove(const std::string& path) = 0;
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  virtual Status sync_directory(const std::string& path) = 0;
  // kUnavailable when another process holds it.
  virtual Result<std::unique_ptr<IoLock>> lock(const std::string& path) = 0;
  virtual Result<Space> space(const std::string& path) = 0;

  virtual Result<std::unique_ptr<IoQueue>> make_queue(size_t depth, size_t memory_bytes) = 0;
};

enum class IoKind { kAuto, kUring, kThreads };

// kAuto tries io_uring and falls back to threads; name() says which it is. kUnavailable when kUring is
// refused.
Result<std::unique_ptr<IoBackend>> make_io_backend(IoKind kind);

// Small files as a whole, through a queue of their own. read_file gives the bytes up to the file's end; kDataLoss above
// 64 MiB.
Result<std::vector<std::byte>> read_file(IoBackend& backend, const std::string& path);
// Written beside, synced, renamed, directory synced: after a crash the file is the old or the new one.
Status replace_file(IoBackend& backend, const std::string& directory, const std::string& name,
                    std::span<const std::byte> bytes);

// Runs one request to its end. kDeadlineExceeded, kIo (short included), kResourceExhausted (ENOSPC).
Status run_one(IoQueue& queue, const IoRequest& request, const Clock& clock, std::chrono::milliseconds limit);
// The Status of a completion of `request_bytes`; `what` names the operation and the file.
Status to_status(const IoCompletion& completion, uint64_t request_bytes, std::string_view what);

}  // namespace deepinfer::store
