#include "gateway/kv_admin.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <mutex>

#include "gateway/metric_names.h"
#include "gateway/web_policy.h"
#include "json/json.h"

namespace deepinfer {
namespace {

using store::RetentionClass;

constexpr std::chrono::seconds kVerifyLimit{10}, kLongestPin{7 * 24 * 3600};
constexpr int kPrefetchPriority = 3;  // behind all who wait for an answer
constexpr size_t kMostPins = 256, kMostKeys = 65'536;

std::optional<RetentionClass> class_of(std::string_view name) {
  for (size_t c = 0; c < store::kNumClasses; ++c) {
    if (store::class_name(static_cast<RetentionClass>(c)) == name) return static_cast<RetentionClass>(c);
  }
  return std::nullopt;
}

std::optional<Digest> digest_of(std::string_view hex) {
  Digest digest{};
  if (hex.size() != 2 * digest.size()) return std::nullopt;
  for (size_t i = 0; i < digest.size(); ++i) {
    unsigned byte = 0;
    const auto [end, error] = std::from_chars(hex.data() + 2 * i, hex.data() + 2 * i + 2, byte, 16);
    if (error != std::errc() || end != hex.data() + 2 * i + 2) return std::nullopt;
    digest[i] = static_cast<std::byte>(byte);
  }
  return digest;
}

using Values = std::vector<std::pair<std::string, uint64_t>>;

Values counters_of(const store::TierStats& stats) {
  return {{"gets", stats.gets},     {"hits", stats.hits},         {"puts", stats.puts},
          {"failed", stats.failed}, {"timeouts", stats.timeouts}, {"corrupt", stats.corrupt},
          {"trips", stats.trips},   {"dropped", stats.dropped},   {"negative_hits", stats.negative_hits},
          {"skipped", stats.skipped}};
}

Values gauges_of(const store::StoreStats& stats) {
  return {{"records", stats.records},
          {"index_bytes", stats.index_bytes},
          {"queued_bytes", stats.queued_bytes},
          {"promised_bytes", stats.promised_bytes},
          {"promised_limit_bytes", stats.promised_limit_bytes}};
}

Values counters_of(const store::StoreStats& stats) {
  return {{"puts", stats.puts},
          {"present", stats.present},
          {"persisted", stats.persisted},
          {"demoted", stats.demoted},
          {"evicted", stats.evicted},
          {"expired", stats.expired},
          {"broken_promises", stats.broken_promises},
          {"clock_steps_back", stats.clock_steps_back},
          {"clock_steps_forward", stats.clock_steps_forward},
          {"lookups", stats.lookups},
          {"hit_blocks", stats.hit_blocks},
          {"loaded_blocks", stats.loaded_blocks},
          {"verified_bytes", stats.verified_bytes},
          {"objects_put", stats.objects_put},
          {"objects_replaced", stats.objects_replaced},
          {"objects_found", stats.objects_found},
          {"objects_loaded", stats.objects_loaded}};
}

Values drops_of(const store::StoreStats& stats) {
  return {{"full", stats.dropped_full},
          {"budget", stats.dropped_budget},
          {"no_room", stats.dropped_no_room},
          {"error", stats.dropped_error}};
}

Values misses_of(const store::StoreStats& stats) {
  Values misses;
  for (size_t i = 1; i < kNumStoreMissReasons; ++i) {
    misses.emplace_back(miss_reason_name(static_cast<MissReason>(i)), stats.misses[i]);
  }
  return misses;
}

void append_histogram(std::string& text, std::string_view name, const store::LatencyHistogram& latency) {
  uint64_t sum = 0;
  for (size_t i = 0; i < latency.counts.size(); ++i) {
    sum += latency.counts[i];
    const bool last = i == latency.kBounds.size();
    text += fmt::format("deepinfer_kv_{}_bucket{{le=\"{}\"}} {}\n", name,
                        last ? "+Inf" : fmt::format("{}", latency.kBounds[i]), sum);
  }
  text += fmt::format("deepinfer_kv_{0}_sum {1}\ndeepinfer_kv_{0}_count {2}\n", name, latency.sum_s, sum);
}

std::string stats_to_json(const store::StoreStats& stats, const store::GuardedTier* tier) {
  std::string out;
  JsonWriter json(out);
  const auto members = [&](const Values& values) {
    for (const auto& [name, value] : values) json.member(name, value);
  };
  json.begin_object().member("backend", stats.backend);
  members(gauges_of(stats));
  json.member("projected_retention_s", stats.projected_retention_s);
  members(counters_of(stats));
  for (const auto& [reason, count] : drops_of(stats)) json.member("dropped_" + reason, count);
  json.key("misses").begin_object();
  members(misses_of(stats));
  json.end_object().key("drives").begin_array();
  for (const store::DriveStats& drive : stats.drives) {
    json.begin_object()
        .member("path", drive.path)
        .member("state", drive.state)
        .member("capacity_bytes", drive.capacity_bytes)
        .member("used_bytes", drive.used_bytes)
        .member("segments", drive.segments)
        .member("free_segments", drive.free_segments)
        .member("records", drive.records)
        .member("written_bytes", drive.written_bytes)
        .member("reinserted_bytes", drive.reinserted_bytes)
        .member("device_bytes", drive.device_bytes)
        .member("corrupt", drive.corrupt)
        .member("read_errors", drive.read_errors)
        .member("lost_files", drive.lost_files)
        .member("reclaims", drive.reclaims)
        .member("quarantined_queues", drive.quarantined_queues)
        .end_object();
  }
  json.end_array();
  if (tier != nullptr) {
    const store::TierStats tier_stats = tier->stats();
    json.key("tier").begin_object().member("name", tier->name()).member("up", !tier_stats.down);
    json.member("latency_ms", tier_stats.latency_ms);
    members(counters_of(tier_stats));
    json.end_object();
  }
  json.end_object();
  return out;
}

HttpResponse refusal(int status, std::string_view message) {
  HttpResponse response;
  response.status = status;
  JsonWriter(response.body)
      .begin_object()
      .key("error")
      .begin_object()
      .member("message", message)
      .end_object()
      .end_object();
  return response;
}

int status_of(Code code) {
  switch (code) {
    case Code::kInvalidArgument: return 400;
    case Code::kNotFound: return 404;
    case Code::kResourceExhausted: return 409;
    default: return 503;
  }
}

// Members of a body; absent when they are of another kind.
std::optional<int64_t> integer(const JsonValue& body, std::string_view name) {
  const JsonValue* value = body.find(name);
  return value != nullptr ? value->int64() : std::nullopt;
}
std::string text(const JsonValue& body, std::string_view name, std::string fallback) {
  const JsonValue* value = body.find(name);
  return value != nullptr && value->string() != nullptr ? *value->string() : fallback;
}
const JsonValue::Array* array(const JsonValue& body, std::string_view name) {
  const JsonValue* value = body.find(name);
  return value != nullptr ? value->array() : nullptr;
}

HttpResponse refusal(const Error& error) { return refusal(status_of(error.code()), error.message()); }

class Server : public KvAdmin {
 public:
  Server(store::Store& store, store::GuardedTier* tier, TokenSource& tokens, const Clock& clock)
      : store_(store), tier_(tier), tokens_(tokens), clock_(clock) {}
  ~Server() override { http_.reset(); }

