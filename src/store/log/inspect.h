// Looking at the directory of a drive, live or dead, without a store: nothing is written, nothing repaired.
#pragma once

#include <functional>
#include <map>

#include "store/log/format.h"
#include "store/io/io_backend.h"

namespace deepinfer::store {

struct Damage {
  std::string file;
  uint64_t offset = 0;
  std::string what;
};

struct SegmentReport {
  std::string file;
  std::string state;  // "free", "open", "sealed", "empty", "damaged"
  RetentionClass retention = RetentionClass::kBestEffort;
  uint64_t generation = 0;
  uint32_t records = 0;
  uint32_t unfinished = 0;  // slots of an open segment that a writer left, or is about to finish
  uint64_t bytes = 0;
};

struct DriveReport {
  DriveMeta meta;
  std::vector<SegmentReport> segments;
  std::vector<Damage> damage;
  std::vector<std::string> unknown_files;
  uint64_t records = 0, derived = 0, encrypted = 0;
  std::array<uint64_t, kNumKinds> by_kind{};
  std::array<uint64_t, kNumClasses> by_class{};
  std::map<uint32_t, uint64_t> by_domain;  // records
  uint64_t oldest_ms = 0, newest_ms = 0;
};

struct InspectOptions {
  bool read_records = true;  // false: footers where there are some
  std::function<void(const std::string& file, const RecordHeader& record)> on_record;  // needs read_records
};

// kNotFound or kIo when the directory cannot be read, kDataLoss when it is not a drive.
Result<DriveReport> inspect_drive(IoBackend& backend, const std::string& directory,
                                  const InspectOptions& options);

}  // namespace deepinfer::store
