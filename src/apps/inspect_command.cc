#include "apps/inspect_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "base/printable.h"
#include "cache/block_pool.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/tensor_list.h"
#include "json/json.h"
#include "model/kv_arena.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

constexpr char kInspectExamples[] =
    R"(Reads config.json, the index, the headers of the shards and tokenizer.json, no weights. Exit code 1 when there are faults; with --json
they are the array "faults", and everything else is there only when that array is empty.

Examples:
  deepinfer inspect --model models/mini
  deepinfer inspect --model /data/DeepSeek-V4.1-Flash --json | jq .memory)";

constexpr char kTokenizerFile[] = "tokenizer.json";

// What the checkpoint takes in memory; how many sequences there are is for the command that runs it.
struct CheckpointMemory {
  explicit CheckpointMemory(const ModelConfig& config, const WeightTotals& weights) {
    const KvLayout layout(config);
    const auto bytes = [&](WeightKind kind) { return weights.by_kind[static_cast<size_t>(kind)].bytes; };
    resident_weights = weights.all.bytes - bytes(WeightKind::kVision) - bytes(WeightKind::kAligner);
    kv_block = layout.block_bytes;
    kv_token = static_cast<double>(kv_block) / kBlockTokens;
    sequence_state = layout.sequence_state_bytes();
    const int64_t blocks = static_cast<int64_t>(ceil_div(config.max_position_embeddings, kBlockTokens));
    longest_sequence = sequence_state + blocks * kv_block;
  }

  uint64_t resident_weights = 0;  // the text path: all but vision
  int64_t kv_block = 0;
  double kv_token = 0;
  int64_t sequence_state = 0;    // windows of all layers and DSpark stages, compressor rings
  int64_t longest_sequence = 0;  // at max_position_embeddings
};

std::string grouped(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t i = text.size(); i > 3;) text.insert(i -= 3, ",");
  return text;
}

std::string listed(const std::vector<int64_t>& layers) {
  return layers.empty() ? "none" : fmt::format("{}", fmt::join(layers, " "));
}

void print_shape(const ModelConfig& config) {
  const int64_t decoder = config.first_decoder_layer();
  print_output(
      "DeepseekV41ForCausalLM: {} layers ({} encoder, {} decoder), hidden {}, vocabulary {}, context {}\n",
      config.num_hidden_layers, decoder, config.num_hidden_layers - decoder, config.hidden_size,
      grouped(config.vocab_size), grouped(config.max_position_embeddings));
  print_output("attention  {} heads of {} ({} rotary), window {}, top {} compressed rows\n",
               config.num_attention_heads, config.head_dim, config.qk_rope_head_dim, config.sliding_window,
               config.index_topk);
  print_output("sources    KV {}; index {}; candidates {}\n", listed(config.kv_source_layer_ids),
               listed(config.index_source_layer_ids),
               config.candidate_source_layer_id
                   ? fmt::format("{} ({} blocks of {})", *config.candidate_source_layer_id,
                                 config.candidate_topk_blocks, config.candidate_block_size)
                   : "none");
  print_output("experts    {} of {} and {} shared, inner {}\n", config.num_experts_per_tok,
               config.n_routed_experts, config.n_shared_experts, config.moe_intermediate_size);
  print_output("Engram     layers {}; {} rows of {}\n", listed(config.engram_layer_ids),
               listed(config.engram_num_embeddings), config.engram_head_dim);
  print_output("DSpark     {} stages, {} drafts, targets {}\n", config.num_nextn_predict_layers,
               config.dspark_block_size, listed(config.dspark_target_layer_ids));
  print_output("vision     {}\n\n", config.vision
                                        ? fmt::format("{} layers of {}", config.vision->num_hidden_layers,
                                                      config.vision->hidden_size)
                                        : "no");
}

