#include "gateway/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <string>

#include "gateway/metric_names.h"

namespace deepinfer {
namespace {

constexpr std::array<const char*, kNumProtocols> kProtocolNames = {"chat_completions", "responses",
                                                                   "messages", "completions"};
constexpr std::array<const char*, kNumOutcomes> kOutcomeNames = {"done", "refused", "failed", "interrupted",
                                                                 "client_gone"};

double seconds(Clock::time_point::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

prometheus::Counter& counter(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
}
prometheus::Gauge& gauge(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
}
// Buckets of 1, 2.5, 5 a decade from `first`.
prometheus::Histogram& histogram(prometheus::Registry& registry, const char* name, const char* help,
                                 double first, int decades) {
  prometheus::Histogram::BucketBoundaries bounds;
  for (int i = 0; i < decades; ++i, first *= 10) {
    for (const double step : {1.0, 2.5, 5.0}) bounds.push_back(first * step);
  }
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, bounds);
}

}  // namespace

struct ServiceMetrics::Families {
  prometheus::Registry registry;
  std::array<std::array<prometheus::Counter*, kNumOutcomes>, kNumProtocols> requests;
  prometheus::Family<prometheus::Counter>& answers =
      prometheus::BuildCounter()
          .Name("deepinfer_http_answers_total")
          .Help("Answers to HTTP requests, refusals included, by status.")
          .Register(registry);
  prometheus::Gauge& connections = gauge(registry, "deepinfer_http_connections", "Open connections.");
  prometheus::Gauge& memory =
      gauge(registry, "deepinfer_http_memory_bytes", "Bodies of requests in work and whole answers not yet sent.");
  prometheus::Gauge& memory_limit = gauge(registry, "deepinfer_http_memory_limit_bytes", "Most of them.");
  prometheus::Counter& prompt_tokens =
      counter(registry, "deepinfer_prompt_tokens_total", "Tokens of prompts that were answered.");
  prometheus::Counter& cached_tokens =
      counter(registry, "deepinfer_cached_prompt_tokens_total", "Of these, tokens found in the KV cache.");
  prometheus::Counter& completion_tokens =
      counter(registry, "deepinfer_completion_tokens_total", "Tokens generated.");
  prometheus::Gauge& running =
      gauge(registry, "deepinfer_requests_running", "Requests in the engine's batch.");
  prometheus::Gauge& waiting =
      gauge(registry, "deepinfer_requests_waiting", "Requests in the engine's queue.");
  prometheus::Histogram& first_token = histogram(registry, "deepinfer_time_to_first_token_seconds",
                                                 "From the whole request to its first token.", 1e-3, 5);
  prometheus::Histogram& inter_token =
      histogram(registry, "deepinfer_inter_token_seconds", "Between two tokens of a request.", 1e-4, 5);
  prometheus::Histogram& duration = histogram(registry, "deepinfer_request_seconds",
                                              "From the whole request to the end of its answer.", 1e-2, 5);

  Families() {
    auto& family = prometheus::BuildCounter()
                       .Name("deepinfer_requests_total")
                       .Help("Requests by protocol and how they ended.")
                       .Register(registry);
    for (size_t p = 0; p < kNumProtocols; ++p) {
      for (size_t o = 0; o < kNumOutcomes; ++o) {
        requests[p][o] = &family.Add({{"protocol", kProtocolNames[p]}, {"status", kOutcomeNames[o]}});
      }
    }
  }
};

ServiceMetrics::ServiceMetrics() : families_(std::make_unique<Families>()) {}
ServiceMetrics::~ServiceMetrics() = default;

void ServiceMetrics::on_answer(int status) {
  families_->answers.Add({{"status", std::to_string(status)}}).Increment();
}

void ServiceMetrics::on_refused(Protocol protocol) {
  families_->requests[static_cast<size_t>(protocol)][static_cast<size_t>(Outcome::kRefused)]->Increment();
}

void ServiceMetrics::on_token(RequestTimes& times, Clock::time_point now) {
  if (times.last_token) {
    families_->inter_token.Observe(seconds(now - *times.last_token));
  } else {
    families_->first_token.Observe(seconds(now - times.arrived));
  }
  times.last_token = now;
}

void ServiceMetrics::on_end(Protocol protocol, Outcome outcome, const Usage& usage, const RequestTimes& times,
                            Clock::time_point now) {
  if (outcome == Outcome::kRefused) return;  // counted by on_refused()
  families_->requests[static_cast<size_t>(protocol)][static_cast<size_t>(outcome)]->Increment();
  families_->prompt_tokens.Increment(static_cast<double>(usage.prompt_tokens));
  families_->cached_tokens.Increment(static_cast<double>(usage.cached_tokens));
  families_->completion_tokens.Increment(static_cast<double>(usage.completion_tokens));
  families_->duration.Observe(seconds(now - times.arrived));
}

std::string ServiceMetrics::text(const EngineStats& engine, const GrammarStats& grammar,
                                 const HttpServerStats& http) const {
  families_->connections.Set(static_cast<double>(http.connections));
  families_->memory.Set(static_cast<double>(http.memory_bytes));
  families_->memory_limit.Set(static_cast<double>(http.max_memory_bytes));
  families_->running.Set(static_cast<double>(engine.running));
  families_->waiting.Set(static_cast<double>(engine.waiting));
  std::string text = prometheus::TextSerializer().Serialize(families_->registry.Collect());
  const auto add = [&text](std::string_view room, const auto& stats) {
    for (const auto& [name, value] : stats) {
      const std::string family = fmt::format("{}_{}", room, name);
      text += metric_head(family) + fmt::format("deepinfer_{} {}\n", family, value);
    }
  };
  add("engine", name_stats(engine));
  add("grammar", name_stats(grammar));
  return text;
}

}  // namespace deepinfer
