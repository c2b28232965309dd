#include "crypto/crypto.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

// RFC 7693's keyed vector for BLAKE2b needs a 512-bit digest; this one is Python's hashlib.blake2b(b"abc",
// key=bytes(range(32)), digest_size=32).
TEST(Crypto, KeyedBlake2bEqualsAnotherImplementation) {
  Key key;
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i);
  Mac mac(key);
  const std::span<const std::byte> parts[2] = {as_bytes("a"), as_bytes("bc")};
  EXPECT_EQ(hex(mac.digest(parts)), "d63a32d3e44738d7907f964316c241adaba0abfeabc32349677578a15a203f7f");
  EXPECT_EQ(hex(sha256(as_bytes("abc"))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Crypto, GcmNoticesEveryChange) {
  const Key key = derive_key(Key{}, "test", 1);
  GcmNonce nonce{};
  std::vector<std::byte> text(100, std::byte{3});
  const auto plain = text;
  GcmTag tag = gcm_encrypt(key, nonce, as_bytes("head"), text);
  EXPECT_NE(text, plain);
  auto copy = text;
  ASSERT_TRUE(gcm_decrypt(key, nonce, as_bytes("head"), copy, tag).ok());
  EXPECT_EQ(copy, plain);
  copy = text;
  EXPECT_EQ(gcm_decrypt(key, nonce, as_bytes("heap"), copy, tag).error().code(), Code::kDataLoss);
  copy = text;
  copy[7] ^= std::byte{1};
  EXPECT_FALSE(gcm_decrypt(key, nonce, as_bytes("head"), copy, tag).ok());
}

}  // namespace
}  // namespace deepinfer
