// Reference data that is not in the tree: the folder ../shared, or the one that DEEPINFER_SHARED names.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "source_path.h"

namespace deepinfer {

inline std::string shared_path(std::string_view name = {}) {
  const char* shared = std::getenv("DEEPINFER_SHARED");
  return (shared != nullptr ? std::string(shared) : source_path("../shared")) + "/" + std::string(name);
}

// Whether a test may go without `path`: it belongs to the shared folder, and there is no such folder here.
inline bool may_be_absent(std::string_view path) {
  return path.starts_with(shared_path()) && !std::filesystem::exists(shared_path());
}

}  // namespace deepinfer

// Ends a test without the data that it needs: as skipped where there is no shared folder, else as failed, so that lost data
// does not pass for checked data.
#define REQUIRE_DATA(path)                                                                  \
  do {                                                                                      \
    const std::string required = path;                                                      \
    if (std::filesystem::exists(required)) break;                                           \
    if (!deepinfer::may_be_absent(required)) FAIL() << required << " is missing";           \
    GTEST_SKIP() << required << " is absent: nothing was checked against it";               \
  } while (false)
