// What names a checkpoint: one digest over all its weights.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "store/log/format.h"

namespace deepinfer {

// A file in which digests are remembered, for directories that hold something made of a checkpoint.
// The most that is read of a small file: a configuration, a list of digests.
inline constexpr uint64_t kSmallFile = 64 << 20;
inline constexpr char kRememberedDigests[] = "weights.digests";

// SHA-256 over the names and digests of the weight files, which are read on `threads` threads unless one of `remembered`
// (files that this function writes) says the digest for the same path, size, inode and times. What was read is written to
// the first of them. kNotFound, kIo. `progress` counts bytes of files to read, on the calling thread.
Result<Digest> checkpoint_digest(const Checkpoint& checkpoint, int threads, const std::vector<std::string>& remembered,
                                        const ProgressFunction& progress = {});

// Writes a small file beside its place, syncs it and renames it. kIo.
Status write_whole(const std::string& path, std::span<const std::byte> bytes, unsigned mode);

}  // namespace deepinfer
