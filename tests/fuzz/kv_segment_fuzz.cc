// Any bytes as a record slot, a segment header, a footer, drive.meta or a table of domains: refused, or
// values that are written back to the same bytes. The first byte says which.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/crc32c.h"
#include "store/tenants/domains.h"
#include "store/log/format.h"

namespace deepinfer::store {
namespace {

// With the crc made right, so that the fuzzer reaches what lies behind it.
std::vector<std::byte> with_crc(std::span<const std::byte> bytes, size_t size, size_t crc_at) {
  std::vector<std::byte> copy(std::max(size, bytes.size()));
  std::copy(bytes.begin(), bytes.end(), copy.begin());
  const uint32_t crc = crc32c(std::span(copy).first(crc_at));
  std::memcpy(copy.data() + crc_at, &crc, sizeof crc);
  return copy;
}

void record(std::span<const std::byte> bytes) {
  (void)parse_record(bytes);
  auto slot = with_crc(bytes, kHeaderBytes, kHeaderBytes - 4);
  const auto header = parse_record_header(slot);
  if (!header.ok()) return;
  std::vector<std::byte> again((kHeaderBytes + header->payload_bytes + kTrailerBytes + 4095) / 4096 * 4096);
  RecordHeader fixed = *header;
  set_group_crcs(fixed, slot_payload(std::span<const std::byte>(again), fixed.payload_bytes));
  write_record(again, fixed);
  const auto whole = parse_record(again);
  CHECK(whole.ok() && *whole == fixed);
}

void segment(std::span<const std::byte> bytes) {
  const auto copy = with_crc(bytes, kHeaderBytes, kHeaderBytes - 4);
  const auto header = parse_segment_header(copy);
  if (!header.ok()) return;
  CHECK(header->geometry.num_slots >= 1 && header->geometry.file_bytes() <= header->geometry.segment_bytes);
  std::vector<std::byte> again(kHeaderBytes);
  write_segment_header(again, *header);
  CHECK(*parse_segment_header(again) == *header);
}

void footer(std::span<const std::byte> bytes) {
  SegmentHeader segment;
  segment.segment_id = 3;
  segment.generation = 2;
  segment.geometry = *Geometry::make(240, 1 << 20);
  auto copy = with_crc(bytes, kSummaryBytes, 60);
  const auto header = parse_footer_header(copy, segment);
  if (!header.ok()) return;
  if (!check_footer_entries(copy, *header, segment).ok()) return;
  for (uint32_t i = 0; i < header->num_entries; ++i)
    CHECK(footer_entry(copy, i).slot <= segment.geometry.num_slots);
}

}  // namespace
}  // namespace deepinfer::store

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer::store;
  if (size == 0) return 0;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  switch (data[0] % 5) {
    case 0:
      record(bytes);
      break;
    case 1:
      segment(bytes);
      break;
    case 2:
      footer(bytes);
      break;
    case 3:
      (void)parse_drive_meta(bytes);
      break;
    case 4: {
      DomainTable table{Key{}};
      (void)table.load(bytes);
      break;
    }
  }
  return 0;
}
