// Any bytes as a client's grammar. The first byte says which kind. Whatever is prepared is small, prepares to
// itself, and is compiled without harm; its masks and what it accepts agree along a walk.
#include <cstddef>
#include <cstdint>
#include <future>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"
#include "source_path.h"

namespace deepinfer {
namespace {

// The vocabulary of models/mini.
const Tokenizer& mini_tokenizer() {
  static const Result<Tokenizer> tokenizer = Tokenizer::load(source_path("models/mini/tokenizer.json"));
  CHECK(tokenizer.ok());
  return *tokenizer;
}

GrammarCompiler& compiler() {
  static const TokenId end = mini_tokenizer().id_of_added("<｜end▁of▁sentence｜>").value();
  static GrammarCompiler compiler(mini_tokenizer(), mini_tokenizer().vocab_size(), {end}, {});
  return compiler;
}

Result<GrammarSpec> prepare(uint8_t kind, std::string_view text) {
  switch (kind % 4) {
    case 0: {
      const auto schema = parse_json(text);
      if (!schema.ok()) return schema.error();
      return prepare_json_schema(*schema, "schema");
    }
    case 1:
      return prepare_regex(text, "regex");
    case 2: {
      const auto schema = parse_json(text);
      if (!schema.ok()) return schema.error();
      CallGrammar calls;
      calls.where = static_cast<CallGrammar::Where>(kind / 4 % 3);
      calls.tags = {"｜DSML｜", " calls", " invoke", " parameter"};
      calls.tools.push_back({"f", *schema, kind / 16 % 2 == 0, "tools"});
      return prepare_calls(calls);
    }
    default: {
      const auto tag = parse_json(text);
      if (!tag.ok()) return tag.error();
      return prepare_structural_tag(*tag, "tag");
    }
  }
}

void walk(const std::shared_ptr<const CompiledGrammar>& grammar, std::string_view seed) {
  const int64_t vocab = mini_tokenizer().vocab_size();
  const auto state = make_constraint({.grammar = grammar}, vocab)->start();
  std::vector<uint32_t> mask(static_cast<size_t>(mask_words(vocab)));
  for (size_t i = 0; i < 24; ++i) {
    if (!state->fill_mask(mask)) return;
    const auto from =
        static_cast<int64_t>(seed.empty() ? i : static_cast<uint8_t>(seed[i % seed.size()]) * 7 + i);
    int64_t id = -1;
    for (int64_t k = 0; k < vocab && id < 0; ++k) {
      const int64_t candidate = (from + k) % vocab;
      if ((mask[static_cast<size_t>(candidate) / 32] >> candidate % 32 & 1) != 0) id = candidate;
    }
    if (id < 0) return;  // a dead end: the engine ends the answer
    CHECK(state->accept(static_cast<int32_t>(id)).ok());
    if (i % 3 == 2) {
      state->rollback(1);
      CHECK(state->accept(static_cast<int32_t>(id)).ok());
    }
  }
}

}  // namespace
}  // namespace deepinfer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  if (size < 1 || size > 4096) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto spec = prepare(data[0], text);
  if (!spec.ok()) {
    CHECK(!spec.error().message().empty());
    return 0;
  }
  std::promise<GrammarCompiler::Compiled> promise;
  compiler().compile(*spec,
                     [&promise](GrammarCompiler::Compiled result) { promise.set_value(std::move(result)); });
  const auto compiled = promise.get_future().get();
  if (compiled.ok()) walk(*compiled, text);
  return 0;
}
