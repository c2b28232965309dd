// The AVX2 + FMA table (private to the kernels room), the part of lanes8 for x86.
#pragma once

#include "kernels/ops.h"

namespace deepinfer::avx2 {

const Ops& table();
bool supported();  // by this processor

}  // namespace deepinfer::avx2
