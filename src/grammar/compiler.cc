// Who is compiled for next, and the cache. One thread looks after the workers; nothing else touches them.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/log.h"
#include "grammar/compiled.h"
#include "grammar/packed_grammar.h"
#include "grammar/worker.h"

namespace deepinfer {
namespace {

using SteadyClock = std::chrono::steady_clock;

WorkerSetup describe_vocabulary(const Tokenizer& tokenizer, int64_t vocab_size, const std::vector<TokenId>& end_ids,
                                const std::vector<TokenId>& text_tokens, const GrammarOptions& options) {
  WorkerSetup setup;
  setup.vocab_size = vocab_size;
  setup.max_grammar_bytes = options.max_grammar_bytes;
  setup.memory_bytes = options.worker.empty() ? 0 : options.worker_bytes;
  setup.words.resize(static_cast<size_t>(vocab_size));
  for (TokenId id = 0; id < std::min<int64_t>(vocab_size, tokenizer.vocab_size()); ++id) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    const bool is_control = tokenizer.id_of_added(tokenizer.token_spelling(id)) == id;
    if (is_control && std::find(text_tokens.begin(), text_tokens.end(), id) == text_tokens.end()) continue;
    setup.words[static_cast<size_t>(id)] = bytes;
  }
  for (const TokenId id : end_ids) {
    if (id < vocab_size) setup.end_ids.push_back(id);
  }
  return setup;
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

std::string key_of(const GrammarSpec& spec) { return fmt::format("{}{}", static_cast<int>(spec.kind), spec.text); }

}  // namespace

std::vector<std::pair<std::string, int64_t>> name_stats(const GrammarStats& stats) {
  return {{"compiled", stats.compiled},
          {"hits", stats.hits},
          {"refused", stats.refused},
          {"timeouts", stats.timeouts},
          {"abandoned", stats.abandoned},
          {"workers_killed", stats.workers_killed},
          {"workers_died", stats.workers_died},
          {"compile_ns", stats.compile_ns},
          {"max_compile_ns", stats.max_compile_ns},
          {"waiting", stats.waiting},
          {"workers", stats.workers},
          {"cached", stats.cached},
          {"cached_bytes", stats.cached_bytes}};
}

struct GrammarCompiler::Pool {
  using Done = std::function<void(Compiled)>;
  using Time = SteadyClock::time_point;

  // A grammar that somebody waits for: queued or being compiled.
  struct Job {
    GrammarSpec spec;
    std::string key, client;
    std::vector<std::pair<uint64_t, Done>> waiting;
    Time deadline;
    bool running = false;
    bool is_long = false;  // it was not done within the quick limit
  };
  using JobPtr = std::shared_ptr<Job>;

  struct Cached {
    std::string key;
    std::shared_ptr<const CompiledGrammar> grammar;
    int64_t bytes = 0;
  };

  // A worker and what it does; null where there is none.
  struct Desk {
    std::unique_ptr<Worker> worker;
    JobPtr job;
    Time begun;
  };

  // Calls to make once the lock is gone.
  struct Calls {
    std::vector<std::pair<Done, Compiled>> list;
    void add(Job& job, const Compiled& result) {
      for (auto& [id, done] : job.waiting) list.emplace_back(std::move(done), result);
      job.waiting.clear();
    }
    void make() {
      for (auto& [done, result] : std::exchange(list, {})) done(std::move(result));
    }
  };

  Pool(const Tokenizer& tokenizer, int64_t vocab, const std::vector<TokenId>& end_ids,
       const std::vector<TokenId>& text_tokens, const GrammarOptions& given)
      : options(given), spaces(std::make_shared<const std::vector<uint32_t>>(space_tokens(tokenizer, vocab))) {
    const WorkerSetup described = describe_vocabulary(tokenizer, vocab, end_ids, text_tokens, options);
    vocabulary.emplace(described.vocabulary());
    setup = std::make_shared<const std::string>(pack_setup(described));
    desks.resize(static_cast<size_t>(std::max(2, options.max_workers)));
    CHECK(wake_fd >= 0);
    manager = std::thread([this] { manage(); });
  }
  ~Pool() {
    stop();
    manager.join();
    ::close(wake_fd);
  }

  void wake() const {
    const uint64_t one = 1;
    (void)!::write(wake_fd, &one, sizeof(one));
  }

  // ---- Asking ----

