// Redis as a tier: one value a block under PREFIX + key bytes, pipelined, PX as time to live. One connection;
// a call that fails closes it and the next call connects anew.
#include <hiredis/hiredis.h>

#include <mutex>

#include "store/tiers/tier.h"

namespace deepinfer::store {
namespace {

using Milliseconds = std::chrono::milliseconds;
using SteadyClock = Clock::time_point::clock;

timeval to_timeval(Milliseconds left) {
  const int64_t ms = std::max<int64_t>(1, left.count());
  return {static_cast<time_t>(ms / 1000), static_cast<suseconds_t>(ms % 1000 * 1000)};
}

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

class RedisTier {
 public:
  RedisTier(std::string host, int port, std::string prefix)
      : host_(std::move(host)), port_(port), prefix_(std::move(prefix)) {}
  ~RedisTier() { disconnect(); }

  bool ping() {
    const std::lock_guard lock(mu_);
    if (!connect(Milliseconds(1000))) return false;
    const Reply reply(static_cast<redisReply*>(redisCommand(context_, "PING")));
    return reply != nullptr && reply->type == REDIS_REPLY_STATUS;
  }

  // append(i) queues the command of key i; judge(i, reply) turns its answer into a status.
  template <typename Append, typename Judge>
  void run(size_t count, int64_t timeout_ms, kv_tier_status* status, Append append, Judge judge) {
    const std::lock_guard lock(mu_);
    const auto deadline = SteadyClock::now() + Milliseconds(timeout_ms);
    const auto left = [&] { return std::chrono::duration_cast<Milliseconds>(deadline - SteadyClock::now()); };
    std::fill_n(status, count, KV_TIER_FAILED);
    if (!connect(left())) return;
    for (size_t i = 0; i < count; ++i) append(i);
    for (size_t i = 0; i < count; ++i) {
      void* raw = nullptr;
      const Milliseconds wait = left();
      if (wait.count() <= 0 || redisSetTimeout(context_, to_timeval(wait)) != REDIS_OK ||
          redisGetReply(context_, &raw) != REDIS_OK) {
        const bool timed_out = left().count() <= 0 || context_->err == REDIS_ERR_IO;
        for (size_t k = i; k < count; ++k) status[k] = timed_out ? KV_TIER_TIMEOUT : KV_TIER_FAILED;
        disconnect();  // answers that are still to come must not meet other questions
        return;
      }
      const Reply reply(static_cast<redisReply*>(raw));
      status[i] = reply->type == REDIS_REPLY_ERROR ? KV_TIER_FAILED : judge(i, *reply);
    }
  }

  std::string name_of(const kv_tier_key& key) const {
    return prefix_ + std::string(reinterpret_cast<const char*>(key.bytes), sizeof key.bytes);
  }
  redisContext* context() { return context_; }

 private:
  bool connect(Milliseconds limit) {
    if (context_ != nullptr && context_->err == 0) return true;
    disconnect();
    if (limit.count() <= 0) return false;
    context_ = redisConnectWithTimeout(host_.c_str(), port_, to_timeval(limit));
    if (context_ != nullptr && context_->err == 0) return true;
    disconnect();
    return false;
  }
  void disconnect() {
    if (context_ != nullptr) redisFree(context_);
    context_ = nullptr;
  }

  const std::string host_;
  const int port_;
  const std::string prefix_;
  std::mutex mu_;
  redisContext* context_ = nullptr;  // guarded by mu_; owned
};

RedisTier& tier_of(void* self) {
  return *static_cast<RedisTier*>(self);
}

// Appends the command for the i-th key.
auto by_key(RedisTier& tier, const kv_tier_key* keys, const char* command) {
  return [&tier, keys, command](size_t i) {
    const std::string name = tier.name_of(keys[i]);
    redisAppendCommand(tier.context(), command, name.data(), name.size());
  };
}

}  // namespace

Result<kv_tier> make_redis_tier(const std::string& host, int port, const std::string& prefix) {
  auto redis = std::make_unique<RedisTier>(host, port, prefix);
  if (!redis->ping()) return Error(Code::kUnavailable, "KV tier: Redis at {}:{} does not answer", host, port);
  kv_tier tier{};
  tier.abi = DEEPINFER_KV_TIER_ABI;
  tier.name = "redis";
  tier.self = redis.release();
  tier.exists = [](void* self, size_t count, const kv_tier_key* keys, int64_t timeout_ms,
                   kv_tier_status* status) {
    RedisTier& one = tier_of(self);
    one.run(
        count, timeout_ms, status,
        by_key(one, keys, "EXISTS %b"),
        [](size_t, const redisReply& reply) { return reply.integer == 1 ? KV_TIER_OK : KV_TIER_ABSENT; });
  };
  tier.get = [](void* self, size_t count, const kv_tier_key* keys, kv_tier_buffer* buffers,
                int64_t timeout_ms, kv_tier_status* status) {
    RedisTier& one = tier_of(self);
    one.run(
        count, timeout_ms, status,
        by_key(one, keys, "GET %b"),
        [&](size_t i, const redisReply& reply) {
          if (reply.type != REDIS_REPLY_STRING) return KV_TIER_ABSENT;
          if (reply.len > buffers[i].size) return KV_TIER_TOO_SMALL;
          std::memcpy(buffers[i].data, reply.str, reply.len);
          buffers[i].size = reply.len;
          return KV_TIER_OK;
        });
  };
  tier.put = [](void* self, size_t count, const kv_tier_key* keys, const kv_tier_buffer* buffers,
                uint32_t ttl_s, int64_t timeout_ms, kv_tier_status* status) {
    RedisTier& one = tier_of(self);
    one.run(
        count, timeout_ms, status,
        [&](size_t i) {
          const std::string name = one.name_of(keys[i]);
          if (ttl_s == 0)
            redisAppendCommand(one.context(), "SET %b %b", name.data(), name.size(), buffers[i].data,
                               buffers[i].size);
          else
            redisAppendCommand(one.context(), "SET %b %b PX %lld", name.data(), name.size(), buffers[i].data,
                               buffers[i].size, static_cast<long long>(ttl_s) * 1000);
        },
        [](size_t, const redisReply& reply) {
          return reply.type == REDIS_REPLY_STATUS ? KV_TIER_OK : KV_TIER_FAILED;
        });
  };
  tier.remove = [](void* self, size_t count, const kv_tier_key* keys, int64_t timeout_ms,
                   kv_tier_status* status) {
    RedisTier& one = tier_of(self);
    one.run(
        count, timeout_ms, status,
        by_key(one, keys, "DEL %b"),
        [](size_t, const redisReply&) { return KV_TIER_OK; });
  };
  tier.close = [](void* self) { delete static_cast<RedisTier*>(self); };
  return tier;
}

}  // namespace deepinfer::store
