// The packed weights of a checkpoint as one file, so that the next start reads them in one sweep and packs nothing. Written
// and checked here; the format is docs/formats/weights-cache.md. What is in it can always be made again: a file that is
// missing, of another checkpoint or damaged costs time, never a result.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/aligned_buffer.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"

namespace deepinfer {

struct WeightsCache {
  std::string path;                         // of the file; its directory exists
  std::array<std::byte, 32> identity = {};  // digest of the checkpoint's config and weights
  ProgressFunction on_write;                // bytes written and in all; may be empty
};

// Fills `memory`, reserved and not populated, on num_threads threads. `layout` is a checksum over what lies where. kNotFound
// without a file, kInvalidArgument when it is not a cache, or one of another checkpoint, layout or version, kDataLoss when
// it is shorter or longer than it should be or a checksum differs, kIo. After a failure the contents mean nothing.
Status read_weights_cache(const WeightsCache& cache, uint32_t layout, int num_threads, AlignedBuffer& memory,
                          const ProgressFunction& progress);

// Writes the file beside its place, syncs it and renames it. kUnavailable when another process is writing it now,
// kResourceExhausted when the disk is full, kIo; after these the file at `path` is what it was, and nothing stays beside it.
Status write_weights_cache(const WeightsCache& cache, uint32_t layout, int num_threads, const AlignedBuffer& memory);

}  // namespace deepinfer
