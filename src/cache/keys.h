// How blocks get their names: the fingerprint of everything that changes their bytes, and the keyed chain of a domain.
// Source: docs/spec/kv.md 3. The caller brings tokens as bytes; nothing here knows what they mean.
#pragma once

#include <cstring>
#include <string>

#include "crypto/crypto.h"

namespace deepinfer {

// Chain digest of a prefix that ends with a full block: says everything that went into the block's bytes.
using PrefixKey = Digest;
struct PrefixKeyHash {
  size_t operator()(const PrefixKey& key) const {  // a digest is as good as random
    size_t hash;
    std::memcpy(&hash, key.data(), sizeof(hash));
    return hash;
  }
};

// Derived: some row before or in the block was computed behind a replayed window, so its bits differ from a cold run.
enum class Lineage : uint8_t { kExact = 0, kDerived = 1 };

// Everything that changes the bytes of a block. A model's name is not in it, parallelism neither: the stored
// form is canonical.
struct KvIdentity {
  Digest weights{};  // of all weight shards
  std::string config;   // canonical text of the values that change KV: layers, sources, ratios, window, RoPE, index
  Digest tokenizer{};
  std::string kv_format;        // element formats and scales of the rows
  std::string summation_order;  // docs/spec/decisions.md 4: bits are equal only inside one order
  uint32_t kv_abi = 0;          // raised by hand when a kernel changes values or layout; >= 1
  Digest adapter{};             // zero: none
};

// SHA-256 over a length-prefixed list. kInvalidArgument names the first field that is missing.
Result<Digest> kv_fingerprint(const KvIdentity& identity);

// h(0) = MAC(K, "root" || F || extras); h(i) = MAC(K, h(i-1) || token bytes || extras). Thread-compatible.
class ChainHasher {
 public:
  ChainHasher(const Key& domain_key, const Digest& fingerprint);
  // `extras`: whatever else the whole chain depends on (empty for plain text).
  Digest root(std::span<const std::byte> extras = {});
  // `tokens`: the block's token ids as little-endian u32; `extras`: embeddings mask, image digests, ...
  Digest next(const Digest& parent, std::span<const std::byte> tokens, std::span<const std::byte> extras = {});

 private:
  Mac mac_;
  Digest fingerprint_;
};

}  // namespace deepinfer
