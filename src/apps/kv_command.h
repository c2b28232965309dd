// `deepinfer kv check|stat|dump DIR`: what is in a directory of the KV store.
#pragma once

#include "apps/command.h"

namespace deepinfer {

Command add_kv_command(CLI::App& program);

}  // namespace deepinfer
