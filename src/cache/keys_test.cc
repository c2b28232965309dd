#include "cache/keys.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

Digest digest_of(uint64_t number) { return sha256(std::as_bytes(std::span(&number, 1))); }

KvIdentity complete_identity() {
  KvIdentity identity;
  identity.weights = digest_of(1);
  identity.config = "layers 40";
  identity.tokenizer = digest_of(2);
  identity.kv_format = "fp4";
  identity.summation_order = "fma32";
  identity.kv_abi = 1;
  return identity;
}

// T03: each input alone changes every key.
TEST(T03_KeyCompleteness, EveryPartOfTheIdentityChangesTheFingerprint) {
  const Digest base = *kv_fingerprint(complete_identity());
  for (int field = 0; field < 7; ++field) {
    KvIdentity other = complete_identity();
    if (field == 0) other.weights = digest_of(3);
    if (field == 1) other.config += " theta";
    if (field == 2) other.tokenizer = digest_of(3);
    if (field == 3) other.kv_format = "fp8";
    if (field == 4) other.summation_order = "bf16 pairs";
    if (field == 5) other.kv_abi = 2;
    if (field == 6) other.adapter = digest_of(4);  // other weights under the same adapter name
    EXPECT_NE(*kv_fingerprint(other), base) << field;
  }
}

TEST(T03_KeyCompleteness, AnIncompleteIdentityIsRefusedByName) {
  for (int field = 0; field < 6; ++field) {
    KvIdentity identity = complete_identity();
    const char* names[] = {"weights", "config", "tokenizer", "kv_format", "summation_order", "kv_abi"};
    if (field == 0) identity.weights = {};
    if (field == 1) identity.config.clear();
    if (field == 2) identity.tokenizer = {};
    if (field == 3) identity.kv_format.clear();
    if (field == 4) identity.summation_order.clear();
    if (field == 5) identity.kv_abi = 0;
    const auto result = kv_fingerprint(identity);
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.error().message().find(names[field]), std::string::npos);
  }
}

TEST(T03_KeyCompleteness, KeysDependOnDomainParentTokensAndExtras) {
  Key a{}, b{};
  a[0] = std::byte{1};
  b[0] = std::byte{2};
  ChainHasher one(a, digest_of(9)), two(b, digest_of(9)), other(a, digest_of(8));
  const Digest root = one.root();
  EXPECT_EQ(root, ChainHasher(a, digest_of(9)).root());  // no process-random seed
  EXPECT_NE(root, two.root());
  EXPECT_NE(root, other.root());
  EXPECT_NE(root, one.root(as_bytes("image")));
  const Digest next = one.next(root, as_bytes("tokens"));
  EXPECT_NE(next, one.next(two.root(), as_bytes("tokens")));
  EXPECT_NE(next, one.next(root, as_bytes("tokenz")));
  EXPECT_NE(next, one.next(root, as_bytes("tokens"), as_bytes("mask")));
  EXPECT_NE(one.next(root, as_bytes("ab"), as_bytes("c")), one.next(root, as_bytes("a"), as_bytes("bc")));
}

}  // namespace
}  // namespace deepinfer
