#include "apps/scripted_engine.h"

#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <list>
#include <mutex>
#include <thread>

#include "json/json.h"

namespace deepinfer {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int64_t kContextTokens = 131072;

struct Reply {
  std::string match;
  std::vector<TokenId> tokens;
  bool repeat = false;
  FinishReason finish = FinishReason::kStop;
  std::chrono::milliseconds delay{0};
  bool used_up = false;
};

Result<Reply> parse_reply(const std::string& line, const Tokenizer& tokenizer) {
  ASSIGN_OR_RETURN(const JsonValue json, parse_json(line));
  const JsonRef record(json);
  Reply reply;
  ASSIGN_OR_RETURN(const std::string text, record["reply"].string());
  reply.tokens = tokenizer.encode(text);
  if (record["match"].present()) {
    ASSIGN_OR_RETURN(reply.match, record["match"].string());
  }
  if (record["repeat"].present()) {
    ASSIGN_OR_RETURN(reply.repeat, record["repeat"].boolean());
  }
  if (record["delay_ms"].present()) {
    ASSIGN_OR_RETURN(const int64_t delay, record["delay_ms"].int64());
    if (delay < 0) return Error(Code::kInvalidArgument, "delay_ms: found {}, expected 0 or more", delay);
    reply.delay = std::chrono::milliseconds(delay);
  }
  if (record["finish"].present()) {
    ASSIGN_OR_RETURN(const std::string finish, record["finish"].string());
    if (finish != "stop" && finish != "length") {
      return Error(Code::kInvalidArgument, "finish: found '{}', expected stop or length", finish);
    }
    reply.finish = finish == "stop" ? FinishReason::kStop : FinishReason::kLength;
  }
  return reply;
}

// One answer that runs.
struct Running {
  uint64_t id = 0;
  int32_t answer_index = 0;
  std::vector<TokenId> tokens;
  size_t next = 0;
  FinishReason finish = FinishReason::kStop;
  std::chrono::milliseconds delay{0};
  SteadyClock::time_point due;
  int64_t prompt_tokens = 0;
  bool scored = false;
  bool paused = false;
  bool cancelled = false;
  EventSink sink;
};

// Thread-safe. One thread tells every event.
class ScriptedEngine : public TokenSource {
 public:
  ScriptedEngine(std::string path, std::vector<Reply> replies, const Tokenizer& tokenizer)
      : path_(std::move(path)),
        replies_(std::move(replies)),
        tokenizer_(tokenizer),
        thread_([this](std::stop_token stop) { loop(stop); }) {}

  Result<uint64_t> submit(EngineRequest request, EventSink sink) override {
    const std::string prompt = tokenizer_.decode(request.prompt_ids);
    const std::lock_guard lock(mu_);
    const uint64_t first_id = next_id_;
    std::list<Running> answers;
    for (int32_t i = 0; i < request.n; ++i) {
      const auto reply = std::find_if(replies_.begin(), replies_.end(), [&prompt](const Reply& candidate) {
        return !candidate.used_up && prompt.find(candidate.match) != std::string::npos;
      });
      if (reply == replies_.end())
        return Error(Code::kUnavailable, "{} has no reply left for this prompt", path_);
      reply->used_up = !reply->repeat;
      Running& running = answers.emplace_back();
      running.id = next_id_++;
      running.answer_index = i;
      running.tokens = reply->tokens;
      running.finish = reply->finish;
      if (std::ssize(running.tokens) > request.max_tokens) {
        running.tokens.resize(static_cast<size_t>(request.max_tokens));
        running.finish = FinishReason::kLength;
      }
      running.delay = reply->delay;
      running.due = SteadyClock::now() + reply->delay;
      running.prompt_tokens = std::ssize(request.prompt_ids);
      running.scored = request.top_logprobs.has_value();
      running.sink = sink;
    }
    running_.splice(running_.end(), answers);
    changed_.notify_all();
    return first_id;
  }

