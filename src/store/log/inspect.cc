#include "store/log/inspect.h"

#include <algorithm>

#include "base/checked_math.h"
#include "store/tenants/domains.h"

namespace deepinfer::store {
namespace {

constexpr size_t kReadBytes = 4u << 20;
constexpr std::chrono::seconds kLimit(30);

class Inspector {
 public:
  Inspector(IoBackend& backend, const std::string& directory, const InspectOptions& options)
      : backend_(backend), directory_(directory), options_(options) {}

  Result<DriveReport> run() {
    ASSIGN_OR_RETURN(const auto meta_bytes, read_file(backend_, directory_ + "/drive.meta"));
    const auto meta = parse_drive_meta(meta_bytes);
    if (!meta.ok()) return meta.error().in(directory_);
    report_.meta = *meta;
    ASSIGN_OR_RETURN(std::vector<std::string> names, backend_.list(directory_));
    std::sort(names.begin(), names.end());
    ASSIGN_OR_RETURN(queue_, backend_.make_queue(1, kReadBytes));
    for (const std::string& name : names) {
      constexpr std::array<std::string_view, 6> ours = {"LOCK",    "drive.meta", "touched",
                                                        "domains", "lost",       "master.key"};
      if (const auto id = segment_id_of(name))
        RETURN_IF_ERROR(segment(name, *id));
      else if (std::find(ours.begin(), ours.end(), name) == ours.end())
        report_.unknown_files.push_back(name);
    }
    check_domains();
    return std::move(report_);
  }

 private:
  // Without the table, or with one that lacks a number, records are there and can't be found.
  void check_domains() {
    name_ = "domains";
    const auto bytes = read_file(backend_, directory_ + "/domains");
    const auto count = bytes.ok() ? check_domain_table(*bytes) : Result<uint32_t>(bytes.error());
    const uint32_t largest = report_.by_domain.empty() ? 0 : report_.by_domain.rbegin()->first;
    if (!count.ok() && (largest > 0 || bytes.ok()))
      damaged(0, count.error().message());
    else if (count.ok() && *count < largest)
      damaged(0, fmt::format("domains: a table of {}, but there are records of domain {}", *count, largest));
  }

  // `bytes` from `offset`; fewer at the end of the file.
  Result<std::span<const std::byte>> read(IoFile& file, uint64_t offset, size_t bytes) {
    if (queue_->memory().size() < bytes) {
      ASSIGN_OR_RETURN(queue_, backend_.make_queue(1, bytes));
    }
    const auto buffer = queue_->memory().first(bytes);
    const IoRequest request{IoRequest::Op::kRead, &file, offset, buffer, 0};
    queue_->submit(std::span(&request, 1));
    IoCompletion completion;
    if (queue_->wait(std::span(&completion, 1), system_clock().now() + kLimit) == 0)
      return Error(Code::kDeadlineExceeded, "no answer in {} s", kLimit.count());
    RETURN_IF_ERROR(to_status(completion, 0, "read"));
    return std::span<const std::byte>(buffer.first(completion.bytes));
  }

  void damaged(uint64_t offset, std::string_view what) {
    report_.damage.push_back({name_, offset, std::string(what)});
  }

  Status segment(const std::string& name, uint64_t id) {
    name_ = name;
    SegmentReport one;
    one.file = name;
    const auto file = backend_.open(directory_ + "/" + name, OpenMode::kReadOnly);
    if (!file.ok()) return file.error().code() == Code::kNotFound ? Status() : Status(file.error());
    ASSIGN_OR_RETURN(one.bytes, backend_.size(**file));
    const auto page = read(**file, 0, kPageBytes);
    if (page.ok() && std::ranges::all_of(*page, [](std::byte b) { return b == std::byte{0}; })) {
      one.state = "empty";  // made just before the power went, or the file system was full: nothing was ever in it
      report_.segments.push_back(std::move(one));
      return {};
    }
    const auto header = page.ok() ? parse_segment_header(*page) : Result<SegmentHeader>(page.error());
    if (!header.ok() || header->segment_id != id || header->drive != report_.meta.id) {
      damaged(0, !header.ok() ? header.error().message() : "segment header: of another file or drive");
      one.state = "damaged";
    } else {
      one.retention = header->retention;
      one.generation = header->generation;
      if (header->state == SegmentState::kFree) {
        one.state = "free";
      } else {
        const size_t before = report_.damage.size();
        if (const uint64_t whole = header->geometry.file_bytes(); one.bytes < whole)
          damaged(one.bytes, fmt::format("the file was cut: {} of {} bytes, records may be gone", one.bytes, whole));
        RETURN_IF_ERROR(used_segment(**file, *header, one));
        // A live writer may have reclaimed it while it was read: then nothing that was seen counts.
        if (report_.damage.size() > before) {
          const auto again = read(**file, 0, kPageBytes);
          const auto now = again.ok() ? parse_segment_header(*again) : Result<SegmentHeader>(again.error());
          if (now.ok() && now->generation != header->generation) report_.damage.resize(before);
        }
      }
    }
    report_.segments.push_back(std::move(one));
    return {};
  }

