#include "store/log/format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/crc32c.h"
#include "source_path.h"

namespace deepinfer::store {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

Digest digest(int first) {
  Digest d;
  for (size_t i = 0; i < d.size(); ++i) d[i] = static_cast<std::byte>(first + static_cast<int>(i));
  return d;
}

RecordHeader sample_header() {
  RecordHeader header;
  header.retention = RetentionClass::kAgent;
  header.lineage = Lineage::kDerived;
  header.domain = 7;
  header.segment_id = 3;
  header.sequence = 5 * kSequencesPerEpoch + 11;
  header.key = digest(1);
  header.parent = digest(40);
  std::copy_n(digest(90).begin(), 16, header.fingerprint.begin());
  header.block_index = 12;
  header.payload_bytes = 240;
  header.created_ms = 1'790'000'000'000;
  header.cost_us = 4300;
  header.group_bytes = {64, 32, 96, 48};
  header.generation = 2;
  header.slot = 9;
  header.drive = 0x03020100;
  return header;
}

std::vector<std::byte> sample_record() {
  std::vector<std::byte> slot(4096);
  for (size_t i = 0; i < 240; ++i) slot[kHeaderBytes + i] = static_cast<std::byte>(i * 7);
  RecordHeader header = sample_header();
  set_group_crcs(header, slot_payload(std::span<const std::byte>(slot), 240));
  write_record(slot, header);
  return slot;
}

SegmentHeader sample_segment() {
  SegmentHeader header;
  header.retention = RetentionClass::kAgent;
  header.segment_id = 3;
  header.generation = 2;
  for (size_t i = 0; i < 16; ++i) header.drive[i] = static_cast<std::byte>(i);
  header.fingerprint = digest(90);
  header.geometry = *Geometry::make(240, 1 << 20);
  header.state = SegmentState::kUsed;
  header.created_ms = 1'790'000'000'000;
  header.first_sequence = 5 * kSequencesPerEpoch + 2;
  return header;
}

std::vector<std::byte> sample_footer() {
  const SegmentHeader segment = sample_segment();
  FooterHeader header;
  header.segment_id = segment.segment_id;
  header.generation = segment.generation;
  header.first_sequence = segment.first_sequence;
  header.last_sequence = segment.first_sequence + 9;
  header.sealed_ms = 1'790'000'900'000;
  std::vector<FooterEntry> entries = {summary_of(sample_header(), segment.first_sequence)};
  entries.push_back(entries[0]);
  entries[1].slot = 10;
  entries[1].key = digest(2);
  std::vector<std::byte> bytes(segment.geometry.footer_bytes(2));
  write_footer(bytes, header, entries);
  return bytes;
}

Status parse_footer(std::span<const std::byte> bytes) {
  const SegmentHeader segment = sample_segment();
  const auto header = parse_footer_header(bytes, segment);
  if (!header.ok()) return header.error();
  return check_footer_entries(bytes, *header, segment);
}

std::string golden_path(const std::string& name) {
  return source_path("tests/store/golden/") + name;
}

// Golden files are what readers of other versions will meet; DEEPINFER_WRITE_GOLDEN=1 writes them anew.
void expect_golden(const std::string& name, std::span<const std::byte> bytes) {
  if (std::getenv("DEEPINFER_WRITE_GOLDEN") != nullptr) {
    std::ofstream(golden_path(name), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  std::ifstream file(golden_path(name), std::ios::binary);
  const std::string stored((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ASSERT_EQ(stored.size(), bytes.size()) << name;
  EXPECT_EQ(std::memcmp(stored.data(), bytes.data(), bytes.size()), 0) << name;
}

TEST(Crc32c, EqualsTheCheckValueAndContinues) {
  const auto text = bytes_of("123456789");
  EXPECT_EQ(crc32c(text), 0xe3069283u);
  EXPECT_EQ(crc32c(std::span(text).subspan(4), crc32c(std::span(text).first(4))), 0xe3069283u);
  EXPECT_EQ(crc32c({}), 0u);
}

#if defined(__x86_64__)
// Upper halves left in use make every SSE instruction of the thread slow on Intel's processors.
TEST(Crc32c, LeavesNoUpperHalfOfAVectorRegisterInUse) {
  if (!__builtin_cpu_supports("avx512f")) GTEST_SKIP() << "this processor has no AVX-512";
  const std::vector<std::byte> bytes(4096, std::byte{0x5a});
  std::array<uint64_t, 8> upper = {1};
  EXPECT_NE(crc32c(bytes), 0u);
  asm volatile("vmovups %%zmm15, %0" : "=m"(upper)::"memory");
  for (size_t i = 2; i < upper.size(); ++i) EXPECT_EQ(upper[i], 0u) << i;
}
#endif

TEST(Geometry, OfTheReleasedModelIsThatOfTheDocument) {
  const Geometry geometry = *Geometry::make(113'920, 1u << 30);
  EXPECT_EQ(geometry.slot_bytes, 114'688u);
  EXPECT_EQ(geometry.num_slots, 9'355u);
  EXPECT_EQ(geometry.footer_offset(), 9'356ull * 114'688);
  EXPECT_EQ(geometry.file_bytes(), 1'073'709'056u);
  EXPECT_EQ(Geometry::make(190'720, 1u << 30)->slot_bytes, 192'512u);
}

TEST(Geometry, KeepsSlotNumbersInFourteenBitsAndRefusesWhatDoesNotFit) {
  EXPECT_EQ(Geometry::make(100, 1u << 30)->num_slots, kMaxSlots);
  EXPECT_EQ(Geometry::make(0, 1u << 30).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(Geometry::make(113'920, 200'000).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(Geometry::make(kMaxPayloadBytes + 1, 1u << 30).error().code(), Code::kInvalidArgument);
}

TEST(Golden, BytesOfRecordSegmentFooterAndDriveStay) {
  expect_golden("record.bin", sample_record());
  expect_golden("footer.bin", sample_footer());
  std::vector<std::byte> bytes(kHeaderBytes);
  write_segment_header(bytes, sample_segment());
  expect_golden("segment_header.bin", bytes);
  write_drive_meta(bytes, {sample_segment().drive, 5, 1'790'000'000'000});
  expect_golden("drive_meta.bin", bytes);
}

TEST(RoundTrip, RecordSegmentFooterAndDrive) {
  RecordHeader expected = sample_header();
  const auto slot = sample_record();
  set_group_crcs(expected, slot_payload(std::span<const std::byte>(slot), 240));
  EXPECT_EQ(*parse_record(slot), expected);
  std::vector<std::byte> bytes(kHeaderBytes);
  write_segment_header(bytes, sample_segment());
  EXPECT_EQ(*parse_segment_header(bytes), sample_segment());
  const auto footer = sample_footer();
  ASSERT_TRUE(parse_footer(footer).ok());
  EXPECT_EQ(footer_entry(footer, 0), summary_of(sample_header(), sample_segment().first_sequence));
  const DriveMeta meta{sample_segment().drive, 5, 77};
  write_drive_meta(bytes, meta);
  EXPECT_EQ(*parse_drive_meta(bytes), meta);
}

// T06: no byte of a slot can change without being noticed, whatever it becomes.
TEST(Damage, EveryByteOfARecordCounts) {
  const auto slot = sample_record();
  for (size_t i = 0; i < slot.size(); ++i) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      auto damaged = slot;
      damaged[i] ^= static_cast<std::byte>(flip);
      ASSERT_FALSE(parse_record(damaged).ok()) << "byte " << i << " flip " << flip;
    }
  }
}

TEST(Damage, EveryByteOfSegmentHeaderFooterAndDriveCounts) {
  std::vector<std::byte> header(kHeaderBytes), meta(kHeaderBytes);
  write_segment_header(header, sample_segment());
  write_drive_meta(meta, {sample_segment().drive, 5, 77});
  for (size_t i = 0; i < kHeaderBytes; ++i) {
    auto damaged = header;
    damaged[i] ^= std::byte{4};
    ASSERT_FALSE(parse_segment_header(damaged).ok()) << "byte " << i;
    damaged = meta;
    damaged[i] ^= std::byte{4};
    ASSERT_FALSE(parse_drive_meta(damaged).ok()) << "byte " << i;
  }
  const auto footer = sample_footer();
  for (size_t i = 0; i < 3 * kSummaryBytes; ++i) {
    auto damaged = footer;
    damaged[i] ^= std::byte{4};
    ASSERT_FALSE(parse_footer(damaged).ok()) << "byte " << i;
  }
}

TEST(Damage, EveryTruncationIsSeen) {
  const auto slot = sample_record();
  for (size_t size = 0; size < slot.size(); ++size)
    ASSERT_FALSE(parse_record(std::span(slot).first(size)).ok()) << size;
  const auto footer = sample_footer();
  for (size_t size = 0; size < 3 * kSummaryBytes; ++size)
    ASSERT_FALSE(parse_footer(std::span(footer).first(size)).ok()) << size;
}

TEST(Damage, TornWriteIsNamed) {
  auto slot = sample_record();
  std::fill(slot.end() - kTrailerBytes, slot.end(), std::byte{0});
  const auto result = parse_record(slot);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message().find("torn write"), std::string::npos) << result.error().message();
}

// A slot of several pages of which some are of the write before, with the same payload but for one byte of it or none.
TEST(Damage, ARecordTornBetweenAnyTwoPagesIsNotBelieved) {
  for (const bool same_payload : {true, false}) {
    std::vector<std::byte> before(5 * kPageBytes), after(5 * kPageBytes);
    RecordHeader header;
    header.payload_bytes = 5 * kPageBytes - kHeaderBytes - kTrailerBytes;
    header.group_bytes = {header.payload_bytes, 0, 0, 0};
    const auto write = [&](std::vector<std::byte>& slot, uint64_t sequence) {
      RecordHeader one = header;
      one.sequence = sequence;
      const auto payload = slot_payload(std::span<std::byte>(slot), one.payload_bytes);
      std::fill(payload.begin(), payload.end(), std::byte{7});
      if (!same_payload) payload[sequence * kPageBytes] = std::byte{9};
      set_group_crcs(one, payload);
      write_record(slot, one);
    };
    write(before, 1);
    write(after, 2);
    ASSERT_TRUE(parse_record(before).ok() && parse_record(after).ok());
    for (unsigned mask = 1; mask + 1 < 1u << 5; ++mask) {  // pages that are of the later write
      std::vector<std::byte> torn = before;
      for (size_t page = 0; page < 5; ++page)
        if ((mask >> page & 1) != 0)
          std::copy_n(after.begin() + static_cast<ptrdiff_t>(page * kPageBytes), kPageBytes,
                      torn.begin() + static_cast<ptrdiff_t>(page * kPageBytes));
      if (torn == before || torn == after) continue;
      EXPECT_FALSE(parse_record(torn).ok()) << mask;
    }
  }
}

TEST(Place, ARecordElsewhereIsNotBelieved) {
  const RecordHeader header = sample_header();
  const RecordPlace right{3, 2, 9, 0x03020100, 240};
  EXPECT_TRUE(check_place(header, right).ok());
  for (int field = 0; field < 5; ++field) {
    RecordPlace wrong = right;
    if (field == 0) ++wrong.segment_id;
    if (field == 1) ++wrong.generation;
    if (field == 2) ++wrong.slot;
    if (field == 3) ++wrong.drive;
    if (field == 4) ++wrong.payload_bytes;
    EXPECT_EQ(check_place(header, wrong).error().code(), Code::kDataLoss) << field;
  }
}

TEST(Footer, OfAnOlderGenerationIsRefused) {
  SegmentHeader segment = sample_segment();
  segment.generation = 3;
  const auto result = parse_footer_header(sample_footer(), segment);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message().find("generation"), std::string::npos);
}

TEST(Version, AnotherOneIsUnimplementedNotDamage) {
  auto slot = sample_record();
  slot[7] = std::byte{2};
  EXPECT_EQ(parse_record(slot).error().code(), Code::kUnimplemented);
}

TEST(FileNames, OnlyTheExactFormIsASegment) {
  EXPECT_EQ(segment_file_name(42), "00000042.seg");
  EXPECT_EQ(segment_id_of("00000042.seg"), 42u);
  EXPECT_EQ(segment_id_of("123456789.seg"), 123456789u);
  for (const char* name :
       {"42.seg", "00000042.seg.new", "0000004x.seg", "+0000042.seg", "000000042.seg", ".seg", ""})
    EXPECT_EQ(segment_id_of(name), std::nullopt) << name;
}

}  // namespace
}  // namespace deepinfer::store
