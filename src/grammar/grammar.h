// What an answer may say, as a grammar: JSON Schema, regular expressions, EBNF and structural tags become a
// mask over the vocabulary for every next token, with roll-back. A thin face on XGrammar, which no other room
// includes.
//
// A client's grammar is prepared (checked, bounded, rewritten: prepare_*), compiled on threads of its own,
// and then joined with what comes before it in the answer (thinking) to the OutputConstraint that the engine
// asks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "json/json.h"
#include "sampling/constraint.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

// ---- Preparing ----

// A prepared grammar as text; equal ones share what was compiled.
struct GrammarSpec {
  enum class Kind { kJsonSchema, kEbnf, kStructuralTag };
  Kind kind = Kind::kJsonSchema;
  std::string text;
  bool is_json = false;  // white space means nothing: no more than a few tokens of it follow each other
  friend bool operator==(const GrammarSpec&, const GrammarSpec&) = default;
};

// Each fails as "PATH: KEYWORD: what is wrong": kInvalidArgument for what is malformed, contradictory, empty
// or beyond the limits, kUnimplemented for what can't be enforced to the letter. docs/structured-outputs.md
// lists both. Bounded in time and memory whatever the input.
Result<GrammarSpec> prepare_json_object();
Result<GrammarSpec> prepare_json_schema(const JsonValue& schema, std::string_view path);
Result<GrammarSpec> prepare_regex(std::string_view pattern, std::string_view path);
Result<GrammarSpec> prepare_ebnf(std::string_view grammar, std::string_view path);  // its root rule is "root"
Result<GrammarSpec> prepare_choice(const std::vector<std::string>& choices, std::string_view path);
// XGrammar's structural tags, whose schemas and patterns are prepared as above.
Result<GrammarSpec> prepare_structural_tag(const JsonValue& tag, std::string_view path);

// How calls are spelt: "<" mark block ">" and so on (docs/spec/recipe.md 4.2).
struct CallTags {
  std::string mark, block, call, parameter;
};
struct CallableTool {
  std::string name;      // as the model writes it
  JsonValue parameters;  // JSON Schema of an object
  bool strict = false;   // a schema that can't be enforced is an error; else any arguments will do then
  std::string path;      // of the schema, or of the definition, in the request
  // Instead of `parameters`: one parameter "input", a text of this grammar. "lark" or "regex"; empty: none.
  std::string input_syntax = {}, input_grammar = {};
};
struct CallGrammar {
  enum class Where {
    kInsideBlock,  // the prompt opened the block
    kAtOnce,       // the answer is a block
    kAnywhere,     // text, and perhaps a block at its end
  };
  Where where = Where::kAtOnce;
  bool parallel = true;  // more than one call in the block
  CallTags tags;
  std::vector<CallableTool> tools;     // at least one
  std::optional<JsonValue> or_schema;  // kAnywhere: what is no block is JSON of that schema
  std::string or_path;
};
Result<GrammarSpec> prepare_calls(const CallGrammar& calls);

// ---- Compiling ----

class CompiledGrammar;  // immutable, thread-safe

struct GrammarOptions {
  // The program that compiles, with its arguments: what it does is run_grammar_worker(). Empty: threads of this process
  // do, which nothing can end; for programs that need no protection.
  std::vector<std::string> worker = {};
  int max_workers = 3;                            // at least 2
  std::chrono::milliseconds time_limit{20'000};   // from compile() to its answer
  std::chrono::milliseconds quick_limit{500};     // what takes longer leaves one worker to the others
  int64_t worker_bytes = int64_t{512} << 20;      // of one worker, above the vocabulary
  int64_t max_waiting = 256;
  int64_t max_waiting_of_client = 64;
  int64_t cache_bytes = int64_t{256} << 20;
  int64_t max_grammar_bytes = int64_t{64} << 20;
};

// Numbers since the start, or of now.
struct GrammarStats {
  int64_t compiled = 0, hits = 0, refused = 0, timeouts = 0;
  int64_t abandoned = 0;       // nobody waited for them any more
  int64_t workers_killed = 0;  // late, abandoned, or to let others pass
  int64_t workers_died = 0;    // of what they compiled
  int64_t compile_ns = 0, max_compile_ns = 0;  // of compiled ones
  int64_t waiting = 0, workers = 0, cached = 0, cached_bytes = 0;
};

// Every number with its name, in the order of the struct; for /metrics and /status.
std::vector<std::pair<std::string, int64_t>> name_stats(const GrammarStats& stats);

// Thread-safe. Grammars are compiled by processes that are ended when they are late, too large or no longer wanted. They
// start with the first grammar. Clients take turns; what is quick never waits for what is not.
class GrammarCompiler {
 public:
  // `vocab_size`: ids of the model's rows of logits. `end_ids`: what may end an answer. Control tokens are
  // not text: none but `text_tokens` can occur in a grammar's language.
  GrammarCompiler(const Tokenizer& tokenizer, int64_t vocab_size, std::vector<TokenId> end_ids,
                  std::vector<TokenId> text_tokens, const GrammarOptions& options = {});
  ~GrammarCompiler();

  using Compiled = Result<std::shared_ptr<const CompiledGrammar>>;
  // Calls `done` once, which must not throw: on this thread if the grammar is at hand or refused, else later
  // on the compiler's. kInvalidArgument: what the library can't read or not within its memory, or no text is of the
  // language; kResourceExhausted: too many wait; kDeadlineExceeded; kUnavailable: no process, or after stop().
  // The number is for cancel().
  uint64_t compile(const GrammarSpec& spec, std::function<void(Compiled)> done, std::string_view client = {});
  // Nobody waits for it any more: `done` is not called from now on, unless it is being called.
  void cancel(uint64_t request);

  // Refuses what waits, what is being compiled and what comes. Waits for no compilation.
  void stop();

  int64_t vocab_size() const { return vocab_size_; }
  GrammarStats stats() const;

 private:
  struct Pool;
  const int64_t vocab_size_;
  const std::unique_ptr<Pool> pool_;
};

// The whole work of a process that compiles; its socket is descriptor 3. `before` is for tests: it is called in front of
// each compilation.
int run_grammar_worker(const std::function<void(const GrammarSpec&)>& before = {});

// ---- Constraining ----

// An answer: free text up to and with the trigger, then the grammar's language, then an end id.
struct AnswerShape {
  std::shared_ptr<const CompiledGrammar> grammar;  // null: free text after the trigger too
  std::vector<TokenId> trigger_ids = {};           // empty: the grammar begins at once
  std::optional<TokenId> bound_id = {};     // ends the free text: the trigger's ids are forced behind it
  std::optional<int64_t> free_tokens = {};  // after so many the trigger is forced
  std::vector<TokenId> forbidden_ids = {};  // not in the free text before the trigger
};
std::shared_ptr<const OutputConstraint> make_constraint(AnswerShape shape, int64_t vocab_size);

}  // namespace deepinfer
