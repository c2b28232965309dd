#include "base/status.h"

#include <cstdio>
#include <cstdlib>

namespace deepinfer {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kInvalidArgument: return "invalid_argument";
    case Code::kNotFound: return "not_found";
    case Code::kDataLoss: return "data_loss";
    case Code::kUnimplemented: return "unimplemented";
    case Code::kResourceExhausted: return "resource_exhausted";
    case Code::kUnavailable: return "unavailable";
    case Code::kCancelled: return "cancelled";
    case Code::kDeadlineExceeded: return "deadline_exceeded";
    case Code::kIo: return "io";
    case Code::kInternal: return "internal";
  }
  return "unknown";
}

const Error& Status::error() const {
  CHECK(error_.has_value());
  return *error_;
}

void check_failed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace deepinfer
