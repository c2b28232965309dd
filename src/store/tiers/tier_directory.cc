// A shared directory as a tier: DIR/ab/abcdef….kv, written beside, synced and renamed. The time of a file's
// last change is set to when it expires. All calls run on threads that may hang with the mount; the caller
// leaves at its deadline.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>

#include "store/tiers/tier.h"

namespace deepinfer::store {
namespace {

constexpr time_t kFarFuture = 4102444800;  // 2100: no time to live
constexpr int kThreads = 2;

struct FileClose {
  int fd;
  ~FileClose() { ::close(fd); }
};

// One call: owned by the caller and the thread together, because either may outlive the other.
struct Call {
  std::vector<std::string> paths;
  std::vector<std::string> values;
  std::vector<kv_tier_status> status;
  size_t answered = 0;  // places before it are final; guarded by mu
  std::function<kv_tier_status(Call&, size_t)> work;
  std::mutex mu;
  std::condition_variable done;
  bool abandoned = false;  // guarded by mu
};

struct Pool {
  std::mutex mu;
  std::condition_variable wake;
  std::deque<std::shared_ptr<Call>> calls;  // guarded by mu
  bool stopping = false;                    // guarded by mu
};

void serve(const std::shared_ptr<Pool>& pool) {
  while (true) {
    std::shared_ptr<Call> call;
    {
      std::unique_lock lock(pool->mu);
      pool->wake.wait(lock, [&] { return pool->stopping || !pool->calls.empty(); });
      if (pool->calls.empty()) return;
      call = pool->calls.front();
      pool->calls.pop_front();
    }
    for (size_t i = 0; i < call->paths.size(); ++i) {
      {
        const std::lock_guard lock(call->mu);
        if (call->abandoned) break;
      }
      const kv_tier_status status = call->work(*call, i);
      const std::lock_guard lock(call->mu);
      if (call->abandoned) break;
      call->status[i] = status;
      call->answered = i + 1;
      call->done.notify_one();
    }
  }
}

bool expired(const struct stat& info) {
  return info.st_mtime < ::time(nullptr);
}

kv_tier_status look(Call& call, size_t i) {
  struct stat info;
  if (::stat(call.paths[i].c_str(), &info) != 0) return errno == ENOENT ? KV_TIER_ABSENT : KV_TIER_FAILED;
  return expired(info) ? KV_TIER_ABSENT : KV_TIER_OK;
}

kv_tier_status read_value(Call& call, size_t i, size_t room) {
  const int fd = ::open(call.paths[i].c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return errno == ENOENT || errno == ESTALE ? KV_TIER_ABSENT : KV_TIER_FAILED;
  const FileClose close{fd};
  struct stat info;
  if (::fstat(fd, &info) != 0) return KV_TIER_FAILED;
  if (expired(info)) return KV_TIER_ABSENT;
  const auto size = static_cast<size_t>(info.st_size);
  if (size > room) return KV_TIER_TOO_SMALL;
  std::string value(size, '\0');
  for (size_t at = 0; at < size;) {
    const ssize_t n = ::pread(fd, value.data() + at, size - at, static_cast<off_t>(at));
    if (n <= 0) return KV_TIER_FAILED;
    at += static_cast<size_t>(n);
  }
  const std::lock_guard lock(call.mu);
  call.values[i] = std::move(value);
  return KV_TIER_OK;
}

kv_tier_status write_value(Call& call, size_t i, uint32_t ttl_s) {
  static std::atomic<uint64_t> number{0};
  if (look(call, i) == KV_TIER_OK) return KV_TIER_OK;
  const std::string& path = call.paths[i];
  const std::string folder = path.substr(0, path.rfind('/'));
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return KV_TIER_FAILED;
  const std::string beside = fmt::format("{}.{}.{}.new", path, ::getpid(), number++);
  const int fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return KV_TIER_FAILED;
  bool good = true;
  {
    const FileClose close{fd};
    const std::string& value = call.values[i];
    for (size_t at = 0; good && at < value.size();) {
      const ssize_t n = ::pwrite(fd, value.data() + at, value.size() - at, static_cast<off_t>(at));
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

kv_tier_status remove_value(Call& call, size_t i) {
  return ::unlink(call.paths[i].c_str()) == 0 || errno == ENOENT ? KV_TIER_OK : KV_TIER_FAILED;
}

class DirectoryTier {
 public:
  explicit DirectoryTier(std::string directory)
      : directory_(std::move(directory)), pool_(std::make_shared<Pool>()) {
    for (int i = 0; i < kThreads; ++i) std::thread(serve, pool_).detach();
  }
  ~DirectoryTier() {
    const std::lock_guard lock(pool_->mu);
    pool_->stopping = true;
    pool_->calls.clear();
    pool_->wake.notify_all();
  }

  std::shared_ptr<Call> run(size_t count, const kv_tier_key* keys, std::vector<std::string> values,
                            int64_t timeout_ms, kv_tier_status* status,
                            std::function<kv_tier_status(Call&, size_t)> work) {
    auto call = std::make_shared<Call>();
    for (size_t i = 0; i < count; ++i) {
      const std::string name = hex(std::as_bytes(std::span(keys[i].bytes)));
      call->paths.push_back(fmt::format("{}/{}/{}.kv", directory_, name.substr(0, 2), name));
    }
    call->values = std::move(values);
    call->values.resize(count);
    call->status.assign(count, KV_TIER_TIMEOUT);
    call->work = std::move(work);
    {
      const std::lock_guard lock(pool_->mu);
      pool_->calls.push_back(call);
      pool_->wake.notify_one();
    }
    std::unique_lock lock(call->mu);
    call->done.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return call->answered == count; });
    call->abandoned = true;
    std::copy(call->status.begin(), call->status.end(), status);
    return call;
  }

 private:
  const std::string directory_;
  std::shared_ptr<Pool> pool_;  // shared with the threads, which may hang longer than the tier lives
};

DirectoryTier& tier_of(void* self) {
  return *static_cast<DirectoryTier*>(self);
}

}  // namespace

Result<kv_tier> make_directory_tier(const std::string& directory) {
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return Error(Code::kIo, "{}: mkdir: {}", directory, std::strerror(errno));
  if (::access(directory.c_str(), W_OK | X_OK) != 0)
    return Error(Code::kIo, "{}: {}", directory, std::strerror(errno));
  kv_tier tier{};
  tier.abi = DEEPINFER_KV_TIER_ABI;
  tier.name = "directory";
  tier.self = new DirectoryTier(directory);  // owned by the kv_tier, freed in close
  tier.exists = [](void* self, size_t count, const kv_tier_key* keys, int64_t timeout_ms,
                   kv_tier_status* status) {
    (void)tier_of(self).run(count, keys, {}, timeout_ms, status, look);
  };
  tier.get = [](void* self, size_t count, const kv_tier_key* keys, kv_tier_buffer* buffers,
                int64_t timeout_ms, kv_tier_status* status) {
    std::vector<size_t> rooms(count);
    for (size_t i = 0; i < count; ++i) rooms[i] = buffers[i].size;
    const auto call = tier_of(self).run(count, keys, {}, timeout_ms, status,
                                        [rooms](Call& c, size_t i) { return read_value(c, i, rooms[i]); });
    const std::lock_guard lock(call->mu);
    for (size_t i = 0; i < count; ++i) {
      if (status[i] != KV_TIER_OK) continue;
      std::memcpy(buffers[i].data, call->values[i].data(), call->values[i].size());
      buffers[i].size = call->values[i].size();
    }
  };
  tier.put = [](void* self, size_t count, const kv_tier_key* keys, const kv_tier_buffer* buffers,
                uint32_t ttl_s, int64_t timeout_ms, kv_tier_status* status) {
    std::vector<std::string> values;
    for (size_t i = 0; i < count; ++i)
      values.emplace_back(reinterpret_cast<const char*>(buffers[i].data), buffers[i].size);
    (void)tier_of(self).run(count, keys, std::move(values), timeout_ms, status,
                            [ttl_s](Call& c, size_t i) { return write_value(c, i, ttl_s); });
  };
  tier.remove = [](void* self, size_t count, const kv_tier_key* keys, int64_t timeout_ms,
                   kv_tier_status* status) {
    (void)tier_of(self).run(count, keys, {}, timeout_ms, status, remove_value);
  };
  tier.close = [](void* self) { delete static_cast<DirectoryTier*>(self); };
  return tier;
}

}  // namespace deepinfer::store