  void cancel(uint64_t id) override {
    change(id, [](Running& running) { running.cancelled = true; });
  }
  void finish(uint64_t id) override {
    change(id, [](Running& running) {
      running.next = running.tokens.size();
      running.finish = FinishReason::kStop;
      running.due = {};
      running.paused = false;
    });
  }
  void pause(uint64_t id) override {
    change(id, [](Running& running) { running.paused = true; });
  }
  void resume(uint64_t id) override {
    change(id, [](Running& running) { running.paused = false; });
  }
  EngineStats stats() const override {
    const std::lock_guard lock(mu_);
    EngineStats stats;
    stats.running = std::ssize(running_);
    return stats;
  }
  int64_t max_context_tokens() const override { return kContextTokens; }
  int64_t vocab_size() const override { return tokenizer_.vocab_size(); }

 private:
  template <typename Change>
  void change(uint64_t id, Change change) {
    const std::lock_guard lock(mu_);
    for (Running& running : running_) {
      if (running.id == id) change(running);
    }
    changed_.notify_all();
  }

  // The one to be told next: cancelled ones first, then by time.
  std::list<Running>::iterator next_due() {
    auto best = running_.end();
    for (auto it = running_.begin(); it != running_.end(); ++it) {
      if (it->cancelled) return it;
      if (!it->paused && (best == running_.end() || it->due < best->due)) best = it;
    }
    return best;
  }

  void loop(const std::stop_token& stop) {
    std::unique_lock lock(mu_);
    while (!stop.stop_requested()) {
      const auto running = next_due();
      if (running == running_.end()) {
        changed_.wait(lock, stop, [this] { return next_due() != running_.end(); });
        continue;
      }
      if (!running->cancelled && running->due > SteadyClock::now()) {
        changed_.wait_until(lock, stop, running->due, [] { return false; });
        continue;
      }
      tell(running, lock);
    }
    for (const Running& left : running_) left.sink(last_event(left, FinishReason::kCancelled));
  }

  static EngineEvent last_event(const Running& running, FinishReason reason) {
    EngineEvent event;
    event.kind = EngineEvent::Kind::kFinished;
    event.answer_index = running.answer_index;
    event.finish_reason = reason;
    event.prompt_tokens = running.prompt_tokens;
    event.completion_tokens = static_cast<int64_t>(running.next);
    return event;
  }

  void tell(std::list<Running>::iterator running, std::unique_lock<std::mutex>& lock) {
    const bool over = running->cancelled || running->next == running->tokens.size();
    EngineEvent event;
    const EventSink sink = running->sink;
    if (over) {
      event = last_event(*running, running->cancelled ? FinishReason::kCancelled : running->finish);
      running_.erase(running);
    } else {
      event.answer_index = running->answer_index;
      event.token_id = running->tokens[running->next++];
      if (running->scored) {
        TokenLogprobs logprobs;
        logprobs.chosen = {event.token_id, -0.5f};
        event.logprobs = std::make_shared<const TokenLogprobs>(std::move(logprobs));
      }
      running->due = std::max(running->due + running->delay, SteadyClock::now() - running->delay);
    }
    lock.unlock();  // the sink may not call back, but it takes its own lock
    sink(event);
    lock.lock();
  }

  const std::string path_;
  std::vector<Reply> replies_;  // guarded by mu_
  const Tokenizer& tokenizer_;
  mutable std::mutex mu_;
  std::condition_variable_any changed_;
  std::list<Running> running_;  // guarded by mu_
  uint64_t next_id_ = 1;        // guarded by mu_
  std::jthread thread_;         // last member: joined before the rest goes
};

}  // namespace

Result<std::unique_ptr<TokenSource>> open_scripted_engine(const std::string& path,
                                                          const Tokenizer& tokenizer) {
  std::ifstream file(path);
  if (!file) return Error(Code::kNotFound, "script '{}' can't be read", path);
  std::vector<Reply> replies;
  size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty()) continue;
    Result<Reply> reply = parse_reply(line, tokenizer);
    if (!reply.ok()) {
      return Error(Code::kInvalidArgument, "script '{}', line {}: {}", path, number, reply.error().message());
    }
    replies.push_back(std::move(*reply));
  }
  return std::unique_ptr<TokenSource>(std::make_unique<ScriptedEngine>(path, std::move(replies), tokenizer));
}

}  // namespace deepinfer
