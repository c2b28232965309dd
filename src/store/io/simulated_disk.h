// A disk in memory that fails on demand: for tests and simulations only. Everything it does follows from its
// seed.
//
// Writes are lost or torn between pages unless they were synced before the power went; names are lost from
// some point on unless the directory was synced. Reads and writes can fail, come short, hang, flip a bit or
// complete out of order.
#pragma once

#include <map>
#include <mutex>
#include <unordered_map>

#include "base/manual_clock.h"
#include "store/io/io_backend.h"

namespace deepinfer::store {

// Probabilities of a request, 0 to 1.
struct Faults {
  double read_error = 0, write_error = 0, sync_error = 0;  // EIO
  double short_read = 0, short_write = 0;
  double bit_flip = 0;  // of a read
  double hang_read = 0, hang_write = 0;
  bool reorder = false;
};

// Thread-compatible: one thread drives store and disk.
class SimulatedDisk : public IoBackend {
 public:
  SimulatedDisk(ManualClock& clock, uint64_t seed) : clock_(clock), random_(seed * 2 + 1) {}

  Faults faults;
  uint64_t capacity_bytes = UINT64_MAX;  // writes and allocations beyond it: ENOSPC

  // A persistence point is a call that changes what a power loss leaves behind: write, sync, allocate,
  // truncate, punch, create, remove, rename, directory sync.
  uint64_t persistence_points() const { return points_; }
  void power_off_at(uint64_t point) { off_at_ = point; }
  bool is_off() const { return off_; }
  // Power comes back. What was not synced is there, gone or torn, by the seed. All files must be closed
  // before.
  void restart();
  // Hung requests complete at the next wait.
  void release_hung() { ++release_; }

  // The bytes of a file, and ways to damage them.
  std::vector<std::byte> contents(const std::string& path) const;
  void overwrite(const std::string& path, uint64_t offset, std::span<const std::byte> bytes);
  void flip_bit(const std::string& path, uint64_t offset);  // one of that byte
  std::vector<std::string> files() const;
  uint64_t allocated_bytes() const;
  void drop_file(const std::string& path) { names_.erase(path); }

  std::string_view name() const override { return "simulated"; }
  Status make_directory(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& path) override;
  Result<std::shared_ptr<IoFile>> open(const std::string& path, OpenMode mode) override;
  Result<uint64_t> size(IoFile& file) override;
  Status allocate(IoFile& file, uint64_t size_bytes) override;
  Status truncate(IoFile& file, uint64_t size_bytes) override;
  Status punch(IoFile& file, uint64_t offset, uint64_t length) override;
  Status remove(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status sync_directory(const std::string& path) override;
  Result<std::unique_ptr<IoLock>> lock(const std::string& path) override;
  Result<Space> space(const std::string& path) override;
  Result<std::unique_ptr<IoQueue>> make_queue(size_t depth, size_t memory_bytes) override;

 private:
  friend class SimulatedQueue;
  struct Node;
  struct File;
  struct Rename;

  uint64_t draw(uint64_t below);
  bool chance(double probability);
  bool lose_power();  // counts a persistence point; true when the power is off
  void write_page(Node& node, uint64_t page, std::span<const std::byte> bytes);
  void read_page(const Node& node, uint64_t page, std::span<std::byte> bytes) const;
  void resize(Node& node, uint64_t size_bytes);
  IoCompletion execute(const IoRequest& request);

  ManualClock& clock_;
  uint64_t random_;
  uint64_t points_ = 0;
  uint64_t off_at_ = UINT64_MAX;
  bool off_ = false;
  bool tearing_ = false;  // the power goes at this very request
  int release_ = 0;
  std::map<std::string, std::shared_ptr<Node>> names_;
  std::vector<std::pair<std::string, std::shared_ptr<Node>>> name_undo_;  // name, what it was before
  std::map<std::string, bool> directories_;
  std::map<std::string, bool> locks_;
};

}  // namespace deepinfer::store
