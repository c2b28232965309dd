// The planner's page as one HTML file, put into the binary when it is built.
#pragma once

#include <string_view>

namespace deepinfer {

std::string_view planner_page();

}  // namespace deepinfer
