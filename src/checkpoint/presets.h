// Two config.json texts: that of the released Flash model, and one of the same form with ten narrow layers.
#pragma once

#include <string>

namespace deepinfer {

std::string flash_config_text();
std::string small_config_text();

}  // namespace deepinfer
