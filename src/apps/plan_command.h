// deepinfer plan: the published service recomputed, and a deployment for given traffic and hardware.
#pragma once

#include "apps/command.h"

namespace deepinfer {

Command add_plan_command(CLI::App& program);

}  // namespace deepinfer
