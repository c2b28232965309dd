#include "apps/start_limits.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "cache/block_cache.h"

namespace deepinfer {
namespace {

constexpr uint64_t kProgramBytes = uint64_t{96} << 20;     // program, libraries, tokenizer, buffers
constexpr uint64_t kThreadAddresses = uint64_t{10} << 20;  // a stack and what the allocator reserves

uint64_t mebibytes(uint64_t bytes) {
  return (bytes + (1 << 20) - 1) >> 20;
}

// The number that a file of one line begins with; nullopt for "max" and for a file that is not there.
std::optional<uint64_t> read_number(const std::filesystem::path& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

void add_ram(const std::string& root, StartLimits& limits) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t kibibytes = 0;
    if (words >> name >> kibibytes && name == "MemTotal:")
      limits.memory.push_back({kibibytes << 10, "this machine's memory"});
  }
}

// A group of processes and those that it is in: each may have a limit.
void add_cgroup(const std::filesystem::path& mount, const std::string& path, StartLimits& limits) {
  std::filesystem::path group = std::filesystem::path(path).relative_path();
  while (true) {
    const std::filesystem::path folder = mount / group;
    const std::string name = "/" + group.string();
    for (const char* file : {"memory.max", "memory.limit_in_bytes"}) {
      if (const auto most = read_number(folder / file)) {
        limits.memory.push_back({*most, fmt::format("the memory limit of cgroup {} ({})", name, file)});
      }
    }
    if (const auto most = read_number(folder / "pids.max")) {
      const uint64_t now = read_number(folder / "pids.current").value_or(0);
      limits.threads.push_back({*most - std::min(now, *most), fmt::format("what pids.max of cgroup {} leaves", name)});
    }
    if (group.empty()) return;
    group = group.parent_path();
  }
}

// Lines "0::/path" of version 2 and "7:memory:/path" of version 1.
void add_cgroups(const std::string& root, StartLimits& limits) {
  const std::filesystem::path mount = root + "/sys/fs/cgroup";
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty()) add_cgroup(mount, path, limits);
    if (controllers == "memory" || controllers == "pids") add_cgroup(mount / controllers, path, limits);
  }
}

void add_kernel_limits(StartLimits& limits) {
  const auto add = [](auto resource, std::string what, std::vector<StartLimits::Bound>& bounds) {
    rlimit limit = {};
    if (getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
      bounds.push_back({limit.rlim_cur, std::move(what)});
  };
  add(RLIMIT_AS, "the limit of address space (ulimit -v)", limits.address_space);
  add(RLIMIT_DATA, "the limit of data (ulimit -d)", limits.memory);
  if (geteuid() != 0) add(RLIMIT_NPROC, "the limit of the user's threads (ulimit -u)", limits.threads);
}

// Which flag makes the plan small enough for `most` bytes.
std::string helping_flag(const StartNeeds& needs, uint64_t most) {
  const MemoryPlan& model = needs.plan.model;
  if (model.weight_bytes + kProgramBytes > most) return "the weights alone do not fit, so it takes another machine";
  const uint64_t block =
      model.kv_block_bytes + BlockCache::kBytesPerBlock + (needs.plan.swap_bytes > 0 ? model.kv_block_bytes / 4 : 0);
  const uint64_t blocks = block * model.kv_blocks, total = needs.plan.total_bytes() + kProgramBytes;
  const uint64_t rest = total - std::min(total, blocks);
  const auto fitting = rest < most ? static_cast<int64_t>((most - rest) / block) : 0;
  if (fitting >= needs.context_blocks) return fmt::format("--kv-blocks {} would fit", fitting);
  return "lower --max-running, --kept-states, --batch-tokens or --max-context-tokens";
}

Error too_large(uint64_t wanted, const StartLimits::Bound& bound, std::string_view help) {
  return Error(Code::kResourceExhausted, "this start takes {} MiB and {} is {} MiB: {}", mebibytes(wanted), bound.what,
               bound.most >> 20, help);
}

}  // namespace

StartLimits read_start_limits(const std::string& root) {
  StartLimits limits;
  add_ram(root, limits);
  add_cgroups(root, limits);
  if (root.empty()) add_kernel_limits(limits);
  return limits;
}

Status check_start(const StartNeeds& needs, const StartLimits& limits) {
  const uint64_t memory = needs.plan.total_bytes() + kProgramBytes, stacks = needs.threads * kThreadAddresses;
  for (const auto& bound : limits.memory) {
    if (memory > bound.most) return too_large(memory, bound, helping_flag(needs, bound.most));
  }
  for (const auto& bound : limits.address_space) {
    if (memory > bound.most) return too_large(memory, bound, helping_flag(needs, bound.most));
    if (memory + stacks > bound.most) return too_large(memory + stacks, bound, "lower " + needs.thread_flags);
  }
  for (const auto& bound : limits.threads) {
    if (needs.threads > bound.most) {
      return Error(Code::kResourceExhausted, "this start takes {} threads and {} is {}: lower {}", needs.threads,
                   bound.what, bound.most, needs.thread_flags);
    }
  }
  return {};
}

}  // namespace deepinfer
