#include "grammar/worker.h"

#include <fcntl.h>
#include <malloc.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/log.h"
#include "grammar/compiled.h"
#include "grammar/packed_grammar.h"

extern char** environ;

// The library's own messages: warnings are of no use to the server's log, since prepare_* refuses what causes them.
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

constexpr int kSocket = 3;  // of a worker process
// The library keeps masks of rules, which schemas share (strings of one length, dates), and whole grammars; a third and
// two thirds of this. Failures are kept as well, without being counted, so all of it goes after so many of them.
constexpr int64_t kLibraryCacheBytes = int64_t{96} << 20;
constexpr int64_t kFailuresKept = 256;
// A worker that holds more than this when it has answered makes room for a fresh one.
constexpr int64_t kMostKeptBytes = int64_t{192} << 20;

struct Head {
  uint32_t kind = 0;   // of a grammar; of an answer, 0 or 1 + the code of its error
  uint32_t flags = 0;  // of a grammar, 1 when it is JSON; of an answer, 1 when it is the last of its worker
  uint64_t size = 0;
};

template <typename T>
void put(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
template <typename T>
T get(std::string_view& in) {
  T value;
  CHECK(in.size() >= sizeof(value));
  std::memcpy(&value, in.data(), sizeof(value));
  in.remove_prefix(sizeof(value));
  return value;
}

std::string message(uint32_t kind, uint32_t flags, std::string_view bytes) {
  std::string out;
  put(out, Head{kind, flags, bytes.size()});
  return out += bytes;
}

WorkerSetup unpack_setup(std::string_view in) {
  WorkerSetup setup;
  setup.vocab_size = get<int64_t>(in);
  setup.max_grammar_bytes = get<int64_t>(in);
  setup.memory_bytes = get<int64_t>(in);
  setup.end_ids.resize(get<uint64_t>(in));
  for (int32_t& id : setup.end_ids) id = get<int32_t>(in);
  setup.words.resize(get<uint64_t>(in));
  for (std::string& word : setup.words) {
    const auto size = get<uint32_t>(in);
    word = in.substr(0, size);
    in.remove_prefix(size);
  }
  return setup;
}

bool read_all(int fd, char* out, size_t size) {
  while (size > 0) {
    const ssize_t n = ::read(fd, out, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    out += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}
bool send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}
bool read_message(int fd, Head& head, std::string& bytes) {
  if (!read_all(fd, reinterpret_cast<char*>(&head), sizeof(head))) return false;
  bytes.resize(head.size);
  return read_all(fd, bytes.data(), bytes.size());
}

// What the library says to a client: one line, without the condition in its sources that failed.
std::string for_clients(std::string_view text) {
  constexpr std::string_view kEnd = ") is false: ";
  if (text.starts_with("Check failed: (")) {
    const size_t end = text.find(kEnd);
    text = end == std::string_view::npos ? "" : text.substr(end + kEnd.size());
  }
  text = text.substr(0, std::min<size_t>(text.find('\n'), 400));
  if (text.empty() || text.starts_with("Internal check failed")) return "it can't be compiled";
  return std::string(text);
}

// The library's own notation of a Lark grammar, whose negated classes leave out the U+FF5C that tags have.
std::string read_lark(const std::string& text) {
  const std::string written = xgrammar::Grammar::FromLark(text).ToString();
  std::string out;
  bool in_quotes = false;
  for (size_t i = 0; i < written.size(); ++i) {
    out += written[i];
    if (written[i] == '\\' && i + 1 < written.size()) {
      out += written[++i];
    } else if (written[i] == '"') {
      in_quotes = !in_quotes;
    } else if (!in_quotes && written[i] == '^' && i > 0 && written[i - 1] == '[') {
      out += "\\uff5c";
    }
  }
  return out;
}

JsonValue with_lark_read(const JsonValue& value) {
  if (const JsonValue::Array* list = value.array()) {
    JsonValue::Array out;
    for (const JsonValue& one : *list) out.push_back(with_lark_read(one));
    return out;
  }
  if (value.object() == nullptr) return value;
  if (const JsonValue* type = value.find("type"); type != nullptr && *type == JsonValue("lark"))
    return JsonValue::Object{{"type", "grammar"}, {"grammar", read_lark(*value.find("grammar")->string())}};
  JsonValue::Object out;
  for (const JsonMember& member : *value.object()) out.push_back({member.key, with_lark_read(member.value)});
  return out;
}

xgrammar::CompiledGrammar compile_spec(xgrammar::GrammarCompiler& compiler, const GrammarSpec& spec) {
  switch (spec.kind) {
    case GrammarSpec::Kind::kJsonSchema:
      return compiler.CompileJSONSchema(spec.text, true, std::nullopt, std::nullopt, true);
    case GrammarSpec::Kind::kEbnf:
      return compiler.CompileGrammar(spec.text);
    case GrammarSpec::Kind::kStructuralTag:
      if (spec.text.find(R"("type":"lark")") == std::string::npos) return compiler.CompileStructuralTag(spec.text);
      return compiler.CompileStructuralTag(to_json(with_lark_read(*parse_json(spec.text))));
  }
  throw std::runtime_error("unknown kind");
}

// Whether anything at all can be said: a grammar without a text, or with none that the vocabulary can spell.
bool says_nothing(const xgrammar::CompiledGrammar& grammar, int64_t vocab_size) {
  xgrammar::GrammarMatcher matcher(grammar);
  std::vector<uint32_t> mask(static_cast<size_t>(mask_words(vocab_size)));
  if (!fill_next_mask(matcher, mask)) return false;
  return std::all_of(mask.begin(), mask.end(), [](uint32_t word) { return word == 0; });
}

Result<std::string> answer(xgrammar::GrammarCompiler& compiler, const WorkerSetup& setup, const GrammarSpec& spec,
                           const BeforeCompile& before) {
  try {
    if (before) before(spec);
    const xgrammar::CompiledGrammar grammar = compile_spec(compiler, spec);
    const auto size = static_cast<int64_t>(grammar.MemorySizeBytes());
    if (size > setup.max_grammar_bytes)
      return Error(Code::kInvalidArgument, "grammar: compiled it takes {} bytes, expected at most {}", size,
                   setup.max_grammar_bytes);
    if (says_nothing(grammar, setup.vocab_size))
      return Error(Code::kInvalidArgument, "grammar: no text is of its language");
    return pack_grammar(grammar);
  } catch (const std::bad_alloc&) {
    return Error(Code::kInvalidArgument, "grammar: compiling it takes more than {} MiB of memory",
                 setup.memory_bytes >> 20);
  } catch (const std::exception& exception) {
    return Error(Code::kInvalidArgument, "grammar: {}", for_clients(exception.what()));
  }
}

// Address space as the limit of memory; not under sanitizers, which reserve all of it.
void limit_memory(int64_t bytes) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const auto limit = static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE) + bytes);
  const rlimit both = {limit, limit};
  if (bytes > 0 && pages > 0) ::setrlimit(RLIMIT_AS, &both);
