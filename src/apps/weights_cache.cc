#include "apps/weights_cache.h"

#include <filesystem>

#include "apps/checkpoint_digest.h"
#include "base/log.h"
#include "base/read_file.h"
#include "crypto/crypto.h"

namespace deepinfer {
namespace {

Result<WeightsCache> find(const std::string& directory, const Checkpoint& checkpoint, int threads, const ProgressFunction& on_digest) {
  constexpr uint64_t kMaxConfigBytes = 16 << 20;
  std::error_code failure;
  std::filesystem::create_directories(directory, failure);
  if (failure) return Error(Code::kIo, "{}: {}", directory, failure.message());
  ASSIGN_OR_RETURN(const Digest weights,
                   checkpoint_digest(checkpoint, threads, {directory + "/" + kRememberedDigests}, on_digest));
  ASSIGN_OR_RETURN(const std::string config, ReadFile::read_text(checkpoint.directory() + "/config.json", kMaxConfigBytes));
  WeightsCache cache;
  cache.identity = sha256(as_bytes(hex(weights) + config));
  cache.path = fmt::format("{}/{}.weights", directory, hex(cache.identity).substr(0, 32));
  return cache;
}

}  // namespace

std::optional<WeightsCache> find_weights_cache(const std::string& directory, const Checkpoint& checkpoint, int threads,
                                               const ProgressFunction& on_digest, const ProgressFunction& on_write) {
  if (directory.empty()) return std::nullopt;
  auto cache = find(directory, checkpoint, threads, on_digest);
  if (!cache.ok()) {
    log::warn("weights cache: {}; going on without it", cache.error().message());
    return std::nullopt;
  }
  cache->on_write = on_write;
  return std::move(*cache);
}

}  // namespace deepinfer
