// deepinfer inspect: what a checkpoint is, what it weighs, what memory it will take; every fault of a broken
// one.
#pragma once

#include "apps/command.h"

namespace deepinfer {

Command add_inspect_command(CLI::App& program);

}  // namespace deepinfer
