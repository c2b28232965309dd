// The flags of the engine: how many answers at once, how much memory, which mode.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "apps/start_limits.h"
#include "base/trace.h"
#include "checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

struct EngineFlags {
  int64_t max_running = 32;
  int64_t kept_states = 16;
  int64_t kv_blocks = 0;
  int64_t batch_tokens = 256;
  std::string trace_path;
  EngineOptions engine;
};

void add_engine_flags(CLI::App& parser, EngineFlags& flags);
// --no-speculation and what belongs to it; part of add_engine_flags.
void add_speculation_flags(CLI::App& parser, SpeculationOptions& options);
// --context-mode and its short form --exact; part of add_engine_flags.
void add_context_mode_flags(CLI::App& parser, ContextMode& mode);
// The ids by which the engine sees where the model speaks. None when the tokenizer has no such tokens.
TurnTokens turn_tokens_of(const Tokenizer& tokenizer);
void apply(const EngineFlags& flags, ModelOptions& options);
// What the engine will need, before anything large is allocated; `other_threads`: those that the command starts
// besides.
Result<StartNeeds> plan_start(const Checkpoint& checkpoint, const ModelOptions& model, const EngineFlags& flags,
                              int other_threads);
// The engine and, before it so that it outlives it, its trace (null without --trace).
struct OpenedEngine {
  std::unique_ptr<Trace> trace;
  std::unique_ptr<Engine> engine;
};
Result<OpenedEngine> open_engine(std::unique_ptr<Model> model, const EngineFlags& flags, Counters& counters);

}  // namespace deepinfer
