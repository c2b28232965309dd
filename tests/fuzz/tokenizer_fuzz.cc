// Arbitrary bytes as a tokenizer.json and as text: a file that is accepted, and a small fixed tokenizer, must
// bring any text through encode and decode unchanged, ill-formed parts aside.
#include "tokenizer/tokenizer.h"

#include <cstdint>

#include "tokenizer/small_tokenizer.h"
#include "tokenizer/utf8.h"

namespace deepinfer {
namespace {

void check_incremental(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  IncrementalDecoder decoder(tokenizer);
  std::string text;
  for (const TokenId id : ids) text += decoder.push(id);
  CHECK(text + decoder.flush() == tokenizer.decode(ids));
}

void check_round_trip(const Tokenizer& tokenizer, std::string_view text) {
  std::string expected;
  append_replacing(text, expected);
  const std::vector<TokenId> plain = tokenizer.encode(text, Tokenizer::AddedTokens::kAsText);
  CHECK(tokenizer.decode(plain) == expected);
  check_incremental(tokenizer, plain);
  check_incremental(tokenizer, tokenizer.encode(text));
}

}  // namespace
}  // namespace deepinfer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  static const Tokenizer small = *Tokenizer::parse(SmallTokenizer().json(), "small");
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_round_trip(small, bytes);
  if (const auto tokenizer = Tokenizer::parse(bytes, "fuzz"); tokenizer.ok()) {
    check_round_trip(*tokenizer, bytes);
    engram_token_map(*tokenizer, 300);
  }
  return 0;
}
