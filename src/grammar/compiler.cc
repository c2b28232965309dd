// Threads that compile, a cache by bytes, and a watch that ends what takes too long.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <list>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/log.h"
#include "grammar/compiled.h"

// The library's own messages: warnings are of no use to the server's log, since prepare_* refuses what causes
// them.
namespace xgrammar {
[[noreturn]] void LogFatalImpl(const std::string&, int, const std::string& message) {
  throw std::runtime_error(message);
}
void LogMessageImpl(const std::string&, int, int, const std::string& message) {
  deepinfer::log::debug("grammar: {}", message);
}
}  // namespace xgrammar

namespace deepinfer {
namespace {

using SteadyClock = std::chrono::steady_clock;

std::atomic<int> num_given_up{0};  // threads whose compiler is gone

constexpr int kMaxStuckThreads = 4;
// The library keeps masks of rules, which schemas share (strings of one length, dates), and whole grammars; a
// third and two thirds of this. Failures are kept as well, without being counted, so all of it goes after so
// many of them.
constexpr int64_t kLibraryCacheBytes = int64_t{192} << 20;
constexpr int64_t kFailuresKept = 256;

xgrammar::TokenizerInfo describe_vocabulary(const Tokenizer& tokenizer, int64_t vocab_size,
                                            const std::vector<TokenId>& end_ids,
                                            const std::vector<TokenId>& text_tokens) {
  std::vector<std::string> words(static_cast<size_t>(vocab_size));
  for (TokenId id = 0; id < std::min<int64_t>(vocab_size, tokenizer.vocab_size()); ++id) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    const bool is_control = tokenizer.id_of_added(tokenizer.token_spelling(id)) == id;
    if (is_control && std::find(text_tokens.begin(), text_tokens.end(), id) == text_tokens.end()) continue;
    words[static_cast<size_t>(id)] = bytes;
  }
  std::vector<int32_t> ends;
  for (const TokenId id : end_ids) {
    if (id < vocab_size) ends.push_back(id);
  }
  return xgrammar::TokenizerInfo(words, xgrammar::VocabType::RAW, static_cast<int>(vocab_size), ends);
}

// The tokens of white space alone.
std::vector<uint32_t> space_tokens(const Tokenizer& tokenizer, int64_t vocab_size) {
  std::vector<uint32_t> mask(static_cast<size_t>(mask_words(vocab_size)));
  for (TokenId id = 0; id < std::min<int64_t>(vocab_size, tokenizer.vocab_size()); ++id) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    const bool is_space = !bytes.empty() && bytes.find_first_not_of(" \t\r\n") == std::string_view::npos;
    if (is_space) mask[static_cast<size_t>(id) / 32] |= uint32_t{1} << id % 32;
  }
  return mask;
}

// One line, without where in the library's sources it was said.
std::string first_line(std::string_view text) {
  return std::string(text.substr(0, std::min<size_t>(text.find('\n'), 400)));
}

Result<xgrammar::CompiledGrammar> compile_spec(xgrammar::GrammarCompiler& compiler, const GrammarSpec& spec) {
  try {
    switch (spec.kind) {
      case GrammarSpec::Kind::kJsonSchema:
        return compiler.CompileJSONSchema(spec.text, true, std::nullopt, std::nullopt, true);
      case GrammarSpec::Kind::kRegex:
        return compiler.CompileRegex(spec.text);
      case GrammarSpec::Kind::kEbnf:
        return compiler.CompileGrammar(spec.text);
      case GrammarSpec::Kind::kStructuralTag:
        return compiler.CompileStructuralTag(spec.text);
    }
    return Error(Code::kInternal, "grammar: unknown kind");
  } catch (const std::bad_alloc&) {
    return Error(Code::kResourceExhausted, "grammar: no memory is left to compile it");
  } catch (const std::exception& exception) {
    return Error(Code::kInvalidArgument, "grammar: {}", first_line(exception.what()));
  }
}

