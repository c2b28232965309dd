// The page of web/, put into the binary when it is built. Private to the room.
#pragma once

#include <array>
#include <string_view>

namespace deepinfer {

struct WebFile {
  std::string_view path;  // "/" is the page itself
  std::string_view content_type;
  std::string_view body;
};

const std::array<WebFile, 3>& web_files();

}  // namespace deepinfer
