#include "store/io/io_backend.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/checked_math.h"
#include "base/log.h"
#include "store/io/posix_files.h"

namespace deepinfer::store {
namespace {

constexpr std::chrono::seconds kSmallFileLimit(10);
constexpr uint64_t kMaxSmallFileBytes = 64u << 20;

}  // namespace

Status to_status(const IoCompletion& completion, uint64_t request_bytes, std::string_view what) {
  if (completion.error == ENOSPC || completion.error == EDQUOT)
    return Error(Code::kResourceExhausted, "{}: {}", what, std::strerror(completion.error));
  if (completion.error != 0) return Error(Code::kIo, "{}: {}", what, std::strerror(completion.error));
  if (completion.bytes < request_bytes)
    return Error(Code::kIo, "{}: {} of {} bytes", what, completion.bytes, request_bytes);
  return {};
}

Status run_one(IoQueue& queue, const IoRequest& request, const Clock& clock,
               std::chrono::milliseconds limit) {
  queue.submit(std::span(&request, 1));
  IoCompletion completion;
  const auto deadline = clock.now() + limit;
  size_t count = queue.wait(std::span(&completion, 1), deadline);
  // Woken long after the deadline: the process was stopped, or the machine asleep. That says nothing about the drive.
  if (count == 0 && clock.now() - deadline > limit / 10)
    count = queue.wait(std::span(&completion, 1), clock.now() + limit);
  if (count == 0) return Error(Code::kDeadlineExceeded, "I/O: no answer in {} ms", limit.count());
  return to_status(completion, request.buffer.size(), "I/O");
}

Result<std::vector<std::byte>> read_file(IoBackend& backend, const std::string& path) {
  ASSIGN_OR_RETURN(const std::shared_ptr<IoFile> file, backend.open(path, OpenMode::kReadOnly));
  ASSIGN_OR_RETURN(const uint64_t size, backend.size(*file));
  if (size > kMaxSmallFileBytes)
    return Error(Code::kDataLoss, "{}: {} bytes, expected at most {}", path, size, kMaxSmallFileBytes);
  if (size == 0) return std::vector<std::byte>();
  ASSIGN_OR_RETURN(const std::unique_ptr<IoQueue> queue, backend.make_queue(1, round_up(size, kPageBytes)));
  const auto buffer = queue->memory().first(round_up(size, kPageBytes));
  const IoRequest request{IoRequest::Op::kRead, file.get(), 0, buffer, 0};
  queue->submit(std::span(&request, 1));
  IoCompletion completion;
  if (queue->wait(std::span(&completion, 1), system_clock().now() + kSmallFileLimit) == 0)
    return Error(Code::kDeadlineExceeded, "{}: no answer", path);
  RETURN_IF_ERROR(to_status(completion, size, path));
  return std::vector<std::byte>(buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(size));
}

Status replace_file(IoBackend& backend, const std::string& directory, const std::string& name,
                    std::span<const std::byte> bytes) {
  const std::string path = directory + "/" + name, beside = path + ".new";
  {
    ASSIGN_OR_RETURN(const std::shared_ptr<IoFile> file, backend.open(beside, OpenMode::kCreate));
    const size_t padded = round_up(bytes.size(), kPageBytes);
    ASSIGN_OR_RETURN(const std::unique_ptr<IoQueue> queue, backend.make_queue(1, padded));
    std::copy(bytes.begin(), bytes.end(), queue->memory().begin());
    const IoRequest write{IoRequest::Op::kWrite, file.get(), 0, queue->memory().first(padded), 0};
    RETURN_IF_ERROR(run_one(*queue, write, system_clock(), kSmallFileLimit));
    RETURN_IF_ERROR(backend.truncate(*file, bytes.size()));
    const IoRequest sync{IoRequest::Op::kSync, file.get(), 0, {}, 0};
    RETURN_IF_ERROR(run_one(*queue, sync, system_clock(), kSmallFileLimit));
  }
  RETURN_IF_ERROR(backend.rename(beside, path));
  return backend.sync_directory(directory);
}

Result<std::unique_ptr<IoBackend>> make_io_backend(IoKind kind) {
  if (kind != IoKind::kThreads) {
    auto uring = make_uring_backend();
    if (uring.ok() || kind == IoKind::kUring) return uring;
    log::warn("kv store: {}; using threads", uring.error().message());
  }
  return make_thread_backend();
}

}  // namespace deepinfer::store
