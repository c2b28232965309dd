// The byte-level alphabet of BPE vocabularies: each byte as one printable character. Printable Latin-1 stands
// for itself; the other 68 bytes, in ascending order, are U+0100, U+0101, ...; so a space is written "Ġ"
// (U+0120).
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace deepinfer {

// The spelling of each byte, in UTF-8.
std::array<std::string, 256> byte_spellings();

// The bytes that a spelling stands for. A spelling with a character outside the alphabet stands for itself.
std::string bytes_of_spelling(std::string_view spelling);

}  // namespace deepinfer
