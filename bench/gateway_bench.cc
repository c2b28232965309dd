// What the service adds between an engine and its clients. The engine is a thread that hands every stream a
// token at a steady pace; the clients are a process of their own. Each run has a control: the same bytes,
// written to the same number of sockets by plain send() calls.
//
//   gateway_bench [--seconds S]
//
//   events    256 streams, as many tokens a second as are asked for: events for a second of processor time
//   latency   1,000 streams, 10 tokens a second each: from the engine's call to the client's read
//   idle      20,000 open streams that say nothing: memory of the process
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "gateway/gateway.h"
#include "source_path.h"

namespace deepinfer {
namespace {

constexpr int kMaxStreams = 20'000;
constexpr int kRing = 64;  // tokens of a stream whose time is remembered
constexpr size_t kMaxSamples = 1 << 20;

int64_t now_ns() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// Shared by the two processes.
struct Board {
  std::atomic<int> port{0};
  std::atomic<int> num_open{0};  // streams whose first frame came
  std::atomic<bool> over{false};
  std::atomic<int64_t> events{0};
  std::atomic<size_t> num_samples{0};
  std::atomic<int64_t> sent_ns[kMaxStreams][kRing];
  int64_t samples_ns[kMaxSamples];
};

Board* make_board() {
  void* memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : new (memory) Board;
}

// ---- Engines ----

// Hands a token to every stream in turn, `per_second` in all.
class PacedTokens : public TokenSource {
 public:
  PacedTokens(Board& board, TokenId token) : board_(board), token_(token) {}

