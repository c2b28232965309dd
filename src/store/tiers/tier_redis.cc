// Redis as a tier: one value a block under PREFIX + key bytes, pipelined, PX as time to live. hiredis writes commands and
// reads replies; the connection is ours, so that a call ends at its deadline however slowly the server drips. A connection for
// each call at a time; one whose call failed is closed, the next call makes another.
#include <hiredis/hiredis.h>

#include <mutex>

#include "crypto/crypto.h"
#include "net/client_stream.h"
#include "store/tiers/tier.h"

namespace deepinfer::store {
namespace {

using SteadyClock = std::chrono::steady_clock;
using TimePoint = ClientStream::TimePoint;

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

struct FreeReader {
  void operator()(redisReader* reader) const { redisReaderFree(reader); }
};

void append_command(std::string& out, std::initializer_list<std::string_view> words) {
  std::vector<const char*> data;
  std::vector<size_t> sizes;
  for (const std::string_view word : words) {
    data.push_back(word.data());
    sizes.push_back(word.size());
  }
  char* text = nullptr;
  const auto size = redisFormatCommandArgv(&text, static_cast<int>(words.size()), data.data(), sizes.data());
  CHECK(size >= 0);
  out.append(text, static_cast<size_t>(size));
  redisFreeCommand(text);
}

class RedisConnection {
 public:
  explicit RedisConnection(std::unique_ptr<ClientStream> stream) : stream_(std::move(stream)) {}

  Status send(const std::string& commands, TimePoint deadline) { return stream_->write(as_bytes(commands), deadline); }
  // The next reply; null after an error, said in `failure`.
  Reply receive(TimePoint deadline, Status& failure) {
    std::array<std::byte, 16 << 10> buffer;
    while (true) {
      void* raw = nullptr;
      if (redisReaderGetReply(reader_.get(), &raw) != REDIS_OK) {
        failure = Error(Code::kDataLoss, "{}", reader_->errstr);
        return nullptr;
      }
      if (raw != nullptr) return Reply(static_cast<redisReply*>(raw));
      const auto count = stream_->read(buffer, deadline);
      if (!count.ok()) {
        failure = count.error();
        return nullptr;
      }
      redisReaderFeed(reader_.get(), reinterpret_cast<const char*>(buffer.data()), *count);
    }
  }

 private:
  std::unique_ptr<ClientStream> stream_;
  std::unique_ptr<redisReader, FreeReader> reader_{redisReaderCreate()};
};

class RedisTier {
 public:
  explicit RedisTier(RedisOptions options) : options_(std::move(options)) {}

  // append(i, out) writes the command of key i; judge(i, reply) turns its answer into a status.
  template <typename Append, typename Judge>
  void run(size_t count, int64_t timeout_ms, kv_tier_status* status, Append append, Judge judge) {
    const auto deadline = SteadyClock::now() + std::chrono::milliseconds(timeout_ms);
    Status failure;
    std::unique_ptr<RedisConnection> connection = take(deadline, failure);
    std::string commands;
    for (size_t i = 0; i < count; ++i) append(i, commands);
    size_t answered = 0;
    if (connection != nullptr) failure = connection->send(commands, deadline);
    for (; failure.ok() && answered < count; ++answered) {
      const Reply reply = connection->receive(deadline, failure);
      if (reply == nullptr) break;
      status[answered] = reply->type == REDIS_REPLY_ERROR ? KV_TIER_FAILED : judge(answered, *reply);
    }
    if (failure.ok()) {
      const std::lock_guard lock(mu_);
      idle_.push_back(std::move(connection));
      return;
    }
    {
      const std::lock_guard lock(mu_);
      idle_.clear();  // they broke with it, if the server did
    }
    const bool late = failure.error().code() == Code::kDeadlineExceeded;
    std::fill(status + answered, status + count, late ? KV_TIER_TIMEOUT : KV_TIER_FAILED);
  }

  std::string name_of(const kv_tier_key& key) const {
    return options_.prefix + std::string(reinterpret_cast<const char*>(key.bytes), sizeof key.bytes);
  }

