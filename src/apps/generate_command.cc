#include "apps/generate_command.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <fstream>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/chat_request.h"
#include "apps/engine_flags.h"
#include "apps/load_model.h"
#include "apps/stop_signals.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "json/json.h"
#include "recipe/recipe.h"
#include "speculate/calibration.h"

namespace deepinfer {
namespace {

struct GenerateOptions {
  std::string model_directory, weights_cache_directory;
  std::string prompt;
  std::string messages_file;
  std::vector<int32_t> ids;
  bool raw = false;
  std::string thinking = "on";
  int64_t max_tokens = 256;
  SamplingParams sampling;
  SpeculationOptions speculation;
  ContextMode context_mode = ContextMode::kStable;
  int threads = 0;
  Numerics numerics = Numerics::kExact;
  bool json = false;
};

constexpr char kGenerateExamples[] =
    R"(Streams the text to standard output, thoughts and control tokens included; speeds go to standard error. Ctrl-C ends
the answer where it is (exit code 130). With --json: one object with ids, text, finish_reason ("stop", "length",
"cancelled"), usage and timings.

Examples:
  deepinfer generate --model models/mini --prompt "What is 34 + 57?"
  deepinfer generate --model models/mini --messages chat.json --thinking off --json
  deepinfer generate --model models/mini --ids 0,17,42 --max-tokens 16 --temperature 0)";

// Events from the engine thread to the thread that prints. Holds at most one answer.
class EventQueue {
 public:
  void push(const EngineEvent& event) {
    {
      const std::lock_guard lock(mu_);
      events_.push_back(event);
    }
    ready_.notify_one();
  }

  // nullopt when nothing came in time.
  std::optional<EngineEvent> pop(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mu_);
    if (!ready_.wait_for(lock, timeout, [this] { return !events_.empty(); })) return std::nullopt;
    EngineEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mu_;
  std::condition_variable ready_;
  std::deque<EngineEvent> events_;  // guarded by mu_
};

struct Prompt {
  std::vector<int32_t> ids;
  std::vector<int32_t> stop_ids;
};

struct Answer {
  std::vector<int32_t> ids;
  std::string text;
  EngineEvent finished;
  double prefill_seconds = 0;  // from the request to the first token
  double decode_seconds = 0;   // from there to the end

  double prefill_rate() const { return rate(finished.prompt_tokens, prefill_seconds); }
  double decode_rate() const { return rate(finished.completion_tokens - 1, decode_seconds); }

 private:
  static double rate(int64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(std::max<int64_t>(tokens, 0)) / seconds : 0;
  }
};

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// A file or a pipe, to its end.
Result<std::string> read_stream(const std::string& path) {
  constexpr size_t kMaxBytes = 64 << 20;
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error(Code::kNotFound, "{}: can't open: {}", path, std::strerror(errno));
  std::string text;
  std::array<char, 65536> piece;
  while (file.read(piece.data(), piece.size()), file.gcount() > 0) {
    text.append(piece.data(), static_cast<size_t>(file.gcount()));
    if (text.size() > kMaxBytes) {
      return Error(Code::kResourceExhausted, "{}: found more than {} bytes", path, kMaxBytes);
    }
  }
  if (file.bad()) return Error(Code::kIo, "{}: can't read: {}", path, std::strerror(errno));
  return text;
}

Result<std::vector<Message>> read_messages(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_stream(path));
  const auto document = parse_json(text);
  if (!document.ok()) return document.error().in(path);
  auto messages = parse_chat_messages(JsonRef(*document, "messages"));
  if (!messages.ok()) return messages.error().in(path);
  return messages;
}

Result<Prompt> make_prompt(const GenerateOptions& options, const Tokenizer& tokenizer) {
  Prompt prompt;
  ASSIGN_OR_RETURN(prompt.stop_ids, stop_token_ids(tokenizer));
  if (!options.ids.empty()) {
    prompt.ids = options.ids;
  } else if (options.raw) {
    prompt.ids = tokenizer.encode(options.prompt);
  } else {
    Conversation conversation;
    conversation.thinking = options.thinking == "on";
    if (options.messages_file.empty()) {
      conversation.messages.emplace_back().content = options.prompt;
    } else {
      ASSIGN_OR_RETURN(conversation.messages, read_messages(options.messages_file));
    }
    ASSIGN_OR_RETURN(prompt.ids, encode(render(conversation), tokenizer));
  }
  return prompt;
}

