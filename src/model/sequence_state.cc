#include "model/sequence_state.h"

#include <bit>
#include <cstring>

#include "base/crc32c.h"

namespace deepinfer {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr uint32_t kStateMagic = 0x53534944;  // "DISS"
constexpr uint32_t kStateVersion = 1;

struct StateHeader {
  uint32_t magic = kStateMagic;
  uint32_t version = kStateVersion;
  // The model's shape.
  uint32_t encoder_layers = 0, decoder_layers = 0;  // decoder layers with DSpark stages
  uint32_t window_row_bytes = 0;
  uint32_t pair_groups = 0, pair_entry_bytes = 0;
  // The extent.
  uint32_t encoder_rows = 0, decoder_rows = 0, pair_entries = 0, engram_ids = 0;
  uint32_t reserved = 0;
  int64_t position = 0;
};
static_assert(sizeof(StateHeader) == 56);
constexpr int64_t kHeaderBytes = sizeof(StateHeader), kCrcBytes = sizeof(uint32_t);

StateHeader header_of(const KvLayout& layout, const StateExtent& extent) {
  const auto u32 = [](int64_t value) { return static_cast<uint32_t>(value); };
  return {.encoder_layers = u32(layout.windows.encoder_layers),
          .decoder_layers = u32(layout.num_window_layers - layout.windows.encoder_layers),
          .window_row_bytes = u32(layout.window_row_bytes),
          .pair_groups = u32(layout.num_pair_groups),
          .pair_entry_bytes = u32(layout.compressor_entry_floats * static_cast<int64_t>(sizeof(float))),
          .encoder_rows = u32(extent.encoder_rows),
          .decoder_rows = u32(extent.decoder_rows),
          .pair_entries = u32(extent.pair_entries),
          .engram_ids = u32(extent.engram_ids),
          .position = extent.position};
}

StateExtent extent_of(const StateHeader& header) {
  return {.position = header.position,
          .encoder_rows = header.encoder_rows,
          .decoder_rows = header.decoder_rows,
          .pair_entries = header.pair_entries,
          .engram_ids = header.engram_ids};
}

bool fits(const KvLayout& layout, const StateExtent& extent) {
  const StateExtent most = largest_state_extent(layout);
  const auto within = [&](int64_t count, int64_t limit) { return count <= limit && count <= extent.position; };
  return extent.position >= 0 && extent.position < int64_t{1} << 40 && within(extent.encoder_rows, most.encoder_rows) &&
         within(extent.decoder_rows, most.decoder_rows) && within(extent.pair_entries, most.pair_entries) &&
         within(extent.engram_ids, most.engram_ids);
}

// Every piece of a state in the order of the format: copy(bytes of the sequence, how many).
template <typename State, typename Copy>
void for_each_piece(const KvLayout& layout, State& sequence, const StateExtent& extent, const Copy& copy) {
  const int64_t end = extent.position;
  for (int64_t layer = 0; layer < layout.num_window_layers; ++layer) {
    const bool encoder = layer < layout.windows.encoder_layers;
    for (int64_t p = end - (encoder ? extent.encoder_rows : extent.decoder_rows); p < end; ++p) {
      copy(sequence.window_row(layer, p), layout.window_row_bytes);
    }
  }
  for (int64_t group = 0; group < layout.num_pair_groups; ++group) {
    for (int64_t p = end - extent.pair_entries; p < end; ++p) {
      copy(sequence.compressor_entry(group, p), layout.compressor_entry_floats * static_cast<int64_t>(sizeof(float)));
    }
  }
  for (int64_t p = end - extent.engram_ids; p < end; ++p) copy(&sequence.engram_id(p), sizeof(int32_t));
}

}  // namespace

StateExtent largest_state_extent(const KvLayout& layout) {
  return {.position = int64_t{1} << 30,
          .encoder_rows = layout.encoder_slots,
          .decoder_rows = layout.decoder_slots,
          .pair_entries = layout.compressor_slots,
          .engram_ids = layout.num_engram_ids()};
}

