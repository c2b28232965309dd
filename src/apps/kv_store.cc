#include "apps/kv_store.h"

#include <filesystem>
#include <optional>

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

Result<Key> read_key(const std::string& path) {
  Key key{};
  ASSIGN_OR_RETURN(const ReadFile file, ReadFile::open(path));
  if (file.size() != key.size()) {
    return Error(Code::kInvalidArgument, "{}: found {} bytes, expected a key of {}", path, file.size(), key.size());
  }
  RETURN_IF_ERROR(file.read(0, key));
  return key;
}

// The key that domain secrets are sealed under: made at the first start, with a copy in every directory, so that none of them
// is the one that must not be lost and their order means nothing.
Result<Key> master_key(const std::vector<std::string>& directories) {
  std::optional<Key> key;
  std::string from;
  std::vector<std::string> without;
  bool has_blocks = false;
  for (const std::string& directory : directories) {
    const std::string path = directory + "/master.key";
    has_blocks |= std::filesystem::exists(directory + "/blocks/drive.meta");
    if (!std::filesystem::exists(path)) {
      without.push_back(path);
      continue;
    }
    const auto found = read_key(path);
    if (!found.ok()) {
      log::warn("kv store: {}", found.error().message());
      without.push_back(path);
    } else if (key && *key != *found) {
      return Error(Code::kInvalidArgument, "{} and {} differ: these directories belong to different stores", from, path);
    } else {
      key = *found;
      from = path;
    }
  }
  if (!key) {
    if (has_blocks) {
      return Error(Code::kDataLoss, "{}: no directory has the key of the blocks that are there; put it back, or begin with empty "
                   "directories", without.front());
    }
    random_bytes(key.emplace());
  }
  for (const std::string& path : without) RETURN_IF_ERROR(write_whole(path, *key, 0600));
  return *key;
}

Result<Digest> digest_of(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile::read_text(path, kSmallFile));
  return sha256(as_bytes(text));
}

}  // namespace

void add_kv_store_flags(CLI::App& parser, KvStoreFlags& flags) {
  parser.add_option("--kv-dir", flags.directories,
                    "keep KV blocks on disk in this directory, so that prompts are found after a restart; once per drive");
  parser
      .add_option_function<std::string>(
          "--kv-windows", [&flags](const std::string& value) { flags.windows = value == "auto"; },
          "window states beside the blocks, so that a prompt goes on after a restart without a replay")
      ->check(CLI::IsMember({"auto", "off"}))
      ->default_str("auto");
  parser.add_option("--kv-size", flags.size_bytes, "room for them, as 20G")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(uint64_t{16} << 20, uint64_t{1} << 60))
      ->default_str("20G");
  parser.add_option("--kv-key-file", flags.key_file,
                    "a file of 32 bytes that tenants' secrets are sealed under; without it DIR/master.key, made when missing");
  parser.add_flag("--kv-required", flags.required, "refuse to start without the store or its tier");
  parser.add_option("--kv-write-budget", flags.write_budget, "bytes a day that may be written to each drive, as 200G; over it "
                    "short prompts that nobody continued and best effort go first, promised blocks never")
      ->transform(CLI::AsSizeValue(false));
  parser.add_flag("--kv-read-only", flags.read_only,
                  "use the blocks of a store that another process on this machine writes; write none");
  const auto* encrypt =
      parser.add_flag("--kv-encrypt", flags.encrypt, "encrypt the blocks (AES-256-GCM, a key for each tenant)");
  parser
      .add_option("--kv-remote", flags.remote,
                  "blocks also go to, and come from, a tier that machines with the same --kv-key-file share: "
                  "file:///DIRECTORY, redis://[USER@]HOST[:PORT][/PREFIX], rediss://…, s3://BUCKET[/PREFIX], "
                  "lib:LIBRARY[?OPTIONS]; passwords: REDIS_PASSWORD, REDIS_PASSWORD_FILE, AWS_…")
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

