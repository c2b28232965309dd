#include "apps/checkpoint_digest.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>
#include <thread>

#include "base/crc32c.h"
#include "base/log.h"
#include "base/read_file.h"
#include "crypto/crypto.h"

namespace deepinfer {
namespace {

constexpr size_t kDigestedAtOnce = 8 << 20;

// The file as it was when its digest was taken: a write to it changes one of these. The path comes last.
std::string file_stamp(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return fmt::format("{} {} {}.{:09} {}.{:09} {}", info.st_size, info.st_ino, info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
                     info.st_ctim.tv_sec, info.st_ctim.tv_nsec, path);
}

std::string_view path_of(std::string_view stamp) {
  for (int field = 0; field < 4; ++field) stamp.remove_prefix(std::min(stamp.find(' '), stamp.size() - 1) + 1);
  return stamp;
}

using Digests = std::map<std::string, std::string>;  // by stamp, in hexadecimal

std::string crc_line(std::string_view lines) { return fmt::format("crc32c {:08x}\n", crc32c(as_bytes(lines))); }

// What was remembered; nothing of a file whose last line is not the crc of the others: a wrong digest would give blocks another
// name, without a word.
Digests read_remembered(const std::string& path) {
  Digests digests;
  const auto text = ReadFile::read_text(path, kSmallFile);
  if (!text.ok()) return digests;
  const size_t end = text->rfind("crc32c ");
  if (end == std::string::npos || text->substr(end) != crc_line(std::string_view(*text).substr(0, end))) {
    log::warn("{}: the crc at its end does not fit; the weights are read again", path);
    return digests;
  }
  std::istringstream lines(text->substr(0, end));
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > 65 && line[64] == ' ') digests[line.substr(65)] = line.substr(0, 64);
  }
  return digests;
}

// SHA-256 over the SHA-256 of each 8 MiB.
Result<Digest> digest_file(const std::string& path, const std::function<void(uint64_t)>& on_bytes) {
  ASSIGN_OR_RETURN(const ReadFile file, ReadFile::open(path));
  std::vector<std::byte> piece(std::min<uint64_t>(kDigestedAtOnce, file.size()));
  std::vector<std::byte> digests;
  for (uint64_t at = 0; at < file.size(); at += kDigestedAtOnce) {
    const auto bytes = std::span(piece).first(std::min<uint64_t>(kDigestedAtOnce, file.size() - at));
    RETURN_IF_ERROR(file.read(at, bytes));
    const Digest digest = sha256(bytes);
    digests.insert(digests.end(), digest.begin(), digest.end());
    on_bytes(bytes.size());
  }
  return sha256(digests);
}

// Digests of the files that `digests` leaves empty.
Status read_files(const std::vector<std::string>& files, std::vector<std::string>& digests, int threads,
                  const ProgressFunction& progress) {
  std::vector<size_t> unknown;
  uint64_t total = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    if (!digests[i].empty()) continue;
    unknown.push_back(i);
    std::error_code ignored;  // digest_file() will say it
    total += std::filesystem::file_size(files[i], ignored);
  }
  log::info("reading {} weight files once to name them", unknown.size());
  std::atomic<size_t> next{0};  // hands out indices, orders nothing
  std::atomic<uint64_t> done{0};
  std::vector<Status> failures(files.size());
  const auto work = [&](bool shows) {
    for (size_t k = next++; k < unknown.size(); k = next++) {
      const size_t i = unknown[k];
      const auto digest = digest_file(files[i], [&](uint64_t bytes) {
        const uint64_t sum = done += bytes;
        if (shows && progress) progress(sum, total);
      });
      if (digest.ok()) {
        digests[i] = hex(*digest);
      } else {
        failures[i] = digest.error();
      }
    }
  };
  {
    std::vector<std::jthread> workers;
    for (int t = 1; t < std::min<int>(threads, static_cast<int>(unknown.size())); ++t) workers.emplace_back(work, false);
    work(true);
  }
  for (const Status& failure : failures) RETURN_IF_ERROR(failure);
  return {};
}

}  // namespace

Status write_whole(const std::string& path, std::span<const std::byte> bytes, unsigned mode) {
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

Result<Digest> checkpoint_digest(const Checkpoint& checkpoint, int threads, const std::vector<std::string>& remembered,
                                        const ProgressFunction& progress) {
  const std::vector<std::string> files = checkpoint.files();
  Digests known;
  for (const std::string& path : remembered) known.merge(read_remembered(path));
  std::vector<std::string> stamps, digests;  // of the files
  for (const std::string& file : files) {
    stamps.push_back(file_stamp(file));
    const auto found = known.find(stamps.back());
    digests.push_back(found == known.end() ? std::string() : found->second);
  }
  if (std::find(digests.begin(), digests.end(), std::string()) != digests.end()) {
    RETURN_IF_ERROR(read_files(files, digests, threads, progress));
    // Other checkpoints are remembered on; a file that was written to while it was read is read again next time.
    Digests kept = read_remembered(remembered.front());
    std::erase_if(kept, [&](const auto& entry) {
      return std::find(files.begin(), files.end(), path_of(entry.first)) != files.end();
    });
    for (size_t i = 0; i < files.size(); ++i) {
      if (!stamps[i].empty() && stamps[i] == file_stamp(files[i])) kept[stamps[i]] = digests[i];
    }
    std::string text;
    for (const auto& [stamp, digest] : kept) text += fmt::format("{} {}\n", digest, stamp);
    text += crc_line(text);
    if (const Status status = write_whole(remembered.front(), as_bytes(text), 0644); !status.ok()) {
      log::warn("{}; the weights are read again at the next start", status.error().message());
    }
  }
  std::string list;
  for (size_t i = 0; i < files.size(); ++i) {
    list += fmt::format("{} {}\n", std::filesystem::path(files[i]).filename().string(), digests[i]);
  }
  return sha256(as_bytes(list));
}

}  // namespace deepinfer
