// The few primitives that names and secrets need, all of OpenSSL: keyed BLAKE2b, SHA-256, HKDF, AES-256-GCM, random
// bytes.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

struct evp_mac_ctx_st;

namespace deepinfer {

using Digest = std::array<std::byte, 32>;
using Key = std::array<std::byte, 32>;
using GcmTag = std::array<std::byte, 16>;
using GcmNonce = std::array<std::byte, 12>;

// BLAKE2b-256 under one key. Thread-compatible.
class Mac {
 public:
  explicit Mac(const Key& key);
  ~Mac();
  Mac(Mac&&) noexcept;
  // The digest of the parts, one after another.
  Digest digest(std::span<const std::span<const std::byte>> parts);

 private:
  struct Free {
    void operator()(evp_mac_ctx_st* context) const;
  };
  Key key_;
  std::unique_ptr<evp_mac_ctx_st, Free> context_;
};

// HKDF-SHA-256 with an empty salt.
Key derive_key(const Key& secret, std::string_view purpose, uint64_t number);
Digest sha256(std::span<const std::byte> bytes);
void random_bytes(std::span<std::byte> out);
void wipe(std::span<std::byte> secret);

// In place. A (key, nonce) pair must never be used twice.
GcmTag gcm_encrypt(const Key& key, const GcmNonce& nonce, std::span<const std::byte> authenticated,
                   std::span<std::byte> text);
// kDataLoss when key, nonce, authenticated bytes or text are not those of the encryption; `text` is garbage
// then.
Status gcm_decrypt(const Key& key, const GcmNonce& nonce, std::span<const std::byte> authenticated,
                   std::span<std::byte> text, const GcmTag& tag);

std::string hex(std::span<const std::byte> bytes);

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace deepinfer
