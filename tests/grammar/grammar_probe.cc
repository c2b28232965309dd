// Asks the grammar room without a model, for tests with other judges. A line of JSON in, a line of JSON out:
//   {"schema": S, "texts": [TEXT...], "walks": N, "alphabet": TEXT, "seed": N}
//   {"error": TEXT}, or {"said": [whether each text may be the whole answer], "samples": [TEXT...]}
// A sample is a random walk that ended by itself; it prefers tokens of the alphabet. The vocabulary is that of the mini.
#include <algorithm>
#include <future>
#include <iostream>
#include <random>
#include <string_view>

#include "grammar/grammar.h"

namespace deepinfer {
namespace {

constexpr int kMostTokens = 160;

class Probe {
 public:
  explicit Probe(Tokenizer tokenizer)
      : tokenizer_(std::move(tokenizer)),
        end_(tokenizer_.id_of_added("<｜end▁of▁sentence｜>").value()),
        compiler_(tokenizer_, tokenizer_.vocab_size(), {end_}, {},
                  {.worker = {"/proc/self/exe", "worker"}, .time_limit = std::chrono::seconds(20)}),
        mask_(static_cast<size_t>(mask_words(tokenizer_.vocab_size()))) {}

  JsonValue answer(const JsonValue& question) {
    const auto spec = prepare_json_schema(*question.find("schema"), "schema");
    if (!spec.ok()) return error(spec.error());
    std::promise<GrammarCompiler::Compiled> promise;
    compiler_.compile(*spec, [&promise](GrammarCompiler::Compiled result) { promise.set_value(std::move(result)); });
    const auto compiled = promise.get_future().get();
    if (!compiled.ok()) return error(compiled.error());
    const auto constraint = make_constraint({.grammar = *compiled}, tokenizer_.vocab_size());
    JsonValue::Array said, samples;
    for (const JsonValue& text : *question.find("texts")->array()) said.emplace_back(says(*constraint, *text.string()));
    std::mt19937 random(static_cast<uint32_t>(*question.find("seed")->int64()));
    const std::vector<bool> preferred = spelt_in(*question.find("alphabet")->string());
    for (int64_t i = 0; i < *question.find("walks")->int64(); ++i) {
      if (auto text = walk(*constraint, preferred, random)) samples.emplace_back(std::move(*text));
    }
    return JsonValue::Object{{"said", std::move(said)}, {"samples", std::move(samples)}};
  }

 private:
  static JsonValue error(const Error& error) { return JsonValue::Object{{"error", error.message()}}; }

  bool is_allowed(ConstraintState& state, TokenId id) {
    return !state.fill_mask(mask_) || (mask_[static_cast<size_t>(id) / 32] >> id % 32 & 1) != 0;
  }

  bool says(const OutputConstraint& constraint, std::string_view text) {
    const auto state = constraint.start();
    for (const TokenId id : tokenizer_.encode(text)) {
      if (!state->accept(id).ok()) return false;
    }
    return is_allowed(*state, end_);
  }

  std::vector<bool> spelt_in(std::string_view alphabet) const {
    std::vector<bool> out(static_cast<size_t>(tokenizer_.vocab_size()));
    for (TokenId id = 0; id < tokenizer_.vocab_size(); ++id) {
      const std::string_view bytes = tokenizer_.token_bytes(id);
      out[static_cast<size_t>(id)] = !bytes.empty() && bytes.find_first_not_of(alphabet) == std::string_view::npos;
    }
    return out;
  }

  std::optional<std::string> walk(const OutputConstraint& constraint, const std::vector<bool>& preferred,
                                  std::mt19937& random) {
    const auto state = constraint.start();
    std::string text;
    for (int i = 0; i < kMostTokens; ++i) {
      CHECK(state->fill_mask(mask_));
      std::vector<TokenId> allowed, of_alphabet;
      for (TokenId id = 0; id < tokenizer_.vocab_size(); ++id) {
        if ((mask_[static_cast<size_t>(id) / 32] >> id % 32 & 1) == 0) continue;
        allowed.push_back(id);
        if (preferred[static_cast<size_t>(id)]) of_alphabet.push_back(id);
      }
      if (allowed.empty()) return "dead end: " + text;
      const bool may_end = std::find(allowed.begin(), allowed.end(), end_) != allowed.end();
      if (may_end && (random() % 3 == 0 || allowed.size() == 1)) return text;
      const auto& from = !of_alphabet.empty() && random() % 16 != 0 ? of_alphabet : allowed;
      const TokenId id = from[random() % from.size()];
      if (id == end_) continue;
      CHECK(state->accept(id).ok());
      text += tokenizer_.token_bytes(id);
    }
    return std::nullopt;
  }

  const Tokenizer tokenizer_;
  const TokenId end_;
  GrammarCompiler compiler_;
  std::vector<uint32_t> mask_;
};

}  // namespace
}  // namespace deepinfer

int main(int argc, char**) {
  using namespace deepinfer;
  if (argc > 1) return run_grammar_worker();
  auto tokenizer = Tokenizer::load(DEEPINFER_SOURCE_DIR "/models/mini/tokenizer.json");
  CHECK(tokenizer.ok());
  Probe probe(std::move(*tokenizer));
  for (std::string line; std::getline(std::cin, line);) {
    const auto question = parse_json(line);
    CHECK(question.ok());
    std::cout << to_json(probe.answer(*question)) << std::endl;
  }
}
