// Text to token ids and back: byte-level BPE with the pre-tokenizer of DeepSeek V3/V4.1 (docs/spec/model.md 11.2,
// recipe 15).
//
// Encoding comes in two forms: plain text, in which the spelling of a control token is ordinary text, and
// text in which added tokens are recognised. Prompts are encoded as segments so that a user cannot type a
// control token.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace deepinfer {

using TokenId = int32_t;

// Immutable after load(); thread-safe. Broken UTF-8 in a text is encoded as the replacement character U+FFFD
// for each maximal ill-formed part, as the reference tokenizer's callers do.
class Tokenizer {
 public:
  // Reads a tokenizer.json. kInvalidArgument names the first key that is missing or not of the supported
  // kind; kNotFound, kIo, kDataLoss, kResourceExhausted (too large) as ReadFile::read_text.
  static Result<Tokenizer> load(const std::string& path);
  static Result<Tokenizer> parse(std::string_view json_text, std::string_view name);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  enum class AddedTokens { kRecognise, kAsText };
  std::vector<TokenId> encode(std::string_view text, AddedTokens added = AddedTokens::kRecognise) const;
  // Appends to `ids`; lets callers reuse memory.
  void encode_append(std::string_view text, AddedTokens added, std::vector<TokenId>& ids) const;

  enum class SpecialTokens { kKeep, kSkip };
  // Bytes of the ids as UTF-8, ill-formed parts replaced by U+FFFD; unknown ids give nothing.
  std::string decode(std::span<const TokenId> ids, SpecialTokens special = SpecialTokens::kKeep) const;
  // The raw bytes of one token (not necessarily whole characters); empty for unknown ids. Borrowed from the
  // tokenizer.
  std::string_view token_bytes(TokenId id) const;
  // The spelling in the vocabulary (byte-level alphabet for base tokens, the text itself for added ones).
  std::string_view token_spelling(TokenId id) const;

  std::optional<TokenId> id_of_added(std::string_view spelling) const;
  bool is_special(TokenId id) const;  // dropped by SpecialTokens::kSkip
  int64_t vocab_size() const;         // largest id + 1

 private:
  struct Tables;
  explicit Tokenizer(std::unique_ptr<const Tables> tables);
  std::unique_ptr<const Tables> tables_;
};

// Turns a stream of ids into text pieces and never emits half a character. Owned by one request.
class IncrementalDecoder {
 public:
  // Borrowed: the tokenizer outlives the decoder.
  explicit IncrementalDecoder(const Tokenizer& tokenizer,
                              Tokenizer::SpecialTokens special = Tokenizer::SpecialTokens::kKeep);
  // The text that became certain with this id; empty while a character is incomplete.
  std::string push(TokenId id);
  // What is left at the end, incomplete characters as U+FFFD. push after flush starts anew.
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  Tokenizer::SpecialTokens special_;
  std::string pending_;  // at most 3 bytes of an unfinished character
};

// The Engram token compression map (docs/spec/model.md 6.1): for each id its class in order of first appearance.
// `num_ids` is the model's vocab_size; ids without a token share one class.
std::vector<int32_t> engram_token_map(const Tokenizer& tokenizer, int64_t num_ids);

}  // namespace deepinfer
