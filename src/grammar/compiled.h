// The compiled form, and where the library's types are known. Private to the room.
#pragma once

#include <xgrammar/xgrammar.h>

#include "grammar/grammar.h"

namespace deepinfer {

class CompiledGrammar {
 public:
  explicit CompiledGrammar(xgrammar::CompiledGrammar grammar) : grammar_(std::move(grammar)) {}
  xgrammar::GrammarMatcher start() const { return xgrammar::GrammarMatcher(grammar_); }
  int64_t size_bytes() const { return static_cast<int64_t>(grammar_.MemorySizeBytes()); }

 private:
  const xgrammar::CompiledGrammar grammar_;
};

// The words of `mask`, as the library takes them. False: every id may come, and the mask is not filled.
bool fill_next_mask(xgrammar::GrammarMatcher& matcher, TokenMask mask);

}  // namespace deepinfer
