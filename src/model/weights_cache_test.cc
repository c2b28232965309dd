// Packed weights kept on disk: the same model with and without, and every way in which the file can be wrong.
#include "model/weights_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/log.h"
#include "model/model.h"
#include "source_path.h"

namespace deepinfer {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

class WeightsCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "weights_cache_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    cache_.path = directory_ + "/mini.weights";
    cache_.identity.fill(std::byte{7});
    sink_ = std::make_shared<spdlog::sinks::ostream_sink_mt>(log_);
    log::default_logger()->sinks().push_back(sink_);
  }
  void TearDown() override {
    log::default_logger()->sinks().pop_back();
    std::filesystem::remove_all(directory_);
  }

  // What was logged since the last call.
  std::string said() {
    std::string text = log_.str();
    log_.str({});
    return text;
  }
  size_t warnings(const std::string& text) const {
    size_t count = 0;
    for (size_t at = text.find("[warning]"); at != std::string::npos; at = text.find("[warning]", at + 1)) ++count;
    return count;
  }
  size_t num_files() const { return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(directory_), {})); }

  struct Loaded {
    bool from_cache = false;
    std::vector<float> logits;
  };
  // The mini model with any token map of the right size, and its logits behind a few ids.
  static Loaded load(const WeightsCache* cache) {
    const auto checkpoint = Checkpoint::open(source_path("models/mini"));
    if (!checkpoint.ok()) {
      ADD_FAILURE() << checkpoint.error().message();
      return {};
    }
    std::vector<int32_t> map(static_cast<size_t>(checkpoint->config().vocab_size));
    for (size_t id = 0; id < map.size(); ++id) {
      map[id] = static_cast<int32_t>(std::min<int64_t>(static_cast<int64_t>(id), checkpoint->config().engram_compressed_vocab_size - 1));
    }
    const auto model = Model::load(*checkpoint, map, {.num_threads = 2, .max_context_tokens = 128}, {}, cache);
    if (!model.ok()) {
      ADD_FAILURE() << model.error().message();
      return {};
    }
    const auto sequence = (*model)->make_sequence();
    const std::vector<int32_t> ids = {0, 17, 42, 99, 256, 300, 17, 42};
    const SequenceSpan span{sequence->get(), 0, ids, LogitsRows::kAll};
    const auto logits = (*model)->forward({&span, 1});
    if (!logits.ok()) {
      ADD_FAILURE() << logits.error().message();
      return {};
    }
    return {(*model)->weights_from_cache(), {logits->begin(), logits->end()}};
  }

  std::string directory_;
  WeightsCache cache_;
  std::ostringstream log_;
  std::shared_ptr<spdlog::sinks::ostream_sink_mt> sink_;
};

TEST_F(WeightsCacheTest, ASecondLoadComesFromTheFileAndGivesTheSameBits) {
  const Loaded plain = load(nullptr);
  uint64_t written = 0;
  cache_.on_write = [&](uint64_t done_bytes, uint64_t total_bytes) {
    EXPECT_GT(done_bytes, written);
    EXPECT_LE(done_bytes, total_bytes);
    written = done_bytes;
  };
  const Loaded first = load(&cache_);
  EXPECT_FALSE(first.from_cache);
  EXPECT_NE(said().find("weights cache: wrote " + cache_.path), std::string::npos);
  EXPECT_GT(written, 0u);
  const Loaded second = load(&cache_);
  EXPECT_TRUE(second.from_cache);
  EXPECT_EQ(said(), "");
  EXPECT_EQ(first.logits, plain.logits);
  EXPECT_EQ(second.logits, plain.logits);
  EXPECT_EQ(num_files(), 1u);
}

TEST_F(WeightsCacheTest, AFileThatIsWrongIsSaidAndMadeAnew) {
  const Loaded sound = load(&cache_);
  const std::string file = read_file(cache_.path);
  ASSERT_GT(file.size(), size_t{4} << 20);
  const auto flipped = [&file](size_t at) {
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    return damaged;
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"is not a cache of weights", flipped(3)},
      {"found version 17, expected 1", flipped(8)},
      {"the header is damaged", flipped(12)},
      {"the header is damaged", flipped(48)},
      {"the list of checksums is damaged", flipped(4096)},
      {"are damaged", flipped(8192)},
      {"are damaged", flipped(file.size() / 2)},
      {"are damaged", flipped(file.size() - 1)},
      {"too few for a header", ""},
      {"too few for a header", file.substr(0, 71)},
      {"found 72 bytes, expected", file.substr(0, 72)},
      {"expected", file.substr(0, file.size() / 2)},
      {"expected", file.substr(0, file.size() - 1)},
      {"expected", file + '\0'},
  };
  for (const auto& [message, bytes] : cases) {
    SCOPED_TRACE(message);
    write_file(cache_.path, bytes);
    said();
    const Loaded again = load(&cache_);
    const std::string text = said();
    EXPECT_FALSE(again.from_cache);
    EXPECT_EQ(warnings(text), 1u) << text;
    EXPECT_NE(text.find(message), std::string::npos) << text;
    EXPECT_NE(text.find(cache_.path), std::string::npos) << text;
    EXPECT_EQ(again.logits, sound.logits);
    EXPECT_EQ(read_file(cache_.path), file);
  }
  EXPECT_TRUE(load(&cache_).from_cache);
}

