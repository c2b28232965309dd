#include "cache/miss_reason.h"

namespace deepinfer {

const char* miss_reason_name(MissReason reason) {
  switch (reason) {
    case MissReason::kNone: return "none";
    case MissReason::kAbsent: return "absent";
    case MissReason::kExpired: return "expired";
    case MissReason::kLineage: return "lineage";
    case MissReason::kCorrupt: return "corrupt";
    case MissReason::kDeadline: return "deadline";
    case MissReason::kIo: return "io";
    case MissReason::kDriveDown: return "drive_down";
    case MissReason::kDomainGone: return "domain_gone";
    case MissReason::kBusy: return "busy";
    case MissReason::kEvicted: return "evicted";
    case MissReason::kWindowLost: return "window_lost";
    case MissReason::kTooShort: return "too_short";
    case MissReason::kNotKept: return "not_kept";
    case MissReason::kNotWorthIt: return "not_worth_it";
  }
  return "unknown";
}

}  // namespace deepinfer