  Result<uint64_t> submit(EngineRequest, EventSink sink) override {
    const std::lock_guard lock(mu_);
    sinks_.push_back(std::move(sink));
    return sinks_.size();
  }
  void cancel(uint64_t id) override { end(id, FinishReason::kCancelled); }
  void finish(uint64_t id) override { end(id, FinishReason::kStop); }
  void end(uint64_t id, FinishReason reason) {
    EventSink sink;
    {
      const std::lock_guard lock(mu_);
      std::swap(sink, sinks_.at(id - 1));
    }
    EngineEvent event;
    event.kind = EngineEvent::Kind::kFinished;
    event.finish_reason = reason;
    if (sink) sink(event);
  }
  EngineStats stats() const override { return {}; }
  int64_t max_context_tokens() const override { return 1 << 20; }
  int64_t vocab_size() const override { return 129'280; }

  // Tokens told.
  int64_t pace(double per_second, double seconds) {
    std::vector<EventSink> sinks;
    {
      const std::lock_guard lock(mu_);
      sinks = sinks_;
    }
    const int64_t start = now_ns();
    const auto total = static_cast<int64_t>(per_second * seconds);
    EngineEvent event;
    event.token_id = token_;
    for (int64_t i = 0; i < total;) {
      const auto due = static_cast<int64_t>(static_cast<double>(now_ns() - start) * 1e-9 * per_second);
      for (; i < std::min(due, total); ++i) {
        const auto stream = static_cast<size_t>(i) % sinks.size();
        const auto round = static_cast<size_t>(i) / sinks.size();
        board_.sent_ns[stream][round % kRing] = now_ns();
        sinks[stream](event);
      }
      if (i < total) usleep(200);
    }
    return total;
  }

 private:
  Board& board_;
  const TokenId token_;
  std::mutex mu_;
  std::vector<EventSink> sinks_;  // guarded by mu_
};

// ---- The clients ----

struct Peer {
  int fd = -1;
  size_t round = 0;  // of the next token
  bool open = false;
  char last = 0;
};

int connect_to(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd < 0 || connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    fmt::print(stderr, "gateway_bench: a client can't connect: {}\n", std::strerror(errno));
    _exit(1);
  }
  return fd;
}

// Frames end with an empty line: counts them over the borders of reads. HTTP's own lines end in \r\n.
size_t count_frames(Peer& peer, const char* bytes, ssize_t size) {
  size_t frames = 0;
  for (ssize_t i = 0; i < size; ++i) {
    frames += bytes[i] == '\n' && peer.last == '\n' ? 1 : 0;
    peer.last = bytes[i];
  }
  return frames;
}

void read_streams(Board& board, int num_streams, const std::string& body) {
  while (board.port == 0) usleep(1000);
  const std::string request = fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
  const int epoll = epoll_create1(0);
  std::vector<Peer> peers(static_cast<size_t>(num_streams));
  std::vector<epoll_event> events(256);
  std::vector<char> buffer(256 << 10);
  const auto read_ready = [&](int timeout_ms) {
    const int ready = epoll_wait(epoll, events.data(), static_cast<int>(events.size()), timeout_ms);
    for (int k = 0; k < ready; ++k) {
      const size_t stream = events[static_cast<size_t>(k)].data.u32;
      Peer& peer = peers[stream];
      const ssize_t size = recv(peer.fd, buffer.data(), buffer.size(), 0);
      const int64_t now = now_ns();
      if (size <= 0) {
        epoll_ctl(epoll, EPOLL_CTL_DEL, peer.fd, nullptr);
        continue;
      }
      size_t frames = count_frames(peer, buffer.data(), size);
      if (!peer.open && frames > 0) {  // the frame that opens the stream
        peer.open = true;
        ++board.num_open;
        --frames;
      }
      for (size_t i = 0; i < frames; ++i, ++peer.round) {
        const size_t sample = board.num_samples.fetch_add(1);
        if (sample < kMaxSamples) board.samples_ns[sample] = now - board.sent_ns[stream][peer.round % kRing];
      }
      board.events += static_cast<int64_t>(frames);
    }
  };
  for (size_t i = 0; i < peers.size(); ++i) {
    peers[i].fd = connect_to(board.port);
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u32 = static_cast<uint32_t>(i);
    epoll_ctl(epoll, EPOLL_CTL_ADD, peers[i].fd, &event);
    if (send(peers[i].fd, request.data(), request.size(), 0) < 0) _exit(1);
    if (i % 64 == 0) read_ready(0);
  }
  while (!board.over) read_ready(20);
}

// ---- Runs ----

double cpu_seconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

struct Figures {
  int64_t events = 0;
  double cpu_s = 0;
  int64_t median_ns = 0, p99_ns = 0;
  int64_t resident = 0;
  int num_open = 0;
};

Figures read_board(Board& board, double cpu_s) {
  Figures figures;
  figures.events = board.events;
  figures.cpu_s = cpu_s;
  figures.num_open = board.num_open;
  std::vector<int64_t> samples(board.samples_ns,
                               board.samples_ns + std::min(board.num_samples.load(), kMaxSamples));
  std::sort(samples.begin(), samples.end());
  if (!samples.empty()) {
    figures.median_ns = samples[samples.size() / 2];
    figures.p99_ns = samples[samples.size() * 99 / 100];
  }
  return figures;
}

// Waits until every stream is open, or no more come.
void wait_for_streams(Board& board, int num_streams) {
  int seen = -1;
  while (board.num_open < num_streams && seen != board.num_open) {
    for (int i = 0; i < 200 && board.num_open < num_streams; ++i) {
      seen = board.num_open;
      usleep(50'000);
      if (seen != board.num_open) break;
    }
    if (seen != board.num_open) seen = -1;
  }
}

constexpr char kBody[] =
    R"({"model":"m","stream":true,"thinking":{"type":"disabled"},"max_tokens":100000,"messages":[{"role":"user","content":"hi"}]})";

// Each run in a child, so that memory and processor time are its own.
template <typename Serve>
Figures run(int num_streams, Serve serve) {
  Board* board = make_board();
  if (board == nullptr) return {};
  Figures* figures = static_cast<Figures*>(
      mmap(nullptr, sizeof(Figures), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const pid_t clients = fork();
  if (clients == 0) {
    read_streams(*board, num_streams, kBody);
    _exit(0);
  }
  const pid_t server = fork();
  if (server == 0) {
    *figures = serve(*board);
    board->over = true;
    _exit(0);
  }
  int status = 0;
  waitpid(server, &status, 0);
  board->over = true;
  waitpid(clients, &status, 0);
  const Figures result = *figures;
  munmap(board, sizeof(Board));
  munmap(figures, sizeof(Figures));
  return result;
}

Figures serve_gateway(Board& board, const std::string& tokenizer_path, int num_streams, double per_second,
                      double seconds) {
  auto tokenizer = Tokenizer::load(tokenizer_path);
  if (!tokenizer.ok()) return {};
  PacedTokens tokens(board, tokenizer->encode("a").front());
  GatewayOptions options;
  options.http.num_threads = 1;
  options.served_model_name = "m";
  options.keep_alive_interval = std::chrono::hours(1);
  const int64_t before = resident_bytes();
  std::atomic<uint64_t> random{1};
  auto gateway =
      Gateway::start(options, {tokens, *tokenizer, system_clock(), [&random] { return ++random; }});
  if (!gateway.ok()) {
    fmt::print(stderr, "gateway_bench: {}\n", gateway.error().message());
    return {};
  }
  board.port = (*gateway)->port();
  wait_for_streams(board, num_streams);
  const int64_t resident = resident_bytes() - before;
  const double cpu = cpu_seconds();
  const int64_t told = per_second > 0 ? tokens.pace(per_second, seconds) : 0;
  for (int i = 0; i < 500 && board.events < told; ++i) usleep(10'000);
  Figures figures = read_board(board, cpu_seconds() - cpu);
  figures.resident = resident;
  board.over = true;
  (*gateway)->stop(std::chrono::seconds(20));
  return figures;
}

// The same bytes without a service: a thread accepts, answers with a head, and sends frames.
Figures serve_plainly(Board& board, int num_streams, double per_second, double seconds) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener, 4096) != 0)
    return {};
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  board.port = ntohs(address.sin_port);
  const std::string frame =
      "c8\r\ndata: " + std::string(192, 'x') + "\n\n\r\n";  // as long as a chunk of the service
  std::vector<int> peers;
  for (int i = 0; i < num_streams; ++i) {
    const int fd = accept(listener, nullptr, nullptr);
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (send(fd, frame.data(), frame.size(), MSG_NOSIGNAL) < 0) return {};
    peers.push_back(fd);
  }
  wait_for_streams(board, num_streams);
  const double cpu = cpu_seconds();
  const int64_t start = now_ns();
  const auto total = static_cast<int64_t>(per_second * seconds);
  for (int64_t i = 0; i < total;) {
    const auto due = static_cast<int64_t>(static_cast<double>(now_ns() - start) * 1e-9 * per_second);
    for (; i < std::min(due, total); ++i) {
      const auto stream = static_cast<size_t>(i) % peers.size();
      board.sent_ns[stream][static_cast<size_t>(i) / peers.size() % kRing] = now_ns();
      if (send(peers[stream], frame.data(), frame.size(), MSG_NOSIGNAL) < 0) return {};
    }
    if (i < total) usleep(200);
  }
  for (int i = 0; i < 500 && board.events < total; ++i) usleep(10'000);
  return read_board(board, cpu_seconds() - cpu);
}

void print_line(const char* name, const Figures& figures) {
  fmt::print("  {:<22} {:>9} events  {:>9.0f} /s of a core  median {:>8.1f} us  p99 {:>9.1f} us\n", name,
             figures.events, static_cast<double>(figures.events) / std::max(figures.cpu_s, 1e-9),
             static_cast<double>(figures.median_ns) * 1e-3, static_cast<double>(figures.p99_ns) * 1e-3);
}

int bench(double seconds) {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  // One for each stream and some more; the limit itself can be raised by root only.
  const rlimit wanted = {kMaxStreams + 200, std::max<rlim_t>(limit.rlim_max, kMaxStreams + 200)};
  if (setrlimit(RLIMIT_NOFILE, &wanted) != 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::string tokenizer = source_path("models/mini/tokenizer.json");

  struct Load {
    const char* name;
    int streams;
    double per_second;
  };
  for (const Load& load : {Load{"256 streams, 15,000 tokens/s", 256, 15'000},
                           Load{"1,000 streams, 10,000 tokens/s", 1000, 10'000}}) {
    fmt::print("{}\n", load.name);
    for (int round = 0; round < 3; ++round) {
      print_line("plain send()", run(load.streams, [&](Board& board) {
                   return serve_plainly(board, load.streams, load.per_second, seconds);
                 }));
      print_line("service", run(load.streams, [&](Board& board) {
                   return serve_gateway(board, tokenizer, load.streams, load.per_second, seconds);
                 }));
    }
  }
  const int room = static_cast<int>(limit.rlim_cur) - 100;
  const int idle = std::min(kMaxStreams, room);
  const Figures figures =
      run(idle, [&](Board& board) { return serve_gateway(board, tokenizer, idle, 0, 0); });
  fmt::print("{} idle streams ({} asked for, {} files allowed): {:.0f} MiB, {:.1f} KiB a stream\n",
             figures.num_open, idle, limit.rlim_cur, static_cast<double>(figures.resident) / (1 << 20),
             static_cast<double>(figures.resident) / 1024 / std::max(figures.num_open, 1));
  return 0;
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) {
  double seconds = 5;
  if (argc == 3 && std::strcmp(argv[1], "--seconds") == 0) seconds = std::atof(argv[2]);
  if (argc != 1 && argc != 3) {
    fmt::print(stderr, "usage: gateway_bench [--seconds S]\n");
    return 2;
  }
  return deepinfer::bench(seconds);
}
