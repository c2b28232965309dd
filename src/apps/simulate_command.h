// deepinfer simulate: a cluster in virtual time, under recorded or drawn traffic.
#pragma once

#include "apps/command.h"

namespace deepinfer {

Command add_simulate_command(CLI::App& program);

}  // namespace deepinfer
