// Logging behind one face. Text lines on stderr; prompts and answers are never logged.
#pragma once

#include <spdlog/spdlog.h>

#include <string_view>

#include "base/status.h"

namespace deepinfer {

// Sets the process-wide level: "trace", "debug", "info", "warn", "error", "off". kInvalidArgument for other names.
// Not thread-safe against itself; call once from main.
Status init_logging(std::string_view level);

// log::info("listening on {}:{}", host, port). Thread-safe.
namespace log = ::spdlog;

}  // namespace deepinfer
