#include "store/io/simulated_disk.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <set>

#include "base/aligned_buffer.h"
#include "base/checked_math.h"
#include "base/little_endian.h"

namespace deepinfer::store {
namespace {

// A page without its runs of zeros: [skip, length, bytes]...
std::string packed(std::span<const std::byte> page) {
  std::string out;
  size_t at = 0, end_of_last = 0;
  while (at < page.size()) {
    uint64_t word = 0;
    std::memcpy(&word, page.data() + at, 8);
    if (word == 0) {
      at += 8;
      continue;
    }
    size_t end = at;
    while (end < page.size()) {
      std::memcpy(&word, page.data() + end, 8);
      if (word == 0) break;
      end += 8;
    }
    const uint16_t head[2] = {static_cast<uint16_t>(at - end_of_last), static_cast<uint16_t>(end - at)};
    out.append(reinterpret_cast<const char*>(head), sizeof head);
    out.append(reinterpret_cast<const char*>(page.data() + at), end - at);
    end_of_last = at = end;
  }
  return out;
}

void unpack(const std::string& packed, std::span<std::byte> page) {
  std::fill(page.begin(), page.end(), std::byte{0});
  size_t to = 0;
  for (size_t at = 0; at < packed.size();) {
    uint16_t head[2];
    std::memcpy(head, packed.data() + at, sizeof head);
    to += head[0];
    std::memcpy(page.data() + to, packed.data() + at + sizeof head, head[1]);
    to += head[1];
    at += sizeof head + head[1];
  }
}

std::string parent_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

}  // namespace

struct SimulatedDisk::Node {
  std::vector<std::string> pages;
  uint64_t size = 0, synced_size = 0;
  std::unordered_map<uint64_t, std::string> undo;  // pages before the writes that are not synced
};

struct SimulatedDisk::File : IoFile {
  explicit File(std::shared_ptr<Node> n) : node(std::move(n)) {}
  std::shared_ptr<Node> node;
};

uint64_t SimulatedDisk::draw(uint64_t below) {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return below == 0 ? 0 : (random_ >> 11) % below;
}

bool SimulatedDisk::chance(double probability) {
  return probability > 0 && static_cast<double>(draw(1'000'000)) < probability * 1e6;
}

bool SimulatedDisk::lose_power() {
  if (off_) return true;
  off_ = tearing_ = points_++ >= off_at_;
  return off_;
}

void SimulatedDisk::write_page(Node& node, uint64_t page, std::span<const std::byte> bytes) {
  if (page >= node.pages.size()) node.pages.resize(page + 1);
  node.undo.try_emplace(page, node.pages[page]);
  node.pages[page] = packed(bytes);
  node.size = std::max(node.size, (page + 1) * kPageBytes);
}

void SimulatedDisk::read_page(const Node& node, uint64_t page, std::span<std::byte> bytes) const {
  static const std::string empty;
  unpack(page < node.pages.size() ? node.pages[page] : empty, bytes);
}

void SimulatedDisk::resize(Node& node, uint64_t size_bytes) {
  const uint64_t pages = ceil_div(size_bytes, kPageBytes);
  for (uint64_t page = pages; page < node.pages.size(); ++page) {
    if (!node.pages[page].empty()) node.undo.try_emplace(page, node.pages[page]);
  }
  if (node.pages.size() > pages) node.pages.resize(pages);
  node.size = size_bytes;
}

void SimulatedDisk::restart() {
  std::set<std::shared_ptr<Node>> nodes;
  const uint64_t kept = draw(name_undo_.size() + 1);
  for (const auto& [name, node] : names_) nodes.insert(node);
  for (const auto& [name, node] : name_undo_)
    if (node != nullptr) nodes.insert(node);
  while (name_undo_.size() > kept) {
    auto& [name, before] = name_undo_.back();
    if (before == nullptr)
      names_.erase(name);
    else
      names_[name] = before;
    name_undo_.pop_back();
  }
  name_undo_.clear();
  for (const auto& node : nodes) {
    std::vector<uint64_t> pages;
    for (const auto& [page, before] : node->undo) pages.push_back(page);
    std::sort(pages.begin(), pages.end());
    for (const uint64_t page : pages) {
      if (draw(2) == 0) continue;  // this page made it to the medium
      if (page >= node->pages.size()) node->pages.resize(page + 1);
      node->pages[page] = node->undo[page];
    }
    node->undo.clear();
    if (node->size != node->synced_size && draw(2) == 0) node->size = node->synced_size;
    if (node->pages.size() > ceil_div(node->size, kPageBytes))
      node->pages.resize(ceil_div(node->size, kPageBytes));
    node->synced_size = node->size;
  }
  off_ = false;
  off_at_ = UINT64_MAX;
  locks_.clear();
}

std::vector<std::byte> SimulatedDisk::contents(const std::string& path) const {
  const Node& node = *names_.at(path);
  std::vector<std::byte> bytes(round_up(node.size, kPageBytes));
  for (uint64_t page = 0; page * kPageBytes < bytes.size(); ++page)
    read_page(node, page, std::span(bytes).subspan(page * kPageBytes, kPageBytes));
  bytes.resize(node.size);
  return bytes;
}

void SimulatedDisk::flip_bit(const std::string& path, uint64_t offset) {
  const std::byte flipped = contents(path)[offset] ^ std::byte{32};
  overwrite(path, offset, std::span(&flipped, 1));
}

void SimulatedDisk::overwrite(const std::string& path, uint64_t offset, std::span<const std::byte> bytes) {
  Node& node = *names_.at(path);
  std::array<std::byte, kPageBytes> page;
  for (size_t done = 0; done < bytes.size();) {
    const uint64_t at = offset + done, number = at / kPageBytes;
    const size_t count = std::min<size_t>(bytes.size() - done, kPageBytes - at % kPageBytes);
    read_page(node, number, page);
    std::memcpy(page.data() + at % kPageBytes, bytes.data() + done, count);
    if (number >= node.pages.size()) node.pages.resize(number + 1);
    node.pages[number] = packed(page);
    done += count;
  }
}

std::vector<std::string> SimulatedDisk::files() const {
  std::vector<std::string> paths;
  for (const auto& [path, node] : names_) paths.push_back(path);
  return paths;
}

uint64_t SimulatedDisk::allocated_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [path, node] : names_)
    for (const std::string& page : node->pages) bytes += page.empty() ? 0 : kPageBytes;
  return bytes;
}

