#include "apps/kv_store.h"

#include <filesystem>

#include "apps/checkpoint_digest.h"
#include "base/log.h"
#include "base/read_file.h"
#include "engine/block_shape.h"
#include "kernels/ops.h"
#include "cache/keys.h"

namespace deepinfer {
namespace {

// Raised by hand when a kernel changes the values of blocks or their layout changes under the same names.
constexpr uint32_t kKvAbi = 1;
constexpr uint64_t kSmallFile = 64 << 20;

// The key that domain secrets are sealed under: 32 bytes, made at the first start.
Result<Key> read_master_key(const std::string& path) {
  Key key{};
  if (!std::filesystem::exists(path)) {
    random_bytes(key);
    RETURN_IF_ERROR(write_whole(path, key, 0600));
    return key;
  }
  ASSIGN_OR_RETURN(const ReadFile file, ReadFile::open(path));
  if (file.size() != key.size()) {
    return Error(Code::kInvalidArgument, "{}: found {} bytes, expected a key of {}", path, file.size(), key.size());
  }
  RETURN_IF_ERROR(file.read(0, key));
  return key;
}

Result<Digest> digest_of(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile::read_text(path, kSmallFile));
  return sha256(as_bytes(text));
}

}  // namespace

void add_kv_store_flags(CLI::App& parser, KvStoreFlags& flags) {
  parser.add_option("--kv-dir", flags.directories,
                    "keep KV blocks on disk in this directory, so that prompts are found after a restart; once per drive");
  parser.add_option("--kv-size", flags.size_bytes, "room for them, as 20G")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(uint64_t{16} << 20, uint64_t{1} << 60))
      ->default_str("20G");
  parser.add_option("--kv-key-file", flags.key_file, "32 bytes that tenants' secrets are sealed under; DIR/master.key");
  const auto* encrypt =
      parser.add_flag("--kv-encrypt", flags.encrypt, "encrypt the blocks (AES-256-GCM, a key for each tenant)");
  parser
      .add_option("--kv-remote", flags.remote,
                  "blocks also go to, and come from, a tier that machines with the same --kv-key-file share: "
                  "file:///DIRECTORY, redis://HOST[:PORT][/PREFIX], s3://BUCKET[/PREFIX], lib:LIBRARY[?OPTIONS]")
      ->needs("--kv-dir")
      ->excludes(const_cast<CLI::Option*>(encrypt));  // what is in a tier is not encrypted
}

Result<Digest> block_fingerprint(const Checkpoint& checkpoint, std::string_view summation_order, int threads,
                                        const std::vector<std::string>& remembered) {
  KvIdentity identity;
  ASSIGN_OR_RETURN(identity.weights, checkpoint_digest(checkpoint, threads, remembered));
  ASSIGN_OR_RETURN(identity.config, ReadFile::read_text(checkpoint.directory() + "/config.json", kSmallFile));
  ASSIGN_OR_RETURN(identity.tokenizer, digest_of(checkpoint.directory() + "/tokenizer.json"));
  identity.kv_format = "e2m1 rows with an e4m3 scale per 16, e2m1 index keys; index keys first, groups in layer order";
  identity.summation_order = summation_order;
  identity.kv_abi = kKvAbi;
  return kv_fingerprint(identity);
}

Result<OpenedKvStore> open_kv_store(const KvStoreFlags& flags, const std::string& model_directory, const Model& model,
                                    const std::string& weights_cache_directory) {
  OpenedKvStore opened;
  if (flags.directories.empty()) return opened;
  const auto without = [&](const Error& error) {
    log::warn("kv store: {}; serving without it", error.message());
    opened.state = "off: " + error.message();
    opened.store.reset();
    return std::move(opened);
  };
  const std::string& home = flags.directories.front();
  std::error_code failure;
  std::filesystem::create_directories(home, failure);
  if (failure) return without(Error(Code::kIo, "{}: {}", home, failure.message()));

  store::StoreOptions options = block_shape(model);
  options.capacity_bytes = flags.size_bytes / flags.directories.size();
  options.encrypt = flags.encrypt;
  options.shared_domains = !flags.remote.empty();
  for (const std::string& directory : flags.directories) options.drives.push_back(directory + "/blocks");
  ASSIGN_OR_RETURN(options.master_key,
                   read_master_key(flags.key_file.empty() ? home + "/master.key" : flags.key_file));
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(model_directory));
  std::vector<std::string> remembered = {home + "/" + kRememberedDigests};
  if (!weights_cache_directory.empty()) remembered.push_back(weights_cache_directory + "/" + kRememberedDigests);
  ASSIGN_OR_RETURN(options.fingerprint,
                   block_fingerprint(checkpoint, model.summation_order(), model.options().num_threads, remembered));
  for (const std::string& directory : flags.directories) {
    std::filesystem::create_directories(directory, failure);
    if (failure) return without(Error(Code::kIo, "{}: {}", directory, failure.message()));
  }
  auto backend = store::make_io_backend(store::IoKind::kAuto);
  if (!backend.ok()) return without(backend.error());
  opened.backend = std::move(*backend);
  auto store = store::Store::open(options, *opened.backend, system_clock());
  if (!store.ok()) {
    if (store.error().code() == Code::kInvalidArgument) return store.error();
    return without(store.error());
  }
  opened.store = std::move(*store);
  opened.state = "on";
  if (!flags.remote.empty()) {
    const auto tier = store::open_tier(flags.remote);
    if (!tier.ok()) return Error(tier.error().code(), "--kv-remote: {}", tier.error().message());
    opened.tier = std::make_unique<store::GuardedTier>(*tier, options.fingerprint, system_clock());
  }
  log::info("kv store: {} ({}), {} MiB for blocks of {} bytes", home, opened.backend->name(), flags.size_bytes >> 20,
            options.payload_bytes);
  return opened;
}

}  // namespace deepinfer