  uint64_t compile(const GrammarSpec& spec, Done done, std::string_view client) {
    std::string key = key_of(spec);
    Calls calls;
    uint64_t id = 0;
    {
      const std::lock_guard lock(mu);
      id = ++last_request;
      if (const auto found = cached.find(key); found != cached.end()) {
        recent.splice(recent.begin(), recent, found->second);
        ++stats.hits;
        calls.list.emplace_back(std::move(done), found->second->grammar);
      } else if (const auto same = jobs.find(key); same != jobs.end()) {
        ++stats.hits;
        same->second->waiting.emplace_back(id, std::move(done));
      } else if (std::optional<Error> refusal = refuse(client)) {
        calls.list.emplace_back(std::move(done), std::move(*refusal));
      } else {
        auto job = std::make_shared<Job>();
        job->spec = spec;
        job->key = key;
        job->client = client;
        job->waiting.emplace_back(id, std::move(done));
        job->deadline = SteadyClock::now() + options.time_limit;
        jobs.emplace(std::move(key), std::move(job));
      }
    }
    calls.list.empty() ? wake() : calls.make();
    return id;
  }

  std::optional<Error> refuse(std::string_view client) const {  // under mu
    if (stopping) return Error(Code::kUnavailable, "grammar: the server is stopping");
    const int64_t of_client =
        std::count_if(jobs.begin(), jobs.end(), [&](const auto& one) { return one.second->client == client; });
    if (std::ssize(jobs) < options.max_waiting && of_client < options.max_waiting_of_client) return std::nullopt;
    return Error(Code::kResourceExhausted, "grammar: {} others wait to be compiled, {} of them of this client",
                 jobs.size(), of_client);
  }

  void cancel(uint64_t request) {
    Done dropped;  // ends behind the lock
    {
      const std::lock_guard lock(mu);
      for (const auto& [key, job] : jobs) {
        auto& waiting = job->waiting;
        const auto own = std::find_if(waiting.begin(), waiting.end(), [&](const auto& one) { return one.first == request; });
        if (own == waiting.end()) continue;
        dropped = std::move(own->second);
        waiting.erase(own);
        break;
      }
    }
    if (dropped) wake();
  }

  void stop() {
    {
      const std::lock_guard lock(mu);
      stopping = true;
    }
    wake();
    std::unique_lock lock(mu);
    ended.wait(lock, [this] { return has_ended; });
  }

  // ---- Managing; all below on the manager's thread ----

  void manage() {
    while (true) {
      Calls calls;
      std::optional<Time> next;
      bool stops;
      {
        const std::lock_guard lock(mu);
        stops = stopping;
        next = stops ? end_all(calls) : look_around(calls);
        stats.workers = num_workers();
      }
      calls.make();
      leaving.clear();
      if (stops) break;
      wait_until(next);
      for (Desk& desk : desks) {
        if (desk.worker) listen(desk);
      }
    }
    const std::lock_guard lock(mu);
    has_ended = true;
    ended.notify_all();
  }

  std::optional<Time> end_all(Calls& calls) {  // under mu
    for (Desk& desk : desks) {
      leaving.push_back(std::move(desk.worker));
      desk = {};
    }
    for (const auto& [key, job] : jobs) calls.add(*job, Error(Code::kUnavailable, "grammar: the server is stopping"));
    jobs.clear();
    return std::nullopt;
  }