  Status listen(uint16_t port) {
    HttpServerOptions options;
    options.port = port;
    options.max_body_bytes = 8 << 20;
    options.error_response = [](int status, std::string message) { return refusal(status, message); };
    options.admit = [](const HttpRequest& head) -> HttpAdmission {
      if (const auto found = check_web_policy({}, head)) return {refusal(found->status, found->message)};
      return {.refusal = {}, .is_light = head.method == "GET"};
    };
    auto http = HttpServer::start(std::move(options), [this](std::shared_ptr<HttpExchange> exchange) {
      exchange->respond(answer(exchange->request()));
    });
    if (!http.ok()) return http.error();
    http_ = std::move(*http);
    return {};
  }
  uint16_t port() const override { return http_->port(); }

 private:
  HttpResponse answer(const HttpRequest& request) {
    const auto is = [&](std::string_view method, std::string_view path) {
      return request.method == method && request.path == path;
    };
    const auto below = [&](std::string_view method, std::string_view prefix) {
      return request.method == method && request.path.starts_with(prefix) && request.path.size() > prefix.size();
    };
    if (is("GET", "/kv/stats")) return {.body = stats_to_json(store_.stats(), tier_)};
    if (is("GET", "/kv/domains")) return list_domains();
    if (below("PUT", "/kv/quota/")) return set_quota(request.path.substr(10), request.body);
    if (below("DELETE", "/kv/domain/")) return delete_domain(request.path.substr(11));
    if (is("POST", "/kv/pin")) return pin(request.body);
    if (is("POST", "/kv/prefetch")) return prefetch(request.body);
    if (is("POST", "/kv/verify")) return verify(request.query);
    return refusal(404, fmt::format("Unknown path: {} {}.", request.method, request.path));
  }