// ---- names
// ------------------------------------------------------------------------------------------------------------

namespace {
Error off_error(const std::string& path) {
  return Error(Code::kIo, "{}: the power is off", path);
}
}  // namespace

Status SimulatedDisk::make_directory(const std::string& path) {
  if (off_) return off_error(path);
  directories_[path] = true;
  return {};
}

Result<std::vector<std::string>> SimulatedDisk::list(const std::string& path) {
  if (off_) return off_error(path);
  if (!directories_.contains(path)) return Error(Code::kNotFound, "{}: no such directory", path);
  std::vector<std::string> found;
  for (const auto& [name, node] : names_)
    if (parent_of(name) == path) found.push_back(name.substr(path.size() + 1));
  for (const auto& [name, there] : directories_)
    if (parent_of(name) == path) found.push_back(name.substr(path.size() + 1));
  return found;
}

Result<std::shared_ptr<IoFile>> SimulatedDisk::open(const std::string& path, OpenMode mode) {
  if (off_) return off_error(path);
  auto it = names_.find(path);
  if (it == names_.end()) {
    if (mode != OpenMode::kCreate) return Error(Code::kNotFound, "{}: no such file", path);
    if (lose_power()) return off_error(path);
    name_undo_.emplace_back(path, nullptr);
    it = names_.emplace(path, std::make_shared<Node>()).first;
  }
  return std::shared_ptr<IoFile>(std::make_shared<File>(it->second));
}

