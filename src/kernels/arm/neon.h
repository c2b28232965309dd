// The NEON table (private to the kernels room), the part of lanes8 for AArch64.
#pragma once

#include "kernels/ops.h"

namespace deepinfer::neon {

const Ops& table();
bool supported();  // by this processor: every AArch64 has it

}  // namespace deepinfer::neon
