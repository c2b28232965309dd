#include "gateway/sealed_text.h"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include <memory>

#include "base/status.h"

namespace deepinfer {
namespace {

constexpr unsigned char kVersion = 2;  // 1 did not bind the owner
constexpr size_t kNonceBytes = 12;
constexpr size_t kTagBytes = 16;
constexpr size_t kHeadBytes = 1 + kNonceBytes;

unsigned char* bytes(std::string& text, size_t at = 0) {
  return reinterpret_cast<unsigned char*>(text.data()) + at;
}
const unsigned char* bytes(std::string_view text, size_t at = 0) {
  return reinterpret_cast<const unsigned char*>(text.data()) + at;
}

struct FreeCipher {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Cipher = std::unique_ptr<EVP_CIPHER_CTX, FreeCipher>;

std::string base64(std::string_view text) {
  std::string out((text.size() + 2) / 3 * 4 + 1, '\0');
  const int length = EVP_EncodeBlock(bytes(out), bytes(text), static_cast<int>(text.size()));
  out.resize(static_cast<size_t>(length));
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0 || text.empty()) return std::nullopt;
  std::string out(text.size() / 4 * 3, '\0');
  if (EVP_DecodeBlock(bytes(out), bytes(text), static_cast<int>(text.size())) < 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  out.resize(out.size() - padding);
  return out;
}

}  // namespace

std::string TextSealer::seal(std::string_view text, std::string_view owner) const {
  std::string out(kHeadBytes + text.size() + kTagBytes, '\0');
  out[0] = static_cast<char>(kVersion);
  if (RAND_bytes(bytes(out, 1), kNonceBytes) != 1) return "";
  const Cipher cipher(EVP_CIPHER_CTX_new());
  int length = 0;
  const bool ok =
      cipher && EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, bytes(key_), bytes(out, 1)) == 1 &&
      EVP_EncryptUpdate(cipher.get(), nullptr, &length, bytes(owner), static_cast<int>(owner.size())) == 1 &&
      EVP_EncryptUpdate(cipher.get(), bytes(out, kHeadBytes), &length, bytes(text), static_cast<int>(text.size())) ==
          1 &&
      EVP_EncryptFinal_ex(cipher.get(), bytes(out, kHeadBytes + text.size()), &length) == 1 &&
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, bytes(out, kHeadBytes + text.size())) == 1;
  return ok ? base64(out) : "";
}

std::optional<std::string> TextSealer::open(std::string_view sealed, std::string_view owner) const {
  std::optional<std::string> raw = from_base64(sealed);
  if (!raw || raw->size() < kHeadBytes + kTagBytes || static_cast<unsigned char>((*raw)[0]) != kVersion) {
    return std::nullopt;
  }
  const size_t size = raw->size() - kHeadBytes - kTagBytes;
  std::string text(size, '\0');
  const Cipher cipher(EVP_CIPHER_CTX_new());
  int length = 0;
  const bool ok =
      cipher && EVP_DecryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, bytes(key_), bytes(*raw, 1)) == 1 &&
      EVP_DecryptUpdate(cipher.get(), nullptr, &length, bytes(owner), static_cast<int>(owner.size())) == 1 &&
      EVP_DecryptUpdate(cipher.get(), bytes(text), &length, bytes(*raw, kHeadBytes), static_cast<int>(size)) == 1 &&
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, bytes(*raw, kHeadBytes + size)) == 1 &&
      EVP_DecryptFinal_ex(cipher.get(), bytes(text, size), &length) == 1;
  if (!ok) return std::nullopt;
  return text;
}

}  // namespace deepinfer
