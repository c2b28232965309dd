#include "apps/kv_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>
#include <thread>

#include "base/log.h"
#include "base/read_file.h"
#include "engine/block_shape.h"
#include "kernels/ops.h"
#include "store/keys.h"

namespace deepinfer {
namespace {

// Raised by hand when a kernel changes the values of blocks or their layout changes under the same names.
constexpr uint32_t kKvAbi = 1;
constexpr size_t kPieceBytes = 8 << 20;
constexpr uint64_t kSmallFile = 64 << 20;

// The file as it was when its digest was taken: whoever writes to it changes one of these.
std::string file_stamp(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return fmt::format("{} {} {}.{:09} {}.{:09} {}", info.st_size, info.st_ino, info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
                     info.st_ctim.tv_sec, info.st_ctim.tv_nsec, path);
}

std::map<std::string, std::string> read_remembered(const std::string& path) {
  std::map<std::string, std::string> digests;  // by stamp, in hexadecimal
  const auto text = ReadFile::read_text(path, kSmallFile);
  if (!text.ok()) return digests;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > 65 && line[64] == ' ') digests[line.substr(65)] = line.substr(0, 64);
  }
  return digests;
}

// SHA-256 over the SHA-256 of each 8 MiB.
Result<store::Digest> digest_file(const std::string& path) {
  ASSIGN_OR_RETURN(const ReadFile file, ReadFile::open(path));
  std::vector<std::byte> piece(std::min<uint64_t>(kPieceBytes, file.size()));
  std::vector<std::byte> digests;
  for (uint64_t at = 0; at < file.size(); at += kPieceBytes) {
    const auto bytes = std::span(piece).first(std::min<uint64_t>(kPieceBytes, file.size() - at));
    RETURN_IF_ERROR(file.read(at, bytes));
    const store::Digest digest = store::sha256(bytes);
    digests.insert(digests.end(), digest.begin(), digest.end());
  }
  return store::sha256(digests);
}

Status write_whole(const std::string& path, std::span<const std::byte> bytes, mode_t mode) {
  const std::string beside = fmt::format("{}.{}", path, ::getpid());
  const int file = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file < 0) return Error(Code::kIo, "{}: {}", beside, std::strerror(errno));
  const bool written = ::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) &&
                       ::fsync(file) == 0;
  const int reason = errno;
  ::close(file);
  if (!written || ::rename(beside.c_str(), path.c_str()) != 0) {
    const int why = written ? errno : reason;
    ::unlink(beside.c_str());
    return Error(Code::kIo, "{}: {}", path, std::strerror(why));
  }
  return {};
}

// The key that domain secrets are sealed under: 32 bytes, made at the first start.
Result<store::Key> read_master_key(const std::string& path) {
  store::Key key{};
  if (!std::filesystem::exists(path)) {
    store::random_bytes(key);
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

Result<store::Digest> digest_of(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile::read_text(path, kSmallFile));
  return store::sha256(store::as_bytes(text));
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
  parser.add_flag("--kv-encrypt", flags.encrypt, "encrypt the blocks (AES-256-GCM, a key for each tenant)");
}

Result<store::Digest> block_fingerprint(const Checkpoint& checkpoint, std::string_view summation_order, int threads,
                                        const std::string& remembered) {
  const std::vector<std::string> files = checkpoint.files();
  const auto known = read_remembered(remembered);
  std::vector<std::string> digests(files.size());  // in hexadecimal
  std::vector<size_t> unknown;
  for (size_t i = 0; i < files.size(); ++i) {
    const auto found = known.find(file_stamp(files[i]));
    if (found != known.end()) {
      digests[i] = found->second;
    } else {
      unknown.push_back(i);
    }
  }
  if (!unknown.empty()) {
    log::info("kv store: reading {} weight files once to name their blocks", unknown.size());
    std::atomic<size_t> next{0};  // hands out indices, orders nothing
    std::vector<Status> failures(files.size());
    std::vector<std::string> stamps(files.size());
    const auto work = [&] {
      for (size_t k = next++; k < unknown.size(); k = next++) {
        const size_t i = unknown[k];
        stamps[i] = file_stamp(files[i]);
        const auto digest = digest_file(files[i]);
        if (digest.ok()) {
          digests[i] = store::hex(*digest);
        } else {
          failures[i] = digest.error();
        }
      }
    };
    {
      std::vector<std::jthread> workers;
      for (int t = 1; t < std::min<int>(threads, static_cast<int>(unknown.size())); ++t) workers.emplace_back(work);
      work();
    }
    for (const Status& failure : failures) RETURN_IF_ERROR(failure);
    std::string text;
    for (size_t i = 0; i < files.size(); ++i) {
      const std::string stamp = file_stamp(files[i]);
      // One that was written to while it was read is read again next time.
      if (stamps[i].empty() || stamps[i] == stamp) text += fmt::format("{} {}\n", digests[i], stamp);
    }
    if (const Status kept = write_whole(remembered, store::as_bytes(text), 0644); !kept.ok()) {
      log::warn("kv store: {}; the weights are read again at the next start", kept.error().message());
    }
  }

  std::string list;
  for (size_t i = 0; i < files.size(); ++i) {
    list += fmt::format("{} {}\n", std::filesystem::path(files[i]).filename().string(), digests[i]);
  }
  store::Identity identity;
  identity.weights = store::sha256(store::as_bytes(list));
  ASSIGN_OR_RETURN(identity.config, ReadFile::read_text(checkpoint.directory() + "/config.json", kSmallFile));
  ASSIGN_OR_RETURN(identity.tokenizer, digest_of(checkpoint.directory() + "/tokenizer.json"));
  identity.kv_format = "e2m1 rows with an e4m3 scale per 16, e2m1 index keys; index keys first, groups in layer order";
  identity.summation_order = summation_order;
  identity.kv_abi = kKvAbi;
  return store::fingerprint(identity);
}

Result<OpenedKvStore> open_kv_store(const KvStoreFlags& flags, const std::string& model_directory, const Model& model) {
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
  for (const std::string& directory : flags.directories) options.drives.push_back(directory + "/blocks");
  ASSIGN_OR_RETURN(options.master_key,
                   read_master_key(flags.key_file.empty() ? home + "/master.key" : flags.key_file));
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(model_directory));
  ASSIGN_OR_RETURN(options.fingerprint,
                   block_fingerprint(checkpoint, model.summation_order(), model.options().num_threads,
                                     home + "/weights.digests"));
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
  log::info("kv store: {} ({}), {} MiB for blocks of {} bytes", home, opened.backend->name(), flags.size_bytes >> 20,
            options.payload_bytes);
  return opened;
}

}  // namespace deepinfer
