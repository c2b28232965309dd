// What a compilation made, as bytes: from the process that compiled it to the one that masks with it. Private to the
// room; built with the library, whose private headers it reads.
#pragma once

#include <xgrammar/xgrammar.h>

#include <string>
#include <string_view>

namespace deepinfer {

std::string pack_grammar(const xgrammar::CompiledGrammar& grammar);
// Of bytes that pack_grammar() made in this program for the same vocabulary; throws std::runtime_error on others.
xgrammar::CompiledGrammar unpack_grammar(std::string_view bytes, const xgrammar::TokenizerInfo& vocabulary);

}  // namespace deepinfer
