// The string formats that are enforced, as patterns. Private to the room.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace deepinfer {

// A regular expression whose whole matches are of that format: RFC 3339 dates and times that exist (no leap
// seconds), addresses, names. Every match is valid; not every valid text matches (README.md). Empty: not
// known.
std::optional<std::string_view> pattern_of_format(std::string_view format);
std::string format_names();

}  // namespace deepinfer
