// The bytes of the store on disk: record slots, segment headers, footers, drive.meta. Source:
// docs/formats/kv-segment.md. Pure functions from bytes to values and back; no files. Every parser takes
// arbitrary bytes.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/keys.h"
#include "store/io/io_backend.h"
#include "store/tenants/retention.h"

namespace deepinfer::store {

using DriveId = std::array<std::byte, 16>;

inline constexpr size_t kHeaderBytes = 512;  // of a record, a segment, drive.meta
inline constexpr size_t kTrailerBytes = 256;
inline constexpr size_t kSummaryBytes = 64;  // footer header, footer entry
inline constexpr uint32_t kMaxSlots = 16383;
inline constexpr size_t kMaxGroups = 4;
inline constexpr size_t kMaxPayloadBytes = 64u << 20;

// Where things lie in a segment; a function of payload length and segment size.
struct Geometry {
  // kInvalidArgument when a segment cannot hold one record or the payload is 0 or above kMaxPayloadBytes.
  static Result<Geometry> make(uint64_t payload_bytes, uint64_t segment_bytes);

  uint32_t payload_bytes = 0;
  uint32_t slot_bytes = 0;
  uint32_t num_slots = 0;      // record slots 1 .. num_slots; slot 0 is the segment header
  uint64_t segment_bytes = 0;  // what num_slots was computed from

  uint64_t slot_offset(uint32_t slot) const { return static_cast<uint64_t>(slot) * slot_bytes; }
  uint64_t footer_offset() const { return slot_offset(num_slots + 1); }
  uint64_t footer_bytes(uint32_t entries) const;  // rounded up to pages
  uint64_t file_bytes() const;
  bool operator==(const Geometry&) const = default;
};

// What a record holds: a block, or a piece of an object (objects.h). In bits 4-7 of the flags.
enum class RecordKind : uint8_t { kBlock = 0, kWindowState = 1 };
inline constexpr size_t kNumKinds = 2;
std::string_view kind_name(RecordKind kind);

struct RecordHeader {
  RecordKind kind = RecordKind::kBlock;
  RetentionClass retention = RetentionClass::kBestEffort;
  Lineage lineage = Lineage::kExact;
  bool encrypted = false;
  uint32_t domain = 0;
  uint64_t segment_id = 0;
  uint64_t sequence = 0;
  Digest key{};
  Digest parent{};
  std::array<std::byte, 16> fingerprint{};
  uint32_t block_index = 0;
  uint32_t payload_bytes = 0;
  uint64_t created_ms = 0;
  uint32_t cost_us = 0;
  std::array<uint32_t, kMaxGroups> group_bytes{};
  std::array<uint32_t, kMaxGroups> group_crc{};
  std::array<std::byte, 16> tag{};
  uint64_t generation = 0;
  uint32_t slot = 0;
  uint32_t drive = 0;  // first four bytes of the DriveId

  bool operator==(const RecordHeader&) const = default;
};

// Payload of a slot buffer.
inline std::span<std::byte> slot_payload(std::span<std::byte> slot, uint32_t payload_bytes) {
  return slot.subspan(kHeaderBytes, payload_bytes);
}
inline std::span<const std::byte> slot_payload(std::span<const std::byte> slot, uint32_t payload_bytes) {
  return slot.subspan(kHeaderBytes, payload_bytes);
}

// Completes a slot whose payload is in place: header, zeros behind the payload, trailer. group_crc must be
// set.
void write_record(std::span<std::byte> slot, const RecordHeader& header);
void set_group_crcs(RecordHeader& header, std::span<const std::byte> payload);
// Bytes 0-131 and 180-195 of the header as write_record lays them out: what encryption authenticates.
inline constexpr size_t kAuthenticatedBytes = 148;
std::array<std::byte, kAuthenticatedBytes> authenticated_bytes(const RecordHeader& header);

// The header alone: magic, version, lengths, flags, crc, group sum. kDataLoss says what and where in the
// slot; kUnimplemented for another version.
Result<RecordHeader> parse_record_header(std::span<const std::byte> bytes);
// All of the slot: header, trailer, group crcs, zero fill. kDataLoss.
Result<RecordHeader> parse_record(std::span<const std::byte> slot);

// Where a record was read; kDataLoss when its header names another place.
struct RecordPlace {
  uint64_t segment_id = 0;
  uint64_t generation = 0;
  uint32_t slot = 0;
  uint32_t drive = 0;
  uint32_t payload_bytes = 0;
};
Status check_place(const RecordHeader& header, const RecordPlace& place);

enum class SegmentState : uint32_t { kFree = 0, kUsed = 1 };

struct SegmentHeader {
  RetentionClass retention = RetentionClass::kBestEffort;
  uint64_t segment_id = 0;
  uint64_t generation = 0;
  DriveId drive{};
  Digest fingerprint{};
  Geometry geometry;
  SegmentState state = SegmentState::kFree;
  uint64_t created_ms = 0;
  uint64_t first_sequence = 0;

