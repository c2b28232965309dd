#include "model/weights_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/crc32c.h"
#include "base/read_file.h"
#include "kernels/matrix.h"
#include "model/run_pieces.h"

namespace deepinfer {
namespace {

static_assert(std::endian::native == std::endian::little, "the file holds native integers");

constexpr std::array<char, 8> kMagic = {'D', 'I', 'W', 'E', 'I', 'G', 'H', 'T'};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kPieceBytes = uint64_t{4} << 20;     // that has a checksum of its own
constexpr size_t kPiecesAtOnce = 16;                    // populated and read by one thread

struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t packed_form = kPackedForm;
  std::array<std::byte, 32> identity = {};
  uint64_t size_bytes = 0;  // of the weights
  uint32_t layout = 0;
  uint32_t table_crc = 0;   // of the checksums of the pieces
  uint32_t reserved = 0;
  uint32_t header_crc = 0;  // of all before it
};
static_assert(sizeof(Header) == 72);

uint32_t crc_of(const Header& header) {
  return crc32c(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, header_crc)));
}

// Where things lie in a file for so many bytes of weights.
struct Layout {
  explicit Layout(uint64_t size_bytes)
      : size_bytes(size_bytes),
        num_pieces(ceil_div(size_bytes, kPieceBytes)),
        data_offset(kPage + round_up(num_pieces * sizeof(uint32_t), kPage)) {}
  uint64_t size_bytes, num_pieces, data_offset;

  uint64_t file_bytes() const { return data_offset + size_bytes; }
  uint64_t piece_bytes(uint64_t piece) const { return std::min(kPieceBytes, size_bytes - piece * kPieceBytes); }
};

Status check_header(const ReadFile& file, const Header& header, const WeightsCache& cache, uint32_t layout_crc,
                    const Layout& layout) {
  const auto other = [&](std::string_view what) { return Error(Code::kInvalidArgument, "{}: {}", file.path(), what); };
  if (header.magic != kMagic) return other("is not a cache of weights");
  if (header.version != kVersion) {
    return Error(Code::kInvalidArgument, "{}: found version {}, expected {}", file.path(), header.version, kVersion);
  }
  if (header.header_crc != crc_of(header)) {
    return Error(Code::kDataLoss, "{}: the header is damaged (its checksum differs)", file.path());
  }
  if (header.identity != cache.identity) return other("belongs to another checkpoint");
  if (header.packed_form != kPackedForm || header.layout != layout_crc || header.size_bytes != layout.size_bytes) {
    return other("holds another layout of the weights");
  }
  if (file.size() != layout.file_bytes()) {
    return Error(Code::kDataLoss, "{}: found {} bytes, expected {}", file.path(), file.size(), layout.file_bytes());
  }
  return {};
}

Error system_error(const std::string& path, std::string_view what) {
  const bool full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
  return Error(full ? Code::kResourceExhausted : Code::kIo, "{}: {}: {}", path, what, std::strerror(errno));
}

// The file that is being written, under a name of its own; at most one process has it. Gone with this object unless renamed.
class NewFile {
 public:
  static Result<NewFile> create(const std::string& path) {
    NewFile file(path);
    file.descriptor_ = ::open(file.beside_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (file.descriptor_ < 0) return system_error(file.beside_, "can't be made");
    // The process that held it may have renamed or removed it between our open and our lock.
    struct stat named = {}, ours = {};
    if (::flock(file.descriptor_, LOCK_EX | LOCK_NB) != 0 || ::fstat(file.descriptor_, &ours) != 0 ||
        ::stat(file.beside_.c_str(), &named) != 0 || named.st_ino != ours.st_ino || named.st_dev != ours.st_dev) {
      return Error(Code::kUnavailable, "{}: another process is writing it", path);
    }
    file.owned_ = true;
    if (::ftruncate(file.descriptor_, 0) != 0) return system_error(file.beside_, "can't be emptied");
    return file;
  }
  ~NewFile() {
    if (owned_) ::unlink(beside_.c_str());
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  NewFile(NewFile&& other) noexcept
      : path_(std::move(other.path_)),
        beside_(std::move(other.beside_)),
        descriptor_(std::exchange(other.descriptor_, -1)),
        owned_(std::exchange(other.owned_, false)) {}
  NewFile& operator=(NewFile&&) = delete;

  // Finds out before the first byte whether there is room, where the file system can tell.
  Status allocate(uint64_t size_bytes) {
    if (::fallocate(descriptor_, 0, 0, static_cast<off_t>(size_bytes)) == 0 || errno == EOPNOTSUPP) return {};
    return system_error(path_, fmt::format("no room for {} bytes", size_bytes));
  }
  Status write(uint64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return system_error(path_, fmt::format("can't be written at byte {}", offset));
      bytes = bytes.subspan(static_cast<size_t>(written));
      offset += static_cast<uint64_t>(written);
    }
    return {};
  }
  Status sync_and_rename() {
    if (::fsync(descriptor_) != 0) return system_error(path_, "can't be synced");
    if (::rename(beside_.c_str(), path_.c_str()) != 0) return system_error(path_, "can't be renamed to");
    owned_ = false;
    const std::string directory = std::filesystem::path(path_).parent_path().string();
    const int parent = ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0) return system_error(directory, "can't be opened");
    const Status synced = ::fsync(parent) == 0 ? Status() : Status(system_error(directory, "can't be synced"));
    ::close(parent);
    return synced;
  }

