#include "gateway/metric_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace deepinfer {
namespace {

struct Metric {
  std::string_view name, type, help;
};

constexpr Metric kMetrics[] = {
    {"engine_running", "gauge", "Answers that advance in each step."},
    {"engine_waiting", "gauge", "Answers that wait, pre-empted ones included."},
    {"engine_preempted", "gauge", "Of the waiting answers, those that ran before."},
    {"engine_blocks_total", "gauge", "KV blocks of 128 tokens in memory."},
    {"engine_blocks_free", "gauge", "Of them, those that hold nothing."},
    {"engine_blocks_cached", "gauge", "Of them, those kept for later requests."},
    {"engine_blocks_used", "gauge", "Of them, those of running answers."},
    {"engine_states_total", "gauge", "Window states in memory."},
    {"engine_states_free", "gauge", "Of them, those that hold nothing."},
    {"engine_states_kept", "gauge", "Of them, those kept for later requests."},
    {"engine_swap_blocks_total", "gauge", "KV blocks of swap memory."},
    {"engine_swap_blocks_used", "gauge", "Of them, those in use."},
    {"engine_batch_rows", "gauge", "Rows of the last step."},
    {"engine_batch_sequences", "gauge", "Sequences of the last step."},
    {"engine_store_held", "gauge", "KV blocks that reads and writes of the store refer to."},
    {"engine_calibration_error_ppm", "gauge",
     "How far confidences of drafts were from what was accepted, in millionths."},
    {"engine_store_states_written", "counter", "Window states that the store took."},
    {"engine_store_states_dropped", "counter", "Window states that it did not take, or that went before."},
    {"engine_store_states_loaded", "counter", "Window states that came back from the store."},
    {"engine_submitted", "counter", "Answers asked for."},
    {"engine_finished", "counter", "Answers that came to their end."},
    {"engine_cancelled", "counter", "Answers ended from outside."},
    {"engine_errors", "counter", "Answers that failed."},
    {"engine_steps", "counter", "Passes through the model."},
    {"engine_decode_rows", "counter", "Rows that drew a token."},
    {"engine_prefill_rows", "counter", "Rows of prompts."},
    {"engine_encoder_only_rows", "counter", "Of them, those that ran the encoder half alone."},
    {"engine_replayed_rows", "counter", "Rows computed again to restore a window."},
    {"engine_prompt_tokens", "counter", "Tokens of prompts admitted."},
    {"engine_completion_tokens", "counter", "Tokens drawn."},
    {"engine_hit_tokens", "counter", "Prompt tokens found in the prefix cache."},
    {"engine_hits", "counter", "Prompts found there in part or whole."},
    {"engine_misses_absent", "counter", "Prompts of which nothing was stored."},
    {"engine_misses_evicted", "counter", "Prompts whose blocks had been given up."},
    {"engine_misses_window_lost", "counter", "Prompts whose window state had been given up."},
    {"engine_misses_too_short", "counter", "Prompts shorter than a block."},
    {"engine_misses_lineage", "counter", "Prompts whose blocks were computed under another rule."},
    {"engine_misses_not_kept", "counter", "Prompts that asked for no cache."},
    {"engine_misses_corrupt", "counter", "Stored blocks that were damaged."},
    {"engine_misses_expired", "counter", "Stored blocks past their time."},
    {"engine_misses_deadline", "counter", "Stored blocks that did not come in time."},
    {"engine_misses_not_worth_it", "counter", "Stored blocks that take longer to load than to compute."},
    {"engine_misses_unreadable", "counter", "Stored blocks that could not be read."},
    {"engine_store_loads", "counter", "Loads from the KV store."},
    {"engine_store_loaded", "counter", "KV blocks loaded from it."},
    {"engine_store_load_ns", "counter", "Nanoseconds that loads took."},
    {"engine_store_written", "counter", "KV blocks handed over to it and taken."},
    {"engine_store_dropped", "counter", "KV blocks handed over to it and not taken."},
    {"engine_store_hit_tokens", "counter", "Tokens of hits that came from it."},
    {"engine_preempted_swap", "counter", "Pre-emptions to swap memory."},
    {"engine_preempted_recompute", "counter", "Pre-emptions that are computed again."},
    {"engine_plan_ns", "counter", "Nanoseconds of planning steps."},
    {"engine_execute_ns", "counter", "Nanoseconds of passes through the model."},
    {"engine_sample_ns", "counter", "Nanoseconds of drawing tokens."},
    {"engine_commit_ns", "counter", "Nanoseconds of what follows a step."},
    {"engine_drafted", "counter", "Tokens drafted."},
    {"engine_draft_passes", "counter", "Passes of the drafter."},
    {"engine_draft_ns", "counter", "Nanoseconds of drafting."},
    {"engine_predicted_ns", "counter", "Nanoseconds planned for steps without prompt rows."},
    {"engine_predicted_real_ns", "counter", "Nanoseconds that those steps took."},
    {"engine_verified_1", "counter", "Drafts verified at place 1 behind a token."},
    {"engine_accepted_1", "counter", "Of them, those that were right."},
    {"engine_verified_2", "counter", "Drafts verified at place 2 behind a token."},
    {"engine_accepted_2", "counter", "Of them, those that were right."},
    {"engine_verified_3", "counter", "Drafts verified at place 3 behind a token."},
    {"engine_accepted_3", "counter", "Of them, those that were right."},
    {"engine_verified_4", "counter", "Drafts verified at place 4 behind a token."},
    {"engine_accepted_4", "counter", "Of them, those that were right."},
    {"engine_verified_5", "counter", "Drafts verified at place 5 behind a token."},
    {"engine_accepted_5", "counter", "Of them, those that were right."},
    {"engine_verified_6", "counter", "Drafts verified at place 6 behind a token."},
    {"engine_accepted_6", "counter", "Of them, those that were right."},
    {"engine_verified_7", "counter", "Drafts verified at place 7 behind a token."},
    {"engine_accepted_7", "counter", "Of them, those that were right."},
    {"engine_verified_8", "counter", "Drafts verified at place 8 behind a token."},
    {"engine_accepted_8", "counter", "Of them, those that were right."},
    {"grammar_compiled", "counter", "Grammars compiled."},
    {"grammar_hits", "counter", "Grammars that were at hand, or being compiled already."},
    {"grammar_refused", "counter", "Grammars that are not valid, or too large."},
    {"grammar_timeouts", "counter", "Grammars given up for their time."},
    {"grammar_abandoned", "counter", "Grammars that nobody waited for any more."},
    {"grammar_workers_killed", "counter", "Processes ended while they compiled: late, abandoned, or in the way of quick ones."},
    {"grammar_workers_died", "counter", "Processes that the grammar they compiled ended."},
    {"grammar_workers", "gauge", "Processes that compile grammars, now."},
    {"grammar_compile_ns", "counter", "Nanoseconds of compiling."},
    {"grammar_max_compile_ns", "gauge", "Nanoseconds of the longest compilation."},
    {"grammar_waiting", "gauge", "Grammars asked for and not compiled yet."},
    {"grammar_cached", "gauge", "Compiled grammars at hand."},
    {"grammar_cached_bytes", "gauge", "Bytes that they take."},
    {"kv_records", "gauge", "Records in the index."},
    {"kv_index_bytes", "gauge", "Bytes of the index."},
    {"kv_queued_bytes", "gauge", "Bytes that wait to be written."},
    {"kv_promised_bytes", "gauge", "Bytes whose keeping is guaranteed."},
    {"kv_promised_limit_bytes", "gauge", "Most of them."},
    {"kv_retention_projected_seconds", "gauge", "How long a block is kept at the present rate of writing."},
    {"kv_drive_up", "gauge", "1 when the drive is used."},
    {"kv_drive_used_bytes", "gauge", "Bytes in use on the drive."},
    {"kv_drive_capacity_bytes", "gauge", "Bytes of the drive."},
    {"kv_tier_up", "gauge", "1 when the tier behind the store is asked."},
    {"kv_tier_latency_seconds", "gauge", "Recent time of one of its calls."},
    {"kv_puts_total", "counter", "Blocks handed over."},
    {"kv_present_total", "counter", "Of them, those that were stored already."},
    {"kv_persisted_total", "counter", "Of them, those written."},
    {"kv_demoted_total", "counter", "Blocks moved to a lower class."},
    {"kv_evicted_total", "counter", "Blocks given up for room."},
    {"kv_expired_total", "counter", "Blocks past their time."},
    {"kv_broken_promises_total", "counter", "Guaranteed blocks given up before their time."},
    {"kv_lookups_total", "counter", "Chains looked for."},
    {"kv_hit_blocks_total", "counter", "Blocks found."},
    {"kv_loaded_blocks_total", "counter", "Blocks read."},
    {"kv_verified_bytes_total", "counter", "Bytes checked by the scrubber."},
    {"kv_dropped_total", "counter", "Blocks not taken, by reason."},
    {"kv_misses_total", "counter", "Chains not found, by reason."},
    {"kv_drive_written_bytes_total", "counter", "Bytes written to the drive."},
    {"kv_drive_reinserted_bytes_total", "counter", "Of them, those of blocks that were moved."},
    {"kv_drive_device_bytes_total", "counter", "Bytes that the device says it wrote."},
    {"kv_drive_corrupt_total", "counter", "Damaged records found on the drive."},
    {"kv_drive_read_errors_total", "counter", "Reads that the drive refused."},
    {"kv_drive_reclaims_total", "counter", "Segments reclaimed."},
    {"kv_tier_gets_total", "counter", "Blocks asked of the tier."},
    {"kv_tier_hits_total", "counter", "Of them, those that it had."},
    {"kv_tier_puts_total", "counter", "Blocks given to it."},
    {"kv_tier_failed_total", "counter", "Calls that failed."},
    {"kv_tier_timeouts_total", "counter", "Calls that took too long."},
    {"kv_tier_corrupt_total", "counter", "Damaged blocks that it gave."},
    {"kv_tier_trips_total", "counter", "Times that it was left alone."},
    {"kv_tier_dropped_total", "counter", "Blocks not given to it."},
    {"kv_tier_negative_hits_total", "counter", "Blocks known not to be there."},
    {"kv_tier_skipped_total", "counter", "Blocks that it was not asked for while it was left alone."},
    {"kv_store_up", "gauge", "1 when there is a KV store."},
    {"kv_drive_full", "gauge", "1 when the file system of the drive has no room."},
    {"kv_queue_oldest_seconds", "gauge", "How long the block waits to be written that waits longest."},
    {"kv_oldest_seconds", "gauge", "Age of the oldest segment of a class in which something is left."},
    {"kv_load_seconds", "histogram", "Time of a load from the drives."},
    {"kv_persist_seconds", "histogram", "Time from taking a block until it is on the drive."},
    {"kv_clock_steps_back_total", "counter", "Times that the machine's clock was set back."},
    {"kv_clock_steps_forward_total", "counter", "Times that the machine's clock jumped ahead."},
    {"kv_objects_put_total", "counter", "Window states taken."},
    {"kv_objects_replaced_total", "counter", "Window states that a newer one replaced."},
    {"kv_objects_found_total", "counter", "Window states found."},
    {"kv_objects_loaded_total", "counter", "Window states read."},
};

const Metric* find(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kMetrics), std::end(kMetrics), [&](const Metric& metric) { return metric.name == name; });
  return found == std::end(kMetrics) ? nullptr : found;
}

}  // namespace

std::string_view metric_help(std::string_view name) {
  const Metric* metric = find(name);
  return metric == nullptr ? std::string_view() : metric->help;
}

std::string metric_head(std::string_view name) {
  const Metric* metric = find(name);
  return fmt::format("# HELP deepinfer_{0} {1}\n# TYPE deepinfer_{0} {2}\n", name, metric_help(name),
                     metric == nullptr ? "gauge" : metric->type);
}

}  // namespace deepinfer
