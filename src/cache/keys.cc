#include "cache/keys.h"

#include <vector>

namespace deepinfer {
namespace {

using Part = std::span<const std::byte>;

Part bytes_of(const uint64_t& number) {
  return std::as_bytes(std::span(&number, 1));
}

}  // namespace

Result<Digest> kv_fingerprint(const KvIdentity& identity) {
  const auto missing = [](std::string_view field) {
    return Error(Code::kInvalidArgument,
                 "KV identity: {} is missing; without it blocks of another model could be used", field);
  };
  const Digest zero{};
  if (identity.weights == zero) return missing("weights");
  if (identity.config.empty()) return missing("config");
  if (identity.tokenizer == zero) return missing("tokenizer");
  if (identity.kv_format.empty()) return missing("kv_format");
  if (identity.summation_order.empty()) return missing("summation_order");
  if (identity.kv_abi == 0) return missing("kv_abi");

  std::vector<std::byte> list;
  const auto append = [&](Part part) {
    const uint64_t length = part.size();
    const Part prefix = bytes_of(length);
    list.insert(list.end(), prefix.begin(), prefix.end());
    list.insert(list.end(), part.begin(), part.end());
  };
  append(as_bytes("deepinfer kv 1"));
  append(identity.weights);
  append(as_bytes(identity.config));
  append(identity.tokenizer);
  append(as_bytes(identity.kv_format));
  append(as_bytes(identity.summation_order));
  append(std::as_bytes(std::span(&identity.kv_abi, 1)));
  append(identity.adapter);
  return sha256(list);
}

ChainHasher::ChainHasher(const Key& domain_key, const Digest& fingerprint)
    : mac_(domain_key), fingerprint_(fingerprint) {}

Digest ChainHasher::root(Part extras) {
  const std::array<Part, 3> parts = {as_bytes("root"), fingerprint_, extras};
  return mac_.digest(parts);
}

Digest ChainHasher::next(const Digest& parent, Part tokens, Part extras) {
  const uint64_t length = tokens.size();  // tokens and extras cannot run into each other
  const std::array<Part, 4> parts = {parent, bytes_of(length), tokens, extras};
  return mac_.digest(parts);
}

}  // namespace deepinfer
