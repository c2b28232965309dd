// The context modes: how much of a prompt runs the decoder half of the model (docs/context-modes.md). One word from JSON
// field to engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace deepinfer {

enum class ContextMode : uint8_t {
  kExact,    // every row
  kStable,   // where the model speaks, and some rows before; no cache changes a bit
  kBounded,  // the last rows; a hit whose windows are lost has bits of its own
};

inline std::string_view context_mode_name(ContextMode mode) {
  switch (mode) {
    case ContextMode::kExact: return "exact";
    case ContextMode::kStable: return "stable";
    case ContextMode::kBounded: return "bounded";
  }
  return "unknown";
}

inline std::optional<ContextMode> context_mode_of(std::string_view name) {
  for (const ContextMode mode : {ContextMode::kExact, ContextMode::kStable, ContextMode::kBounded}) {
    if (context_mode_name(mode) == name) return mode;
  }
  return std::nullopt;
}

}  // namespace deepinfer
