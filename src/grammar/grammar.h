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
  enum class Kind { kJsonSchema, kRegex, kEbnf, kStructuralTag };
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
  std::string path;      // of the schema in the request
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
  int threads = 2;
  std::chrono::milliseconds time_limit{20'000};  // from compile() to its answer
  int64_t max_waiting = 256;
  int64_t cache_bytes = int64_t{256} << 20;
  int64_t max_grammar_bytes = int64_t{64} << 20;
  std::function<void(const GrammarSpec&)> before_compile = {};  // on the thread that compiles; for tests
};

// Numbers since the start, or of now.
struct GrammarStats {
  int64_t compiled = 0, hits = 0, refused = 0, timeouts = 0;
  int64_t compile_ns = 0, max_compile_ns = 0;  // of compiled ones
  int64_t waiting = 0, cached = 0, cached_bytes = 0;
};

// Every number with its name, in the order of the struct; for /metrics and /status.
std::vector<std::pair<std::string, int64_t>> name_stats(const GrammarStats& stats);

// Thread-safe. A compilation can't be stopped: one that runs over the limit keeps its thread, and up to 4
// further threads take such places.
class GrammarCompiler {
 public:
  // `vocab_size`: ids of the model's rows of logits. `end_ids`: what may end an answer. Control tokens are
  // not text: none but `text_tokens` can occur in a grammar's language.
  GrammarCompiler(const Tokenizer& tokenizer, int64_t vocab_size, std::vector<TokenId> end_ids,
                  std::vector<TokenId> text_tokens, const GrammarOptions& options = {});
  ~GrammarCompiler();

  using Compiled = Result<std::shared_ptr<const CompiledGrammar>>;
  // Calls `done` once, which must not throw: on this thread if the grammar is at hand or refused, else later
  // on one of the compiler's. kInvalidArgument: what the library can't read, or no text is of the language;
  // kResourceExhausted: too many wait, or too large; kDeadlineExceeded; kUnavailable after stop().
  void compile(const GrammarSpec& spec, std::function<void(Compiled)> done);

  // Refuses what waits and what comes, and waits for what is being compiled within its limit.
  void stop();

  int64_t vocab_size() const { return vocab_size_; }
  GrammarStats stats() const;

 private:
  struct Pool;
  const int64_t vocab_size_;
  const std::shared_ptr<Pool> pool_;  // shared with its threads
};

// A thread that was given up may still compile when its compiler is gone. False: one does so after `limit`, and the
// process must not destroy what it uses, but end by std::_Exit.
bool wait_for_given_up(std::chrono::milliseconds limit);

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
