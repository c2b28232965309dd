// Any bytes: a document that parses prints and parses again to the same tree, in both styles.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "json/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = parse_json(text);
  JsonParseOptions strict;
  strict.duplicate_keys = DuplicateKeys::kError;
  if (const auto again = parse_json(text, strict); again.ok()) CHECK(value.ok() && *value == *again);
  if (!value.ok()) {
    CHECK(!value.error().message().empty());
    return 0;
  }
  for (const JsonStyle style : {JsonStyle::kCompact, JsonStyle::kPython}) {
    const auto again = parse_json(to_json(*value, style), strict);
    CHECK(again.ok() && *again == *value);
  }
  return 0;
}
