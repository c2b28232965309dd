// A record of what threads did when, in the Chrome trace format (chrome://tracing, ui.perfetto.dev).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace deepinfer {

// One lane per thread; each lane is written by one thread at a time. Nothing is written to disk before close().
class Trace {
 public:
  static constexpr size_t kMaxSpansPerLane = 1 << 18;  // later ones are counted and dropped

  // Creates the file at once, so that a bad path is told at the start. kIo.
  static Result<std::unique_ptr<Trace>> create(const std::string& path);
  ~Trace();

  int add_lane(std::string name);  // before any thread records
  // `name` and `room` are string literals; `argument` is shown as "n".
  void span(int lane, const char* name, const char* room, Clock::time_point begin, Clock::time_point end,
            int64_t argument = 0);
  Status close();  // once, when no thread records any more

 private:
  struct Span {
    const char* name;
    const char* room;
    Clock::time_point begin, end;
    int64_t argument;
  };
  struct Lane {
    std::string name;
    std::vector<Span> spans;
    int64_t dropped = 0;
  };
  explicit Trace(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  std::vector<Lane> lanes_;
  bool closed_ = false;
};

}  // namespace deepinfer
