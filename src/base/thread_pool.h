// The compute threads of one model. Work is given to them a region at a time: phases in order, each cut into shares.
//
// A phase may name earlier phases that it waits for, as a whole or share by share; threads take shares one by one in the
// order of the phases, and only shares that may begin. So a thread that waits holds nothing, phases that need nothing of
// each other fill each other's waits, a serial phase goes on where its inputs were made, and the caller never waits for
// a worker that the system has not scheduled: it takes the shares itself. Which thread runs a share never changes a
// result. Workers spin for a bounded time and then sleep on a futex, so that a pool without work leaves the machine to
// others.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/status.h"

namespace deepinfer {

// A contiguous part of a phase's work.
struct Share {
  int index = 0;
  int count = 1;
  int thread = 0;  // who runs it, 0 to num_threads - 1: for memory that belongs to a thread

  // Its part of [0, n).
  int64_t begin(int64_t n) const { return n * index / count; }
  int64_t end(int64_t n) const { return n * (index + 1) / count; }
};

// The phases of one region, with their code. Made, run and dropped by one thread; allocates nothing.
class Region {
 public:
  static constexpr int kMaxPhases = 32;
  static constexpr int kMaxNeeds = 4;
  static constexpr int kMostShares = 512;                       // of a phase
  static constexpr int kMaxShares = kMaxPhases * kMostShares;  // of all

  using Phase = int64_t;  // its number; those of earlier runs stay valid, as phases that have ended
  static constexpr Phase kNone = -1;
  // What has to have ended before a share begins: all of an earlier phase, or the shares of it that cover the same part of
  // the work.
  struct Need {
    Need(Phase phase_in, bool same_share_in = false) : phase(phase_in), same_share(same_share_in) {}  // NOLINT: reads better
    Phase phase;
    bool same_share;
  };
  static Need same_share(Phase phase) { return {phase, true}; }

  Region() {}  // NOLINT: leaves the memory for code as it is
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  // Adds body(share) for `shares` shares, kMostShares at most. The body must not throw; what it refers to outlives the run.
  template <typename Body>
  Phase add(int shares, std::initializer_list<Need> needs, const Body& body) {
    static_assert(std::is_trivially_copyable_v<Body> && std::is_trivially_destructible_v<Body>);
    const size_t place = (code_bytes_ + alignof(Body) - 1) / alignof(Body) * alignof(Body);
    shares = shares < kMostShares ? shares : kMostShares;
    CHECK(num_phases_ < kMaxPhases && shares >= 1);
    CHECK(place + sizeof(Body) <= sizeof(code_) && needs.size() <= kMaxNeeds);
    code_bytes_ = place + sizeof(Body);
    PhaseData& phase = phases_[num_phases_];
    phase = {.run = [](const void* code, const Share& share) { (*static_cast<const Body*>(code))(share); },
             .code = new (code_ + place) Body(body),
             .first_share = num_shares_,
             .shares = shares,
             .num_needs = 0,
             .needs = {}};
    for (const Need& need : needs) {
      CHECK(need.phase < num_run_ + num_phases_);
      if (need.phase < num_run_) continue;  // has ended
      phase.needs[phase.num_needs++] = {static_cast<int>(need.phase - num_run_), need.same_share};
    }
    num_shares_ += shares;
    return num_run_ + num_phases_++;
  }
  // After a run: room for the next phases.
  void clear() {
    num_run_ += num_phases_;
    num_phases_ = num_shares_ = 0;
    code_bytes_ = 0;
  }

 private:
  friend class ThreadPool;
  struct PlainNeed {
    int phase;  // of this run
    bool same_share;
  };
  struct PhaseData {
    void (*run)(const void* code, const Share& share);
    const void* code;
    int first_share;
    int shares;
    int num_needs;
    PlainNeed needs[kMaxNeeds];
  };

  Phase num_run_ = 0;  // phases before the first of these
  int num_phases_ = 0;
  int num_shares_ = 0;
  size_t code_bytes_ = 0;
  PhaseData phases_[kMaxPhases];
  alignas(16) std::byte code_[6144];
};

// run() is owned by one caller at a time (the executor thread); nesting is not allowed.
class ThreadPool {
 public:
  enum class Pinning { kNone, kOneCorePerThread };

  // num_threads counts the caller: 1 means no worker at all. Requires 1 to kMostThreads.
  static constexpr int kMostThreads = Region::kMostShares;
  explicit ThreadPool(int num_threads, Pinning pinning = Pinning::kNone);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }
  // Regions so far that more than the caller could work on: at the end of each all threads wait for each other.
  uint64_t num_regions() const { return num_regions_; }
  // Times that a thread found nothing to do but to wait for another, the ends of regions included.
  uint64_t num_waits() const { return num_waits_.load(std::memory_order_relaxed); }

  // Returns when all phases have ended.
  void run(const Region& region);

  // body(begin, end) over [0, count) in at most num_threads ranges of at least `grain` items; returns when all ended.
  template <typename Body>
  void parallel_for(int64_t count, int64_t grain, Body&& body) {
    if (count <= 0) return;
    const int64_t by_grain = count / (grain > 1 ? grain : 1);
    const auto shares = static_cast<int>(by_grain < 1 ? 1 : by_grain < num_threads_ ? by_grain : num_threads_);
    if (shares == 1) return body(int64_t{0}, count);
    auto* const code = &body;
    Region region;
    region.add(shares, {}, [code, count](const Share& share) { (*code)(share.begin(count), share.end(count)); });
    run(region);
  }

 private:
  // The region in progress and the next share to take: | epoch 32 | shares 16 | taken 16 |.
  using Ticket = uint64_t;
  static constexpr uint32_t epoch_of(Ticket ticket) { return static_cast<uint32_t>(ticket >> 32); }
  static constexpr int shares_of(Ticket ticket) { return static_cast<int>(ticket >> 16 & 0xffff); }
  static constexpr int taken_of(Ticket ticket) { return static_cast<int>(ticket & 0xffff); }

  // What decides whether a share may begin. A worker that comes late may read it while the caller writes that of the next
  // region; it fails to take the share then, and what it read is not used.
  struct Gate {
    std::atomic<int> first_share, shares, num_needs;
    std::array<std::atomic<int>, Region::kMaxNeeds> needs;  // 2 * phase + same_share
    std::atomic<int> ended;                                 // shares of the phase that have ended
  };

  bool may_begin(int phase, int share) const;
  void work(Ticket ticket, int thread);
  void worker_loop(int thread);
  template <typename Ready>
  void wait_until(const Ready& ready);

  const int num_threads_;
  uint64_t num_regions_ = 0;
  std::atomic<uint64_t> num_waits_{0};
  std::atomic<const Region*> region_{nullptr};
  std::unique_ptr<std::array<Gate, Region::kMaxPhases>> gates_;
  std::vector<std::atomic<int>> phase_of_;     // of every share
  std::vector<std::atomic<bool>> ended_;       // every share
  alignas(64) std::atomic<Ticket> ticket_{0};  // release store publishes a region; who moves it on owns a share
  alignas(64) std::atomic<uint32_t> epoch_{0};  // what workers without a region wait on
  alignas(64) std::atomic<uint32_t> progress_{0};  // moves with the end of every phase; what waits inside a region wait on
  std::atomic<bool> stopping_{false};          // stored before epoch_ is raised, read after it is seen
  std::vector<std::thread> workers_;
};

}  // namespace deepinfer