#else
  (void)bytes;
#endif
}

int64_t kept_bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

}  // namespace

xgrammar::TokenizerInfo WorkerSetup::vocabulary() const {
  return xgrammar::TokenizerInfo(words, xgrammar::VocabType::RAW, static_cast<int>(vocab_size), end_ids);
}

std::string pack_setup(const WorkerSetup& setup) {
  std::string out;
  put(out, setup.vocab_size);
  put(out, setup.max_grammar_bytes);
  put(out, setup.memory_bytes);
  put(out, uint64_t{setup.end_ids.size()});
  for (const int32_t id : setup.end_ids) put(out, id);
  put(out, uint64_t{setup.words.size()});
  for (const std::string& word : setup.words) {
    put(out, static_cast<uint32_t>(word.size()));
    out += word;
  }
  return message(0, 0, out);
}

void serve_compilations(int socket, const BeforeCompile& before) {
  Head head;
  std::string bytes;
  if (!read_message(socket, head, bytes)) return;
  const WorkerSetup setup = unpack_setup(bytes);
  xgrammar::GrammarCompiler compiler(setup.vocabulary(), 1, true, kLibraryCacheBytes);
  if (setup.memory_bytes > 0) limit_memory(setup.memory_bytes);
  if (!send_all(socket, message(0, 0, {}))) return;  // ready
  const int64_t kept_at_start = kept_bytes();
  for (int64_t num_failures = 0; read_message(socket, head, bytes);) {
    const GrammarSpec spec{static_cast<GrammarSpec::Kind>(head.kind), bytes, (head.flags & 1) != 0};
    const Result<std::string> result = answer(compiler, setup, spec, before);
    const bool leaves = setup.memory_bytes > 0 && kept_bytes() - kept_at_start > kMostKeptBytes;
    const uint32_t kind = result.ok() ? 0 : 1 + static_cast<uint32_t>(result.error().code());
    const std::string& bytes_out = result.ok() ? *result : result.error().message();
    if (!send_all(socket, message(kind, leaves ? 1 : 0, bytes_out)) || leaves) return;
    if (!result.ok() && ++num_failures % kFailuresKept == 0) compiler.ClearCache();
  }
}

