#include "store/io/posix_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace deepinfer::store {
namespace {

Error system_error(std::string_view what, const std::string& path, int error) {
  const Code code = error == ENOENT                      ? Code::kNotFound
                    : error == ENOSPC || error == EDQUOT ? Code::kResourceExhausted
                    : error == EWOULDBLOCK               ? Code::kUnavailable
                                                         : Code::kIo;
  return Error(code, "{}: {}: {}", path, what, std::strerror(error));
}

const PosixFile& posix(IoFile& file) {
  return static_cast<PosixFile&>(file);
}

class PosixLock : public IoLock {
 public:
  explicit PosixLock(int fd) : fd_(fd) {}
  ~PosixLock() override { ::close(fd_); }

 private:
  int fd_;
};

}  // namespace

PosixFile::~PosixFile() {
  ::close(fd_);
}

Status PosixBackend::make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return {};
  return system_error("mkdir", path, errno);
}

Result<std::vector<std::string>> PosixBackend::list(const std::string& path) {
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) return system_error("opendir", path, errno);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(directory)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  const int error = errno;
  ::closedir(directory);
  if (error != 0) return system_error("readdir", path, error);
  return names;
}

Result<std::shared_ptr<IoFile>> PosixBackend::open(const std::string& path, OpenMode mode) {
  int flags = O_CLOEXEC | O_NOFOLLOW | (mode == OpenMode::kReadOnly ? O_RDONLY : O_RDWR);
  if (mode == OpenMode::kCreate) flags |= O_CREAT;
  int fd = ::open(path.c_str(), flags | O_DIRECT, 0600);
  if (fd < 0 && errno == EINVAL)
    fd = ::open(path.c_str(), flags, 0600);  // no direct access on this file system
  if (fd < 0) return system_error("open", path, errno);
  return std::shared_ptr<IoFile>(std::make_shared<PosixFile>(fd, path));
}

Result<uint64_t> PosixBackend::size(IoFile& file) {
  struct stat info;
  if (::fstat(posix(file).fd(), &info) != 0) return system_error("fstat", posix(file).path(), errno);
  return static_cast<uint64_t>(info.st_size);
}

Status PosixBackend::allocate(IoFile& file, uint64_t size_bytes) {
  const int fd = posix(file).fd();
  if (::fallocate(fd, 0, 0, static_cast<off_t>(size_bytes)) == 0) return {};
  if (errno != EOPNOTSUPP) return system_error("fallocate", posix(file).path(), errno);
  return truncate(file, size_bytes);
}

Status PosixBackend::truncate(IoFile& file, uint64_t size_bytes) {
  if (::ftruncate(posix(file).fd(), static_cast<off_t>(size_bytes)) == 0) return {};
  return system_error("ftruncate", posix(file).path(), errno);
}

Status PosixBackend::punch(IoFile& file, uint64_t offset, uint64_t length) {
  if (length == 0) return {};
  const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  if (::fallocate(posix(file).fd(), mode, static_cast<off_t>(offset), static_cast<off_t>(length)) == 0)
    return {};
  if (errno == EOPNOTSUPP) return {};  // the space stays allocated: a loss of room, not of data
  return system_error("punch hole", posix(file).path(), errno);
}

Status PosixBackend::remove(const std::string& path) {
  if (::unlink(path.c_str()) == 0) return {};
  return system_error("unlink", path, errno);
}

Status PosixBackend::rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return {};
  return system_error("rename", from, errno);
}

Status PosixBackend::sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return system_error("open", path, errno);
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  return error == 0 ? Status() : Status(system_error("fsync", path, error));
}

Result<std::unique_ptr<IoLock>> PosixBackend::lock(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return system_error("open", path, errno);
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return std::unique_ptr<IoLock>(std::make_unique<PosixLock>(fd));
  const int error = errno;
  ::close(fd);
  return system_error("another process writes here: lock", path, error);
}

Result<Space> PosixBackend::space(const std::string& path) {
  struct statvfs info;
  if (::statvfs(path.c_str(), &info) != 0) return system_error("statvfs", path, errno);
  return Space{info.f_blocks * info.f_frsize, info.f_bavail * info.f_frsize};
}

}  // namespace deepinfer::store