// Whether anything at all can be said: a grammar without a text, or with none that the vocabulary can spell.
Status check_language(const CompiledGrammar& grammar, int64_t vocab_size) {
  try {
    xgrammar::GrammarMatcher matcher = grammar.start();
    std::vector<uint32_t> mask(static_cast<size_t>(mask_words(vocab_size)));
    if (!fill_next_mask(matcher, mask)) return {};
    if (std::any_of(mask.begin(), mask.end(), [](uint32_t word) { return word != 0; })) return {};
    return Error(Code::kInvalidArgument, "grammar: no text is of its language");
  } catch (const std::exception& exception) {
    return Error(Code::kInvalidArgument, "grammar: {}", first_line(exception.what()));
  }
}

}  // namespace

std::vector<std::pair<std::string, int64_t>> name_stats(const GrammarStats& stats) {
  return {{"compiled", stats.compiled},        {"hits", stats.hits},
          {"refused", stats.refused},          {"timeouts", stats.timeouts},
          {"compile_ns", stats.compile_ns},    {"max_compile_ns", stats.max_compile_ns},
          {"waiting", stats.waiting},          {"cached", stats.cached},
          {"cached_bytes", stats.cached_bytes}};
}

struct GrammarCompiler::Pool : std::enable_shared_from_this<Pool> {
  using Done = std::function<void(Compiled)>;

  // A grammar asked for: queued, in work, at hand, or given up.
  struct Entry {
    GrammarSpec spec;
    std::shared_ptr<const CompiledGrammar> grammar;  // at hand
    int64_t bytes = 0;
    std::vector<Done> waiting;
    SteadyClock::time_point deadline;
    bool running = false, late = false;
  };
  using EntryList = std::list<std::shared_ptr<Entry>>;

  Pool(const Tokenizer& tokenizer, int64_t vocab, const std::vector<TokenId>& end_ids,
       const std::vector<TokenId>& text_tokens, const GrammarOptions& given)
      : options(given),
        vocab_size(vocab),
        library(describe_vocabulary(tokenizer, vocab, end_ids, text_tokens), 1, true, kLibraryCacheBytes),
        spaces(std::make_shared<const std::vector<uint32_t>>(space_tokens(tokenizer, vocab))) {}

  static std::string key_of(const GrammarSpec& spec) {
    return fmt::format("{}{}", static_cast<int>(spec.kind), spec.text);
  }

  void add_thread() {  // under mu
    ++num_threads;
    threads.emplace_back([self = shared_from_this()]() mutable {
      const bool was_given_up = self->work();
      self.reset();
      if (was_given_up) --num_given_up;
    });
  }

  // True: the compiler did not wait for it.
  bool work() {
    while (true) {
      std::shared_ptr<Entry> entry;
      {
        std::unique_lock lock(mu);
        changed.wait(lock, [this] { return stopping || !queue.empty(); });
        if (stopping) break;
        entry = queue.front();
        if (entry->deadline > SteadyClock::now()) {
          queue.pop_front();
          entry->running = true;
        }
      }
      if (!entry->running) {  // the watch may not have looked yet
        end_late();
        continue;
      }
      const auto begin = SteadyClock::now();
      if (options.before_compile) options.before_compile(entry->spec);
      Compiled result = finish(compile_spec(library, entry->spec), entry->spec.is_json);
      if (!settle(entry, std::move(result), SteadyClock::now() - begin)) break;
    }
    const std::lock_guard lock(mu);
    --num_threads;
    ended.notify_all();
    return given_up;
  }

  Compiled finish(Result<xgrammar::CompiledGrammar> compiled, bool is_json) const {
    if (!compiled.ok()) return compiled.error();
    auto grammar = std::make_shared<const CompiledGrammar>(std::move(*compiled), is_json ? spaces : nullptr);
    if (grammar->size_bytes() > options.max_grammar_bytes) {
      return Error(Code::kResourceExhausted, "grammar: compiled it takes {} bytes, expected at most {}",
                   grammar->size_bytes(), options.max_grammar_bytes);
    }
    RETURN_IF_ERROR(check_language(*grammar, vocab_size));
    return std::shared_ptr<const CompiledGrammar>(std::move(grammar));
  }

