#include "grammar/formats.h"

#include <fmt/core.h>

#include <utility>

namespace deepinfer {
namespace {

// Days that the calendar has, in the years 1000 to 9999.
#define DEEPINFER_DATE                                                                                       \
  "(?:[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|" \
  "02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[1-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])"  \
  "00)-02-29)"
#define DEEPINFER_TIME \
  "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define DEEPINFER_BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define DEEPINFER_LABEL "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?"
#define DEEPINFER_HOST "(?:" DEEPINFER_LABEL "\\.){0,3}" DEEPINFER_LABEL

constexpr std::pair<std::string_view, std::string_view> kFormats[] = {
    {"date", DEEPINFER_DATE},
    {"time", DEEPINFER_TIME},
    {"date-time", DEEPINFER_DATE "T" DEEPINFER_TIME},
    {"duration", "P(?:[0-9]{1,4}W|[0-9]{1,4}D(?:T[0-9]{1,4}[HMS])?|T[0-9]{1,4}[HMS]|[0-9]{1,4}[YM])"},
    {"email", "[a-zA-Z0-9_]+(?:[.+-][a-zA-Z0-9_]+)*@" DEEPINFER_LABEL "(?:\\." DEEPINFER_LABEL "){1,3}"},
    {"hostname", DEEPINFER_HOST},
    {"ipv4", DEEPINFER_BYTE "\\." DEEPINFER_BYTE "\\." DEEPINFER_BYTE "\\." DEEPINFER_BYTE},
    {"ipv6",
     "(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|(?:[0-9a-fA-F]{1,4}:){1,4}(?::[0-9a-fA-F]{1,4}){1,3}|::(?:[0-"
     "9a-fA-F]{1,4})?"},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"uri", "https?://" DEEPINFER_HOST
            "(?::[1-9][0-9]{0,3})?(?:/[a-zA-Z0-9._~-]+)*/?(?:\\?[a-zA-Z0-9._~=&-]*)?(?:#[a-zA-Z0-9._~-]*)?"},
};

#undef DEEPINFER_DATE
#undef DEEPINFER_TIME
#undef DEEPINFER_BYTE
#undef DEEPINFER_LABEL
#undef DEEPINFER_HOST

}  // namespace

std::optional<std::string_view> pattern_of_format(std::string_view format) {
  for (const auto& [name, pattern] : kFormats) {
    if (name == format) return pattern;
  }
  return std::nullopt;
}

std::string format_names() {
  std::string out;
  for (const auto& [name, pattern] : kFormats) out += fmt::format("{}{}", out.empty() ? "" : ", ", name);
  return out;
}

}  // namespace deepinfer
