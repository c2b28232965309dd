// The compiled form, and where the library's types are known. Private to the room.
#pragma once

#include <xgrammar/xgrammar.h>

#include "grammar/grammar.h"

namespace deepinfer {

class CompiledGrammar {
 public:
  CompiledGrammar(xgrammar::CompiledGrammar grammar, std::shared_ptr<const std::vector<uint32_t>> spaces)
      : grammar_(std::move(grammar)), spaces_(std::move(spaces)) {}
  xgrammar::GrammarMatcher start() const { return xgrammar::GrammarMatcher(grammar_); }
  // The tokens of white space alone, where it means nothing; else null.
  const std::vector<uint32_t>* spaces() const { return spaces_.get(); }
  int64_t size_bytes() const { return static_cast<int64_t>(grammar_.MemorySizeBytes()); }

 private:
  const xgrammar::CompiledGrammar grammar_;
  const std::shared_ptr<const std::vector<uint32_t>> spaces_;  // with all grammars of the compiler
};

// The words of `mask`, as the library takes them. False: every id may come, and the mask is not filled.
bool fill_next_mask(xgrammar::GrammarMatcher& matcher, TokenMask mask);

}  // namespace deepinfer
