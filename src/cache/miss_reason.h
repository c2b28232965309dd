// Why a request got less than all full blocks of its prompt, and why a store found or loaded less than it was asked for.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deepinfer {

enum class MissReason : uint8_t {
  kNone,
  kAbsent,
  // Of a store behind the cache.
  kExpired,     // its time to live was over
  kLineage,     // derived, where only exact blocks may be used (the cache says so, too)
  kCorrupt,     // a crc, place or name was wrong
  kDeadline,    // the load took too long
  kIo,          // a read failed
  kDriveDown,   // a drive or tier is left alone
  kDomainGone,  // the tenant was deleted
  kBusy,        // no queue of the drive was free in time
  // Of the cache alone.
  kEvicted,
  kWindowLost,
  kTooShort,
  kNotKept,
  kNotWorthIt  // computing is as fast, or there is no room for what would be loaded
};
inline constexpr size_t kNumMissReasons = 15;
inline constexpr size_t kNumStoreMissReasons = 10;  // those up to kBusy
const char* miss_reason_name(MissReason reason);

}  // namespace deepinfer