// Runs one request; `show` sees each piece of text as soon as it is certain. Its error ends the request.
Result<Answer> answer_prompt(Engine& engine, const Tokenizer& tokenizer, EngineRequest request,
                             StopSignals& signals, const std::function<Status(std::string_view)>& show) {
  constexpr std::chrono::milliseconds kSignalCheck{20};
  EventQueue events;
  const auto start = system_clock().now();
  ASSIGN_OR_RETURN(
      const Engine::RequestId id,
      engine.submit(std::move(request), [&events](const EngineEvent& event) { events.push(event); }));
  Answer answer;
  IncrementalDecoder decoder(tokenizer);
  std::optional<Clock::time_point> first_token;
  Status shown;
  const auto add_text = [&](const std::string& piece) {
    answer.text += piece;
    if (shown.ok()) shown = show(piece);
  };
  while (true) {  // to the last event, because the engine holds a reference to the queue until then
    if (signals.requested() || !shown.ok()) engine.cancel(id);
    const auto event = events.pop(kSignalCheck);
    if (!event) continue;
    if (!first_token) first_token = system_clock().now();
    if (event->kind == EngineEvent::Kind::kFinished) {
      answer.finished = *event;
      break;
    }
    answer.ids.push_back(event->token_id);
    add_text(decoder.push(event->token_id));
  }
  add_text(decoder.flush());
  RETURN_IF_ERROR(shown);
  if (answer.finished.error) return *answer.finished.error;
  answer.prefill_seconds = seconds_between(start, *first_token);
  answer.decode_seconds = seconds_between(*first_token, system_clock().now());
  return answer;
}

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "error";
}

std::string answer_json(const Answer& answer, std::string_view order, double load_seconds) {
  std::string out;
  JsonWriter writer(out);
  writer.begin_object().key("ids").begin_array();
  for (const int32_t id : answer.ids) writer.value(id);
  writer.end_array()
      .member("text", answer.text)
      .member("finish_reason", finish_reason_name(answer.finished.finish_reason))
      .member("summation_order", order);
  writer.key("usage")
      .begin_object()
      .member("prompt_tokens", answer.finished.prompt_tokens)
      .member("completion_tokens", answer.finished.completion_tokens)
      .end_object();
  writer.key("timings")
      .begin_object()
      .member("load_seconds", load_seconds)
      .member("prefill_seconds", answer.prefill_seconds)
      .member("decode_seconds", answer.decode_seconds)
      .member("prefill_tokens_per_second", answer.prefill_rate())
      .member("decode_tokens_per_second", answer.decode_rate())
      .end_object();
  writer.end_object();
  return out;
}

Result<ExitCode> generate(const GenerateOptions& options) {
  const auto start = system_clock().now();
  ASSIGN_OR_RETURN(const Tokenizer tokenizer, load_tokenizer(options.model_directory));
  ASSIGN_OR_RETURN(Prompt prompt, make_prompt(options, tokenizer));
  StopSignals signals;  // before the model's threads
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(options.model_directory));
  ModelOptions model_options;
  model_options.num_threads = options.threads;
  model_options.numerics = options.numerics;
  model_options.max_context_tokens = std::ssize(prompt.ids) + options.max_tokens;
  const bool cut = settle_options(checkpoint.config(), model_options);
  if (const int64_t room = model_options.max_context_tokens - std::ssize(prompt.ids); cut && room > 0) {
    print_note("note: --max-tokens {}: the context of {} tokens has room for {} after the prompt\n", options.max_tokens,
               model_options.max_context_tokens, room);
  }
  EngineFlags one_answer;
  one_answer.max_running = 1;
  ASSIGN_OR_RETURN(const StartNeeds needs, plan_start(checkpoint, model_options, one_answer, 0));
  RETURN_IF_ERROR(check_start(needs, read_start_limits()));
  ASSIGN_OR_RETURN(auto model, load_model(checkpoint, tokenizer, model_options, options.weights_cache_directory));
  const double load_seconds = seconds_between(start, system_clock().now());
  const bool from_cache = model->weights_from_cache();

  signals.expect();
  Counters counters;
  EngineOptions engine_options;
  engine_options.speculation = options.speculation;
  engine_options.context_mode = options.context_mode;
  engine_options.turn_tokens = turn_tokens_of(tokenizer);
  ASSIGN_OR_RETURN(engine_options.speculation.temperatures, load_calibration(options.model_directory));
  Engine engine(std::move(model), engine_options, counters);
  const auto show = [&options](std::string_view piece) {
    if (options.json || piece.empty()) return Status();
    write_output(piece);
    return flush_output();
  };
  EngineRequest request{std::move(prompt.ids), options.max_tokens, std::move(prompt.stop_ids),
                        options.sampling};
  ASSIGN_OR_RETURN(const Answer answer, answer_prompt(engine, tokenizer, std::move(request), signals, show));
  print_output("{}\n",
               options.json ? answer_json(answer, summation_order(options.numerics), load_seconds) : "");
  RETURN_IF_ERROR(flush_output());
  if (options.numerics != Numerics::kExact) print_note("numerics: {}\n", summation_order(options.numerics));
  print_note("load {:.2f} s{}; prefill {} tokens, {:.1f} tokens/s; decode {} tokens, {:.1f} tokens/s\n",
             load_seconds, from_cache ? " (weights from the cache)" : "", answer.finished.prompt_tokens, answer.prefill_rate(),
             answer.finished.completion_tokens, answer.decode_rate());
  return answer.finished.finish_reason == FinishReason::kCancelled ? kExitInterrupted : kExitOk;
}

