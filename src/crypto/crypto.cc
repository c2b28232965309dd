#include "crypto/crypto.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/rand.h>

#include <vector>

namespace deepinfer {
namespace {

unsigned char* raw(std::span<std::byte> bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}
const unsigned char* raw(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

struct FreeCipher {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};

}  // namespace

void Mac::Free::operator()(evp_mac_ctx_st* context) const {
  EVP_MAC_CTX_free(context);
}

Mac::Mac(const Key& key) : key_(key) {
  EVP_MAC* mac = EVP_MAC_fetch(nullptr, "BLAKE2BMAC", nullptr);
  CHECK(mac != nullptr);
  context_.reset(EVP_MAC_CTX_new(mac));
  EVP_MAC_free(mac);
  CHECK(context_ != nullptr);
}

Mac::~Mac() {
  wipe(key_);
}
Mac::Mac(Mac&&) noexcept = default;

Digest Mac::digest(std::span<const std::span<const std::byte>> parts) {
  size_t size = sizeof(Digest);
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &size),
                                   OSSL_PARAM_construct_end()};
  CHECK(EVP_MAC_init(context_.get(), raw(std::span<const std::byte>(key_)), key_.size(), parameters) == 1);
  for (const auto part : parts) CHECK(EVP_MAC_update(context_.get(), raw(part), part.size()) == 1);
  Digest digest;
  CHECK(EVP_MAC_final(context_.get(), raw(std::span<std::byte>(digest)), &size, digest.size()) == 1);
  return digest;
}

Key derive_key(const Key& secret, std::string_view purpose, uint64_t number) {
  std::vector<unsigned char> info(purpose.begin(), purpose.end());
  for (int shift = 0; shift < 64; shift += 8) info.push_back(static_cast<unsigned char>(number >> shift));
  EVP_KDF* kdf = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  CHECK(kdf != nullptr);
  EVP_KDF_CTX* context = EVP_KDF_CTX_new(kdf);
  EVP_KDF_free(kdf);
  char digest_name[] = "SHA256";
  Key copy = secret;
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest_name, 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, copy.data(), copy.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.data(), info.size()),
      OSSL_PARAM_construct_end()};
  Key key;
  CHECK(EVP_KDF_derive(context, raw(std::span<std::byte>(key)), key.size(), parameters) == 1);
  EVP_KDF_CTX_free(context);
  wipe(copy);
  return key;
}

Digest sha256(std::span<const std::byte> bytes) {
  Digest digest;
  CHECK(EVP_Digest(bytes.data(), bytes.size(), raw(std::span<std::byte>(digest)), nullptr, EVP_sha256(),
                   nullptr) == 1);
  return digest;
}

void random_bytes(std::span<std::byte> out) {
  CHECK(RAND_bytes(raw(out), static_cast<int>(out.size())) == 1);
}

void wipe(std::span<std::byte> secret) {
  OPENSSL_cleanse(secret.data(), secret.size());
}

GcmTag gcm_encrypt(const Key& key, const GcmNonce& nonce, std::span<const std::byte> authenticated,
                   std::span<std::byte> text) {
  const std::unique_ptr<EVP_CIPHER_CTX, FreeCipher> context(EVP_CIPHER_CTX_new());
  int length = 0;
  GcmTag tag;
  CHECK(EVP_EncryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, raw(std::span<const std::byte>(key)),
                           raw(std::span<const std::byte>(nonce))) == 1);
  CHECK(EVP_EncryptUpdate(context.get(), nullptr, &length, raw(authenticated),
                          static_cast<int>(authenticated.size())) == 1);
  CHECK(EVP_EncryptUpdate(context.get(), raw(text), &length, raw(text), static_cast<int>(text.size())) == 1);
  CHECK(EVP_EncryptFinal_ex(context.get(), raw(text) + length, &length) == 1);
  CHECK(EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, static_cast<int>(tag.size()), tag.data()) ==
        1);
  return tag;
}

Status gcm_decrypt(const Key& key, const GcmNonce& nonce, std::span<const std::byte> authenticated,
                   std::span<std::byte> text, const GcmTag& tag) {
  const std::unique_ptr<EVP_CIPHER_CTX, FreeCipher> context(EVP_CIPHER_CTX_new());
  int length = 0;
  GcmTag expected = tag;
  CHECK(EVP_DecryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, raw(std::span<const std::byte>(key)),
                           raw(std::span<const std::byte>(nonce))) == 1);
  CHECK(EVP_DecryptUpdate(context.get(), nullptr, &length, raw(authenticated),
                          static_cast<int>(authenticated.size())) == 1);
  CHECK(EVP_DecryptUpdate(context.get(), raw(text), &length, raw(text), static_cast<int>(text.size())) == 1);
  CHECK(EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, static_cast<int>(expected.size()),
                            expected.data()) == 1);
  if (EVP_DecryptFinal_ex(context.get(), raw(text) + length, &length) != 1)
    return Error(Code::kDataLoss, "record: the GCM tag does not fit");
  return {};
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}

}  // namespace deepinfer