TEST_F(WeightsCacheTest, AFileOfAnotherCheckpointIsNotUsed) {
  load(&cache_);
  said();
  cache_.identity.fill(std::byte{8});
  EXPECT_FALSE(load(&cache_).from_cache);
  EXPECT_NE(said().find("belongs to another checkpoint"), std::string::npos);
  EXPECT_TRUE(load(&cache_).from_cache);
}

// The limit on a file's size stands for a disk that is full.
TEST_F(WeightsCacheTest, AFullDiskCostsTheCacheAndNothingElse) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {1 << 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Loaded loaded = load(&cache_);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  const std::string text = said();
  EXPECT_FALSE(loaded.from_cache);
  EXPECT_FALSE(loaded.logits.empty());
  EXPECT_EQ(warnings(text), 1u) << text;
  EXPECT_NE(text.find("no room for"), std::string::npos) << text;
  EXPECT_NE(text.find("going on without it"), std::string::npos) << text;
  EXPECT_EQ(num_files(), 0u);
}

TEST_F(WeightsCacheTest, ADirectoryThatIsNotThereCostsTheCacheAndNothingElse) {
  cache_.path = directory_ + "/none/mini.weights";
  EXPECT_FALSE(load(&cache_).logits.empty());
  EXPECT_EQ(warnings(said()), 1u);
}

TEST_F(WeightsCacheTest, OnlyOneProcessWritesAtATime) {
  const std::string beside = cache_.path + ".new";
  const int other = ::open(beside.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);  // a lock belongs to this, not to the process
  ASSERT_GE(other, 0);
  ASSERT_EQ(::flock(other, LOCK_EX | LOCK_NB), 0);
  EXPECT_FALSE(load(&cache_).from_cache);
  const std::string text = said();
  EXPECT_EQ(warnings(text), 0u);
  EXPECT_NE(text.find("another process is writing it"), std::string::npos) << text;
  EXPECT_FALSE(std::filesystem::exists(cache_.path));
  ::close(other);  // killed: what it left is taken over
  write_file(beside, "half a file");
  EXPECT_FALSE(load(&cache_).from_cache);
  EXPECT_TRUE(load(&cache_).from_cache);
  EXPECT_EQ(num_files(), 1u);
}

TEST_F(WeightsCacheTest, TwoLoadsAtOnceLeaveASoundFile) {
  const Loaded plain = load(nullptr);
  Loaded other;
  {
    std::jthread thread([&] { other = load(&cache_); });
    EXPECT_EQ(load(&cache_).logits, plain.logits);
  }
  EXPECT_EQ(other.logits, plain.logits);
  const Loaded last = load(&cache_);
  EXPECT_TRUE(last.from_cache);
  EXPECT_EQ(last.logits, plain.logits);
}

// ---- the file by itself ----------------------------------------------------------------------------------------------

class WeightsFileTest : public WeightsCacheTest {
 protected:
  void SetUp() override {
    WeightsCacheTest::SetUp();
    auto memory = AlignedBuffer::allocate(200);
    ASSERT_TRUE(memory.ok());
    for (size_t i = 0; i < memory->size(); ++i) memory->data()[i] = static_cast<std::byte>(i * 37 + 1);
    memory_ = std::move(*memory);
    ASSERT_TRUE(write_weights_cache(cache_, kLayout, 2, memory_).ok());
    file_ = read_file(cache_.path);
  }
  // Reads `bytes` as the file; true when it gave the memory back. Never other bytes.
  bool reads(std::string_view bytes, uint32_t layout = kLayout) {
    write_file(cache_.path, bytes);
    auto memory = AlignedBuffer::reserve(200);
    const Status status = read_weights_cache(cache_, layout, 1, *memory, {});
    if (status.ok()) {
      EXPECT_TRUE(std::equal(memory->bytes().begin(), memory->bytes().end(), memory_.bytes().begin()));
    }
    return status.ok();
  }
  static constexpr uint32_t kLayout = 0x1234;
  AlignedBuffer memory_;
  std::string file_;
};

TEST_F(WeightsFileTest, AFlippedByteIsFoundOrMeansNothing) {
  ASSERT_EQ(file_.size(), 8192u + 200u);
  for (size_t at = 0; at < file_.size(); ++at) {
    const bool filler = (at >= 72 && at < 4096) || (at >= 4100 && at < 8192);
    if (filler && at % 512 != 511) continue;
    std::string damaged = file_;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    ASSERT_EQ(reads(damaged), filler) << at;
  }
}

TEST_F(WeightsFileTest, AShorterFileIsFound) {
  for (size_t size = 0; size < file_.size(); size += size < 80 || size > 8190 ? 1 : 511) {
    ASSERT_FALSE(reads(std::string_view(file_).substr(0, size))) << size;
  }
  EXPECT_TRUE(reads(file_));
}

TEST_F(WeightsFileTest, AnotherLayoutIsFound) { EXPECT_FALSE(reads(file_, kLayout + 1)); }

}  // namespace
}  // namespace deepinfer
