// A shared directory as a tier: DIR/ab/abcdef….kv, written beside, synced and renamed. The time of a file's last change is set
// to when it expires. A mount that hangs holds the calling thread (the guard has threads for that).
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>

#include "crypto/crypto.h"
#include "store/tiers/tier.h"

namespace deepinfer::store {
namespace {

constexpr time_t kFarFuture = 4102444800;  // 2100: no time to live

struct FileClose {
  int fd;
  ~FileClose() { ::close(fd); }
};

bool expired(const struct stat& info) {
  return info.st_mtime < ::time(nullptr);
}

kv_tier_status look(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return errno == ENOENT ? KV_TIER_ABSENT : KV_TIER_FAILED;
  return expired(info) ? KV_TIER_ABSENT : KV_TIER_OK;
}

kv_tier_status read_value(const std::string& path, kv_tier_buffer& buffer) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return errno == ENOENT || errno == ESTALE ? KV_TIER_ABSENT : KV_TIER_FAILED;
  const FileClose close{fd};
  struct stat info;
  if (::fstat(fd, &info) != 0) return KV_TIER_FAILED;
  if (expired(info)) return KV_TIER_ABSENT;
  const auto size = static_cast<size_t>(info.st_size);
  if (size > buffer.size) return KV_TIER_TOO_SMALL;
  for (size_t at = 0; at < size;) {
    const ssize_t n = ::pread(fd, buffer.data + at, size - at, static_cast<off_t>(at));
    if (n <= 0) return KV_TIER_FAILED;
    at += static_cast<size_t>(n);
  }
  buffer.size = size;
  return KV_TIER_OK;
}

kv_tier_status write_value(const std::string& path, const kv_tier_buffer& value, uint32_t ttl_s) {
  static std::atomic<uint64_t> number{0};
  if (look(path) == KV_TIER_OK) return KV_TIER_OK;
  const std::string folder = path.substr(0, path.rfind('/'));
  (void)::mkdir(folder.substr(0, folder.rfind('/')).c_str(), 0700);  // the tier's own, where it is new
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return KV_TIER_FAILED;
  const std::string beside = fmt::format("{}.{}.{}.new", path, ::getpid(), number++);
  const int fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return KV_TIER_FAILED;
  bool good = true;
  {
    const FileClose close{fd};
    for (size_t at = 0; good && at < value.size;) {
      const ssize_t n = ::pwrite(fd, value.data + at, value.size - at, static_cast<off_t>(at));
      good = n > 0;
      if (good) at += static_cast<size_t>(n);
    }
    const time_t expiry = ttl_s == 0 ? kFarFuture : ::time(nullptr) + static_cast<time_t>(ttl_s);
    const timespec times[2] = {{expiry, 0}, {expiry, 0}};
    good = good && ::futimens(fd, times) == 0 && ::fsync(fd) == 0;
  }
  if (good && ::rename(beside.c_str(), path.c_str()) == 0) return KV_TIER_OK;
  ::unlink(beside.c_str());
  return KV_TIER_FAILED;
}

class DirectoryTier {
 public:
  explicit DirectoryTier(std::string directory) : directory_(std::move(directory)) {}

  // work(path, i) for each key, until the time is over.
  template <typename Work>
  void run(size_t count, const kv_tier_key* keys, int64_t timeout_ms, kv_tier_status* status, Work work) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    for (size_t i = 0; i < count; ++i) {
      const std::string name = hex(std::as_bytes(std::span(keys[i].bytes)));
      const bool late = std::chrono::steady_clock::now() >= deadline;
      status[i] = late ? KV_TIER_TIMEOUT : work(fmt::format("{}/{}/{}.kv", directory_, name.substr(0, 2), name), i);
    }
  }

 private:
  const std::string directory_;
};

const DirectoryTier& tier_of(void* self) { return *static_cast<const DirectoryTier*>(self); }

}  // namespace

kv_tier make_directory_tier(const std::string& directory) {
  kv_tier tier{};
  tier.abi = DEEPINFER_KV_TIER_ABI;
  tier.name = "directory";
  tier.self = new DirectoryTier(directory);  // owned by the kv_tier, freed in close
  tier.exists = [](void* self, size_t count, const kv_tier_key* keys, int64_t timeout_ms, kv_tier_status* status) {
    tier_of(self).run(count, keys, timeout_ms, status, [](const std::string& path, size_t) { return look(path); });
  };
  tier.get = [](void* self, size_t count, const kv_tier_key* keys, kv_tier_buffer* buffers, int64_t timeout_ms,
                kv_tier_status* status) {
    tier_of(self).run(count, keys, timeout_ms, status,
                      [&](const std::string& path, size_t i) { return read_value(path, buffers[i]); });
  };
  tier.put = [](void* self, size_t count, const kv_tier_key* keys, const kv_tier_buffer* buffers, uint32_t ttl_s,
                int64_t timeout_ms, kv_tier_status* status) {
    tier_of(self).run(count, keys, timeout_ms, status,
                      [&](const std::string& path, size_t i) { return write_value(path, buffers[i], ttl_s); });
  };
  tier.remove = [](void* self, size_t count, const kv_tier_key* keys, int64_t timeout_ms, kv_tier_status* status) {
    tier_of(self).run(count, keys, timeout_ms, status, [](const std::string& path, size_t) {
      return ::unlink(path.c_str()) == 0 || errno == ENOENT ? KV_TIER_OK : KV_TIER_FAILED;
    });
  };
  tier.close = [](void* self) { delete static_cast<DirectoryTier*>(self); };
  return tier;
}

}  // namespace deepinfer::store
