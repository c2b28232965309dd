#include "machine_probe.h"

#include <fmt/core.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace deepinfer::bench {
namespace {

constexpr size_t kBufferBytes = size_t{128} << 20;
constexpr size_t kPieceBytes = size_t{32} << 20;

#if defined(__x86_64__)

// Sixteen independent chains keep every multiplier busy. The empty asm hides operands and starting values from the
// optimizer, which would otherwise compute equal chains once.
constexpr int kChains = 16;

__attribute__((target("avx512f"))) void read_avx512(const std::byte* data, size_t size) {
  __m512i sum[4] = {};
  const size_t quarter = size / 4;  // four streams a thread: the best way to read memory here
  for (size_t i = 0; i < quarter; i += 64) {
#pragma GCC unroll 4
    for (size_t s = 0; s < 4; ++s) {
      sum[s] = _mm512_xor_si512(sum[s], _mm512_load_si512(data + s * quarter + i));
    }
  }
#pragma GCC unroll 4
  for (auto& part : sum) asm volatile("" : "+v"(part));
}

__attribute__((target("avx2"))) void read_avx2(const std::byte* data, size_t size) {
  __m256i sum[4] = {};
  const size_t quarter = size / 4;
  for (size_t i = 0; i < quarter; i += 32) {
#pragma GCC unroll 4
    for (size_t s = 0; s < 4; ++s) {
      sum[s] = _mm256_xor_si256(sum[s], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + s * quarter + i)));
    }
  }
#pragma GCC unroll 4
  for (auto& part : sum) asm volatile("" : "+x"(part));
}

__attribute__((target("avx512f"))) void fma_avx512(int64_t steps) {
  __m512 a = _mm512_set1_ps(0.5f), acc[kChains] = {};
  asm volatile("" : "+v"(a));
#pragma GCC unroll 16
  for (auto& chain : acc) asm volatile("" : "+v"(chain));
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) acc[c] = _mm512_fmadd_ps(a, a, acc[c]);
  }
#pragma GCC unroll 16
  for (auto& chain : acc) asm volatile("" : "+v"(chain));
}

__attribute__((target("avx2,fma"))) void fma_avx2(int64_t steps) {
  __m256 a = _mm256_set1_ps(0.5f), acc[12] = {};
  asm volatile("" : "+x"(a));
#pragma GCC unroll 12
  for (auto& chain : acc) asm volatile("" : "+x"(chain));
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < 12; ++c) acc[c] = _mm256_fmadd_ps(a, a, acc[c]);
  }
#pragma GCC unroll 12
  for (auto& chain : acc) asm volatile("" : "+x"(chain));
}

__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) void dot_bf16(int64_t steps) {
  __m512i bits = _mm512_set1_epi32(0x3f003f00);
  asm volatile("" : "+v"(bits));
  const __m512bh a = (__m512bh)bits;
  __m512 acc[kChains] = {};
#pragma GCC unroll 16
  for (auto& chain : acc) asm volatile("" : "+v"(chain));
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) acc[c] = _mm512_dpbf16_ps(acc[c], a, a);
  }
#pragma GCC unroll 16
  for (auto& chain : acc) asm volatile("" : "+v"(chain));
}

__attribute__((target("avx512f,avx512vnni"))) void dot_int8(int64_t steps) {
  __m512i a = _mm512_set1_epi32(0x01010101), acc[kChains] = {};
  asm volatile("" : "+v"(a));
#pragma GCC unroll 16
  for (auto& chain : acc) asm volatile("" : "+v"(chain));
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) acc[c] = _mm512_dpbusd_epi32(acc[c], a, a);
  }
#pragma GCC unroll 16
  for (auto& chain : acc) asm volatile("" : "+v"(chain));
}

bool has_avx512() { return __builtin_cpu_supports("avx512f"); }
bool has_bf16() { return __builtin_cpu_supports("avx512bf16"); }
bool has_int8() { return __builtin_cpu_supports("avx512vnni"); }
void read(const std::byte* data, size_t size) { has_avx512() ? read_avx512(data, size) : read_avx2(data, size); }

#endif

}  // namespace

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Spread spread_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double share) { return samples[static_cast<size_t>(share * (samples.size() - 1) + 0.5)]; };
  return {at(0.5), at(0.1), at(0.9)};
}

std::string raise_priority() {
  sched_param fifo = {};
  fifo.sched_priority = 50;
  if (sched_setscheduler(0, SCHED_FIFO, &fifo) == 0) return "real time";
  return setpriority(PRIO_PROCESS, 0, -20) == 0 ? "nice -20" : "normal";
}