int64_t serialized_state_bytes(const KvLayout& layout, const StateExtent& extent) {
  const int64_t encoder = layout.windows.encoder_layers, decoder = layout.num_window_layers - encoder;
  return kHeaderBytes + (encoder * extent.encoder_rows + decoder * extent.decoder_rows) * layout.window_row_bytes +
         layout.num_pair_groups * extent.pair_entries * layout.compressor_entry_floats * static_cast<int64_t>(sizeof(float)) +
         extent.engram_ids * static_cast<int64_t>(sizeof(int32_t)) + kCrcBytes;
}

void serialize_state(const KvLayout& layout, const Sequence& sequence, const StateExtent& extent, std::span<std::byte> out) {
  CHECK(fits(layout, extent) && std::ssize(out) == serialized_state_bytes(layout, extent));
  const StateHeader header = header_of(layout, extent);
  std::memcpy(out.data(), &header, sizeof(header));
  std::byte* next = out.data() + kHeaderBytes;
  for_each_piece(layout, sequence, extent, [&](const void* piece, int64_t bytes) {
    std::memcpy(next, piece, static_cast<size_t>(bytes));
    next += bytes;
  });
  const uint32_t crc = crc32c(out.first(out.size() - kCrcBytes));
  std::memcpy(next, &crc, sizeof(crc));
}

Result<StateExtent> read_state_extent(const KvLayout& layout, std::span<const std::byte> bytes) {
  const auto fault = [](std::string_view what, uint64_t found, uint64_t expected) {
    return Error(Code::kInvalidArgument, "sequence state: {}: found {}, expected {}", what, found, expected);
  };
  if (std::ssize(bytes) < kHeaderBytes + kCrcBytes) return fault("size", bytes.size(), kHeaderBytes + kCrcBytes);
  StateHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kStateMagic) return fault("magic", header.magic, kStateMagic);
  if (header.version != kStateVersion) return fault("version", header.version, kStateVersion);
  const StateExtent extent = extent_of(header);
  const StateHeader own = header_of(layout, extent);
  if (header.encoder_layers != own.encoder_layers) return fault("encoder layers", header.encoder_layers, own.encoder_layers);
  if (header.decoder_layers != own.decoder_layers) return fault("decoder layers", header.decoder_layers, own.decoder_layers);
  if (std::memcmp(&header, &own, sizeof(header)) != 0) {
    return Error(Code::kInvalidArgument, "sequence state: found rows of another shape, expected those of this model");
  }
  if (!fits(layout, extent)) {
    return Error(Code::kInvalidArgument, "sequence state: found {} and {} rows before position {}, expected at most {} and {}",
                 extent.encoder_rows, extent.decoder_rows, extent.position, layout.encoder_slots, layout.decoder_slots);
  }
  const int64_t size = serialized_state_bytes(layout, extent);
  if (std::ssize(bytes) != size) return fault("size", bytes.size(), static_cast<uint64_t>(size));
  uint32_t crc;
  std::memcpy(&crc, bytes.data() + size - kCrcBytes, sizeof(crc));
  const uint32_t computed = crc32c(bytes.first(bytes.size() - kCrcBytes));
  if (crc != computed) return fault("checksum", crc, computed);
  return extent;
}

Result<StateExtent> restore_state(const KvLayout& layout, std::span<const std::byte> bytes, Sequence& sequence) {
  ASSIGN_OR_RETURN(const StateExtent extent, read_state_extent(layout, bytes));
  sequence.start(extent.position, {}, {});
  const std::byte* next = bytes.data() + kHeaderBytes;
  for_each_piece(layout, sequence, extent, [&](void* piece, int64_t count) {
    std::memcpy(piece, next, static_cast<size_t>(count));
    next += count;
  });
  return extent;
}

}  // namespace deepinfer
