// Text from files and peers on its way to a terminal or a log.
#pragma once

#include <string>
#include <string_view>

namespace deepinfer {

// One line that a terminal shows and does not obey: control characters (C0, DEL) become \x0a and so on. Other
// bytes stay as they are.
std::string printable(std::string_view text);

}  // namespace deepinfer
