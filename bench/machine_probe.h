// What this machine can do at this moment: clock, read bandwidth, arithmetic peaks, hand-over between cores. Every
// benchmark prints it and quotes its figures as shares of it, measured in the same rounds, because a shared machine moves
// by half between hours.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/status.h"
#include "base/thread_pool.h"

namespace deepinfer::bench {

// Median, and the tenth and ninetieth percentile of samples.
struct Spread {
  double median = 0, low = 0, high = 0;
};
Spread spread_of(std::vector<double> samples);

double now_seconds();

// Runs this process before others (SCHED_FIFO, else the highest nice level). Call before threads are made. Returns what
// was granted, for the report.
std::string raise_priority();

struct MachineFigures {
  Spread clock_ghz;         // dependent additions a nanosecond, one thread
  Spread handover_ns;       // a cache line from one core to another
  Spread read_one, read_all;  // GB/s of 64-byte loads from memory, one thread and all threads
  Spread fp32, bf16, int8;  // GFLOP/s or GOP/s, all threads; bf16 and int8 are 0 without the instructions
};

// Thread-compatible; borrows the pool, which must outlive it.
class MachineProbe {
 public:
  // 128 MiB for each thread of the pool.
  static Result<MachineProbe> make(ThreadPool& pool);

  // Each takes a few milliseconds.
  double clock_ghz();
  double handover_ns();
  double read_gbs(bool all_threads);
  double fp32_gflops();
  double bf16_gflops();
  double int8_gops();

  MachineFigures measure(int rounds);
  static std::string text(const MachineFigures& figures, int num_threads);
  static std::string cpu_name();

 private:
  explicit MachineProbe(ThreadPool& pool) : pool_(&pool) {}
  template <typename Kernel>
  double rate(double work_per_thread, Kernel&& kernel);

  ThreadPool* pool_;
  std::vector<AlignedBuffer> buffers_;
  size_t next_piece_ = 0;
};

}  // namespace deepinfer::bench
