// The NEON table: everything in eight lanes, two registers each. Needs nothing beyond Armv8.0, and uses the
// dot products of bytes where the processor has them.
#include "kernels/arm/neon.h"

#include "kernels/ref/ref_ops.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/elementary.h"
#include "kernels/linear_list.h"
#include "kernels/quantize.h"

namespace deepinfer::neon {
namespace {

#include "kernels/arm/neon_lanes.h"

#include "kernels/lanes8/math.h"

#include "kernels/lanes8/linear.h"

#include "kernels/lanes8/attention.h"

#include "kernels/lanes8/rows.h"

#include "kernels/op_table.h"

}  // namespace

const Ops& table() {
  static const Ops ops = make_table("neon");
  return ops;
}

bool supported() { return true; }

}  // namespace deepinfer::neon

#else

namespace deepinfer::neon {
const Ops& table() { return ref::table(); }
bool supported() { return false; }
}  // namespace deepinfer::neon

#endif
