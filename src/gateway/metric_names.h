// What the numbers of /metrics are, for those who meet them there. Private to the room.
#pragma once

#include <string>
#include <string_view>

namespace deepinfer {

// What the family deepinfer_NAME counts or shows. Knows the names of EngineStats, GrammarStats and the KV store; "" for
// others, which a test finds.
std::string_view metric_help(std::string_view name);
// Its HELP and TYPE lines.
std::string metric_head(std::string_view name);

}  // namespace deepinfer
