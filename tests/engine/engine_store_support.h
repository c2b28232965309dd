// A KV store in a directory of its own for tests of the engine: it outlives engines, and can be closed and opened again.
#pragma once

#include <unistd.h>

#include "engine/block_shape.h"
#include "engine_support.h"
#include "store/io/faulty_backend.h"
#include "store/store.h"

namespace deepinfer {

class StoreOnDisk {
 public:
  StoreOnDisk() {
    static int number = 0;
    path_ = std::filesystem::temp_directory_path() / fmt::format("deepinfer-engine-store-{}-{}", ::getpid(), number++);
    std::filesystem::remove_all(path_);
  }
  ~StoreOnDisk() {
    close();
    std::filesystem::remove_all(path_);
  }

  store::Store* open(const Model& model, uint64_t weights = 1) {
    close();
    auto backend = store::make_io_backend(store::IoKind::kAuto);
    EXPECT_TRUE(backend.ok());
    backend_ = std::make_unique<store::FaultyBackend>(std::move(*backend), faults);
    store::StoreOptions options = block_shape(model);
    options.drives = {path_};
    options.capacity_bytes = 64 << 20;
    options.commit_delay = std::chrono::milliseconds(1);
    options.fingerprint = sha256(std::as_bytes(std::span(&weights, 1)));
    options.master_key[0] = std::byte{1};
    options.shared_domains = shared_domains;
    options.read_bytes = 1 << 20;
    auto opened = store::Store::open(options, *backend_, system_clock());
    if (!opened.ok()) {
      ADD_FAILURE() << opened.error().message();
      return nullptr;
    }
    store_ = std::move(*opened);
    EXPECT_TRUE(store_->wait_ready(soon()).ok());
    return store_.get();
  }
  void close() { store_.reset(); }
  store::Store* get() { return store_.get(); }
  const std::string& path() const { return path_; }
  static Clock::time_point soon() { return system_clock().now() + std::chrono::seconds(60); }

  store::ReadFaults faults;
  bool shared_domains = false;  // as where there is a remote tier

 private:
  std::string path_;
  std::unique_ptr<store::FaultyBackend> backend_;
  std::unique_ptr<store::Store> store_;
};

}  // namespace deepinfer