 private:
  explicit NewFile(const std::string& path) : path_(path), beside_(path + ".new") {}

  std::string path_, beside_;
  int descriptor_ = -1;
  bool owned_ = false;
};

}  // namespace

Status read_weights_cache(const WeightsCache& cache, uint32_t layout_crc, int num_threads, AlignedBuffer& memory,
                          const ProgressFunction& progress) {
  ASSIGN_OR_RETURN(const ReadFile file, ReadFile::open(cache.path));
  const Layout layout(memory.size());
  Header header;
  if (file.size() < sizeof header) return Error(Code::kDataLoss, "{}: found {} bytes, too few for a header", cache.path, file.size());
  RETURN_IF_ERROR(file.read(0, std::as_writable_bytes(std::span(&header, 1))));
  RETURN_IF_ERROR(check_header(file, header, cache, layout_crc, layout));
  std::vector<uint32_t> checksums(layout.num_pieces);
  RETURN_IF_ERROR(file.read(kPage, std::as_writable_bytes(std::span(checksums))));
  if (header.table_crc != crc32c(std::as_bytes(std::span(checksums)))) {
    return Error(Code::kDataLoss, "{}: the list of checksums is damaged (its checksum differs)", cache.path);
  }

  const auto read = [&](size_t group, size_t) -> Result<uint64_t> {
    const size_t first = group * kPiecesAtOnce * kPieceBytes;
    const auto bytes = memory.bytes().subspan(first, std::min(kPiecesAtOnce * kPieceBytes, memory.size() - first));
    RETURN_IF_ERROR(memory.populate(first, bytes.size()));
    for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
      const uint64_t piece = (first + at) / kPieceBytes;
      const auto part = bytes.subspan(at, layout.piece_bytes(piece));
      RETURN_IF_ERROR(file.read(layout.data_offset + first + at, part));
      if (crc32c(part) != checksums[piece]) {
        return Error(Code::kDataLoss, "{}: bytes {} to {} are damaged (their checksum differs)", cache.path,
                     layout.data_offset + first + at, layout.data_offset + first + at + part.size());
      }
    }
    return bytes.size();
  };
  return run_pieces(num_threads, ceil_div(layout.num_pieces, kPiecesAtOnce), read, [&](uint64_t done) {
    if (progress && done < memory.size()) progress(done, memory.size());
  });
}

Status write_weights_cache(const WeightsCache& cache, uint32_t layout_crc, int num_threads, const AlignedBuffer& memory) {
  const Layout layout(memory.size());
  ASSIGN_OR_RETURN(NewFile file, NewFile::create(cache.path));
  RETURN_IF_ERROR(file.allocate(layout.file_bytes()));
  std::vector<uint32_t> checksums(layout.num_pieces);
  const auto write = [&](size_t piece, size_t) -> Result<uint64_t> {
    const auto bytes = memory.bytes().subspan(piece * kPieceBytes, layout.piece_bytes(piece));
    checksums[piece] = crc32c(bytes);
    RETURN_IF_ERROR(file.write(layout.data_offset + piece * kPieceBytes, bytes));
    return bytes.size();
  };
  RETURN_IF_ERROR(run_pieces(num_threads, layout.num_pieces, write, [&](uint64_t done) {
    if (cache.on_write && done < memory.size()) cache.on_write(done, memory.size());
  }));
  if (cache.on_write) cache.on_write(memory.size(), memory.size());
  Header header;
  header.identity = cache.identity;
  header.size_bytes = memory.size();
  header.layout = layout_crc;
  header.table_crc = crc32c(std::as_bytes(std::span(checksums)));
  header.header_crc = crc_of(header);
  RETURN_IF_ERROR(file.write(kPage, std::as_bytes(std::span(checksums))));
  RETURN_IF_ERROR(file.write(0, std::as_bytes(std::span(&header, 1))));
  return file.sync_and_rename();
}

}  // namespace deepinfer