int run_generate(const GenerateOptions& options) {
  if (const Status status = check_sampling_params(options.sampling); !status.ok()) {
    fail(status.error());
    return kExitUsage;
  }
  const auto result = generate(options);
  return result.ok() ? *result : fail(result.error());
}

// "0,17,42". CLI11's own delimiter would leave an empty one out.
Result<std::vector<int32_t>> parse_ids(std::string_view list) {
  std::vector<int32_t> ids;
  while (true) {
    const std::string_view part = list.substr(0, list.find(','));
    int32_t id = -1;
    const auto [end, fault] = std::from_chars(part.data(), part.data() + part.size(), id);
    if (fault != std::errc() || end != part.data() + part.size() || id < 0) {
      return Error(Code::kInvalidArgument, "found '{}', expected token ids with commas between them (at number {})",
                   part, ids.size() + 1);
    }
    ids.push_back(id);
    if (part.size() == list.size()) return ids;
    list.remove_prefix(part.size() + 1);
  }
}

// Empty for a seed.
std::string seed_fault(const std::string& text) {
  uint64_t seed = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (fault == std::errc() && end == text.data() + text.size()) return {};
  return fmt::format("found '{}', expected 0 to {}", text, std::numeric_limits<uint64_t>::max());
}

void add_input_options(CLI::App& parser, GenerateOptions& options) {
  add_path_option(parser, "--model", options.model_directory, "directory of the checkpoint")->required();
  auto* input = parser.add_option_group("input", "exactly one of");
  auto* prompt = input->add_option("--prompt", options.prompt, "text of one user message");
  add_path_option(*input, "--messages", options.messages_file, "JSON file with an array of chat messages");
  const auto set_ids = [&options](const std::string& list) {
    const auto ids = parse_ids(list);
    if (!ids.ok()) throw CLI::ValidationError("--ids", ids.error().message());
    options.ids = *ids;
  };
  input->add_option_function<std::string>("--ids", set_ids, "token ids with commas between them, taken as they are");
  input->require_option(1);
  parser.add_flag("--raw", options.raw, "take --prompt as plain text, without the chat format")
      ->needs(prompt);
  parser.add_option("--thinking", options.thinking, "let the model think first")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
}

void add_output_options(CLI::App& parser, GenerateOptions& options) {
  parser.add_option("--max-tokens", options.max_tokens, "at most so many new tokens")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31))
      ->capture_default_str();
  parser.add_option("--temperature", options.sampling.temperature, "0 takes the likeliest token")
      ->capture_default_str();
  parser.add_option("--top-p", options.sampling.top_p, "probability mass to draw from")
      ->capture_default_str();
  parser.add_option("--seed", options.sampling.seed, "same seed, same text")
      ->check(CLI::Validator(seed_fault, ""))
      ->capture_default_str();
  add_context_mode_flags(parser, options.context_mode);
  add_speculation_flags(parser, options.speculation);
  add_threads_option(parser, options.threads);
  add_weights_cache_option(parser, options.weights_cache_directory);
  add_numerics_option(parser, options.numerics);
  parser.add_flag("--json", options.json, "print one JSON object at the end instead of streaming text");
}

}  // namespace

Command add_generate_command(CLI::App& program) {
  auto options = std::make_shared<GenerateOptions>();  // shared by the parser's targets and the run function
  CLI::App* parser = program.add_subcommand("generate", "continue one prompt and stream the text");
  parser->footer(kGenerateExamples);
  add_input_options(*parser, *options);
  add_output_options(*parser, *options);
  return {parser, [options] { return run_generate(*options); }};
}

}  // namespace deepinfer