// A short question shows at the start whether anybody answers; the service goes on without an answer.
Status probe(store::GuardedTier& tier, const std::string& address) {
  Digest key;
  random_bytes(key);
  const auto status = tier.exists(std::span(&key, 1), std::chrono::milliseconds(1000)).front();
  if (status == store::TierStatus::kOk || status == store::TierStatus::kAbsent) return {};
  return Error(Code::kUnavailable, "--kv-remote: {} does not answer ({}); it is tried again while serving",
               store::without_secrets(address), miss_reason_name(store::reason_of(status)));
}

Result<store::StoreOptions> store_options(const KvStoreFlags& flags, const std::string& model_directory, const Model& model,
                                          const std::string& weights_cache_directory) {
  store::StoreOptions options = block_shape(model);
  options.capacity_bytes = flags.size_bytes / flags.directories.size();
  options.encrypt = flags.encrypt;
  options.shared_domains = !flags.remote.empty();
  options.write_budget_bytes_per_day = flags.write_budget;
  if (flags.read_only) options.mode = store::StoreMode::kReadOnly;
  std::vector<std::string> remembered;
  for (const std::string& directory : flags.directories) {
    std::error_code failure;
    std::filesystem::create_directories(directory, failure);
    // One drive that is gone costs its blocks; the first of the others is asked for the rest.
    if (failure && flags.directories.size() == 1) return Error(Code::kIo, "{}: {}", directory, failure.message());
    options.drives.push_back(directory + "/blocks");
    if (!failure) remembered.push_back(directory + "/" + kRememberedDigests);
  }
  if (remembered.empty()) return Error(Code::kIo, "{}: no directory can be made", flags.directories.front());
  ASSIGN_OR_RETURN(options.master_key, flags.key_file.empty() ? master_key(flags.directories) : read_key(flags.key_file));
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(model_directory));
  if (!weights_cache_directory.empty()) remembered.push_back(weights_cache_directory + "/" + kRememberedDigests);
  ASSIGN_OR_RETURN(options.fingerprint,
                   block_fingerprint(checkpoint, model.summation_order(), model.options().num_threads, remembered));
  return options;
}

Result<OpenedKvStore> open_kv_store(const KvStoreFlags& flags, const std::string& model_directory, const Model& model,
                                    const std::string& weights_cache_directory) {
  OpenedKvStore opened;
  if (flags.directories.empty()) {
    if (flags.required) return Error(Code::kInvalidArgument, "--kv-required: there is no --kv-dir");
    return opened;
  }
  if (!flags.remote.empty()) {  // a wrong address is a wrong flag
    const auto tier = store::open_tier(flags.remote);
    if (!tier.ok()) return Error(tier.error().code(), "--kv-remote: {}", tier.error().message());
    opened.raw_tier = *tier;
  }
  const auto without = [&](const Error& error) -> Result<OpenedKvStore> {
    if (flags.required) return Error(error.code(), "--kv-required: {}", error.message());
    log::warn("kv store: {}; serving without it", error.message());
    OpenedKvStore none;
    none.state = "off: " + error.message();
    if (opened.raw_tier) opened.raw_tier->close(opened.raw_tier->self);
    return none;
  };
  const auto options = store_options(flags, model_directory, model, weights_cache_directory);
  if (!options.ok()) return without(options.error());
  auto backend = store::make_io_backend(store::IoKind::kAuto);
  if (!backend.ok()) return without(backend.error());
  opened.backend = std::move(*backend);
  auto store = store::Store::open(*options, *opened.backend, system_clock());
  if (!store.ok()) return without(store.error());
  opened.store = std::move(*store);
  opened.state = "on";
  if (opened.raw_tier) {
    opened.tier = std::make_unique<store::GuardedTier>(*opened.raw_tier, options->fingerprint, system_clock());
    opened.raw_tier.reset();
    if (const Status answers = probe(*opened.tier, flags.remote); !answers.ok()) {
      if (flags.required) return Error(answers.error().code(), "--kv-required: {}", answers.error().message());
      log::warn("kv store: {}", answers.error().message());
    }
  }
  log::info("kv store: {} ({}), {} MiB for blocks of {} bytes", flags.directories.front(), opened.backend->name(),
            flags.size_bytes >> 20, options->payload_bytes);
  return opened;
}

}  // namespace deepinfer
