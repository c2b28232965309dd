#include "net/request_head.h"

#include <strings.h>

#include <algorithm>

namespace deepinfer {
namespace {

bool is_name(std::string_view text, std::string_view name) {
  return text.size() == name.size() && strncasecmp(text.data(), name.data(), name.size()) == 0;
}

size_t count(const HttpRequest& head, std::string_view name) {
  return static_cast<size_t>(std::count_if(head.headers.begin(), head.headers.end(),
                                           [&](const auto& header) { return is_name(header.first, name); }));
}

// A name, an IPv4 address, or an IPv6 address in brackets, and perhaps a port.
bool is_host(std::string_view host) {
  constexpr std::string_view kMarks = "-._~[]:%!$&'()*+;=";
  return std::all_of(host.begin(), host.end(), [&](char c) {
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
           kMarks.find(c) != std::string_view::npos;
  });
}

std::optional<HeadFault> check_transfer_encoding(const HttpRequest& head, bool is_http_1_0) {
  const size_t codings = count(head, "transfer-encoding");
  if (codings == 0) return std::nullopt;
  if (is_http_1_0) return HeadFault{400, "HTTP/1.0 has no Transfer-Encoding."};
  if (count(head, "content-length") > 0) {
    return HeadFault{400, "The request has both a Content-Length and a Transfer-Encoding; expected one of them."};
  }
  if (codings > 1 || !is_name(head.header("transfer-encoding"), "chunked")) {
    return HeadFault{501, "Unknown Transfer-Encoding; expected chunked."};
  }
  return std::nullopt;
}

}  // namespace

std::optional<HeadFault> check_request_head(const HttpRequest& head, bool is_http_1_0) {
  const size_t hosts = count(head, "host");
  if (hosts > 1) return HeadFault{400, "The request has more than one Host header; expected one."};
  if (hosts == 0 && !is_http_1_0) return HeadFault{400, "The request has no Host header, which HTTP/1.1 requires."};
  if (!is_host(head.header("host")) || !is_host(head.host))
    return HeadFault{400, "The Host header is not a valid host."};
  return check_transfer_encoding(head, is_http_1_0);
}

}  // namespace deepinfer
