// The service: HTTP routes to the engine and back. Chat Completions, Responses, Messages, Completions, what
// goes with them, and a page to try them.
//
// A request is parsed, rendered, encoded and later decoded and formatted on the HTTP worker threads; the
// engine thread only hands over token ids.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "gateway/token_source.h"
#include "net/http_server.h"
#include "recipe/recipe.h"
#include "store/store.h"
#include "store/tiers/tier.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

struct GatewayOptions {
  std::vector<std::string> grammar_worker;  // GrammarOptions::worker
  // error_response, admit, on_answer and max_body_bytes are set by the gateway; max_memory_bytes is raised to twice a
  // body.
  HttpServerOptions http;
  size_t max_body_bytes = 0;  // 0: by the context that answers have (see body_limit)
  std::string served_model_name;
  std::string system_fingerprint;  // "-" and the context mode of the request are put behind it
  ContextMode context_mode = ContextMode::kStable;  // of requests that name none
  std::string api_key;       // empty: everyone may ask
  std::string allow_origin;  // of pages elsewhere, or "*"; empty: none
  // Names under which the server may be asked, beside localhost, bare addresses and http.host; "*": any. Looked at only
  // without a key.
  std::vector<std::string> allow_hosts;
  // Shares of clients are parts of these: answers that advance at once, and answers that may wait for it.
  int64_t running_answers = 32, waiting_answers = 1024;
  // Streams say that they live, and whole answers send white space, when nothing else was said for so long.
  std::chrono::milliseconds keep_alive_interval{10'000};
  // A reader with more than this unread gets no more until it has read all of it; its answer pauses.
  size_t max_unsent_bytes = 256 << 10;
  // A max_tokens beyond the rest of the context is a bound; true: it is refused.
  bool strict_max_tokens = false;
  PromptFormat prompt_format;  // version kV41; the profile and the efforts may be others
  // Thoughts kept for clients that send a call back without its reasoning.
  size_t max_reasoning_memory_bytes = 16 << 20;
  std::string response_store_path;  // a file for stored responses; empty: memory, until the process ends
  std::chrono::seconds response_time_to_live{std::chrono::hours(24 * 30)};
  int64_t max_response_bytes_per_key = int64_t{256} << 20;
};

// Borrowed; all outlive the gateway.
struct GatewayParts {
  TokenSource& tokens;
  const Tokenizer& tokenizer;
  const Clock& clock;
  std::function<uint64_t()> random;  // seeds and ids; thread-safe
  store::Store* store = nullptr;     // for /metrics and /status; null: none
  store::GuardedTier* tier = nullptr;  // the same
};

// How long a body may be: 128 bytes for each token of the context (escapes, names and punctuation included), at least
// 8 MiB, at most 64.
size_t body_limit(int64_t context_tokens);

// Thread-safe.
class Gateway {
 public:
  // Listens and serves at once. kNotFound: the tokenizer lacks a control token that every prompt needs.
  static Result<std::unique_ptr<Gateway>> start(GatewayOptions options, GatewayParts parts);
  virtual ~Gateway() = default;  // stops without grace

  virtual uint16_t port() const = 0;
  // Takes no new requests, ends running answers where they are (finish_reason "insufficient_system_resource")
  // and waits until every connection is closed. False: some were left at the deadline, and are cut.
  virtual bool stop(std::chrono::milliseconds timeout) = 0;
};

}  // namespace deepinfer