Result<uint64_t> SimulatedDisk::size(IoFile& file) {
  return static_cast<File&>(file).node->size;
}

Status SimulatedDisk::allocate(IoFile& file, uint64_t size_bytes) {
  if (lose_power()) return off_error("file");
  Node& node = *static_cast<File&>(file).node;
  if (size_bytes > node.size) {
    uint64_t total = 0;
    for (const auto& [name, other] : names_) total += other->size;
    if (total + size_bytes - node.size > capacity_bytes)
      return Error(Code::kResourceExhausted, "file: allocate: no space left");
    resize(node, size_bytes);
  }
  return {};
}

Status SimulatedDisk::truncate(IoFile& file, uint64_t size_bytes) {
  if (lose_power()) return off_error("file");
  resize(*static_cast<File&>(file).node, size_bytes);
  return {};
}

Status SimulatedDisk::punch(IoFile& file, uint64_t offset, uint64_t length) {
  if (lose_power()) return off_error("file");
  Node& node = *static_cast<File&>(file).node;
  for (uint64_t page = offset / kPageBytes; page < (offset + length) / kPageBytes && page < node.pages.size();
       ++page) {
    if (node.pages[page].empty()) continue;
    node.undo.try_emplace(page, node.pages[page]);
    node.pages[page].clear();
  }
  return {};
}

Status SimulatedDisk::remove(const std::string& path) {
  if (lose_power()) return off_error(path);
  const auto it = names_.find(path);
  if (it == names_.end()) return Error(Code::kNotFound, "{}: no such file", path);
  name_undo_.emplace_back(path, it->second);
  names_.erase(it);
  return {};
}

Status SimulatedDisk::rename(const std::string& from, const std::string& to) {
  if (lose_power()) return off_error(from);
  const auto it = names_.find(from);
  if (it == names_.end()) return Error(Code::kNotFound, "{}: no such file", from);
  const auto node = it->second;
  const auto target = names_.find(to);
  // One step in the journal of a real file system: the two undo records stand together, the new name's last.
  name_undo_.emplace_back(from, node);
  name_undo_.emplace_back(to, target == names_.end() ? nullptr : target->second);
  names_.erase(it);
  names_[to] = node;
  return {};
}

Status SimulatedDisk::sync_directory(const std::string& path) {
  if (lose_power()) return off_error(path);
  name_undo_.clear();
  return {};
}

namespace {
class SimulatedLock : public IoLock {
 public:
  SimulatedLock(std::map<std::string, bool>& locks, std::string path)
      : locks_(locks), path_(std::move(path)) {}
  ~SimulatedLock() override { locks_.erase(path_); }

 private:
  std::map<std::string, bool>& locks_;
  std::string path_;
};
}  // namespace

Result<std::unique_ptr<IoLock>> SimulatedDisk::lock(const std::string& path) {
  if (off_) return off_error(path);
  if (!locks_.emplace(path, true).second)
    return Error(Code::kUnavailable, "{}: another process writes here", path);
  return std::unique_ptr<IoLock>(std::make_unique<SimulatedLock>(locks_, path));
}

Result<Space> SimulatedDisk::space(const std::string& path) {
  if (off_) return off_error(path);
  return Space{capacity_bytes, capacity_bytes};
}

// ---- requests
// ---------------------------------------------------------------------------------------------------------