int run_grammar_worker(const std::function<void(const GrammarSpec&)>& before) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // of the thread that started it
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(signal, SIG_IGN);  // the socket ends it
  const rlimit no_core = {0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::setpriority(PRIO_PROCESS, 0, 5);  // answers that run go first
  std::ofstream("/proc/self/oom_score_adj") << 1000;
  serve_compilations(kSocket, before);
  return 0;
}

// ---- The compiler's side ----

namespace {

Result<pid_t> spawn(const std::vector<std::string>& command, int socket) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&files, socket, kSocket);
  posix_spawn_file_actions_addclosefrom_np(&files, kSocket + 1);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, words[0], &files, &attributes, words.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0)
    return Error(Code::kUnavailable, "grammar: no process to compile it could be started: {}", std::strerror(error));
  return pid;
}

}  // namespace

Result<std::unique_ptr<Worker>> Worker::start(const std::vector<std::string>& command,
                                              std::shared_ptr<const std::string> setup) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return Error(Code::kUnavailable, "grammar: no process to compile it could be started: {}", std::strerror(errno));
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  std::unique_ptr<Worker> worker(new Worker(ends[0], std::move(setup)));
  if (command.empty()) {
    worker->thread_ = std::thread([socket = ends[1]] {
      serve_compilations(socket);
      ::close(socket);
    });
    return worker;
  }
  const Result<pid_t> pid = spawn(command, ends[1]);
  ::close(ends[1]);
  if (!pid.ok()) return pid.error();
  worker->pid_ = *pid;
  return worker;
}

Worker::~Worker() {
  ::shutdown(socket_, SHUT_RDWR);
  end_process();
  if (thread_.joinable()) thread_.join();
  ::close(socket_);
}

void Worker::end_process() {
  if (pid_ < 0 || wait_status_) return;
  ::kill(pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  wait_status_ = status;
}

void Worker::compile(const GrammarSpec& spec) {
  to_send_.erase(0, std::exchange(sent_, 0));
  to_send_ += message(static_cast<uint32_t>(spec.kind), spec.is_json ? 1 : 0, spec.text);
  send_bytes();
}

void Worker::send_bytes() {
  while (has_to_send()) {
    const ssize_t n = ::send(socket_, to_send_.data() + sent_, to_send_.size() - sent_, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) ended_ = true;
    if (n <= 0) break;
    sent_ += static_cast<size_t>(n);
  }
  if (!has_to_send()) to_send_ = std::string(), sent_ = 0;
}

void Worker::receive_bytes() {
  char buffer[64 << 10];
  while (true) {
    const ssize_t n = ::recv(socket_, buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0 || (n < 0 && errno != EAGAIN)) ended_ = true;
    if (n <= 0) return;
    received_.append(buffer, static_cast<size_t>(n));
    if (!ready_ && received_.size() >= sizeof(Head)) {
      ready_ = true;
      received_.erase(0, sizeof(Head));
    }
  }
}

std::optional<Result<std::string>> Worker::take_answer() {
  if (received_.size() < sizeof(Head)) return std::nullopt;
  std::string_view bytes = received_;
  const Head head = get<Head>(bytes);
  if (bytes.size() < head.size) return std::nullopt;
  Result<std::string> answer = std::string(bytes);
  if (head.kind != 0) answer = Error(static_cast<Code>(head.kind - 1), "{}", bytes);
  received_ = std::string();
  ended_ = ended_ || (head.flags & 1) != 0;
  return answer;
}

Worker::End Worker::end() {
  if (pid_ < 0) return {"its thread ended", true};
  end_process();  // its socket may be seen to end before it can be waited for
  if (!WIFSIGNALED(*wait_status_))
    return {fmt::format("its process ended with exit code {}", WEXITSTATUS(*wait_status_)), true};
  const int signal = WTERMSIG(*wait_status_);
  return {fmt::format("its process ended by signal {}", signal), signal == SIGKILL || signal == SIGTERM};
}

}  // namespace deepinfer