Result<MachineProbe> MachineProbe::make(ThreadPool& pool) {
  MachineProbe probe(pool);
  for (int i = 0; i < pool.num_threads(); ++i) {
    ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::allocate(kBufferBytes));
    probe.buffers_.push_back(std::move(buffer));
  }
  return probe;
}

template <typename Kernel>
double MachineProbe::rate(double work_per_thread, Kernel&& kernel) {
  const int threads = pool_->num_threads();
  const double start = now_seconds();
  pool_->parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) kernel(i);
  });
  return work_per_thread * threads / (now_seconds() - start) / 1e9;
}

double MachineProbe::read_gbs(bool all_threads) {
  const size_t offset = next_piece_++ % (kBufferBytes / kPieceBytes) * kPieceBytes;
  if (all_threads) {
    return rate(kPieceBytes, [&](int64_t i) { read(buffers_[static_cast<size_t>(i)].data() + offset, kPieceBytes); });
  }
  const double start = now_seconds();
  read(buffers_[0].data() + offset, kPieceBytes);
  return kPieceBytes / (now_seconds() - start) / 1e9;
}

double MachineProbe::clock_ghz() {
  constexpr int64_t kSteps = 4'000'000;
  int64_t value = 1;
  const double start = now_seconds();
  for (int64_t i = 0; i < kSteps / 8; ++i) {
    asm volatile("add %0, %0\n add %0, %0\n add %0, %0\n add %0, %0\n add %0, %0\n add %0, %0\n add %0, %0\n add %0, %0"
                 : "+r"(value));
  }
  return kSteps / (now_seconds() - start) / 1e9;
}

double MachineProbe::handover_ns() {
  if (pool_->num_threads() < 2) return 0;
  constexpr int kTurns = 4000;
  alignas(64) std::atomic<int> turn{0};
  const double start = now_seconds();
  pool_->parallel_for(2, 1, [&](int64_t begin, int64_t end) {
    // A thread that got both parts has nobody to hand over to.
    if (end - begin > 1) return;
    const double limit = start + 0.1;
    for (int i = static_cast<int>(begin); i < kTurns; i += 2) {
      while (turn.load(std::memory_order_acquire) != i) {  // pairs with the store of the other thread
        if (now_seconds() > limit) return;
      }
      turn.store(i + 1, std::memory_order_release);
    }
  });
  return turn.load() == kTurns ? (now_seconds() - start) / kTurns * 1e9 : 0;
}

double MachineProbe::fp32_gflops() {
  constexpr int64_t kSteps = 200'000;
  if (has_avx512()) return rate(double{kSteps} * kChains * 32, [](int64_t) { fma_avx512(kSteps); });
  return rate(double{kSteps} * 12 * 16, [](int64_t) { fma_avx2(kSteps); });
}

double MachineProbe::bf16_gflops() {
  constexpr int64_t kSteps = 200'000;
  return has_bf16() ? rate(double{kSteps} * kChains * 64, [](int64_t) { dot_bf16(kSteps); }) : 0;
}

double MachineProbe::int8_gops() {
  constexpr int64_t kSteps = 200'000;
  return has_int8() ? rate(double{kSteps} * kChains * 128, [](int64_t) { dot_int8(kSteps); }) : 0;
}

MachineFigures MachineProbe::measure(int rounds) {
  std::vector<double> samples[7];
  for (int i = 0; i < rounds; ++i) {
    samples[0].push_back(clock_ghz());
    if (const double handover = handover_ns(); handover > 0) samples[1].push_back(handover);
    samples[2].push_back(read_gbs(false));
    samples[3].push_back(read_gbs(true));
    samples[4].push_back(fp32_gflops());
    samples[5].push_back(bf16_gflops());
    samples[6].push_back(int8_gops());
  }
  return {spread_of(samples[0]), spread_of(samples[1]), spread_of(samples[2]), spread_of(samples[3]),
          spread_of(samples[4]), spread_of(samples[5]), spread_of(samples[6])};
}

std::string MachineProbe::cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

std::string MachineProbe::text(const MachineFigures& f, int num_threads) {
  const auto figure = [](const Spread& s, int digits) {
    return fmt::format("{:.{}f} [{:.{}f}-{:.{}f}]", s.median, digits, s.low, digits, s.high, digits);
  };
  return fmt::format(
      "probe: {}, {} threads; clock {} GHz; hand-over {} ns; read {} GB/s one thread, {} GB/s all;\n"
      "       peaks FP32 {} GFLOP/s, BF16 {} GFLOP/s, INT8 {} GOP/s\n",
      cpu_name(), num_threads, figure(f.clock_ghz, 2), figure(f.handover_ns, 0), figure(f.read_one, 1),
      figure(f.read_all, 1), figure(f.fp32, 0), figure(f.bf16, 0), figure(f.int8, 0));
}

}  // namespace deepinfer::bench
