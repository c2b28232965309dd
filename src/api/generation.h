// What every protocol asks for and how every protocol tells an answer: the one form between the wire and the
// engine. A protocol turns its body into a GenerationRequest and brings an AnswerWriter; the caller that runs the
// request knows no protocol.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/error.h"
#include "base/context_mode.h"
#include "base/status.h"
#include "recipe/recipe.h"
#include "sampling/sampling.h"

namespace deepinfer {

// ---- The request ----

// A prompt without a conversation (Completions): ids when given, else text, with a hole before `suffix` if
// there is one.
struct RawPrompt {
  std::string text;
  std::optional<std::string> suffix;
  std::optional<std::vector<TokenId>> ids;
};

// What the answers must be, as the client wrote it; the caller that runs the request checks and compiles it.
struct OutputGrammar {
  enum class Kind { kJsonObject, kJsonSchema, kRegex, kEbnf, kChoice, kStructuralTag };
  Kind kind = Kind::kJsonObject;
  JsonValue value = {};                   // kJsonSchema, kStructuralTag
  std::string text = {};                  // kRegex, kEbnf
  std::vector<std::string> choices = {};  // kChoice
  std::string path;                       // of the above in the request
};

struct GenerationRequest {
  Conversation conversation;           // what is rendered, unless raw_prompts holds something
  std::vector<RawPrompt> raw_prompts;  // each gets n answers
  SamplingParams sampling;             // sampling.seed is left 0; see seed
  std::optional<uint64_t> seed;        // absent: the server takes any
  std::optional<int64_t> max_tokens;
  int64_t min_tokens = 0;                                 // the answer does not end by itself before
  bool ignores_end = false;                               // nor ever: the model's end tokens are not drawn
  std::vector<TokenId> stop_token_ids;                    // end it too
  std::optional<std::vector<TokenId>> allowed_token_ids;  // only these are drawn; to end, they need an end token
  std::vector<std::string> stop_sequences;
  int32_t n = 1;                        // answers to each prompt
  std::optional<int32_t> top_logprobs;  // present: log probabilities of the tokens, and of so many others
  bool parallel_tool_calls = true;
  bool salvage = true;           // calls in broken markup are understood too
  bool drops_old_turns = false;  // those that do not fit the context, the oldest first
  std::optional<OutputGrammar> grammar;
  std::vector<TokenId> trigger_ids;  // the grammar begins behind them instead of behind the thinking
  std::optional<TokenId> bound_id;   // ends what comes before: the trigger follows
  bool constrains_calls = false;     // calls keep to their tools' schemas even where none is strict or forced
  std::optional<int64_t> thinking_budget;  // most tokens of thinking
  bool stream = false;
  std::optional<ContextMode> context_mode;  // absent: the server's
  bool speculation = true;  // drafts may be used, where the server does so at all
  std::string user_id, cache_salt;  // cached prompts are shared only where both are equal
};

// Without the `count` oldest turns; a turn begins with a message of the user. What stands before the first
// and system messages stay, and so does the last turn.
Conversation without_oldest_turns(const Conversation& conversation, int64_t count);
int64_t num_turns(const Conversation& conversation);

// What a max_tokens is that the context has no room for.
enum class LongAnswer {
  kClamp,   // a bound: the answer gets what is left
  kRefuse,  // a request that can't be met, as DeepSeek's service has it
};

// How many tokens may be generated: what the request says, or 8192 without thinking, 65536 with, 131072 with
// effort max, lowered to what the context leaves (docs/spec/recipe.md 7.4). kInvalidArgument when prompt and answer do
// not fit.
Result<int64_t> resolve_max_tokens(const GenerationRequest& request, int64_t prompt_tokens, int64_t context_tokens,
                                   LongAnswer too_long = LongAnswer::kRefuse);

// ---- The answer ----

// What one answer carries beside its text.
struct AnswerIdentity {
  std::string id;       // "chatcmpl-...", "msg_...", "resp_...", "cmpl-..."
  int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string system_fingerprint;
  uint64_t call_id_key = 0;  // call ids are drawn from it; another one for each answer
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt, found in the KV cache
  int64_t completion_tokens = 0;
  std::optional<int64_t> reasoning_tokens;  // of the completion; only when thinking
  std::optional<ContextMode> context_mode = {};  // in which it ran
};

enum class AnswerEnd {
  kStop,           // the model ended it
  kStopSequence,   // one of the request's stop sequences
  kToolCalls,      // it ended with calls
  kLength,         // the token limit
  kContentFilter,  // refused; this server never does
  kInterrupted,    // the server ended it
};

struct AnswerEnding {
  AnswerEnd end = AnswerEnd::kStop;
  std::string stop_sequence = {};  // kStopSequence: which one
};

// A token and how likely it was.
struct ScoredToken {
  struct Entry {
    std::string bytes;
    float logprob = 0;
  };
  Entry chosen;
  std::vector<Entry> top;
  TokenId id = 0;
};

// Turns what happens to the answers of one request into the bytes of its response. A stream writer appends
// whole frames as they come; the writer of a whole answer appends its body at the end. Owned by one request.
//
// Order of calls: start; then for each answer any number of add and one end; fail or cancel ends all of it at any
// time.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  // `usage` grows with the answer and outlives the writer's other calls.
  virtual void start(const Usage& usage, std::string& out) = 0;
  // `tokens` have become text with this event; empty unless log probabilities were asked for.
  virtual void add(int32_t answer, const OutputEvent& event, const std::vector<ScoredToken>& tokens,
                   std::string& out) = 0;
  // `total` is present with the last answer that ends.
  virtual void end(int32_t answer, const AnswerEnding& ending, const Usage* total, std::string& out) = 0;
  virtual void fail(const ApiError& error, std::string& out) = 0;
  // Ends all of it because the client wants no more, or is gone. For writers whose answer is kept.
  virtual void cancel(const Usage& so_far, std::string& out) { (void)so_far, (void)out; }
  // The status of an answer that failed before its first byte, as the protocol numbers it.
  virtual int http_status(const ApiError& error) const { return error.http_status; }

  virtual bool is_stream() const = 0;
  // Whether end() can tell that the server ended an answer; where not, fail() is called instead.
  virtual bool tells_interruption() const = 0;
  // What may be sent while nothing happens.
  virtual std::string_view keep_alive() const = 0;
};

// "call_NN_", 20 letters and digits, 4 digits (docs/spec/recipe.md 5.8). Unique for (key, index).
std::string make_call_id(uint64_t key, int64_t index);

// JSON that was cut anywhere, closed so that it parses where that is possible: an open string ends, a member
// without its value goes. Text that was not cut comes back as it is.
std::string close_cut_json(std::string_view text);

}  // namespace deepinfer
