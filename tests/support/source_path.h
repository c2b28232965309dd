// Where the files of the source tree are, for tests and benches.
#pragma once

#include <string>
#include <string_view>

namespace deepinfer {

// The path of `name`, which is relative to the root of the source tree.
std::string source_path(std::string_view name);

}  // namespace deepinfer
