// An S3 bucket as a tier: one object a block under PREFIX ab/<key in hexadecimal>, requests signed by Signature Version 4,
// several connections that stay open. When a value expires is one of its headers: life cycles of buckets count days.
#include <ctime>
#include <mutex>

#include "crypto/crypto.h"
#include "net/http_client.h"
#include "store/tiers/s3_signature.h"
#include "store/tiers/tier.h"

namespace deepinfer::store {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr char kExpires[] = "x-amz-meta-deepinfer-expires";  // seconds since 1970
constexpr uint64_t kErrorText = 64 << 10;

std::string amz_time() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &utc);
  return text;
}

class S3Tier {
 public:
  S3Tier(S3Options options, Endpoint endpoint)
      : options_(std::move(options)),
        endpoint_(std::move(endpoint)),
        credentials_{options_.access_key, options_.secret_key, options_.region} {}

  // make(i): the unsigned call of key i. judge(i, answer): what its answer means. Calls of several threads run side by side.
  template <typename Make, typename Judge>
  void run(size_t count, int64_t timeout_ms, uint64_t body_bytes, kv_tier_status* status, Make make, Judge judge) {
    const auto deadline = SteadyClock::now() + std::chrono::milliseconds(timeout_ms);
    std::unique_ptr<HttpClient> client = take_client();
    client->run(count, {deadline, body_bytes}, make, [&](size_t i, const HttpAnswer& answer) {
      switch (answer.outcome) {
        case HttpAnswer::Outcome::kAnswered: status[i] = judge(i, answer); break;
        case HttpAnswer::Outcome::kTimeout: status[i] = KV_TIER_TIMEOUT; break;
        case HttpAnswer::Outcome::kFailed: status[i] = KV_TIER_FAILED; break;
        case HttpAnswer::Outcome::kTooLarge: status[i] = KV_TIER_TOO_SMALL; break;
      }
    });
    const std::lock_guard lock(mu_);
    idle_.push_back(std::move(client));
  }

  HttpCall call(std::string method, const kv_tier_key& key, std::string body = {}, uint32_t ttl_s = 0) const {
    const std::string name = hex(std::as_bytes(std::span(key.bytes)));
    HttpCall call{.method = std::move(method),
                  .target = fmt::format("/{}/{}{}/{}", options_.bucket, options_.prefix, name.substr(0, 2), name)};
    call.body = std::move(body);
    const std::string time = amz_time(), digest = sha256_hex(as_bytes(call.body));
    call.headers = {{"x-amz-content-sha256", digest}, {"x-amz-date", time}};
    if (ttl_s > 0) call.headers.emplace_back(kExpires, std::to_string(std::time(nullptr) + ttl_s));
    S3Request described{.method = call.method, .path = call.target, .query = {}, .headers = call.headers,
                        .payload_sha256 = digest};
    described.headers.insert(described.headers.begin(), {"host", http_authority(endpoint_)});
    call.headers.emplace_back("authorization", s3_authorization(credentials_, described, time));
    return call;
  }

 private:
  std::unique_ptr<HttpClient> take_client() {
    const std::lock_guard lock(mu_);
    if (idle_.empty()) return HttpClient::make(endpoint_, options_.connections);
    auto client = std::move(idle_.back());
    idle_.pop_back();
    return client;
  }

  const S3Options options_;
  const Endpoint endpoint_;
  const S3Credentials credentials_;
  std::mutex mu_;
  std::vector<std::unique_ptr<HttpClient>> idle_;  // guarded by mu_
};

S3Tier& tier_of(void* self) { return *static_cast<S3Tier*>(self); }

kv_tier_status plain_status(size_t, const HttpAnswer& answer) {
  return answer.status / 100 == 2 ? KV_TIER_OK : answer.status == 404 ? KV_TIER_ABSENT : KV_TIER_FAILED;
}

// Expired values are absent, whatever the bucket still holds.
kv_tier_status live_status(size_t i, const HttpAnswer& answer) {
  const kv_tier_status status = plain_status(i, answer);
  const std::string expires(answer.header(kExpires));
  if (status != KV_TIER_OK || expires.empty()) return status;
  return std::strtoll(expires.c_str(), nullptr, 10) < std::time(nullptr) ? KV_TIER_ABSENT : KV_TIER_OK;
}

void get_values(void* self, size_t count, const kv_tier_key* keys, kv_tier_buffer* buffers, int64_t timeout_ms,
                kv_tier_status* status) {
  S3Tier& one = tier_of(self);
  uint64_t largest = kErrorText;
  for (size_t i = 0; i < count; ++i) largest = std::max<uint64_t>(largest, buffers[i].size);
  const auto make = [&](size_t i) { return one.call("GET", keys[i]); };
  one.run(count, timeout_ms, largest, status, make, [&](size_t i, const HttpAnswer& answer) {
    const kv_tier_status live = live_status(i, answer);
    if (live != KV_TIER_OK) return live;
    if (answer.body.size() > buffers[i].size) return KV_TIER_TOO_SMALL;
    std::memcpy(buffers[i].data, answer.body.data(), answer.body.size());
    buffers[i].size = answer.body.size();
    return KV_TIER_OK;
  });
}

void put_values(void* self, size_t count, const kv_tier_key* keys, const kv_tier_buffer* buffers, uint32_t ttl_s,
                int64_t timeout_ms, kv_tier_status* status) {
  S3Tier& one = tier_of(self);
  const auto make = [&](size_t i) {
    return one.call("PUT", keys[i], std::string(reinterpret_cast<const char*>(buffers[i].data), buffers[i].size), ttl_s);
  };
  one.run(count, timeout_ms, kErrorText, status, make, plain_status);
}

}  // namespace

Result<kv_tier> make_s3_tier(const S3Options& options) {
  if (options.bucket.empty() || options.connections == 0) {
    return Error(Code::kInvalidArgument, "S3: no bucket, or no connections");
  }
  auto endpoint = parse_http_endpoint(options.endpoint);
  if (!endpoint.ok()) return endpoint.error().in("S3 endpoint");
  kv_tier tier{};
  tier.abi = DEEPINFER_KV_TIER_ABI;
  tier.name = "s3";
  tier.self = new S3Tier(options, std::move(*endpoint));  // owned by the kv_tier, freed in close
  tier.exists = [](void* self, size_t count, const kv_tier_key* keys, int64_t timeout_ms, kv_tier_status* status) {
    S3Tier& one = tier_of(self);
    const auto make = [&](size_t i) { return one.call("HEAD", keys[i]); };
    one.run(count, timeout_ms, kErrorText, status, make, live_status);
  };
  tier.get = get_values;
  tier.put = put_values;
  tier.remove = [](void* self, size_t count, const kv_tier_key* keys, int64_t timeout_ms, kv_tier_status* status) {
    S3Tier& one = tier_of(self);
    const auto make = [&](size_t i) { return one.call("DELETE", keys[i]); };
    one.run(count, timeout_ms, kErrorText, status, make, plain_status);
  };
  tier.close = [](void* self) { delete static_cast<S3Tier*>(self); };
  return tier;
}

}  // namespace deepinfer::store
