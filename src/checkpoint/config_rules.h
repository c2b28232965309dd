// What the keys of a config must satisfy together (model-v41 1.1, amendments, appendix E.1.10). Private to
// the room.
#pragma once

#include "checkpoint/config.h"

namespace deepinfer {

// Requires that every key was read and lies in its own range. Adds one fault per broken rule; clears
// shapes_known where the tensors' names can't be listed.
void check_config_rules(ConfigReport& report);

}  // namespace deepinfer