  Result<uint32_t> domain_of(std::string_view name) {
    uint32_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc() && end == name.data() + name.size()) return number;
    const auto found = store_.find_domain(name);
    if (!found) return Error(Code::kNotFound, "No tenant '{}' has a domain.", name);
    return *found;
  }

  HttpResponse list_domains() {
    HttpResponse response;
    JsonWriter json(response.body);
    json.begin_array();
    for (const store::DomainInfo& domain : store_.domains()) {
      json.begin_object()
          .member("domain", domain.number)
          .member("live", domain.live)
          .member("class", store::class_name(domain.retention))
          .member("ttl_hours", domain.ttl_hours)
          .member("created_ms", domain.created_ms)
          .key("quota_bytes");
      if (domain.quota_bytes == UINT64_MAX) {
        json.null();
      } else {
        json.value(domain.quota_bytes);
      }
      json.end_object();
    }
    json.end_array();
    return response;
  }

  HttpResponse set_quota(const std::string& name, const std::string& body) {
    const auto domain = domain_of(name);
    if (!domain.ok()) return refusal(domain.error());
    const auto json = parse_json(body);
    if (!json.ok()) return refusal(json.error());
    const auto bytes = integer(*json, "bytes");
    const auto hours = integer(*json, "ttl_hours");
    const auto retention = class_of(text(*json, "class", "guaranteed"));
    if (!bytes || *bytes < 0 || !retention || (hours && (*hours < 1 || *hours > store::kMaxTtlHours))) {
      return refusal(400, "Expected {\"bytes\": n, \"class\": \"guaranteed\"|\"agent\"|\"public\"|\"best_effort\", "
                          "\"ttl_hours\": 1 to 480}.");
    }
    const Status status =
        store_.set_quota(*domain, static_cast<uint64_t>(*bytes), *retention, static_cast<uint32_t>(hours.value_or(72)));
    return status.ok() ? HttpResponse{.body = "{}"} : refusal(status.error());
  }

  HttpResponse delete_domain(const std::string& name) {
    const auto domain = domain_of(name);
    if (!domain.ok()) return refusal(domain.error());
    const Status status = store_.delete_domain(*domain);
    return status.ok() ? HttpResponse{.body = "{}"} : refusal(status.error());
  }

  HttpResponse pin(const std::string& body) {
    const auto json = parse_json(body);
    if (!json.ok()) return refusal(json.error());
    const auto domain = integer(*json, "domain");
    const auto ttl_s = integer(*json, "ttl_s");
    const JsonValue::Array* keys = array(*json, "keys");
    if (!domain || *domain < 0 || *domain > UINT32_MAX || !ttl_s || *ttl_s < 1 || *ttl_s > kLongestPin.count() ||
        keys == nullptr || keys->size() > kMostKeys) {
      return refusal(400, "Expected {\"domain\": number, \"keys\": [hexadecimal digests], \"ttl_s\": 1 to 604800}.");
    }
    std::vector<Digest> digests;
    for (const JsonValue& key : *keys) {
      const auto digest = digest_of(key.string() != nullptr ? *key.string() : "");
      if (!digest) return refusal(400, "keys: expected digests of 64 hexadecimal digits");
      digests.push_back(*digest);
    }
    store::Hit hit = store_.lookup(static_cast<uint32_t>(*domain), digests, Lineage::kDerived);
    const size_t pinned = hit.num_blocks();
    const std::lock_guard lock(mu_);
    const auto now = clock_.now();
    std::erase_if(pins_, [&](const Pin& one) { return one.until <= now; });
    if (pins_.size() >= kMostPins) return refusal(409, "Too many pins are held.");
    if (pinned > 0) pins_.push_back({std::move(hit), now + std::chrono::seconds(*ttl_s)});
    HttpResponse response;
    JsonWriter(response.body).begin_object().member("pinned_blocks", pinned).end_object();
    return response;
  }

