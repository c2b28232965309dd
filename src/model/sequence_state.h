// A sequence's state as bytes: one format for swapping, for the KV store and for another process. By position, not by ring
// slot, so that it does not depend on how long rings are (docs/formats/sequence-state.md).
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "model/kv_arena.h"

namespace deepinfer {

// What of a state the bytes hold. All are rows in front of `position`, where it goes on.
struct StateExtent {
  int64_t position = 0;
  int64_t encoder_rows = 0;  // of each encoder layer
  int64_t decoder_rows = 0;  // of each decoder layer and DSpark stage
  int64_t pair_entries = 0;  // of each compressor ring
  int64_t engram_ids = 0;

  friend bool operator==(const StateExtent&, const StateExtent&) = default;
};

// Exact size for an extent; the largest one for an extent that fills every ring.
int64_t serialized_state_bytes(const KvLayout& layout, const StateExtent& extent);
StateExtent largest_state_extent(const KvLayout& layout);

// Requires out.size() == serialized_state_bytes(layout, extent), and an extent within the rings.
void serialize_state(const KvLayout& layout, const Sequence& sequence, const StateExtent& extent, std::span<std::byte> out);

// Checks everything: kInvalidArgument names what was found and expected (another version, another model, a size, a
// checksum). The bytes may come from anywhere.
Result<StateExtent> read_state_extent(const KvLayout& layout, std::span<const std::byte> bytes);
// The same, and puts the rows into the rings: the sequence goes on at extent.position and sees everything (SequenceCut{}).
// Untouched when it fails.
Result<StateExtent> restore_state(const KvLayout& layout, std::span<const std::byte> bytes, Sequence& sequence);

}  // namespace deepinfer
