// Which rows of a prompt run the decoder half of the model, as a pure function of its tokens, and how far back rows look.
// docs/context-modes.md has the proof of what follows from it. No cache, no model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/context_mode.h"

namespace deepinfer {

// The ids by which the engine sees turns. All empty: prompts without turns.
struct TurnTokens {
  std::vector<int32_t> assistant;  // begins what the model says
  std::vector<int32_t> end;        // ends it: end of sentence, or the next speaker
};

// K: rows of the decoder half in front of where the model speaks.
inline constexpr int64_t kDecoderTail = 140;

// How far back the windows of a model reach, and how far back a sequence's rings can be read.
struct WindowGeometry {
  int64_t window = 0;          // positions that a row sees, its own included
  int64_t decoder_tail = 0;    // K
  int64_t encoder_back = 0;    // encoder rings hold window + encoder_back rows
  int64_t step_back = 0;       // decoder rings and pair rings: window + step_back rows
  int64_t encoder_layers = 0, decoder_layers = 0;

  // A row's bits depend on no row of the same half further back than this; what is behind it comes from blocks.
  int64_t encoder_reach() const { return encoder_layers * (window - 1); }
  // One layer more: the stages that draft read what the last layer gives.
  int64_t decoder_reach() const { return (decoder_layers + 1) * (window - 1); }
  int64_t reach() const { return (encoder_layers + decoder_layers) * (window - 1); }
};

// The first row of the stretch of decoder rows that ends with the prompt; rows below it run the encoder half only.
//
// Stable: a mark is each assistant token and the prompt's last position. Row i runs the decoder half iff a mark lies in
// [i, i + tail), or i lies between an assistant token and the next end token, or i is behind the prompt. Of these rows
// only the last unbroken stretch can reach the answer, since windows do not look across a gap.
int64_t first_decoder_row(ContextMode mode, std::span<const int32_t> prompt, const TurnTokens& turns, int64_t tail);

}  // namespace deepinfer
