#include "store/tiers/s3_signature.h"

#include <fmt/core.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "crypto/crypto.h"

namespace deepinfer::store {
namespace {

std::string hmac(std::span<const std::byte> key, std::string_view text) {
  std::string out(32, '\0');
  unsigned size = 32;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
       text.size(), reinterpret_cast<unsigned char*>(out.data()), &size);
  return out;
}

std::string hmac(const std::string& key, std::string_view text) { return hmac(as_bytes(key), text); }

}  // namespace

std::string sha256_hex(std::span<const std::byte> bytes) { return hex(sha256(bytes)); }

std::string s3_authorization(const S3Credentials& credentials, const S3Request& request, const std::string& time) {
  std::string canonical = fmt::format("{}\n{}\n{}\n", request.method, request.path, request.query);
  std::string names;
  for (const auto& [name, value] : request.headers) {
    canonical += fmt::format("{}:{}\n", name, value);
    names += names.empty() ? name : ";" + name;
  }
  canonical += fmt::format("\n{}\n{}", names, request.payload_sha256);

  const std::string day = time.substr(0, 8);
  const std::string scope = fmt::format("{}/{}/s3/aws4_request", day, credentials.region);
  const std::string to_sign =
      fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", time, scope, sha256_hex(as_bytes(canonical)));
  std::string key = hmac("AWS4" + credentials.secret_key, day);
  for (const std::string_view part : {std::string_view(credentials.region), std::string_view("s3"),
                                      std::string_view("aws4_request")}) {
    key = hmac(key, part);
  }
  return fmt::format("AWS4-HMAC-SHA256 Credential={}/{},SignedHeaders={},Signature={}", credentials.access_key, scope,
                     names, hex(as_bytes(hmac(key, to_sign))));
}

}  // namespace deepinfer::store
