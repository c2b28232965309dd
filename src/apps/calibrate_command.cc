#include "apps/calibrate_command.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "apps/load_model.h"
#include "base/read_file.h"
#include "json/json.h"
#include "model/kv_arena.h"
#include "sampling/sampling.h"
#include "speculate/calibration.h"

namespace deepinfer {
namespace {

constexpr char kCalibrateExamples[] =
    R"(Decodes behind every beginning of the texts with drafts, as the engine does, and notes the confidence of each draft
that was tested and whether it was accepted. Every place gets the temperature of the smallest log loss. `serve` and
`generate` read the file from the model's directory; without it the temperatures are 1.

Examples:
  deepinfer calibrate --model models/mini --texts models/mini/golden/teacher.jsonl
  deepinfer calibrate --model DIR --texts ids.jsonl --temperature 0.6 --out /tmp/calibration.json)";

struct CalibrateOptions {
  std::string model_directory, texts, out;
  int64_t texts_used = 200, tokens = 48;
  double temperature = 1.0;
  int threads = 0;
};

// Lines {"ids": [...]}.
Result<std::vector<std::vector<int32_t>>> read_texts(const CalibrateOptions& options) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile::read_text(options.texts, 1 << 30));
  std::vector<std::vector<int32_t>> texts;
  for (size_t at = 0; at < text.size() && std::ssize(texts) < options.texts_used;) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string place = fmt::format("{}, line {}", options.texts, texts.size() + 1);
    const auto line = parse_json(std::string_view(text).substr(at, end - at));
    if (!line.ok()) return line.error().in(place);
    const auto list = JsonRef(*line)["ids"].array();
    if (!list.ok()) return list.error().in(place);
    std::vector<int32_t>& ids = texts.emplace_back();
    for (const JsonRef& entry : *list) {
      ASSIGN_OR_RETURN(const int64_t id, entry.int64());
      ids.push_back(static_cast<int32_t>(id));
    }
    at = end + 1;
  }
  return texts;
}

// What became of the drafts behind one beginning.
Status decode(Model& model, std::span<const int32_t> prompt, const CalibrateOptions& options, uint64_t seed,
              Sampler& sampler, std::vector<std::vector<Tested>>& tested) {
  const auto block = static_cast<size_t>(model.config().dspark_block_size), vocab = static_cast<size_t>(model.config().vocab_size);
  SamplingParams params;
  params.temperature = options.temperature;
  params.seed = seed;
  ASSIGN_OR_RETURN(const auto sequence, model.make_sequence());
  int64_t position = std::ssize(prompt);  // of `token`
  SequenceSpan span{sequence.get(), 0, prompt};
  ASSIGN_OR_RETURN(auto logits, model.forward({&span, 1}));
  ASSIGN_OR_RETURN(int32_t token, sampler.sample(logits, params, position));
  const DraftChooser choose = [&](size_t, int64_t at, std::span<const float> row) {
    const auto drawn = sampler.sample(row, params, at);
    return drawn.ok() ? *drawn : 0;
  };
  std::vector<int32_t> rows;
  std::vector<float> raw;
  const auto ended = [&] { return token == model.config().eos_token_id; };
  while (position < std::ssize(prompt) + options.tokens && !ended()) {
    sequence->length = position;  // behind the rows of drafts that were right
    const DraftStart start{sequence.get(), token};
    ASSIGN_OR_RETURN(const DraftOutput drafts, model.draft({&start, 1}, choose));
    rows.assign(1, token);
    rows.insert(rows.end(), drafts.ids.begin(), drafts.ids.end());
    raw.assign(drafts.confidence.begin(), drafts.confidence.end());
    span = {sequence.get(), position, rows, LogitsRows::kAll};
    ASSIGN_OR_RETURN(logits, model.forward({&span, 1}));
    for (size_t k = 0; k <= block; ++k) {
      ++position;
      ASSIGN_OR_RETURN(token, sampler.sample(logits.subspan(k * vocab, vocab), params, position));
      if (k == block) break;
      const bool accepted = token == rows[k + 1];
      tested[k].push_back({raw[k], accepted});
      if (!accepted || ended()) break;
    }
  }
  return {};
}

