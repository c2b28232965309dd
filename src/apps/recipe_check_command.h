// deepinfer recipe-check FILE...: recorded requests and outputs through our code. See command.h.
#pragma once

#include "apps/command.h"

namespace deepinfer {

Command add_recipe_check_command(CLI::App& program);

}  // namespace deepinfer
