// deepinfer make-checkpoint: a checkpoint of random numbers in the released format, to measure a machine with.
#pragma once

#include "apps/command.h"

namespace deepinfer {

Command add_make_checkpoint_command(CLI::App& program);

}  // namespace deepinfer
