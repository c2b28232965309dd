#include "apps/engine_flags.h"

#include <algorithm>

#include "apps/command.h"
#include "base/checked_math.h"
#include "engine/memory_plan.h"
#include "recipe/recipe.h"

namespace deepinfer {

void add_engine_flags(CLI::App& parser, EngineFlags& flags) {
  parser.add_option("--max-running", flags.max_running, "answers that advance at once; others wait")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->capture_default_str();
  parser.add_option("--kept-states", flags.kept_states, "window states kept of earlier requests")
      ->check(CLI::Range(int64_t{0}, int64_t{65536}))
      ->capture_default_str();
  parser.add_option("--kv-blocks", flags.kv_blocks,
                    "KV blocks of 128 tokens; 0 for a whole context for each running answer")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31))
      ->capture_default_str();
  parser.add_option("--batch-tokens", flags.batch_tokens, "tokens of one step through the model")
      ->check(CLI::Range(int64_t{16}, int64_t{65536}))
      ->capture_default_str();
  parser.add_option("--prefill-tokens", flags.engine.prefill_rows,
                    "of them, prompt tokens while answers advance")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}))
      ->capture_default_str();
  add_context_mode_flags(parser, flags.engine.context_mode);
  parser.add_option("--scheduling-depth", flags.engine.scheduling_depth, "steps planned ahead, 0 or 1")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  add_speculation_flags(parser, flags.engine.speculation);
  parser.add_option("--trace", flags.trace_path, "write what threads did to this file (Chrome trace format)");
}

void add_context_mode_flags(CLI::App& parser, ContextMode& mode) {
  std::map<std::string, ContextMode> modes;
  for (const ContextMode each : {ContextMode::kExact, ContextMode::kStable, ContextMode::kBounded}) {
    modes.emplace(context_mode_name(each), each);
  }
  auto* named = add_choice_option<ContextMode>(
                    parser, "--context-mode", mode, modes,
                    "which rows of a prompt run the decoder half: stable where the model speaks and 140 rows before; "
                    "exact all; bounded the last 140 (docs/context-modes.md)")
                    ->default_str("stable");
  parser.add_flag_callback("--exact", [&mode] { mode = ContextMode::kExact; }, "short for --context-mode exact")
      ->excludes(named);
}

TurnTokens turn_tokens_of(const Tokenizer& tokenizer) {
  TurnTokens turns;
  const auto assistant = assistant_token_id(tokenizer);
  const auto stops = stop_token_ids(tokenizer);
  if (!assistant || !stops.ok()) return turns;
  turns.assistant = {*assistant};
  for (const TokenId id : *stops) {
    if (id != *assistant) turns.end.push_back(id);
  }
  return turns;
}

void add_speculation_flags(CLI::App& parser, SpeculationOptions& options) {
  parser.add_flag_callback(
      "--no-speculation", [&options] { options.proposer = DraftProposer::kOff; },
      "no drafts: one token a step");
  add_choice_option<SpeculationSampling>(
      parser, "--speculation-sampling", options.sampling,
      {{"deterministic", SpeculationSampling::kDeterministic}, {"rejection", SpeculationSampling::kRejection}},
      "how drafts are verified: deterministic gives the text that no drafts give; rejection the same distribution")
      ->default_str("deterministic");
  add_choice_option<DraftProposer>(parser, "--draft-proposer", options.proposer,
                                   {{"dspark", DraftProposer::kDspark}, {"ngram", DraftProposer::kNgram}},
                                   "dspark, or ngram, which copies what followed the same tokens before")
      ->default_str("dspark");
  parser
      .add_option("--fixed-drafts", options.fixed_drafts, "verify always so many; by default as many as pay")
      ->check(CLI::Range(int64_t{0}, int64_t{8}));
}

void apply(const EngineFlags& flags, ModelOptions& options) {
  const int64_t context_blocks = (options.max_context_tokens + kBlockTokens - 1) / kBlockTokens;
  options.max_sequences = flags.max_running + flags.kept_states;
  options.num_blocks = flags.kv_blocks > 0 ? flags.kv_blocks : flags.max_running * context_blocks;
  options.max_batch_tokens = std::max(flags.batch_tokens, flags.max_running);
}

Result<StartNeeds> plan_start(const Checkpoint& checkpoint, const ModelOptions& model, const EngineFlags& flags,
                              int other_threads) {
  ASSIGN_OR_RETURN(const MemoryPlan plan, Model::plan(checkpoint, model));
  EngineOptions engine = flags.engine;
  engine.max_running = flags.max_running;
  const auto compute = static_cast<uint64_t>(model.num_threads);
  return StartNeeds{
      .plan = plan_engine_memory(plan, model, engine),
      .context_blocks = static_cast<int64_t>(ceil_div(model.max_context_tokens, kBlockTokens)),
      .threads =
          std::max(2 * compute, compute + static_cast<uint64_t>(other_threads)),  // weights are read by twice as many
      .thread_flags = other_threads > 0 ? "--threads or --http-threads" : "--threads"};
}

Result<OpenedEngine> open_engine(std::unique_ptr<Model> model, const EngineFlags& flags, Counters& counters) {
  OpenedEngine opened;
  EngineOptions options = flags.engine;
  options.max_running = flags.max_running;
  if (!flags.trace_path.empty()) {
    ASSIGN_OR_RETURN(opened.trace, Trace::create(flags.trace_path));
    options.trace = opened.trace.get();
  }
  opened.engine = std::make_unique<Engine>(std::move(model), options, counters);
  return opened;
}

}  // namespace deepinfer