std::string report(const CalibrateOptions& options, const std::vector<std::vector<Tested>>& tested) {
  std::string json;
  JsonWriter writer(json, JsonStyle::kSpaced);
  const auto list = [&](std::string_view name, const auto& value_of) {
    writer.key(name).begin_array();
    for (const auto& place : tested) writer.value(value_of(place));
    writer.end_array();
  };
  const auto error_of = [](const std::vector<Tested>& place, float temperature) {
    CalibrationError error;
    for (const auto& [raw, accepted] : place) error.add(calibrated(raw, temperature), accepted);
    return error.value();
  };
  writer.begin_object();
  list("temperatures", [](const auto& place) { return static_cast<double>(fit_temperature(place)); });
  list("samples", [](const auto& place) { return std::ssize(place); });
  list("acceptance", [](const auto& place) {
    return static_cast<double>(std::count_if(place.begin(), place.end(), [](const Tested& t) { return t.accepted; })) /
           static_cast<double>(std::max<size_t>(place.size(), 1));
  });
  list("error_without", [&](const auto& place) { return error_of(place, 1); });
  list("error", [&](const auto& place) { return error_of(place, fit_temperature(place)); });
  writer.member("sampling_temperature", options.temperature).end_object();
  return json + "\n";
}

Status calibrate(const CalibrateOptions& options) {
  ASSIGN_OR_RETURN(const auto texts, read_texts(options));
  ASSIGN_OR_RETURN(const Tokenizer tokenizer, load_tokenizer(options.model_directory));
  int64_t longest = 1;
  for (const auto& ids : texts) longest = std::max(longest, std::ssize(ids));
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(options.model_directory));
  ModelOptions model_options = {.num_threads = options.threads,
                                .max_context_tokens = longest + options.tokens + 8,
                                .max_batch_tokens = longest + 8};
  settle_options(checkpoint.config(), model_options);
  ASSIGN_OR_RETURN(const auto model, load_model(checkpoint, tokenizer, model_options));
  if (model->max_drafting() == 0) {
    return Error(Code::kInvalidArgument, "{}: has no DSpark stages, so there is nothing to calibrate", options.model_directory);
  }
  Sampler sampler(model->config().vocab_size);
  std::vector<std::vector<Tested>> tested(static_cast<size_t>(model->config().dspark_block_size));
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto half = std::max<size_t>(1, texts[i].size() / 2);
    RETURN_IF_ERROR(decode(*model, std::span(texts[i]).first(half), options, i, sampler, tested));
  }
  const std::string json = report(options, tested);
  const std::string path = options.out.empty() ? options.model_directory + "/" + kCalibrationFile : options.out;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!(file << json && file.flush())) return Error(Code::kIo, "{}: can't be written", path);
  print_output("{}: {}", path, json);
  return {};
}

int run_calibrate(const CalibrateOptions& options) {
  const Status status = calibrate(options);
  return status.ok() ? kExitOk : fail(status.error());
}

}  // namespace

Command add_calibrate_command(CLI::App& program) {
  auto options = std::make_shared<CalibrateOptions>();  // shared by the parser's targets and the run function
  CLI::App* parser = program.add_subcommand("calibrate", "fit how far the draft stages' confidences can be trusted");
  parser->footer(kCalibrateExamples);
  add_path_option(*parser, "--model", options->model_directory, "directory of the checkpoint")->required();
  add_path_option(*parser, "--texts", options->texts, "lines of JSON, each with \"ids\"")->required();
  parser->add_option("--out", options->out, std::string("file to write; MODEL/") + kCalibrationFile + " by default");
  parser->add_option("--max-texts", options->texts_used, "texts to use")->check(CLI::Range(1, 1 << 30))->capture_default_str();
  parser->add_option("--tokens", options->tokens, "tokens to decode behind half of each text")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  parser->add_option("--temperature", options->temperature, "of the draws")
      ->check(CLI::Range(0.0, 2.0))
      ->capture_default_str();
  add_threads_option(*parser, options->threads);
  return {parser, [options] { return run_calibrate(*options); }};
}

}  // namespace deepinfer
