// openapi.json, put into the binary when it is built. Private to the room.
#pragma once

#include <string_view>

namespace deepinfer {

std::string_view openapi_text();

}  // namespace deepinfer
