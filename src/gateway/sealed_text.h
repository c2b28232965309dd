// Text that a client keeps for us and can neither read nor change: AES-256-GCM. Private to the room.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace deepinfer {

// Immutable; thread-safe.
class TextSealer {
 public:
  // `key`: 32 bytes.
  explicit TextSealer(std::string key) : key_(std::move(key)) {}

  // Base64 of version, nonce, ciphertext and tag. Empty when the system gives no random bytes. `owner`: whose
  // text it is.
  std::string seal(std::string_view text, std::string_view owner) const;
  // nullopt for everything that seal() with this key and for this owner did not make.
  std::optional<std::string> open(std::string_view sealed, std::string_view owner) const;

 private:
  const std::string key_;
};

}  // namespace deepinfer