  // Tells those who wait. False: this thread was given up meanwhile, another has its place.
  bool settle(const std::shared_ptr<Entry>& entry, Compiled result, SteadyClock::duration took) {
    std::vector<Done> waiting;
    bool go_on, forget = false;
    {
      const std::lock_guard lock(mu);
      go_on = !entry->late;
      if (entry->late) --num_stuck;
      waiting.swap(entry->waiting);
      entry->running = false;
      const std::string key = key_of(entry->spec);
      if (const auto own = entries.find(key); own != entries.end() && own->second == entry)
        entries.erase(own);
      if (result.ok() && cached.count(key) == 0) {
        const int64_t ns = std::chrono::nanoseconds(took).count();
        ++stats.compiled;
        stats.compile_ns += ns;
        stats.max_compile_ns = std::max(stats.max_compile_ns, ns);
        entry->grammar = *result;
        entry->bytes = (*result)->size_bytes() + static_cast<int64_t>(2 * key.size());
        keep(key, entry);
      } else if (!result.ok()) {
        forget = ++stats.refused % kFailuresKept == 0 && num_stuck == 0;
      }
    }
    for (const Done& done : waiting) done(result);
    if (forget) library.ClearCache();
    return go_on;
  }

  void keep(const std::string& key, const std::shared_ptr<Entry>& entry) {  // under mu
    if (entry->bytes > options.cache_bytes) return;
    recent.push_front(entry);
    cached[key] = recent.begin();
    stats.cached_bytes += entry->bytes;
    while (stats.cached_bytes > options.cache_bytes) {
      stats.cached_bytes -= recent.back()->bytes;
      cached.erase(key_of(recent.back()->spec));
      recent.pop_back();
    }
    stats.cached = std::ssize(recent);
  }

  // Ends what is late, and says when the next one may be. A thread that is stuck gets a substitute.
  SteadyClock::time_point end_late() {
    auto next = SteadyClock::time_point::max();
    std::vector<Done> waiting;
    {
      const std::lock_guard lock(mu);
      const auto now = SteadyClock::now();
      std::vector<std::shared_ptr<Entry>> late;
      for (const auto& [key, entry] : entries) {
        if (entry->deadline <= now) {
          late.push_back(entry);
        } else {
          next = std::min(next, entry->deadline);
        }
      }
      for (const auto& entry : late) {
        entry->late = true;
        ++stats.timeouts;
        for (Done& done : entry->waiting) waiting.push_back(std::move(done));
        entry->waiting.clear();
        entries.erase(key_of(entry->spec));
        if (!entry->running) {
          std::erase(queue, entry);
        } else if (++num_stuck <= kMaxStuckThreads) {
          add_thread();
        }
      }
    }
    const Error error(Code::kDeadlineExceeded, "grammar: not compiled after {} ms",
                      options.time_limit.count());
    for (const Done& done : waiting) done(error);
    return next;
  }

  void watch() {
    while (true) {
      const auto next = end_late();
      std::unique_lock lock(mu);
      if (stopping) return;
      const auto earliest = [this] {
        auto first = SteadyClock::time_point::max();
        for (const auto& [key, entry] : entries) first = std::min(first, entry->deadline);
        return first;
      };
      if (earliest() < next) continue;  // one came meanwhile
      if (next == SteadyClock::time_point::max()) {
        watched.wait(lock);
      } else {
        watched.wait_until(lock, next);
      }
    }
  }

