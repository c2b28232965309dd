#include "base/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace deepinfer {

Result<ReadFile> ReadFile::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would wait
  if (descriptor < 0) {
    const Code code = errno == ENOENT || errno == ENOTDIR ? Code::kNotFound : Code::kIo;
    return Error(code, "{}: can't open: {}", path, std::strerror(errno));
  }
  ReadFile file(path, descriptor, 0);
  struct stat info {};
  if (::fstat(descriptor, &info) != 0)
    return Error(Code::kIo, "{}: can't stat: {}", path, std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return Error(Code::kIo, "{}: not a regular file", path);
  file.size_ = static_cast<uint64_t>(info.st_size);
  return file;
}

ReadFile::~ReadFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

ReadFile::ReadFile(ReadFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

Status ReadFile::read(uint64_t offset, std::span<std::byte> out,
                      const std::function<void(uint64_t)>& on_bytes) const {
  constexpr size_t kPieceBytes = 64 << 20;
  while (!out.empty()) {
    const ssize_t count =
        ::pread(descriptor_, out.data(), std::min(out.size(), kPieceBytes), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      return Error(Code::kIo, "{}: can't read at byte {}: {}", path_, offset, std::strerror(errno));
    if (count == 0) {
      return Error(Code::kDataLoss,
                   "{}: the file ends at byte {}, expected {} more (it had {} bytes when it was opened)",
                   path_, offset, out.size(), size_);
    }
    out = out.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
    if (on_bytes) on_bytes(static_cast<uint64_t>(count));
  }
  return {};
}

Result<std::string> ReadFile::read_text(const std::string& path, uint64_t limit) {
  ASSIGN_OR_RETURN(const ReadFile file, open(path));
  if (file.size() > limit) {
    return Error(Code::kResourceExhausted, "{}: found {} bytes, expected at most {}", path, file.size(),
                 limit);
  }
  std::string text(file.size(), '\0');
  RETURN_IF_ERROR(file.read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace deepinfer
