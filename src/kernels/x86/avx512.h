// The AVX-512 tables (private to the kernels room): `avx512` needs F, BW, DQ and VL; `avx512vnni` also VNNI and VBMI;
// `avx512bf16` also BF16.
#pragma once

#include "kernels/ops.h"

namespace deepinfer::avx512 {
const Ops& table();
bool supported();  // by this processor
}  // namespace deepinfer::avx512

namespace deepinfer::avx512vnni {
const Ops& table();
bool supported();
}  // namespace deepinfer::avx512vnni

namespace deepinfer::avx512bf16 {
const Ops& table();
// Whether its dot products are faster than multiply-adds (measured, a millisecond): on Zen 4 twice as fast, on Intel's
// processors with AMX half as fast.
bool is_fast();
// By this processor, and its dot product adds in the order that the architecture documents (checked by running it).
bool supported();
}  // namespace deepinfer::avx512bf16
