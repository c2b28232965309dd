// Request bodies that come compressed. Private to the room.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace deepinfer {

// The body behind a Content-Encoding: gzip (also several members in a row) or zstd; "" and identity as they
// are. kUnimplemented: another encoding. kInvalidArgument: damaged or cut. kResourceExhausted: more than
// max_bytes, or out of all proportion to what was sent; no more than that is ever decoded.
Result<std::string> decode_body(std::string_view encoding, std::string body, size_t max_bytes);

}  // namespace deepinfer