  HttpResponse prefetch(const std::string& body) {
    const auto json = parse_json(body);
    if (!json.ok()) return refusal(json.error());
    const JsonValue::Array* ids = array(*json, "prompt_ids");
    if (ids == nullptr) return refusal(400, "Expected {\"tenant\": name, \"prompt_ids\": [...]}.");
    EngineRequest request;
    request.tenant = text(*json, "tenant", "default");
    request.max_tokens = 1;
    request.priority = kPrefetchPriority;
    // A name makes a domain, which is kept for ever: only those who were served have one.
    if (request.tenant != "default" && !store_.find_domain(request.tenant)) {
      return refusal(404, fmt::format("No tenant '{}' has a domain.", request.tenant));
    }
    for (const JsonValue& id : *ids) {
      const int64_t value = id.int64().value_or(-1);
      if (value < 0 || value >= tokens_.vocab_size()) {
        return refusal(400, fmt::format("prompt_ids[{}]: expected an integer from 0 to {}", request.prompt_ids.size(),
                                        tokens_.vocab_size() - 1));
      }
      request.prompt_ids.push_back(static_cast<int32_t>(value));
    }
    const auto id = tokens_.submit(std::move(request), [](const EngineEvent&) {});
    return id.ok() ? HttpResponse{.status = 202, .body = "{}"} : refusal(id.error());
  }

  HttpResponse verify(const std::string& query) {
    size_t records = 10'000;
    if (query.starts_with("records=")) {
      const auto [end, error] = std::from_chars(query.data() + 8, query.data() + query.size(), records);
      if (error != std::errc() || end != query.data() + query.size()) return refusal(400, "records: expected a number");
    }
    const size_t damaged = store_.scrub(records, clock_.now() + kVerifyLimit);
    HttpResponse response;
    JsonWriter(response.body).begin_object().member("damaged", damaged).end_object();
    return response;
  }

  struct Pin {
    store::Hit hit;
    Clock::time_point until;
  };
  store::Store& store_;
  store::GuardedTier* const tier_;
  TokenSource& tokens_;
  const Clock& clock_;
  std::mutex mu_;
  std::vector<Pin> pins_;  // guarded by mu_; those whose time is over go with the next one
  std::unique_ptr<HttpServer> http_;
};

}  // namespace

Result<std::unique_ptr<KvAdmin>> KvAdmin::start(uint16_t port, store::Store& store, store::GuardedTier* tier,
                                                TokenSource& tokens, const Clock& clock) {
  auto server = std::make_unique<Server>(store, tier, tokens, clock);
  RETURN_IF_ERROR(server->listen(port));
  return std::unique_ptr<KvAdmin>(std::move(server));
}

std::string kv_up_metric_text(bool up) {
  return fmt::format("# HELP deepinfer_kv_store_up {}\n# TYPE deepinfer_kv_store_up gauge\ndeepinfer_kv_store_up {}\n",
                     metric_help("kv_store_up"), up ? 1 : 0);
}

