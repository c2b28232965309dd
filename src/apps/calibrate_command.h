// `deepinfer calibrate`: fits the temperatures of DSpark's confidences on texts.
#pragma once

#include "apps/command.h"

namespace deepinfer {

Command add_calibrate_command(CLI::App& program);

}  // namespace deepinfer
