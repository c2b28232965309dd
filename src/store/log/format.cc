#include "store/log/format.h"

#include <algorithm>
#include <charconv>

#include "base/checked_math.h"
#include "base/crc32c.h"
#include "base/little_endian.h"

namespace deepinfer::store {
namespace {

using Magic = std::array<char, 8>;  // seven letters and the version
constexpr Magic kRecordMagic = {'D', 'I', 'K', 'V', 'R', 'E', 'C', 1};
constexpr Magic kSegmentMagic = {'D', 'I', 'K', 'V', 'S', 'E', 'G', 1};
constexpr Magic kFooterMagic = {'D', 'I', 'K', 'V', 'F', 'T', 'R', 1};
constexpr Magic kDriveMagic = {'D', 'I', 'K', 'V', 'D', 'R', 'V', 1};

constexpr uint16_t kDerivedFlag = 4;
constexpr uint16_t kEncryptedFlag = 8;
constexpr int kKindShift = 4;
constexpr uint16_t kKindMask = 15 << kKindShift;
constexpr uint16_t kKnownFlags = 15 | kKindMask;

constexpr size_t kCrcOffset = kHeaderBytes - 4;

Status check_magic(std::span<const std::byte> bytes, const Magic& magic, std::string_view what) {
  const auto found = get_le<Magic>(bytes, 0);
  if (std::memcmp(found.data(), magic.data(), 7) != 0)
    return Error(Code::kDataLoss, "{}: byte 0 is no '{}'", what, std::string_view(magic.data(), 7));
  if (found[7] != magic[7])
    return Error(Code::kUnimplemented, "{}: version {} at byte 7, expected {}", what,
                 static_cast<int>(static_cast<unsigned char>(found[7])), static_cast<int>(magic[7]));
  return {};
}

Status check_crc(std::span<const std::byte> bytes, size_t crc_offset, std::string_view what) {
  const auto stored = get_le<uint32_t>(bytes, crc_offset);
  const uint32_t computed = crc32c(bytes.first(crc_offset));
  if (stored != computed)
    return Error(Code::kDataLoss, "{}: crc {:08x} at byte {}, computed {:08x}", what, stored, crc_offset,
                 computed);
  return {};
}

Status check_length(std::span<const std::byte> bytes, size_t expected, std::string_view what) {
  if (bytes.size() < expected)
    return Error(Code::kDataLoss, "{}: {} bytes, expected {}", what, bytes.size(), expected);
  return {};
}

template <typename Source>
uint16_t flags_of(const Source& source) {
  return static_cast<uint16_t>(static_cast<unsigned>(source.retention) |
                               (source.lineage == Lineage::kDerived ? kDerivedFlag : 0u) |
                               (source.encrypted ? kEncryptedFlag : 0u) |
                               static_cast<unsigned>(source.kind) << kKindShift);
}

// Of another flag, or of a kind that this version does not know.
bool flags_known(uint16_t flags) {
  return (flags & ~kKnownFlags) == 0 && (flags & kKindMask) >> kKindShift < static_cast<int>(kNumKinds);
}

template <typename Target>
void read_flags(uint16_t flags, Target& target) {
  target.retention = static_cast<RetentionClass>(flags & 3);
  target.lineage = (flags & kDerivedFlag) != 0 ? Lineage::kDerived : Lineage::kExact;
  target.encrypted = (flags & kEncryptedFlag) != 0;
  target.kind = static_cast<RecordKind>((flags & kKindMask) >> kKindShift);
}

// Header bytes without the crc; `bytes` is kHeaderBytes long.
void lay_out(std::span<std::byte> bytes, const RecordHeader& header) {
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  put_le(bytes, 0, kRecordMagic);
  put_le(bytes, 8, static_cast<uint16_t>(kHeaderBytes));
  put_le(bytes, 10, flags_of(header));
  put_le(bytes, 12, header.domain);
  put_le(bytes, 16, header.segment_id);
  put_le(bytes, 24, header.sequence);
  put_le(bytes, 32, header.key);
  put_le(bytes, 64, header.parent);
  put_le(bytes, 96, header.fingerprint);
  put_le(bytes, 112, header.block_index);
  put_le(bytes, 116, header.payload_bytes);
  put_le(bytes, 120, header.created_ms);
  put_le(bytes, 128, header.cost_us);
  put_le(bytes, 132, header.group_bytes);
  put_le(bytes, 148, header.group_crc);
  put_le(bytes, 164, header.tag);
  put_le(bytes, 180, header.generation);
  put_le(bytes, 188, header.slot);
  put_le(bytes, 192, header.drive);
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

std::string_view kind_name(RecordKind kind) { return kind == RecordKind::kBlock ? "block" : "window_state"; }

uint64_t Geometry::footer_bytes(uint32_t entries) const {
  return round_up(kSummaryBytes * (uint64_t{1} + entries), kPageBytes);
}

uint64_t Geometry::file_bytes() const {
  return footer_offset() + round_up(footer_bytes(num_slots), slot_bytes);
}

Result<Geometry> Geometry::make(uint64_t payload_bytes, uint64_t segment_bytes) {
  if (payload_bytes == 0 || payload_bytes > kMaxPayloadBytes)
    return Error(Code::kInvalidArgument, "payload of {} bytes, expected 1 to {}", payload_bytes,
                 kMaxPayloadBytes);
  if (segment_bytes > uint64_t{1} << 40)
    return Error(Code::kInvalidArgument, "segment of {} bytes, expected at most 1 TiB", segment_bytes);
  Geometry geometry;
  geometry.payload_bytes = static_cast<uint32_t>(payload_bytes);
  geometry.slot_bytes =
      static_cast<uint32_t>(round_up(kHeaderBytes + payload_bytes + kTrailerBytes, kPageBytes));
  geometry.segment_bytes = segment_bytes;
  geometry.num_slots =
      static_cast<uint32_t>(std::min<uint64_t>(kMaxSlots, segment_bytes / geometry.slot_bytes));
  while (geometry.num_slots > 0 && geometry.file_bytes() > segment_bytes) --geometry.num_slots;
  if (geometry.num_slots == 0)
    return Error(Code::kInvalidArgument, "segment of {} bytes has no room for a slot of {}", segment_bytes,
                 geometry.slot_bytes);
  return geometry;
}

void set_group_crcs(RecordHeader& header, std::span<const std::byte> payload) {
  size_t at = 0;
  for (size_t g = 0; g < kMaxGroups; ++g) {
    header.group_crc[g] = header.group_bytes[g] == 0 ? 0 : crc32c(payload.subspan(at, header.group_bytes[g]));
    at += header.group_bytes[g];
  }
}

void write_record(std::span<std::byte> slot, const RecordHeader& header) {
  const std::span<std::byte> head = slot.first(kHeaderBytes);
  lay_out(head, header);
  const uint32_t crc = crc32c(head.first(kCrcOffset));
  put_le(head, kCrcOffset, crc);
  const std::span<std::byte> rest = slot.subspan(kHeaderBytes + header.payload_bytes);
  std::fill(rest.begin(), rest.end(), std::byte{0});
  const std::span<std::byte> trailer = slot.last(kTrailerBytes);
  put_le(trailer, 0, header.sequence);
  std::memcpy(trailer.data() + 8, header.key.data(), 8);
  put_le(trailer, 16, crc);
}

std::array<std::byte, kAuthenticatedBytes> authenticated_bytes(const RecordHeader& header) {
  std::array<std::byte, kHeaderBytes> head;
  lay_out(head, header);
  std::array<std::byte, kAuthenticatedBytes> bytes;
  std::memcpy(bytes.data(), head.data(), 132);
  std::memcpy(bytes.data() + 132, head.data() + 180, 16);
  return bytes;
}

Result<RecordHeader> parse_record_header(std::span<const std::byte> bytes) {
  constexpr std::string_view what = "record header";
  RETURN_IF_ERROR(check_length(bytes, kHeaderBytes, what));
  RETURN_IF_ERROR(check_magic(bytes, kRecordMagic, what));
  RETURN_IF_ERROR(check_crc(bytes, kCrcOffset, what));
  if (const auto length = get_le<uint16_t>(bytes, 8); length != kHeaderBytes)
    return Error(Code::kDataLoss, "{}: length {} at byte 8, expected {}", what, length, kHeaderBytes);
  const auto flags = get_le<uint16_t>(bytes, 10);
  if (!flags_known(flags))
    return Error(Code::kDataLoss, "{}: unknown flags {:#06x} at byte 10", what, flags);

  RecordHeader header;
  read_flags(flags, header);
  header.domain = get_le<uint32_t>(bytes, 12);
  header.segment_id = get_le<uint64_t>(bytes, 16);
  header.sequence = get_le<uint64_t>(bytes, 24);
  header.key = get_le<Digest>(bytes, 32);
  header.parent = get_le<Digest>(bytes, 64);
  header.fingerprint = get_le<std::array<std::byte, 16>>(bytes, 96);
  header.block_index = get_le<uint32_t>(bytes, 112);
  header.payload_bytes = get_le<uint32_t>(bytes, 116);
  header.created_ms = get_le<uint64_t>(bytes, 120);
  header.cost_us = get_le<uint32_t>(bytes, 128);
  header.group_bytes = get_le<std::array<uint32_t, kMaxGroups>>(bytes, 132);
  header.group_crc = get_le<std::array<uint32_t, kMaxGroups>>(bytes, 148);
  header.tag = get_le<std::array<std::byte, 16>>(bytes, 164);
  header.generation = get_le<uint64_t>(bytes, 180);
  header.slot = get_le<uint32_t>(bytes, 188);
  header.drive = get_le<uint32_t>(bytes, 192);
  uint64_t sum = 0;
  for (const uint32_t group : header.group_bytes) sum += group;
  if (sum != header.payload_bytes || header.payload_bytes == 0 || header.payload_bytes > kMaxPayloadBytes)
    return Error(Code::kDataLoss, "{}: payload of {} bytes at byte 116, groups sum to {}", what,
                 header.payload_bytes, sum);
  return header;
}

Result<RecordHeader> parse_record(std::span<const std::byte> slot) {
  ASSIGN_OR_RETURN(const RecordHeader header, parse_record_header(slot));
  const size_t payload_end = kHeaderBytes + header.payload_bytes;
  if (slot.size() < payload_end + kTrailerBytes || slot.size() % kPageBytes != 0)
    return Error(Code::kDataLoss, "record: slot of {} bytes for a payload of {}", slot.size(),
                 header.payload_bytes);
  const size_t trailer_at = slot.size() - kTrailerBytes;
  const std::span<const std::byte> trailer = slot.subspan(trailer_at);
  if (const auto sequence = get_le<uint64_t>(trailer, 0); sequence != header.sequence)
    return Error(Code::kDataLoss,
                 "record: sequence {} in the trailer at byte {}, {} in the header (torn write)", sequence,
                 trailer_at, header.sequence);
  if (std::memcmp(trailer.data() + 8, header.key.data(), 8) != 0)
    return Error(Code::kDataLoss, "record: the key in the trailer at byte {} is not the header's",
                 trailer_at + 8);
  if (get_le<uint32_t>(trailer, 16) != get_le<uint32_t>(slot, kCrcOffset))
    return Error(Code::kDataLoss, "record: the header crc in the trailer at byte {} is not the header's",
                 trailer_at + 16);
  size_t at = kHeaderBytes;
  for (size_t g = 0; g < kMaxGroups; ++g) {
    if (header.group_bytes[g] == 0) continue;
    const uint32_t crc = crc32c(slot.subspan(at, header.group_bytes[g]));
    if (crc != header.group_crc[g])
      return Error(Code::kDataLoss, "record: group {} (bytes {} to {}): crc {:08x}, computed {:08x}", g, at,
                   at + header.group_bytes[g], header.group_crc[g], crc);
    at += header.group_bytes[g];
  }
  if (!all_zero(slot.subspan(at, trailer_at - at)) || !all_zero(trailer.subspan(20)))
    return Error(Code::kDataLoss, "record: the fill behind the payload (byte {} on) is not zero", at);
  return header;
}

Status check_place(const RecordHeader& header, const RecordPlace& place) {
  const auto differs = [](std::string_view field, uint64_t found, uint64_t expected) {
    return Error(Code::kDataLoss, "record: {} {}, expected {} at this place", field, found, expected);
  };
  if (header.drive != place.drive) return differs("drive", header.drive, place.drive);
  if (header.segment_id != place.segment_id) return differs("segment", header.segment_id, place.segment_id);
  if (header.generation != place.generation)
    return differs("generation", header.generation, place.generation);
  if (header.slot != place.slot) return differs("slot", header.slot, place.slot);
  if (header.payload_bytes != place.payload_bytes)
    return differs("payload length", header.payload_bytes, place.payload_bytes);
  return {};
}

void write_segment_header(std::span<std::byte> bytes, const SegmentHeader& header) {
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  put_le(bytes, 0, kSegmentMagic);
  put_le(bytes, 8, static_cast<uint32_t>(kHeaderBytes));
  put_le(bytes, 12, static_cast<uint32_t>(header.retention));
  put_le(bytes, 16, header.segment_id);
  put_le(bytes, 24, header.generation);
  put_le(bytes, 32, header.drive);
  put_le(bytes, 48, header.fingerprint);
  put_le(bytes, 80, header.geometry.payload_bytes);
  put_le(bytes, 84, header.geometry.slot_bytes);
  put_le(bytes, 88, header.geometry.num_slots);
  put_le(bytes, 92, static_cast<uint32_t>(header.state));
  put_le(bytes, 96, header.geometry.segment_bytes);
  put_le(bytes, 104, header.created_ms);
  put_le(bytes, 112, header.first_sequence);
  put_le(bytes, kCrcOffset, crc32c(bytes.first(kCrcOffset)));
}

Result<SegmentHeader> parse_segment_header(std::span<const std::byte> bytes) {
  constexpr std::string_view what = "segment header";
  RETURN_IF_ERROR(check_length(bytes, kHeaderBytes, what));
  RETURN_IF_ERROR(check_magic(bytes, kSegmentMagic, what));
  RETURN_IF_ERROR(check_crc(bytes, kCrcOffset, what));
  if (const auto length = get_le<uint32_t>(bytes, 8); length != kHeaderBytes)
    return Error(Code::kDataLoss, "{}: length {} at byte 8, expected {}", what, length, kHeaderBytes);
  SegmentHeader header;
  const auto retention = get_le<uint32_t>(bytes, 12);
  if (retention >= kNumClasses) return Error(Code::kDataLoss, "{}: class {} at byte 12", what, retention);
  header.retention = static_cast<RetentionClass>(retention);
  header.segment_id = get_le<uint64_t>(bytes, 16);
  header.generation = get_le<uint64_t>(bytes, 24);
  header.drive = get_le<DriveId>(bytes, 32);
  header.fingerprint = get_le<Digest>(bytes, 48);
  const auto geometry = Geometry::make(get_le<uint32_t>(bytes, 80), get_le<uint64_t>(bytes, 96));
  if (!geometry.ok()) return Error(Code::kDataLoss, "{}: {}", what, geometry.error().message());
  header.geometry = *geometry;
  const auto slot_bytes = get_le<uint32_t>(bytes, 84);
  const auto num_slots = get_le<uint32_t>(bytes, 88);
  if (slot_bytes != header.geometry.slot_bytes || num_slots != header.geometry.num_slots)
    return Error(Code::kDataLoss,
                 "{}: {} slots of {} bytes at byte 84, expected {} of {} for payload and size", what,
                 num_slots, slot_bytes, header.geometry.num_slots, header.geometry.slot_bytes);
  const auto state = get_le<uint32_t>(bytes, 92);
  if (state > 1) return Error(Code::kDataLoss, "{}: state {} at byte 92, expected 0 or 1", what, state);
  header.state = static_cast<SegmentState>(state);
  if (header.generation == 0) return Error(Code::kDataLoss, "{}: generation 0 at byte 24", what);
  header.created_ms = get_le<uint64_t>(bytes, 104);
  header.first_sequence = get_le<uint64_t>(bytes, 112);
  return header;
}

FooterEntry summary_of(const RecordHeader& header, uint64_t first_sequence) {
  FooterEntry entry;
  entry.kind = header.kind;
  entry.key = header.key;
  entry.block_index = header.block_index;
  entry.domain = header.domain;
  entry.created_ms = header.created_ms;
  entry.retention = header.retention;
  entry.lineage = header.lineage;
  entry.encrypted = header.encrypted;
  entry.slot = static_cast<uint16_t>(header.slot);
  entry.sequence_offset = static_cast<uint32_t>(header.sequence - first_sequence);
  entry.cost_us = header.cost_us;
  return entry;
}

void write_footer(std::span<std::byte> bytes, FooterHeader header, std::span<const FooterEntry> entries) {
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  for (size_t i = 0; i < entries.size(); ++i) {
    const FooterEntry& entry = entries[i];
    const std::span<std::byte> at = bytes.subspan((i + 1) * kSummaryBytes, kSummaryBytes);
    put_le(at, 0, entry.key);
    put_le(at, 32, entry.block_index);
    put_le(at, 36, entry.domain);
    put_le(at, 40, entry.created_ms);
    put_le(at, 48, flags_of(entry));
    put_le(at, 50, entry.slot);
    put_le(at, 52, entry.sequence_offset);
    put_le(at, 56, entry.cost_us);
    put_le(at, 60, crc32c(at.first(60)));
  }
  put_le(bytes, 0, kFooterMagic);
  put_le(bytes, 8, static_cast<uint32_t>(entries.size()));
  put_le(bytes, 12, crc32c(bytes.subspan(kSummaryBytes, entries.size() * kSummaryBytes)));
  put_le(bytes, 16, header.segment_id);
  put_le(bytes, 24, header.generation);
  put_le(bytes, 32, header.first_sequence);
  put_le(bytes, 40, header.last_sequence);
  put_le(bytes, 48, header.sealed_ms);
  put_le(bytes, 60, crc32c(bytes.first(60)));
}

Result<FooterHeader> parse_footer_header(std::span<const std::byte> bytes, const SegmentHeader& segment) {
  constexpr std::string_view what = "footer";
  RETURN_IF_ERROR(check_length(bytes, kSummaryBytes, what));
  RETURN_IF_ERROR(check_magic(bytes, kFooterMagic, what));
  RETURN_IF_ERROR(check_crc(bytes, 60, what));
  FooterHeader header;
  header.num_entries = get_le<uint32_t>(bytes, 8);
  header.entries_crc = get_le<uint32_t>(bytes, 12);
  header.segment_id = get_le<uint64_t>(bytes, 16);
  header.generation = get_le<uint64_t>(bytes, 24);
  header.first_sequence = get_le<uint64_t>(bytes, 32);
  header.last_sequence = get_le<uint64_t>(bytes, 40);
  header.sealed_ms = get_le<uint64_t>(bytes, 48);
  if (header.num_entries > segment.geometry.num_slots)
    return Error(Code::kDataLoss, "{}: {} entries at byte 8, the segment has {} slots", what,
                 header.num_entries, segment.geometry.num_slots);
  if (header.segment_id != segment.segment_id || header.generation != segment.generation ||
      header.first_sequence != segment.first_sequence)
    return Error(Code::kDataLoss,
                 "{}: describes segment {} generation {} from sequence {}, expected {}, {} and {}", what,
                 header.segment_id, header.generation, header.first_sequence, segment.segment_id,
                 segment.generation, segment.first_sequence);
  return header;
}

Status check_footer_entries(std::span<const std::byte> bytes, const FooterHeader& header,
                            const SegmentHeader& segment) {
  const size_t size = header.num_entries * kSummaryBytes;
  RETURN_IF_ERROR(check_length(bytes, kSummaryBytes + size, "footer"));
  const uint32_t crc = crc32c(bytes.subspan(kSummaryBytes, size));
  if (crc != header.entries_crc)
    return Error(Code::kDataLoss, "footer: crc of {} entries {:08x} at byte 12, computed {:08x}",
                 header.num_entries, header.entries_crc, crc);
  uint32_t before = 0;
  for (uint32_t i = 0; i < header.num_entries; ++i) {
    const size_t at = (i + size_t{1}) * kSummaryBytes;
    const auto slot = get_le<uint16_t>(bytes, at + 50);
    if (slot <= before || slot > segment.geometry.num_slots)
      return Error(Code::kDataLoss, "footer: entry {} names slot {} after slot {}, of {}", i, slot, before,
                   segment.geometry.num_slots);
    if (!flags_known(get_le<uint16_t>(bytes, at + 48)))
      return Error(Code::kDataLoss, "footer: entry {} has unknown flags {:#06x}", i,
                   get_le<uint16_t>(bytes, at + 48));
    before = slot;
  }
  return {};
}

FooterEntry footer_entry(std::span<const std::byte> bytes, uint32_t i) {
  const std::span<const std::byte> at = bytes.subspan((i + size_t{1}) * kSummaryBytes, kSummaryBytes);
  FooterEntry entry;
  entry.key = get_le<Digest>(at, 0);
  entry.block_index = get_le<uint32_t>(at, 32);
  entry.domain = get_le<uint32_t>(at, 36);
  entry.created_ms = get_le<uint64_t>(at, 40);
  read_flags(get_le<uint16_t>(at, 48), entry);
  entry.slot = get_le<uint16_t>(at, 50);
  entry.sequence_offset = get_le<uint32_t>(at, 52);
  entry.cost_us = get_le<uint32_t>(at, 56);
  return entry;
}

void write_drive_meta(std::span<std::byte> bytes, const DriveMeta& meta) {
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  put_le(bytes, 0, kDriveMagic);
  put_le(bytes, 8, meta.id);
  put_le(bytes, 24, meta.epoch);
  put_le(bytes, 32, meta.created_ms);
  put_le(bytes, kCrcOffset, crc32c(bytes.first(kCrcOffset)));
}

Result<DriveMeta> parse_drive_meta(std::span<const std::byte> bytes) {
  constexpr std::string_view what = "drive.meta";
  RETURN_IF_ERROR(check_length(bytes, kHeaderBytes, what));
  RETURN_IF_ERROR(check_magic(bytes, kDriveMagic, what));
  RETURN_IF_ERROR(check_crc(bytes, kCrcOffset, what));
  DriveMeta meta;
  meta.id = get_le<DriveId>(bytes, 8);
  meta.epoch = get_le<uint64_t>(bytes, 24);
  meta.created_ms = get_le<uint64_t>(bytes, 32);
  return meta;
}

std::string segment_file_name(uint64_t segment_id) {
  return fmt::format("{:08}.seg", segment_id);
}

std::optional<uint64_t> segment_id_of(std::string_view file_name) {
  constexpr std::string_view suffix = ".seg";
  if (file_name.size() < 8 + suffix.size() || !file_name.ends_with(suffix)) return std::nullopt;
  const std::string_view digits = file_name.substr(0, file_name.size() - suffix.size());
  uint64_t id = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return segment_file_name(id) == file_name ? std::optional(id) : std::nullopt;
}

}  // namespace deepinfer::store
