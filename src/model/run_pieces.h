// Work of loading, cut into pieces that threads take one after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/status.h"

namespace deepinfer {

// Calls job(piece, thread) for every piece < count on num_threads threads, pieces in ascending order, and returns the first
// failure, after which no further piece is begun. A job returns how many bytes it is done with; on_bytes hears their sum
// now and then on the calling thread (thread 0), ever rising.
Status run_pieces(int num_threads, size_t count, const std::function<Result<uint64_t>(size_t piece, size_t thread)>& job,
                  const std::function<void(uint64_t)>& on_bytes = {});

}  // namespace deepinfer