void print_weights(const WeightTotals& totals, size_t num_files) {
  const auto row = [](std::string_view name, const WeightCount& count) {
    print_output("{:<28}{:>9}{:>19}{:>19}\n", name, grouped(count.tensors), grouped(count.parameters),
                 grouped(count.bytes));
  };
  print_output("{:<28}{:>9}{:>19}{:>19}\n", fmt::format("weights in {} files", num_files), "tensors",
               "parameters", "bytes");
  for (size_t kind = 0; kind < kNumWeightKinds; ++kind) {
    if (totals.by_kind[kind].tensors > 0)
      row(weight_kind_name(static_cast<WeightKind>(kind)), totals.by_kind[kind]);
  }
  row("total", totals.all);
}

void print_memory(const ModelConfig& config, const CheckpointMemory& plan) {
  const auto row = [](std::string_view name, uint64_t bytes) {
    print_output("{:<56}{:>19}\n", name, grouped(bytes));
  };
  print_output("\n{:<56}{:>19}\n", "memory", "bytes");
  row("weights, all but vision", plan.resident_weights);
  row(fmt::format("KV block of {} tokens ({:g} a token)", kBlockTokens, plan.kv_token), plan.kv_block);
  row("state of one sequence, at any length", plan.sequence_state);
  row(fmt::format("one sequence of {} tokens", grouped(config.max_position_embeddings)),
      plan.longest_sequence);
}

void print_text(const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config();
  const WeightTotals totals = count_weights(expected_tensors(config));
  print_shape(config);
  print_weights(totals, checkpoint.files().size());
  print_memory(config, CheckpointMemory(config, totals));
  if (!std::filesystem::exists(checkpoint.directory() + "/" + kTokenizerFile))
    print_output("note: there is no {}, without which the model can be measured but not served\n", kTokenizerFile);
  for (const std::string& key : config.unknown_keys)
    print_output("note: config.json: {} is not known here\n", printable(key));
  if (const size_t unused = checkpoint.unused_tensors().size(); unused > 0) {
    print_output("note: {} tensors are not used, {} for one\n", unused,
                 printable(checkpoint.unused_tensors().front()));
  }
}

template <typename T>
void write_array(JsonWriter& writer, std::string_view key, const std::vector<T>& values) {
  writer.key(key).begin_array();
  for (const T& value : values) writer.value(value);
  writer.end_array();
}

void write_config(JsonWriter& writer, const ModelConfig& config) {
  writer.member("architecture", "DeepseekV41ForCausalLM").key("config").begin_object();
  writer.member("num_hidden_layers", config.num_hidden_layers);
  writer.member("first_decoder_layer", config.first_decoder_layer());
  writer.member("hidden_size", config.hidden_size).member("vocab_size", config.vocab_size);
  writer.member("max_position_embeddings", config.max_position_embeddings);
  write_array(writer, "kv_source_layer_ids", config.kv_source_layer_ids);
  write_array(writer, "index_source_layer_ids", config.index_source_layer_ids);
  writer.key("candidate_source_layer_id");
  config.candidate_source_layer_id ? writer.value(*config.candidate_source_layer_id) : writer.null();
  writer.member("n_routed_experts", config.n_routed_experts)
      .member("num_experts_per_tok", config.num_experts_per_tok);
  write_array(writer, "engram_layer_ids", config.engram_layer_ids);
  writer.member("num_nextn_predict_layers", config.num_nextn_predict_layers);
  writer.member("dspark_block_size", config.dspark_block_size).member("vision", config.vision.has_value());
  writer.end_object();
}

void write_weights(JsonWriter& writer, const WeightTotals& totals) {
  const auto count = [&](std::string_view kind, const WeightCount& row) {
    writer.begin_object().member("kind", kind).member("tensors", row.tensors);
    writer.member("parameters", row.parameters).member("bytes", row.bytes).end_object();
  };
  writer.key("weights").begin_array();
  for (size_t kind = 0; kind < kNumWeightKinds; ++kind) {
    if (totals.by_kind[kind].tensors > 0)
      count(weight_kind_name(static_cast<WeightKind>(kind)), totals.by_kind[kind]);
  }
  writer.end_array().key("total");
  count("total", totals.all);
}

