// What the service counts, as Prometheus text. The only file beside metrics.cc that would change with another
// library. Private to the room.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "api/generation.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "grammar/grammar.h"
#include "net/http_server.h"

namespace deepinfer {

enum class Protocol { kChat, kResponses, kMessages, kCompletions };
inline constexpr int kNumProtocols = 4;

// How a request ended.
enum class Outcome { kDone, kRefused, kFailed, kInterrupted, kClientGone };
inline constexpr int kNumOutcomes = 5;

// When things happened to one request.
struct RequestTimes {
  Clock::time_point arrived;
  std::optional<Clock::time_point> last_token;
};

// Thread-safe.
class ServiceMetrics {
 public:
  ServiceMetrics();
  ~ServiceMetrics();

  // Any answer to any request.
  void on_answer(int status);
  void on_refused(Protocol protocol);
  void on_token(RequestTimes& times, Clock::time_point now);
  void on_end(Protocol protocol, Outcome outcome, const Usage& usage, const RequestTimes& times,
              Clock::time_point now);

  // The text of GET /metrics.
  std::string text(const EngineStats& engine, const GrammarStats& grammar, const HttpServerStats& http) const;

 private:
  struct Families;
  const std::unique_ptr<Families> families_;
};

}  // namespace deepinfer
