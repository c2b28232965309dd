// deepinfer verify: golden data against the engine, check by check.
#pragma once

#include "apps/command.h"

namespace deepinfer {

Command add_verify_command(CLI::App& program);

}  // namespace deepinfer