std::string kv_metrics_text(const store::StoreStats& stats, const store::GuardedTier* tier) {
  std::string text;
  const auto head = [&](std::string_view name, std::string_view type) {
    const std::string family = fmt::format("kv_{}", name);
    text += fmt::format("# HELP deepinfer_{0} {1}\n# TYPE deepinfer_{0} {2}\n", family, metric_help(family), type);
  };
  const auto one = [&](std::string_view name, std::string_view type, auto value) {
    head(name, type);
    text += fmt::format("deepinfer_kv_{} {}\n", name, value);
  };
  for (const auto& [name, value] : gauges_of(stats)) one(name, "gauge", value);
  one("retention_projected_seconds", "gauge", stats.projected_retention_s);
  for (const auto& [name, value] : counters_of(stats)) one(name + "_total", "counter", value);
  const auto labelled = [&](std::string_view name, std::string_view type, std::string_view label, auto&& values) {
    head(name, type);
    for (const auto& [key, value] : values) {
      text += fmt::format("deepinfer_kv_{}{{{}=\"{}\"}} {}\n", name, label, key, value);
    }
  };
  one("queue_oldest_seconds", "gauge", stats.oldest_queued_s);
  head("oldest_seconds", "gauge");
  for (size_t c = 0; c < store::kNumClasses; ++c) {
    text += fmt::format("deepinfer_kv_oldest_seconds{{class=\"{}\"}} {}\n",
                        store::class_name(static_cast<RetentionClass>(c)), stats.oldest_s[c]);
  }
  head("load_seconds", "histogram");
  append_histogram(text, "load_seconds", stats.load_latency);
  head("persist_seconds", "histogram");
  append_histogram(text, "persist_seconds", stats.persist_latency);
  labelled("dropped_total", "counter", "reason", drops_of(stats));
  labelled("misses_total", "counter", "reason", misses_of(stats));
  const auto by_drive = [&](std::string_view name, std::string_view type, auto&& get) {
    Values values;
    for (size_t i = 0; i < stats.drives.size(); ++i) values.emplace_back(std::to_string(i), get(stats.drives[i]));
    labelled(name, type, "drive", values);
  };
  using store::DriveStats;
  const auto full = [](const DriveStats& drive) { return drive.state.starts_with("full"); };
  by_drive("drive_up", "gauge", [&](const DriveStats& drive) { return uint64_t{drive.state == "ok" || full(drive)}; });
  by_drive("drive_full", "gauge", [&](const DriveStats& drive) { return uint64_t{full(drive)}; });
  by_drive("drive_used_bytes", "gauge", [](const DriveStats& drive) { return drive.used_bytes; });
  by_drive("drive_capacity_bytes", "gauge", [](const DriveStats& drive) { return drive.capacity_bytes; });
  by_drive("drive_written_bytes_total", "counter", [](const DriveStats& drive) { return drive.written_bytes; });
  by_drive("drive_reinserted_bytes_total", "counter", [](const DriveStats& drive) { return drive.reinserted_bytes; });
  by_drive("drive_device_bytes_total", "counter", [](const DriveStats& drive) { return drive.device_bytes; });
  by_drive("drive_corrupt_total", "counter", [](const DriveStats& drive) { return drive.corrupt; });
  by_drive("drive_read_errors_total", "counter", [](const DriveStats& drive) { return drive.read_errors; });
  by_drive("drive_reclaims_total", "counter", [](const DriveStats& drive) { return drive.reclaims; });
  if (tier == nullptr) return text;
  const store::TierStats tier_stats = tier->stats();
  one("tier_up", "gauge", uint64_t{!tier_stats.down});
  one("tier_latency_seconds", "gauge", tier_stats.latency_ms / 1e3);
  for (const auto& [name, value] : counters_of(tier_stats)) one(fmt::format("tier_{}_total", name), "counter", value);
  return text;
}

std::string kv_status_text(const store::StoreStats& stats, const store::GuardedTier* tier) {
  std::string text = fmt::format("kv_backend            {:>16}\nkv_records            {:>16}\nkv_persisted          {:>16}\n"
                                 "kv_queued_bytes       {:>16}\nkv_promised_bytes     {:>16}\nkv_demoted            {:>16}\n"
                                 "kv_evicted            {:>16}\nkv_expired            {:>16}\nkv_retention_hours    {:>16.0f}\n",
                                 stats.backend, stats.records, stats.persisted, stats.queued_bytes, stats.promised_bytes,
                                 stats.demoted, stats.evicted, stats.expired,
                                 std::min(1e6, stats.projected_retention_s / 3600));
  for (const store::DriveStats& drive : stats.drives) {
    text += fmt::format("kv_drive {}: {}; {} of {} MiB, {} records, {} damaged, {} read errors\n", drive.path, drive.state,
                        drive.used_bytes >> 20, drive.capacity_bytes >> 20, drive.records, drive.corrupt,
                        drive.read_errors);
  }
  if (tier == nullptr) return text;
  const store::TierStats tier_stats = tier->stats();
  text += fmt::format("kv_tier {}: {}; {:.1f} ms;", tier->name(), tier_stats.down ? "left alone after failures" : "ok",
                      tier_stats.latency_ms);
  for (const auto& [name, value] : counters_of(tier_stats)) text += fmt::format(" {} {}", value, name);
  return text + "\n";
}

}  // namespace deepinfer
