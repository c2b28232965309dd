// What the keys of a config must satisfy together (docs/spec/model.md 1.1 and 5). Private to
// the room.
#pragma once

#include "checkpoint/config.h"

namespace deepinfer {

// Requires that every key was read and lies in its own range. Adds one fault per broken rule; clears
// shapes_known where the tensors' names can't be listed.
void check_config_rules(ConfigReport& report);

}  // namespace deepinfer
