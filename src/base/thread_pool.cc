#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>

#include "base/status.h"

namespace deepinfer {
namespace {

// About 20 to 50 microseconds of `pause`: longer than the serial stretches inside a token, shorter than a time slice.
constexpr int kSpinPauses = 2000;

inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void pin_to_core(std::thread& thread, int core) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || !CPU_ISSET(core, &allowed)) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  pthread_setaffinity_np(thread.native_handle(), sizeof(one), &one);  // best effort: containers may refuse
}

}  // namespace

ThreadPool::ThreadPool(int num_threads, Pinning pinning)
    : num_threads_(num_threads),
      gates_(std::make_unique<std::array<Gate, Region::kMaxPhases>>()),
      phase_of_(Region::kMaxShares),
      ended_(Region::kMaxShares) {
  CHECK(num_threads >= 1 && num_threads <= kMostThreads);
  for (int i = 1; i < num_threads; ++i) {
    workers_.emplace_back([this, i] { worker_loop(i); });
    if (pinning == Pinning::kOneCorePerThread) pin_to_core(workers_.back(), i);
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(const Region& region) {
  if (region.num_shares_ == region.num_phases_ || num_threads_ == 1) {  // nothing to share: phases are in order
    for (int i = 0; i < region.num_phases_; ++i) {
      const Region::PhaseData& phase = region.phases_[i];
      for (int share = 0; share < phase.shares; ++share) phase.run(phase.code, {share, phase.shares, 0});
    }
    return;
  }
  ++num_regions_;
  constexpr auto relaxed = std::memory_order_relaxed;
  region_.store(&region, relaxed);
  for (int i = 0; i < region.num_phases_; ++i) {
    const Region::PhaseData& phase = region.phases_[i];
    Gate& gate = (*gates_)[i];
    gate.first_share.store(phase.first_share, relaxed);
    gate.shares.store(phase.shares, relaxed);
    gate.num_needs.store(phase.num_needs, relaxed);
    gate.ended.store(0, relaxed);
    for (int n = 0; n < phase.num_needs; ++n) {
      gate.needs[n].store(2 * phase.needs[n].phase + (phase.needs[n].same_share ? 1 : 0), relaxed);
    }
    for (int share = phase.first_share; share < phase.first_share + phase.shares; ++share) {
      phase_of_[share].store(i, relaxed);
      ended_[share].store(false, relaxed);
    }
  }
  const uint32_t epoch = epoch_.load(relaxed) + 1;
  const Ticket ticket = Ticket{epoch} << 32 | static_cast<Ticket>(region.num_shares_) << 16;
  ticket_.store(ticket, std::memory_order_release);
  epoch_.store(epoch, std::memory_order_release);
  epoch_.notify_all();
  work(ticket, 0);
  for (int i = 0; i < region.num_phases_; ++i) {
    const Gate& gate = (*gates_)[i];
    wait_until([&] { return gate.ended.load(std::memory_order_acquire) == region.phases_[i].shares; });
  }
}

// Whether what the share needs has ended.
bool ThreadPool::may_begin(int phase, int share) const {
  constexpr auto relaxed = std::memory_order_relaxed;
  const Gate& gate = (*gates_)[phase];
  const int num_needs = gate.num_needs.load(relaxed);
  for (int n = 0; n < num_needs; ++n) {
    const int need = gate.needs[n].load(relaxed);
    const Gate& needed = (*gates_)[need / 2];
    const int count = needed.shares.load(relaxed);
    if (need % 2 == 0) {
      if (needed.ended.load(std::memory_order_acquire) < count) return false;
      continue;
    }
    const int shares = std::max(1, gate.shares.load(relaxed)), index = share - gate.first_share.load(relaxed);
    const int first = needed.first_share.load(relaxed);
    for (int i = index * count / shares; i * shares < (index + 1) * count; ++i) {
      const int place = first + i;
      if (place < 0 || place >= Region::kMaxShares) return false;  // of two regions: the ticket has moved on
      if (!ended_[place].load(std::memory_order_acquire)) return false;
    }
  }
  return true;
}

template <typename Ready>
void ThreadPool::wait_until(const Ready& ready) {
  if (ready()) return;
  num_waits_.fetch_add(1, std::memory_order_relaxed);
  for (int spins = 0; true; ++spins) {
    const uint32_t progress = progress_.load(std::memory_order_acquire);
    if (ready()) return;
    if (spins < kSpinPauses) {
      cpu_pause();
    } else {
      progress_.wait(progress, std::memory_order_acquire);
    }
  }
}

// Takes and runs shares of the ticket's region until none is left. A share is taken only while the region lacks it, so
// what was read of the region belongs to it.
void ThreadPool::work(Ticket ticket, int thread) {
  const uint32_t epoch = epoch_of(ticket);
  const auto is_over = [&] { return epoch_of(ticket) != epoch || taken_of(ticket) == shares_of(ticket); };
  while (!is_over()) {
    int share = 0, phase = 0;
    wait_until([&] {
      share = taken_of(ticket);
      phase = phase_of_[share].load(std::memory_order_relaxed);
      if (may_begin(phase, share)) return true;
      ticket = ticket_.load(std::memory_order_acquire);
      return is_over();
    });
    if (is_over()) return;
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    const Region::PhaseData& data = region_.load(std::memory_order_relaxed)->phases_[phase];
    data.run(data.code, {share - data.first_share, data.shares, thread});
    const int shares = data.shares;
    ended_[share].store(true, std::memory_order_release);
    // The last share of the last phase lets the caller go: nothing of the region is touched after this.
    if ((*gates_)[phase].ended.fetch_add(1, std::memory_order_acq_rel) + 1 == shares) {
      progress_.fetch_add(1, std::memory_order_release);
      progress_.notify_all();
    }
    ++ticket;
  }
}

void ThreadPool::worker_loop(int thread) {
  uint32_t seen = 0;
  while (true) {
    uint32_t now = epoch_.load(std::memory_order_acquire);
    for (int spins = 0; now == seen && spins < kSpinPauses; ++spins) {
      cpu_pause();
      now = epoch_.load(std::memory_order_acquire);
    }
    if (now == seen) {
      epoch_.wait(seen, std::memory_order_acquire);
      continue;
    }
    seen = now;
    if (stopping_.load(std::memory_order_relaxed)) return;
    work(ticket_.load(std::memory_order_acquire), thread);
  }
}

}  // namespace deepinfer
