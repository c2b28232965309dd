// deepinfer generate: one prompt in, its continuation out.
#pragma once

#include "apps/command.h"

namespace deepinfer {

Command add_generate_command(CLI::App& program);

}  // namespace deepinfer
