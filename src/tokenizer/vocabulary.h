// Which tokens exist: id, spelling, bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

// Thread-compatible; immutable once the file is read.
class Vocabulary {
 public:
  // Larger ids are refused: tables are sized by the largest id, which a damaged file must not choose.
  static constexpr int64_t kMaxSize = int64_t{1} << 20;

  // A spelling and an id may be added again together; each alone may not.
  Status add(std::string_view spelling, int64_t id);

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }  // largest id + 1
  bool contains(TokenId id) const { return token(id).exists; }
  std::string_view spelling(TokenId id) const { return token(id).spelling; }
  std::string_view bytes(TokenId id) const { return token(id).bytes; }
  std::optional<TokenId> find(std::string_view spelling) const;

 private:
  struct Token {
    bool exists = false;
    std::string spelling, bytes;
  };
  const Token& token(TokenId id) const;

  std::vector<Token> tokens_;  // by id
  std::unordered_map<std::string, TokenId> ids_;
};

}  // namespace deepinfer
