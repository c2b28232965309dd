#include "base/trace.h"

#include <cstdio>

#include "base/log.h"

namespace deepinfer {

Result<std::unique_ptr<Trace>> Trace::create(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return Error(Code::kIo, "{}: can't be written", path);
  std::fclose(file);
  return std::unique_ptr<Trace>(new Trace(path));
}

Trace::~Trace() {
  if (closed_) return;
  if (const Status status = close(); !status.ok()) log::warn("{}", status.error().message());
}

int Trace::add_lane(std::string name) {
  lanes_.push_back({.name = std::move(name), .spans = {}});
  lanes_.back().spans.reserve(kMaxSpansPerLane / 16);
  return static_cast<int>(lanes_.size()) - 1;
}

void Trace::span(int lane, const char* name, const char* room, Clock::time_point begin, Clock::time_point end,
                 int64_t argument) {
  Lane& to = lanes_[static_cast<size_t>(lane)];
  if (to.spans.size() == kMaxSpansPerLane) {
    ++to.dropped;
    return;
  }
  to.spans.push_back({name, room, begin, end, argument});
}

Status Trace::close() {
  closed_ = true;
  std::FILE* file = std::fopen(path_.c_str(), "w");
  if (file == nullptr) return Error(Code::kIo, "{}: can't be written", path_);
  Clock::time_point start = Clock::time_point::max();
  for (const Lane& lane : lanes_) {
    if (!lane.spans.empty()) start = std::min(start, lane.spans.front().begin);
  }
  const auto us = [](Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); };
  fmt::print(file, "{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
  const char* separator = "";
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const Lane& lane = lanes_[i];
    fmt::print(file, "{}{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":{},\"args\":{{\"name\":\"{}\"}}}}",
               separator, i, lane.name);
    separator = ",\n";
    for (const Span& span : lane.spans) {
      fmt::print(file,
                 ",\n{{\"ph\":\"X\",\"name\":\"{}\",\"cat\":\"{}\",\"pid\":1,\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},"
                 "\"args\":{{\"n\":{}}}}}",
                 span.name, span.room, i, us(span.begin - start), us(span.end - span.begin), span.argument);
    }
    if (lane.dropped > 0) log::warn("{}: {} spans of {} did not fit", path_, lane.dropped, lane.name);
  }
  fmt::print(file, "\n]}}\n");
  const bool failed = std::ferror(file) != 0;
  if (std::fclose(file) != 0 || failed) return Error(Code::kIo, "{}: the trace could not be written", path_);
  return {};
}

}  // namespace deepinfer
