#include "net/content_encoding.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <memory>

namespace deepinfer {
namespace {

constexpr size_t kPieceBytes = 64 << 10;
// Text that people write shrinks to a fifth or a tenth. More than this much of it, and only zeros shrink so far.
constexpr size_t kMostGrowth = 256, kFreeBytes = 1 << 20;
constexpr int kMostWindowLog = 23;  // what RFC 8878 asks decoders for: 8 MiB

size_t limit_of(const std::string& body, size_t max_bytes) {
  return std::min(max_bytes, std::max(kFreeBytes, kMostGrowth * body.size()));
}
Error too_large(size_t limit, size_t max_bytes) {
  if (limit == max_bytes) {
    return Error(Code::kResourceExhausted, "The decompressed request body is longer than {} bytes.", max_bytes);
  }
  return Error(Code::kResourceExhausted,
               "The decompressed request body is more than {} times as long as what was sent.", kMostGrowth);
}
Error damaged(std::string_view encoding, std::string_view reason) {
  return Error(Code::kInvalidArgument, "The request body is not valid {} data: {}.", encoding, reason);
}

Result<std::string> gunzip(const std::string& body, size_t max_bytes) {
  z_stream stream = {};
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  if (inflateInit2(&stream, kGzipOnly) != Z_OK) return Error(Code::kInternal, "zlib is out of memory");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> ended(&stream, inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(body.data()));
  stream.avail_in = static_cast<uInt>(body.size());  // bodies are limited to far less than 4 GiB
  const size_t limit = limit_of(body, max_bytes);
  std::string out;
  int code = Z_OK;
  while (true) {
    const size_t begin = out.size();
    out.resize(begin + kPieceBytes);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + begin);
    stream.avail_out = kPieceBytes;
    code = inflate(&stream, Z_NO_FLUSH);
    out.resize(begin + kPieceBytes - stream.avail_out);
    if (out.size() > limit) return too_large(limit, max_bytes);
    if (code == Z_STREAM_END && stream.avail_in > 0) {  // another member
      if (inflateReset(&stream) != Z_OK) return Error(Code::kInternal, "zlib cannot be reset");
      continue;
    }
    if (code == Z_STREAM_END) return out;
    if (code != Z_OK) return damaged("gzip", stream.msg != nullptr ? stream.msg : "it is truncated");
  }
}

Result<std::string> unzstd(const std::string& body, size_t max_bytes) {
  const std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(), ZSTD_freeDStream);
  if (!stream) return Error(Code::kInternal, "zstd is out of memory");
  ZSTD_DCtx_setParameter(stream.get(), ZSTD_d_windowLogMax, kMostWindowLog);
  const size_t limit = limit_of(body, max_bytes);
  ZSTD_inBuffer in = {body.data(), body.size(), 0};
  std::string out;
  while (true) {
    const size_t begin = out.size();
    out.resize(begin + kPieceBytes);
    ZSTD_outBuffer piece = {out.data() + begin, kPieceBytes, 0};
    const size_t left = ZSTD_decompressStream(stream.get(), &piece, &in);
    out.resize(begin + piece.pos);
    if (ZSTD_isError(left)) return damaged("zstd", ZSTD_getErrorName(left));
    if (out.size() > limit) return too_large(limit, max_bytes);
    if (left == 0 && in.pos == in.size) return out;
    if (in.pos == in.size && piece.pos < piece.size) return damaged("zstd", "it is truncated");
  }
}

}  // namespace

Result<std::string> decode_body(std::string_view encoding, std::string body, size_t max_bytes) {
  std::string name(encoding);
  std::transform(name.begin(), name.end(), name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c | 0x20 : c; });
  if (name.empty() || name == "identity") return body;
  if (name == "gzip" || name == "x-gzip") return gunzip(body, max_bytes);
  if (name == "zstd") return unzstd(body, max_bytes);
  return Error(Code::kUnimplemented, "Unknown Content-Encoding; expected gzip, zstd or none.");
}

}  // namespace deepinfer
