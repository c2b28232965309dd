// Which tier an address means.
#include <charconv>
#include <cstdlib>

#include "base/read_file.h"
#include "store/tiers/tier.h"

namespace deepinfer::store {
namespace {

constexpr int kRedisPort = 6379;
constexpr char kPrefix[] = "deepinfer/kv/";  // of names in a tier that others use too

std::string environment(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : fallback;
}

// "A[/B]": A, and B as a prefix that ends in a slash.
std::pair<std::string, std::string> split_prefix(std::string_view rest) {
  const size_t slash = rest.find('/');
  std::string prefix(slash == std::string_view::npos ? "" : rest.substr(slash + 1));
  if (prefix.empty()) prefix = kPrefix;
  if (!prefix.ends_with('/')) prefix += '/';
  return {std::string(rest.substr(0, slash)), std::move(prefix)};
}

Result<std::string> redis_password() {
  const std::string file = environment("REDIS_PASSWORD_FILE", "");
  if (file.empty()) return environment("REDIS_PASSWORD", "");
  auto text = ReadFile::read_text(file, 4096);
  if (!text.ok()) return text.error().in("REDIS_PASSWORD_FILE");
  while (text->ends_with('\n') || text->ends_with('\r')) text->pop_back();
  return text;
}

Result<kv_tier> open_redis(const std::string& address, std::string_view rest, bool tls) {
  const Error wrong(Code::kInvalidArgument, "KV tier: found '{}', expected {}://[USER@]HOST[:PORT][/PREFIX]",
                    without_secrets(address), tls ? "rediss" : "redis");
  RedisOptions options;
  std::string host;
  std::tie(host, options.prefix) = split_prefix(rest);
  if (const size_t at = host.rfind('@'); at != std::string::npos) {
    options.user = host.substr(0, at);
    host = host.substr(at + 1);
    if (options.user.find(':') != std::string::npos) {
      return Error(Code::kInvalidArgument,
                   "KV tier: {}: a password in an address can be read by others; put it into REDIS_PASSWORD, or into a file "
                   "that REDIS_PASSWORD_FILE names",
                   without_secrets(address));
    }
  }
  int port = kRedisPort;
  if (const size_t colon = host.rfind(':'); colon != std::string::npos) {
    const char* const end = host.data() + host.size();
    const auto [at, error] = std::from_chars(host.data() + colon + 1, end, port);
    if (error != std::errc() || at != end || port < 1 || port > 65535) return wrong;
    host.resize(colon);
  }
  if (host.empty()) return wrong;
  ASSIGN_OR_RETURN(options.password, redis_password());
  options.server = {.tls = tls, .host = host, .port = std::to_string(port)};
  return make_redis_tier(options);
}

Result<kv_tier> open_s3(const std::string& address, std::string_view rest) {
  S3Options options;
  std::tie(options.bucket, options.prefix) = split_prefix(rest);
  if (options.bucket.empty()) {
    return Error(Code::kInvalidArgument, "KV tier: found '{}', expected s3://BUCKET[/PREFIX]", without_secrets(address));
  }
  options.region = environment("AWS_REGION", "us-east-1");
  options.endpoint = environment("AWS_ENDPOINT_URL", ("https://s3." + options.region + ".amazonaws.com").c_str());
  options.access_key = environment("AWS_ACCESS_KEY_ID", "");
  options.secret_key = environment("AWS_SECRET_ACCESS_KEY", "");
  if (options.access_key.empty() || options.secret_key.empty()) {
    return Error(Code::kInvalidArgument,
                 "KV tier: {} needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment",
                 without_secrets(address));
  }
  return make_s3_tier(options);
}

}  // namespace

std::string without_secrets(const std::string& address) {
  const size_t begin = address.find("://"), slash = address.find('/', begin == std::string::npos ? 0 : begin + 3);
  const size_t at = address.rfind('@', slash);
  if (begin == std::string::npos || at == std::string::npos || at < begin) return address;
  return address.substr(0, begin + 3) + "***" + address.substr(at);
}

Result<kv_tier> open_tier(const std::string& address) {
  const auto rest_of = [&](std::string_view scheme) -> std::optional<std::string_view> {
    if (!address.starts_with(scheme)) return std::nullopt;
    return std::string_view(address).substr(scheme.size());
  };
  if (const auto path = rest_of("file://"); path && path->starts_with('/')) return make_directory_tier(std::string(*path));
  if (const auto rest = rest_of("redis://")) return open_redis(address, *rest, false);
  if (const auto rest = rest_of("rediss://")) return open_redis(address, *rest, true);
  if (const auto rest = rest_of("s3://")) return open_s3(address, *rest);
  if (const auto rest = rest_of("lib:")) {
    const size_t question = rest->find('?');
    return load_tier(std::string(rest->substr(0, question)),
                     question == std::string_view::npos ? "" : std::string(rest->substr(question + 1)));
  }
  return Error(Code::kInvalidArgument,
               "KV tier: found '{}', expected file:///DIRECTORY, redis://[USER@]HOST[:PORT][/PREFIX], rediss://…, "
               "s3://BUCKET[/PREFIX] or lib:LIBRARY[?OPTIONS]",
               without_secrets(address));
}

}  // namespace deepinfer::store