  void wait_until(std::optional<Time> next) const {
    std::vector<pollfd> fds = {{wake_fd, POLLIN, 0}};
    for (const Desk& desk : desks) {
      if (!desk.worker) continue;
      fds.push_back({desk.worker->socket(), static_cast<short>(POLLIN | (desk.worker->has_to_send() ? POLLOUT : 0)), 0});
    }
    int timeout = -1;
    if (next) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - SteadyClock::now()).count();
      timeout = static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
    }
    ::poll(fds.data(), fds.size(), timeout);
    uint64_t count = 0;
    (void)!::read(wake_fd, &count, sizeof(count));
  }

  // Ends what is late or unwanted, lets the quick pass the slow, and sets workers to work. When to look again.
  std::optional<Time> look_around(Calls& calls) {  // under mu
    const Time now = SteadyClock::now();
    for (auto at = jobs.begin(); at != jobs.end();) {
      const JobPtr job = (at++)->second;
      if (job->waiting.empty()) {
        ++stats.abandoned;
        forget(job);
      } else if (job->deadline <= now) {
        ++stats.timeouts;
        calls.add(*job, Error(Code::kDeadlineExceeded, "grammar: not compiled after {} ms", options.time_limit.count()));
        forget(job);
      }
    }
    make_room(now);
    while (Desk* desk = idle_desk()) {
      const JobPtr job = next_job();
      if (!job || !begin(*desk, job, now, calls)) break;
    }
    return next_look(now);
  }

  void forget(const JobPtr& job) {
    for (Desk& desk : desks) {
      if (desk.job == job) end_worker(desk);
    }
    jobs.erase(job->key);
  }
  void end_worker(Desk& desk) {
    leaving.push_back(std::move(desk.worker));
    desk = {};
    ++stats.workers_killed;
  }

  // One desk is kept for what may be quick, and one for the long grammars of other clients.
  bool has_room_for_long(const std::string& client) const {
    int64_t num_long = 0, of_client = 0;
    for (const Desk& desk : desks) {
      if (!desk.job || !desk.job->is_long) continue;
      ++num_long;
      of_client += desk.job->client == client ? 1 : 0;
    }
    return num_long + 1 < std::ssize(desks) && of_client < std::max<int64_t>(1, std::ssize(desks) - 2);
  }
  // So far.
  static bool is_quick(const Desk& desk) { return desk.job && !desk.job->is_long && desk.worker->is_ready(); }
  bool somebody_quick_waits() const {
    return std::any_of(jobs.begin(), jobs.end(),
                       [](const auto& one) { return !one.second->running && !one.second->is_long; });
  }

  // A job that is not quick becomes a long one; where there is no room for it and others wait, it waits as well, and
  // begins anew.
  void make_room(Time now) {
    for (Desk& desk : desks) {
      if (!is_quick(desk) || now - desk.begun < options.quick_limit) continue;
      if (has_room_for_long(desk.job->client)) {
        desk.job->is_long = true;
      } else if (somebody_quick_waits()) {
        desk.job->is_long = true;
        desk.job->running = false;
        end_worker(desk);
      }
    }
  }

  Desk* idle_desk() {
    Desk* empty = nullptr;
    for (Desk& desk : desks) {
      if (desk.worker && !desk.job) return &desk;
      if (!desk.worker) empty = &desk;
    }
    return empty;
  }

  // Long ones first where there is room for one, since only then they may run; the client that has waited longest, and
  // of its grammars the shortest.
  JobPtr next_job() {
    JobPtr best;
    std::tuple<bool, int64_t, uint64_t, size_t> best_rank;
    for (const auto& [key, job] : jobs) {
      if (job->running || (job->is_long && !has_room_for_long(job->client))) continue;
      const std::tuple rank(!job->is_long, num_running_of(job->client), last_turns[job->client], job->spec.text.size());
      if (!best || rank < best_rank) best = job, best_rank = rank;
    }
    return best;
  }
  int64_t num_running_of(const std::string& client) const {
    return std::count_if(desks.begin(), desks.end(),
                         [&](const Desk& desk) { return desk.job && desk.job->client == client; });
  }

  // False: no worker could be started, and one is there that will be idle again.
  bool begin(Desk& desk, const JobPtr& job, Time now, Calls& calls) {
    if (!desk.worker) {
      Result<std::unique_ptr<Worker>> started = Worker::start(options.worker, setup);
      if (!started.ok()) {
        log::warn("{}", started.error().message());
        if (num_workers() > 0) return false;
        calls.add(*job, started.error());
        jobs.erase(job->key);
        return true;
      }
      desk.worker = std::move(*started);
    }
    job->running = true;
    if (last_turns.size() > 4096) last_turns.clear();
    last_turns[job->client] = ++num_turns;
    desk.job = job;
    desk.begun = now;
    desk.worker->compile(job->spec);
    return true;
  }
  int64_t num_workers() const {
    return std::count_if(desks.begin(), desks.end(), [](const Desk& desk) { return desk.worker != nullptr; });
  }

  std::optional<Time> next_look(Time now) const {
    std::optional<Time> next;
    const auto no_later = [&](Time time) {
      if (!next || time < *next) next = time;
    };
    for (const auto& [key, job] : jobs) no_later(job->deadline);
    if (!somebody_quick_waits()) return next;
    for (const Desk& desk : desks) {
      if (is_quick(desk) && now - desk.begun < options.quick_limit) no_later(desk.begun + options.quick_limit);
    }
    return next;
  }

  // Takes what the worker has said.
  void listen(Desk& desk) {
    const bool was_ready = desk.worker->is_ready();
    desk.worker->send_bytes();
    desk.worker->receive_bytes();
    if (!was_ready) desk.begun = SteadyClock::now();  // only what the grammar takes counts
    std::optional<Result<std::string>> answer = desk.worker->take_answer();
    const bool has_died = !answer && desk.worker->ended();
    if (!answer && !has_died) return;
    const JobPtr job = std::exchange(desk.job, nullptr);
    const auto took = SteadyClock::now() - desk.begun;
    if (has_died && job) {
      const Worker::End end = desk.worker->end();
      answer = end.by_system ? Error(Code::kUnavailable, "grammar: the system ended its compilation ({})", end.how)
                             : Error(Code::kInvalidArgument, "grammar: it is too deep or too large to compile ({})",
                                     end.how);
      log::warn("a grammar of {} bytes ended its compilation: {}", job->spec.text.size(), end.how);
    }
    if (desk.worker->ended()) desk = {};
    if (job) settle(job, finish(std::move(*answer), job->spec.is_json), took, has_died);
  }

  Compiled finish(Result<std::string> packed, bool is_json) const {
    if (!packed.ok()) return packed.error();
    try {
      return std::make_shared<const CompiledGrammar>(unpack_grammar(*packed, *vocabulary), is_json ? spaces : nullptr);
    } catch (const std::bad_alloc&) {
      return Error(Code::kResourceExhausted, "grammar: no memory is left for it");
    } catch (const std::exception& exception) {
      return Error(Code::kInternal, "grammar: {}", exception.what());
    }
  }

  void settle(const JobPtr& job, const Compiled& result, SteadyClock::duration took, bool has_died) {
    Calls calls;
    {
      const std::lock_guard lock(mu);
      calls.add(*job, result);
      jobs.erase(job->key);
      if (has_died) ++stats.workers_died;
      if (result.ok()) {
        const int64_t ns = std::chrono::nanoseconds(took).count();
        ++stats.compiled;
        stats.compile_ns += ns;
        stats.max_compile_ns = std::max(stats.max_compile_ns, ns);
        keep(job->key, *result);
      } else {
        ++stats.refused;
      }
    }
    calls.make();
  }

  void keep(const std::string& key, std::shared_ptr<const CompiledGrammar> grammar) {  // under mu
    const int64_t bytes = grammar->size_bytes() + static_cast<int64_t>(2 * key.size());
    if (bytes > options.cache_bytes) return;
    recent.push_front({key, std::move(grammar), bytes});
    cached[key] = recent.begin();
    stats.cached_bytes += bytes;
    while (stats.cached_bytes > options.cache_bytes) {
      stats.cached_bytes -= recent.back().bytes;
      cached.erase(recent.back().key);
      recent.pop_back();
    }
    stats.cached = std::ssize(recent);
  }

  const GrammarOptions options;
  std::optional<xgrammar::TokenizerInfo> vocabulary;
  std::shared_ptr<const std::string> setup;
  const std::shared_ptr<const std::vector<uint32_t>> spaces;  // shared with the grammars
  const int wake_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  std::vector<Desk> desks;                        // of the manager
  std::vector<std::unique_ptr<Worker>> leaving;  // of the manager; they end without the lock
  std::thread manager;

  std::mutex mu;
  std::condition_variable ended;
  // All below guarded by mu.
  std::unordered_map<std::string, JobPtr> jobs;
  std::unordered_map<std::string, uint64_t> last_turns;  // of each client
  uint64_t num_turns = 0, last_request = 0;
  std::list<Cached> recent;  // last used first
  std::unordered_map<std::string, std::list<Cached>::iterator> cached;
  bool stopping = false, has_ended = false;
  GrammarStats stats;
};

GrammarCompiler::GrammarCompiler(const Tokenizer& tokenizer, int64_t vocab_size, std::vector<TokenId> end_ids,
                                 std::vector<TokenId> text_tokens, const GrammarOptions& options)
    : vocab_size_(vocab_size),
      pool_(std::make_unique<Pool>(tokenizer, vocab_size, end_ids, text_tokens, options)) {}

GrammarCompiler::~GrammarCompiler() = default;

void GrammarCompiler::stop() { pool_->stop(); }

uint64_t GrammarCompiler::compile(const GrammarSpec& spec, std::function<void(Compiled)> done,
                                  std::string_view client) {
  return pool_->compile(spec, std::move(done), client);
}

void GrammarCompiler::cancel(uint64_t request) { pool_->cancel(request); }

GrammarStats GrammarCompiler::stats() const {
  const std::lock_guard lock(pool_->mu);
  GrammarStats stats = pool_->stats;
  stats.waiting = std::ssize(pool_->jobs);
  return stats;
}

}  // namespace deepinfer