IoCompletion SimulatedDisk::execute(const IoRequest& request) {
  Node& node = *static_cast<File*>(request.file)->node;
  const uint64_t first = request.offset / kPageBytes;
  const uint64_t pages = request.buffer.size() / kPageBytes;
  switch (request.op) {
    case IoRequest::Op::kRead: {
      if (off_ || chance(faults.read_error)) return {request.tag, EIO, 0};
      uint64_t bytes = request.offset >= node.size
                           ? 0
                           : std::min<uint64_t>(request.buffer.size(), node.size - request.offset);
      for (uint64_t p = 0; p < pages; ++p)
        read_page(node, first + p, request.buffer.subspan(p * kPageBytes, kPageBytes));
      if (chance(faults.short_read)) bytes = draw(bytes);
      if (chance(faults.bit_flip) && bytes > 0)
        request.buffer[draw(bytes)] ^= static_cast<std::byte>(1u << draw(8));
      return {request.tag, 0, bytes};
    }
    case IoRequest::Op::kWrite: {
      if (lose_power()) {  // torn: some of the pages were on their way
        if (tearing_)
          for (uint64_t p = 0; p < pages; ++p)
            if (draw(2) == 0) write_page(node, first + p, request.buffer.subspan(p * kPageBytes, kPageBytes));
        tearing_ = false;
        return {request.tag, EIO, 0};
      }
      if (chance(faults.write_error)) return {request.tag, EIO, 0};
      const bool cut = chance(faults.short_write);
      const uint64_t count = cut ? draw(pages) : pages;
      for (uint64_t p = 0; p < count; ++p)
        write_page(node, first + p, request.buffer.subspan(p * kPageBytes, kPageBytes));
      return {request.tag, 0, count * kPageBytes};
    }
    case IoRequest::Op::kSync:
      if (lose_power() || chance(faults.sync_error)) return {request.tag, EIO, 0};
      node.undo.clear();
      node.synced_size = node.size;
      return {request.tag, 0, 0};
  }
  return {};
}

class SimulatedQueue : public IoQueue {
 public:
  SimulatedQueue(SimulatedDisk& disk, size_t depth, size_t memory_bytes)
      : disk_(disk), depth_(depth), memory_(round_up(std::max<size_t>(memory_bytes, 1), kPageBytes)) {}

  std::span<std::byte> memory() override { return memory_; }
  size_t depth() const override { return depth_; }
  size_t in_flight() const override { return done_.size() + hung_.size(); }

  void submit(std::span<const IoRequest> requests) override {
    for (const IoRequest& request : requests) {
      const double hang =
          request.op == IoRequest::Op::kRead ? disk_.faults.hang_read : disk_.faults.hang_write;
      if (disk_.chance(hang)) {
        hung_.push_back(request);
        release_seen_ = disk_.release_;
        continue;
      }
      const IoCompletion completion = disk_.execute(request);
      const size_t at = disk_.faults.reorder ? disk_.draw(done_.size() + 1) : done_.size();
      done_.insert(done_.begin() + static_cast<ptrdiff_t>(at), completion);
    }
  }

  size_t wait(std::span<IoCompletion> out, Clock::time_point deadline) override {
    if (!hung_.empty() && disk_.release_ != release_seen_) {
      for (const IoRequest& request : hung_) done_.push_back(disk_.execute(request));
      hung_.clear();
    }
    if (done_.empty() && !hung_.empty() && deadline > disk_.clock_.now())
      disk_.clock_.advance(deadline - disk_.clock_.now());
    size_t count = 0;
    for (; count < out.size() && !done_.empty(); ++count) {
      out[count] = done_.front();
      done_.pop_front();
    }
    return count;
  }

 private:
  SimulatedDisk& disk_;  // Borrowed; outlives its queues.
  const size_t depth_;
  std::vector<std::byte> memory_;
  std::deque<IoCompletion> done_;
  std::vector<IoRequest> hung_;
  int release_seen_ = 0;
};

Result<std::unique_ptr<IoQueue>> SimulatedDisk::make_queue(size_t depth, size_t memory_bytes) {
  return std::unique_ptr<IoQueue>(std::make_unique<SimulatedQueue>(*this, depth, memory_bytes));
}

}  // namespace deepinfer::store
