#include "tokenizer/piece_cache.h"

#include <array>
#include <atomic>
#include <cstring>
#include <memory>

namespace deepinfer {
namespace {

constexpr size_t kMaxPiece = 16;      // bytes
constexpr size_t kMaxIds = 6;
constexpr size_t kEntries = 1 << 14;  // 1 MiB a thread that tokenizes

struct Entry {
  uint64_t serial = 0;  // 0 = empty; serials start at 1
  std::array<char, kMaxPiece> bytes{};
  uint8_t length = 0;
  uint8_t num_ids = 0;
  std::array<int32_t, kMaxIds> ids{};
};

size_t hash_piece(std::string_view piece) {
  uint64_t words[2] = {0, 0};
  std::memcpy(words, piece.data(), piece.size());
  uint64_t hash = (words[0] ^ piece.size()) * 0x9E3779B97F4A7C15u;
  hash = (hash ^ hash >> 29 ^ words[1]) * 0xBF58476D1CE4E5B9u;
  return static_cast<size_t>(hash >> 40);
}

}  // namespace

uint64_t next_tokenizer_serial() {
  static std::atomic<uint64_t> next{1};  // uniqueness only, no ordering
  return next.fetch_add(1, std::memory_order_relaxed);
}

void encode_piece_cached(const Bpe& bpe, uint64_t serial, std::string_view piece, std::vector<int32_t>& ids) {
  if (piece.size() > kMaxPiece) return bpe.encode(piece, ids);
  thread_local const std::unique_ptr<Entry[]> entries(new Entry[kEntries]);
  Entry& entry = entries[hash_piece(piece) % kEntries];
  if (entry.serial == serial && std::string_view(entry.bytes.data(), entry.length) == piece) {
    ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + entry.num_ids);
    return;
  }
  const size_t before = ids.size();
  bpe.encode(piece, ids);
  const size_t count = ids.size() - before;
  if (count > kMaxIds) return;
  entry.serial = serial;
  entry.length = static_cast<uint8_t>(piece.size());
  entry.num_ids = static_cast<uint8_t>(count);
  std::memcpy(entry.bytes.data(), piece.data(), piece.size());
  std::copy(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end(), entry.ids.begin());
}

}  // namespace deepinfer
