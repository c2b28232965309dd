// Processes that compile: what one does, and how the compiler speaks to it. Private to the room.
//
// Both ends of a socket pair: a message is a head and bytes. First the setup (vocabulary and limits), then a grammar at
// a time and an answer to each. The process ends when the socket does.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <xgrammar/xgrammar.h>

#include "grammar/grammar.h"

namespace deepinfer {

// What a worker knows of the vocabulary, and its limits.
struct WorkerSetup {
  int64_t vocab_size = 0;
  int64_t max_grammar_bytes = 0;
  int64_t memory_bytes = 0;        // above what it takes at its start; 0: no limit
  std::vector<std::string> words;  // by id; control tokens are empty
  std::vector<int32_t> end_ids;

  xgrammar::TokenizerInfo vocabulary() const;
};
std::string pack_setup(const WorkerSetup& setup);

// Answers until the socket ends. `before`: for tests, in front of each compilation.
using BeforeCompile = std::function<void(const GrammarSpec&)>;
void serve_compilations(int socket, const BeforeCompile& before = {});

// One worker, seen from the compiler. Of one thread; nothing here waits for the worker but the destructor of one that is
// a thread.
class Worker {
 public:
  // `command`: the program that runs run_grammar_worker(); empty: a thread of this process.
  static Result<std::unique_ptr<Worker>> start(const std::vector<std::string>& command,
                                               std::shared_ptr<const std::string> setup);
  ~Worker();  // ends it, whatever it does
  Worker(const Worker&) = delete;

  void compile(const GrammarSpec& spec);
  int socket() const { return socket_; }
  bool has_to_send() const { return sent_ < to_send_.size(); }
  // Each as much as can be without waiting.
  void send_bytes();
  void receive_bytes();
  // It has its vocabulary.
  bool is_ready() const { return ready_; }
  // The packed grammar or why there is none, once.
  std::optional<Result<std::string>> take_answer();
  // It will not answer again.
  bool ended() const { return ended_; }
  // Of one that ended without an answer: "its process ended by signal 11" and so on. By the system: for no fault of what
  // it compiled.
  struct End {
    std::string how;
    bool by_system = false;
  };
  End end();

 private:
  Worker(int socket, std::shared_ptr<const std::string> setup) : socket_(socket), to_send_(*setup) {}
  void end_process();

  const int socket_;
  pid_t pid_ = -1;
  std::thread thread_;
  std::string to_send_;
  size_t sent_ = 0;
  std::string received_;
  bool ready_ = false, ended_ = false;
  std::optional<int> wait_status_;
};

}  // namespace deepinfer
