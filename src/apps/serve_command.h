// deepinfer serve: the model behind HTTP until a signal ends it.
#pragma once

#include "apps/command.h"

namespace deepinfer {

Command add_serve_command(CLI::App& program);

}  // namespace deepinfer
