#include "tokenizer/tokenizer.h"

#include <array>
#include <unordered_map>
#include <utility>

#include "base/read_file.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocabulary.h"
#include "tokenizer/whole_pieces.h"

namespace deepinfer {
namespace {

constexpr uint64_t kMaxFileBytes = 256 << 20;  // the released file has 8 MB

struct AddedFlags {
  TokenId id;
  bool special;
};

Result<std::array<TokenId, 256>> find_byte_ids(const Vocabulary& vocabulary) {
  std::array<TokenId, 256> ids;
  const auto spellings = byte_spellings();
  for (size_t byte = 0; byte < 256; ++byte) {
    const auto id = vocabulary.find(spellings[byte]);
    if (!id) {
      return Error(Code::kInvalidArgument,
                   "model.vocab: no token '{}' for byte {:#04x}, expected one for every byte",
                   spellings[byte], byte);
    }
    ids[byte] = *id;
  }
  return ids;
}

// A vocabulary entry is found whole only if merging arrives at it.
WholePieces find_whole_pieces(const Vocabulary& vocabulary, const Bpe& bpe) {
  WholePieces whole(vocabulary.size());
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string_view bytes = vocabulary.bytes(id);
    if (bytes.empty()) continue;
    ids.clear();
    bpe.append(bytes, ids);
    if (ids.size() == 1 && ids[0] == id) whole.add(bytes, id);
  }
  return whole;
}

// Calls on_text and on_token in the order of the text; on_text never gets an empty part.
template <typename OnText, typename OnToken>
void split_at_added(const AddedTokenFinder& finder, std::string_view text, OnText on_text, OnToken on_token) {
  size_t done = 0;
  while (const auto match = finder.find(text, done)) {
    if (match->begin > done) on_text(text.substr(done, match->begin - done));
    on_token(match->id);
    done = match->end;
  }
  if (done < text.size()) on_text(text.substr(done));
}

}  // namespace

struct Tokenizer::Tables {
  Vocabulary vocabulary;
  Bpe bpe;
  WholePieces whole_pieces;
  AddedTokenFinder literal;  // added tokens that see the raw text: these first
  AddedTokenFinder
      normalized;  // those that see normalized text; without a normalizer just the second to be matched
  std::unordered_map<std::string, AddedFlags> added;
  std::vector<bool> special;  // by id

  Tables(TokenizerFile file, const std::array<TokenId, 256>& byte_ids)
      : vocabulary(std::move(file.vocabulary)),
        bpe(byte_ids, file.merges),
        whole_pieces(find_whole_pieces(vocabulary, bpe)),
        special(vocabulary.size()) {
    for (const AddedToken& token : file.added_tokens) {
      (token.normalized ? normalized : literal).add(token.content, token.id);
      added[token.content] = {token.id, token.special};
      special[token.id] = token.special;
    }
  }

  void append_text(std::string_view text, std::vector<TokenId>& ids) const {
    PreTokenizer pieces(text);
    for (std::string_view piece = pieces.next(); !piece.empty(); piece = pieces.next()) {
      if (const auto id = whole_pieces.find(piece)) {
        ids.push_back(*id);
      } else {
        bpe.append(piece, ids);
      }
    }
  }

  void append_recognising(std::string_view text, std::vector<TokenId>& ids) const {
    const auto on_token = [&ids](TokenId id) { ids.push_back(id); };
    const auto plain = [&](std::string_view part) { append_text(part, ids); };
    const auto between = [&](std::string_view part) { split_at_added(normalized, part, plain, on_token); };
    split_at_added(literal, text, between, on_token);
  }
};

Tokenizer::Tokenizer(std::unique_ptr<const Tables> tables) : tables_(std::move(tables)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile::read_text(path, kMaxFileBytes));
  return parse(text, path);
}

Result<Tokenizer> Tokenizer::parse(std::string_view json_text, std::string_view name) {
  auto file = parse_tokenizer_file(json_text);
  if (!file.ok()) return file.error().in(name);
  const auto byte_ids = find_byte_ids(file->vocabulary);
  if (!byte_ids.ok()) return byte_ids.error().in(name);
  return Tokenizer(std::make_unique<const Tables>(*std::move(file), *byte_ids));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, AddedTokens added) const {
  std::vector<TokenId> ids;
  encode_append(text, added, ids);
  return ids;
}

void Tokenizer::encode_append(std::string_view text, AddedTokens added, std::vector<TokenId>& ids) const {
  std::string repaired;
  if (!is_well_formed_utf8(text)) {
    append_replacing(text, repaired);
    text = repaired;
  }
  switch (added) {
    case AddedTokens::kRecognise:
      return tables_->append_recognising(text, ids);
    case AddedTokens::kAsText:
      return tables_->append_text(text, ids);
  }
}

std::string Tokenizer::decode(std::span<const TokenId> ids, SpecialTokens special) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (special == SpecialTokens::kKeep || !is_special(id)) bytes += token_bytes(id);
  }
  std::string text;
  append_replacing(bytes, text);
  return text;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  return tables_->vocabulary.bytes(id);
}

std::string_view Tokenizer::token_spelling(TokenId id) const {
  return tables_->vocabulary.spelling(id);
}

std::optional<TokenId> Tokenizer::id_of_added(std::string_view spelling) const {
  const auto entry = tables_->added.find(std::string(spelling));
  if (entry == tables_->added.end()) return std::nullopt;
  return entry->second.id;
}

bool Tokenizer::is_special(TokenId id) const {
  return id >= 0 && id < vocab_size() && tables_->special[id];
}

int64_t Tokenizer::vocab_size() const {
  return tables_->vocabulary.size();
}

}  // namespace deepinfer