 private:
  std::unique_ptr<RedisConnection> take(TimePoint deadline, Status& failure) {
    {
      const std::lock_guard lock(mu_);
      if (!idle_.empty()) {
        auto connection = std::move(idle_.back());
        idle_.pop_back();
        return connection;
      }
    }
    auto stream = ClientStream::connect(options_.server, deadline);
    if (!stream.ok()) {
      failure = stream.error();
      return nullptr;
    }
    auto connection = std::make_unique<RedisConnection>(std::move(*stream));
    if (!options_.password.empty()) failure = log_in(*connection, deadline);
    return failure.ok() ? std::move(connection) : nullptr;
  }

  Status log_in(RedisConnection& connection, TimePoint deadline) const {
    std::string command;
    if (options_.user.empty()) {
      append_command(command, {"AUTH", options_.password});
    } else {
      append_command(command, {"AUTH", options_.user, options_.password});
    }
    RETURN_IF_ERROR(connection.send(command, deadline));
    Status failure;
    const Reply reply = connection.receive(deadline, failure);
    if (reply != nullptr && reply->type == REDIS_REPLY_ERROR)
      return Error(Code::kInvalidArgument, "Redis refuses the password");
    return failure;
  }

  const RedisOptions options_;
  std::mutex mu_;
  std::vector<std::unique_ptr<RedisConnection>> idle_;  // guarded by mu_
};

RedisTier& tier_of(void* self) { return *static_cast<RedisTier*>(self); }

void get_values(void* self, size_t count, const kv_tier_key* keys, kv_tier_buffer* buffers, int64_t timeout_ms,
                kv_tier_status* status) {
  RedisTier& one = tier_of(self);
  const auto append = [&](size_t i, std::string& out) { append_command(out, {"GET", one.name_of(keys[i])}); };
  one.run(count, timeout_ms, status, append, [&](size_t i, const redisReply& reply) {
    if (reply.type != REDIS_REPLY_STRING) return KV_TIER_ABSENT;
    if (reply.len > buffers[i].size) return KV_TIER_TOO_SMALL;
    std::memcpy(buffers[i].data, reply.str, reply.len);
    buffers[i].size = reply.len;
    return KV_TIER_OK;
  });
}

void put_values(void* self, size_t count, const kv_tier_key* keys, const kv_tier_buffer* buffers, uint32_t ttl_s,
                int64_t timeout_ms, kv_tier_status* status) {
  RedisTier& one = tier_of(self);
  const auto append = [&](size_t i, std::string& out) {
    const std::string_view value(reinterpret_cast<const char*>(buffers[i].data), buffers[i].size);
    if (ttl_s == 0) return append_command(out, {"SET", one.name_of(keys[i]), value});
    append_command(out, {"SET", one.name_of(keys[i]), value, "PX", std::to_string(uint64_t{ttl_s} * 1000)});
  };
  one.run(count, timeout_ms, status, append, [](size_t, const redisReply& reply) {
    return reply.type == REDIS_REPLY_STATUS ? KV_TIER_OK : KV_TIER_FAILED;
  });
}

}  // namespace

kv_tier make_redis_tier(const RedisOptions& options) {
  kv_tier tier{};
  tier.abi = DEEPINFER_KV_TIER_ABI;
  tier.name = "redis";
  tier.self = new RedisTier(options);  // owned by the kv_tier, freed in close
  tier.exists = [](void* self, size_t count, const kv_tier_key* keys, int64_t timeout_ms, kv_tier_status* status) {
    RedisTier& one = tier_of(self);
    const auto append = [&](size_t i, std::string& out) { append_command(out, {"EXISTS", one.name_of(keys[i])}); };
    one.run(count, timeout_ms, status, append, [](size_t, const redisReply& reply) {
      return reply.integer == 1 ? KV_TIER_OK : KV_TIER_ABSENT;
    });
  };
  tier.get = get_values;
  tier.put = put_values;
  tier.remove = [](void* self, size_t count, const kv_tier_key* keys, int64_t timeout_ms, kv_tier_status* status) {
    RedisTier& one = tier_of(self);
    const auto append = [&](size_t i, std::string& out) { append_command(out, {"DEL", one.name_of(keys[i])}); };
    one.run(count, timeout_ms, status, append, [](size_t, const redisReply&) { return KV_TIER_OK; });
  };
  tier.close = [](void* self) { delete static_cast<RedisTier*>(self); };
  return tier;
}

}  // namespace deepinfer::store