  Status used_segment(IoFile& file, const SegmentHeader& segment, SegmentReport& one) {
    const Geometry& geometry = segment.geometry;
    std::vector<FooterEntry> entries;
    ASSIGN_OR_RETURN(const auto head, read(file, geometry.footer_offset(), kPageBytes));
    const auto footer = parse_footer_header(head, segment);
    if (footer.ok()) {
      one.state = "sealed";
      ASSIGN_OR_RETURN(const auto whole,
                       read(file, geometry.footer_offset(), geometry.footer_bytes(footer->num_entries)));
      if (const Status checked = check_footer_entries(whole, *footer, segment); !checked.ok()) {
        damaged(geometry.footer_offset(), checked.error().message());
      } else {
        for (uint32_t i = 0; i < footer->num_entries; ++i) entries.push_back(footer_entry(whole, i));
      }
    } else {
      one.state = "open";
      // A footer of zeros, or of an older life, is not damage; one that was begun for this life is.
      if (footer.error().message().find("crc") != std::string::npos)
        damaged(geometry.footer_offset(), footer.error().message());
    }
    if (!options_.read_records && !entries.empty()) {
      for (const FooterEntry& entry : entries)
        count(entry);
      one.records = static_cast<uint32_t>(entries.size());
      return {};
    }
    return one.state == "sealed" && !entries.empty() ? sealed_records(file, segment, entries, one)
                                                     : open_records(file, segment, one);
  }

  Status sealed_records(IoFile& file, const SegmentHeader& segment, std::span<const FooterEntry> entries,
                        SegmentReport& one) {
    for (const FooterEntry& entry : entries) {
      const uint64_t offset = segment.geometry.slot_offset(entry.slot);
      ASSIGN_OR_RETURN(const auto slot, read(file, offset, segment.geometry.slot_bytes));
      const auto record = check(slot, segment, entry.slot);
      if (!record.ok())
        damaged(offset, fmt::format("slot {}: {}", entry.slot, record.error().message()));
      else if (summary_of(*record, segment.first_sequence) != entry)
        damaged(offset, fmt::format("slot {}: the footer describes another record", entry.slot));
      else
        found(*record, one);
    }
    return {};
  }

  // In an open segment a bad slot may be a write that is on its way or was cut off. One that has sound records behind it
  // and is as bad when it is read again is called damaged.
  Status open_records(IoFile& file, const SegmentHeader& segment, SegmentReport& one) {
    const Geometry& geometry = segment.geometry;
    std::vector<uint32_t> bad;
    uint32_t last_sound = 0;
    const uint32_t chunk = std::max<uint32_t>(1, static_cast<uint32_t>(kReadBytes / geometry.slot_bytes));
    for (uint32_t first = 1; first <= geometry.num_slots; first += chunk) {
      const uint32_t count = std::min(chunk, geometry.num_slots + 1 - first);
      ASSIGN_OR_RETURN(const auto bytes,
                       read(file, geometry.slot_offset(first), size_t{count} * geometry.slot_bytes));
      bool any = false;
      for (uint32_t i = 0; i < count && (i + size_t{1}) * geometry.slot_bytes <= bytes.size(); ++i) {
        const auto slot = bytes.subspan(i * size_t{geometry.slot_bytes}, geometry.slot_bytes);
        const auto header = parse_record_header(slot);
        if (!header.ok() || header->generation != segment.generation) continue;
        any = true;
        const auto record = check(slot, segment, first + i);
        if (record.ok()) {
          found(*record, one);
          last_sound = first + i;
        } else {
          bad.push_back(first + i);
        }
      }
      if (!any) break;
    }
    for (const uint32_t number : bad) {
      if (number > last_sound) {
        ++one.unfinished;
        continue;
      }
      const uint64_t offset = geometry.slot_offset(number);
      ASSIGN_OR_RETURN(const auto slot, read(file, offset, geometry.slot_bytes));
      if (const auto record = check(slot, segment, number); record.ok())
        found(*record, one);
      else
        damaged(offset, fmt::format("slot {}: {}", number, record.error().message()));
    }
    return {};
  }

  Result<RecordHeader> check(std::span<const std::byte> slot, const SegmentHeader& segment, uint32_t number) {
    ASSIGN_OR_RETURN(const RecordHeader record, parse_record(slot));
    RETURN_IF_ERROR(check_place(record, {segment.segment_id, segment.generation, number,
                                         drive_tag(segment.drive), segment.geometry.payload_bytes}));
    return record;
  }

  void found(const RecordHeader& record, SegmentReport& one) {
    ++one.records;
    count(record);
    if (options_.on_record) options_.on_record(name_, record);
  }

  template <typename Record>
  void count(const Record& record) {
    ++report_.records;
    report_.derived += record.lineage == Lineage::kDerived ? 1 : 0;
    report_.encrypted += record.encrypted ? 1 : 0;
    ++report_.by_kind[static_cast<size_t>(record.kind)];
    ++report_.by_class[static_cast<size_t>(record.retention)];
    ++report_.by_domain[record.domain];
    report_.oldest_ms = report_.oldest_ms == 0 ? record.created_ms : std::min(report_.oldest_ms, record.created_ms);
    report_.newest_ms = std::max(report_.newest_ms, record.created_ms);
  }

  IoBackend& backend_;  // Borrowed from the caller of inspect_drive.
  const std::string directory_;
  const InspectOptions& options_;  // Borrowed from the caller of inspect_drive.
  DriveReport report_;
  std::unique_ptr<IoQueue> queue_;
  std::string name_;
};

}  // namespace

Result<DriveReport> inspect_drive(IoBackend& backend, const std::string& directory,
                                  const InspectOptions& options) {
  return Inspector(backend, directory, options).run();
}

}  // namespace deepinfer::store