  bool operator==(const SegmentHeader&) const = default;
};

// `bytes` holds at least kHeaderBytes; the rest is zeroed.
void write_segment_header(std::span<std::byte> bytes, const SegmentHeader& header);
Result<SegmentHeader> parse_segment_header(std::span<const std::byte> bytes);

struct FooterEntry {
  RecordKind kind = RecordKind::kBlock;
  Digest key{};
  uint32_t block_index = 0;
  uint32_t domain = 0;
  uint64_t created_ms = 0;
  RetentionClass retention = RetentionClass::kBestEffort;
  Lineage lineage = Lineage::kExact;
  bool encrypted = false;
  uint16_t slot = 0;
  uint32_t sequence_offset = 0;  // sequence - first sequence of the segment
  uint32_t cost_us = 0;

  bool operator==(const FooterEntry&) const = default;
};

struct FooterHeader {
  uint32_t num_entries = 0;
  uint32_t entries_crc = 0;
  uint64_t segment_id = 0;
  uint64_t generation = 0;
  uint64_t first_sequence = 0;
  uint64_t last_sequence = 0;
  uint64_t sealed_ms = 0;

  bool operator==(const FooterHeader&) const = default;
};

// Footer of a segment: header and entries, zero filled to `bytes`, which holds at least 64 (1 + entries).
// Computes num_entries and entries_crc. Requires entries in ascending order of slots.
void write_footer(std::span<std::byte> bytes, FooterHeader header, std::span<const FooterEntry> entries);
// Checks the header against its own crc and against the segment it should describe.
Result<FooterHeader> parse_footer_header(std::span<const std::byte> bytes, const SegmentHeader& segment);
// Checks the crc of all entries and that slots ascend inside the segment; the raw entries follow the header.
Status check_footer_entries(std::span<const std::byte> bytes, const FooterHeader& header,
                            const SegmentHeader& segment);
// Entry `i` of a checked footer, and its key alone.
FooterEntry footer_entry(std::span<const std::byte> bytes, uint32_t i);
inline Digest footer_key(std::span<const std::byte> bytes, uint32_t i) {
  Digest key;
  std::memcpy(key.data(), bytes.data() + (i + size_t{1}) * kSummaryBytes, key.size());
  return key;
}
FooterEntry summary_of(const RecordHeader& header, uint64_t first_sequence);

struct DriveMeta {
  DriveId id{};
  uint64_t epoch = 0;
  uint64_t created_ms = 0;
  bool operator==(const DriveMeta&) const = default;
};
void write_drive_meta(std::span<std::byte> bytes, const DriveMeta& meta);
Result<DriveMeta> parse_drive_meta(std::span<const std::byte> bytes);

inline uint32_t drive_tag(const DriveId& id) {
  uint32_t tag = 0;
  std::memcpy(&tag, id.data(), sizeof tag);
  return tag;
}

// "00000042.seg" <-> 42; nullopt for any other name.
std::string segment_file_name(uint64_t segment_id);
std::optional<uint64_t> segment_id_of(std::string_view file_name);

inline constexpr uint64_t kSequencesPerEpoch = uint64_t{1} << 40;

}  // namespace deepinfer::store
