// The AVX-512 tables (private to the kernels room): `avx512` needs F, BW, DQ and VL; `avx512bf16` also BF16,
// VNNI and VBMI.
#pragma once

#include "kernels/ops.h"

namespace deepinfer::avx512 {
const Ops& table();
bool supported();  // by this processor
}  // namespace deepinfer::avx512

namespace deepinfer::avx512bf16 {
const Ops& table();
// By this processor, and its dot product adds in the order that the architecture documents (checked by running it).
bool supported();
}  // namespace deepinfer::avx512bf16