  void compile(const GrammarSpec& spec, Done done) {
    const std::string key = key_of(spec);
    std::shared_ptr<const CompiledGrammar> at_hand;
    Error refusal(Code::kUnavailable, "grammar: the server is stopping");
    {
      const std::lock_guard lock(mu);
      if (const auto found = cached.find(key); found != cached.end()) {
        recent.splice(recent.begin(), recent, found->second);
        ++stats.hits;
        at_hand = (*found->second)->grammar;
      } else if (const auto same = entries.find(key); same != entries.end()) {
        ++stats.hits;
        same->second->waiting.push_back(std::move(done));
        return;
      } else if (!stopping && std::ssize(queue) < options.max_waiting) {
        auto entry = std::make_shared<Entry>();
        entry->spec = spec;
        entry->waiting.push_back(std::move(done));
        entry->deadline = SteadyClock::now() + options.time_limit;
        entries[key] = entry;
        queue.push_back(std::move(entry));
        changed.notify_one();
        watched.notify_one();
        return;
      } else if (!stopping) {
        refusal =
            Error(Code::kResourceExhausted, "grammar: {} others wait to be compiled", options.max_waiting);
      }
    }
    if (at_hand != nullptr) return done(std::move(at_hand));
    done(std::move(refusal));
  }

  const GrammarOptions options;
  const int64_t vocab_size;
  xgrammar::GrammarCompiler library;                          // thread-safe
  const std::shared_ptr<const std::vector<uint32_t>> spaces;  // shared with the grammars

  std::mutex mu;
  std::condition_variable changed, watched, ended;
  // All below guarded by mu.
  std::list<std::shared_ptr<Entry>> queue;
  std::unordered_map<std::string, std::shared_ptr<Entry>> entries;  // queued or in work
  EntryList recent;                                                 // at hand, last used first
  std::unordered_map<std::string, EntryList::iterator> cached;
  std::vector<std::thread> threads;
  std::thread watcher;
  int num_threads = 0, num_stuck = 0;
  bool stopping = false;
  bool given_up = false;  // what still runs when the compiler ends
  GrammarStats stats;
};

GrammarCompiler::GrammarCompiler(const Tokenizer& tokenizer, int64_t vocab_size, std::vector<TokenId> end_ids,
                                 std::vector<TokenId> text_tokens, const GrammarOptions& options)
    : vocab_size_(vocab_size),
      pool_(std::make_shared<Pool>(tokenizer, vocab_size, end_ids, text_tokens, options)) {
  const std::lock_guard lock(pool_->mu);
  for (int i = 0; i < std::max(1, options.threads); ++i) pool_->add_thread();
  pool_->watcher = std::thread([pool = pool_] { pool->watch(); });
}

GrammarCompiler::~GrammarCompiler() {
  stop();
  pool_->watcher.join();
  bool all_ended;
  {
    const std::lock_guard lock(pool_->mu);
    all_ended = pool_->num_threads == 0;
    pool_->given_up = true;
    num_given_up += pool_->num_threads;
  }
  // Those that are stuck hold the pool, and end with it when they come back.
  for (std::thread& thread : pool_->threads) all_ended ? thread.join() : thread.detach();
}

void GrammarCompiler::stop() {
  std::vector<Pool::Done> waiting;
  {
    std::unique_lock lock(pool_->mu);
    pool_->stopping = true;
    for (const auto& entry : pool_->queue) {
      for (Pool::Done& done : entry->waiting) waiting.push_back(std::move(done));
    }
    pool_->queue.clear();
    pool_->changed.notify_all();
    pool_->watched.notify_all();
    pool_->ended.wait(lock, [this] { return pool_->num_threads <= pool_->num_stuck; });
  }
  for (const Pool::Done& done : waiting) done(Error(Code::kUnavailable, "grammar: the server is stopping"));
}

bool wait_for_given_up(std::chrono::milliseconds limit) {
  const auto deadline = SteadyClock::now() + limit;
  while (num_given_up > 0 && SteadyClock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return num_given_up == 0;
}

void GrammarCompiler::compile(const GrammarSpec& spec, std::function<void(Compiled)> done) {
  pool_->compile(spec, std::move(done));
}

GrammarStats GrammarCompiler::stats() const {
  const std::lock_guard lock(pool_->mu);
  GrammarStats stats = pool_->stats;
  stats.waiting = std::ssize(pool_->entries);
  return stats;
}

}  // namespace deepinfer
