#include "gateway/web_policy.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace deepinfer {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  return out;
}

// "[::1]:8000" and "name:8000" without the port.
std::string_view without_port(std::string_view host) {
  if (host.starts_with('['))
    return host.substr(0, host.find(']') == std::string_view::npos ? host.size() : host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

// A page can't give an address another address.
bool is_address(const std::string& name) {
  in6_addr bytes;
  if (name.starts_with('[') && name.ends_with(']')) {
    return inet_pton(AF_INET6, name.substr(1, name.size() - 2).c_str(), &bytes) == 1;
  }
  return inet_pton(AF_INET, name.c_str(), &bytes) == 1;
}

bool is_own_host(const WebPolicy& policy, std::string_view host) {
  std::string name = lower(without_port(host));
  if (name.ends_with('.')) name.pop_back();
  if (name.empty() || name == "localhost" || name.ends_with(".localhost") || is_address(name)) return true;
  return std::any_of(policy.hosts.begin(), policy.hosts.end(),
                     [&](const std::string& known) { return known == "*" || lower(without_port(known)) == name; });
}

// "https://name:1" without "https://"; empty for "null", the origin of pages without one.
std::string_view authority_of(std::string_view origin) {
  const size_t scheme = origin.find("://");
  return scheme == std::string_view::npos ? std::string_view() : origin.substr(scheme + 3);
}

bool is_own_origin(std::string_view origin, const HttpRequest& request) {
  const std::string_view authority = authority_of(origin);
  return !authority.empty() && lower(authority) == lower(request.host);
}

// What a form or a script may send to another origin without a question before it.
bool is_sent_without_asking(std::string_view content_type) {
  const std::string type = lower(content_type.substr(0, content_type.find(';')));
  return type.empty() || type.starts_with("text/plain") || type.starts_with("application/x-www-form-urlencoded") ||
         type.starts_with("multipart/form-data");
}

bool is_from_browser(const HttpRequest& request) {
  return !request.header("origin").empty() || !request.header("sec-fetch-site").empty();
}

bool has_body(const HttpRequest& request) {
  const std::string_view length = request.header("content-length");
  return (!length.empty() && length != "0") || !request.header("transfer-encoding").empty();
}

}  // namespace

std::optional<WebRefusal> check_web_policy(const WebPolicy& policy, const HttpRequest& request) {
  const bool over_tcp = !request.peer.empty();  // no page reaches a Unix socket
  if (policy.checks_hosts && over_tcp && !is_own_host(policy, request.host)) {
    return WebRefusal{403, fmt::format("The Host '{}' is not a name of this server; allow it with --allow-host {}.",
                                       request.host, without_port(request.host))};
  }
  const std::string_view origin = request.header("origin");
  if (!origin.empty() && !is_own_origin(origin, request) && readable_origin(policy, request).empty()) {
    return WebRefusal{403, "Pages of this origin may not use this server; allow them with --allow-origin."};
  }
  if (has_body(request) && is_from_browser(request) && is_sent_without_asking(request.header("content-type"))) {
    return WebRefusal{415, "The Content-Type of a page's request must be application/json."};
  }
  return std::nullopt;
}

std::string readable_origin(const WebPolicy& policy, const HttpRequest& request) {
  const std::string_view origin = request.header("origin");
  if (origin.empty() || policy.allow_origin.empty()) return "";
  return policy.allow_origin == "*" || policy.allow_origin == origin ? policy.allow_origin : "";
}

}  // namespace deepinfer