void write_memory(JsonWriter& writer, const CheckpointMemory& plan) {
  writer.key("memory").begin_object().member("resident_weight_bytes", plan.resident_weights);
  writer.member("kv_block_tokens", kBlockTokens).member("kv_block_bytes", plan.kv_block);
  writer.member("kv_bytes_per_token", plan.kv_token).member("sequence_state_bytes", plan.sequence_state);
  writer.member("longest_sequence_bytes", plan.longest_sequence).end_object();
}

std::string json_text(const std::string& directory, const CheckpointReport& report) {
  std::string text;
  JsonWriter writer(text);
  writer.begin_object().member("model", directory);
  write_array(writer, "faults", report.faults);
  if (report.checkpoint) {
    const ModelConfig& config = report.checkpoint->config();
    const WeightTotals totals = count_weights(expected_tensors(config));
    write_config(writer, config);
    writer.member("files", report.checkpoint->files().size());
    write_weights(writer, totals);
    write_memory(writer, CheckpointMemory(config, totals));
    write_array(writer, "unknown_keys", config.unknown_keys);
    write_array(writer, "unused_tensors", report.checkpoint->unused_tensors());
  }
  writer.end_object();
  return text;
}

// Whether tokenizer.json can be read and belongs to the weights.
Status check_tokenizer(const std::string& path, const ModelConfig& config) {
  const auto loaded = Tokenizer::load(path);
  if (!loaded.ok()) return loaded.error().in(kTokenizerFile);
  const Tokenizer& tokenizer = *loaded;
  if (tokenizer.vocab_size() > config.vocab_size) {
    return Error(Code::kInvalidArgument,
                 "tokenizer.json: found {} ids, expected at most {} (vocab_size of config.json)",
                 tokenizer.vocab_size(), config.vocab_size);
  }
  if (config.engram_layer_ids.empty()) return {};
  const std::vector<int32_t> map = engram_token_map(tokenizer, config.vocab_size);
  const int64_t classes = *std::max_element(map.begin(), map.end()) + 1;
  if (classes == config.engram_compressed_vocab_size) return {};
  return Error(Code::kInvalidArgument,
               "tokenizer.json: found {} Engram classes, expected {} (engram_compressed_vocab_size of config.json): it "
               "belongs to another checkpoint",
               classes, config.engram_compressed_vocab_size);
}

int run_inspect(const std::string& directory, bool json) {
  CheckpointReport report = Checkpoint::inspect(directory);
  const std::string tokenizer = directory + "/" + kTokenizerFile;
  if (report.checkpoint && std::filesystem::exists(tokenizer)) {
    if (const Status status = check_tokenizer(tokenizer, report.checkpoint->config()); !status.ok()) {
      report.faults.push_back(status.error().message());
      report.checkpoint.reset();
    }
  }
  if (json) {
    print_output("{}\n", json_text(directory, report));
  } else if (report.checkpoint) {
    print_text(*report.checkpoint);
  } else {
    print_output("{}: {} fault{}\n", directory, report.faults.size(), report.faults.size() == 1 ? "" : "s");
    for (const std::string& fault : report.faults) print_output("  {}\n", fault);
  }
  return report.checkpoint ? kExitOk : kExitFailed;
}

struct InspectOptions {
  std::string model_directory;
  bool json = false;
};

}  // namespace

Command add_inspect_command(CLI::App& program) {
  auto options = std::make_shared<InspectOptions>();  // shared by the parser's targets and the run function
  CLI::App* parser = program.add_subcommand("inspect", "describe a checkpoint, or name all its faults");
  parser->footer(kInspectExamples);
  add_path_option(*parser, "--model", options->model_directory, "directory of the checkpoint")->required();
  parser->add_flag("--json", options->json, "print one JSON object");
  return {parser, [options] { return run_inspect(options->model_directory, options->json); }};
}

}  // namespace deepinfer
