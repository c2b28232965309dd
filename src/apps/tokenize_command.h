// deepinfer tokenize and detokenize: JSON lines of text to token ids and back.
#pragma once

#include "apps/command.h"

namespace deepinfer {

Command add_tokenize_command(CLI::App& program);
Command add_detokenize_command(CLI::App& program);

}  // namespace deepinfer
