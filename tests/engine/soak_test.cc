// Random submit, cancel, pause and pressure for a while; then everything must have ended and everything be back.
// DEEPINFER_SOAK_SECONDS (120) and DEEPINFER_SOAK_SEED set how long and what; the seed is printed.
#include <cstdio>
#include <semaphore>
#include <thread>

#include "engine_support.h"
#include "model/kv_arena.h"

namespace deepinfer {
namespace {

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::atoll(value) : otherwise;
}

int64_t resident_kib() {
  int64_t pages = 0, resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  if (std::fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
  std::fclose(file);
  return resident * 4;
}

TEST(EngineSoakTest, NothingLeaksAndEverythingEnds) {
  const int64_t seconds = from_environment("DEEPINFER_SOAK_SECONDS", 120);
  const auto seed = static_cast<uint32_t>(from_environment("DEEPINFER_SOAK_SEED", std::random_device()()));
  std::printf("soak: %ld s, seed %u\n", static_cast<long>(seconds), seed);
  std::mt19937 rng(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  int64_t requests = 0, cancelled = 0;
  for (int depth = 0; std::chrono::steady_clock::now() < end; depth = 1 - depth) {
    Counters counters;
    const auto mode = static_cast<ContextMode>(rng() % 3);
    auto model = load_model(model_directory("mini"),
                            {.num_threads = 1 + static_cast<int>(rng() % 2), .max_context_tokens = 700, .max_sequences = 14,
                             .num_blocks = 10 + static_cast<int64_t>(rng() % 30), .max_batch_tokens = 64});
    ASSERT_NE(model, nullptr);
    Engine engine(std::move(model),
                  {.reserve_tokens = 1, .context_mode = mode, .swap_blocks = static_cast<int64_t>(rng() % 12),
                   .scheduling_depth = depth},
                  counters);
    std::vector<std::unique_ptr<Receiver>> receivers;
    std::vector<Engine::RequestId> ids;
    const auto round_end = std::min(end, std::chrono::steady_clock::now() + std::chrono::seconds(30));
    while (std::chrono::steady_clock::now() < round_end) {
      EngineRequest request;
      const auto prompt = 1 + static_cast<int64_t>(rng() % 500);
      request.prompt_ids = random_ids(rng() % 10, prompt, 2000);
      request.max_tokens = 1 + static_cast<int64_t>(rng() % 80);
      request.n = rng() % 10 == 0 ? 2 : 1;
      request.priority = static_cast<int32_t>(rng() % 4);
      if (rng() % 2 == 0) request.context_mode = static_cast<ContextMode>(rng() % 3);
      if (rng() % 20 == 0) request.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(rng() % 300);
      receivers.push_back(std::make_unique<Receiver>(request.n));
      const auto id = engine.submit(std::move(request), receivers.back()->sink());
      ASSERT_TRUE(id.ok() || id.error().code() == Code::kResourceExhausted) << id.error().message();
      if (!id.ok()) {
        receivers.pop_back();
      } else {
        ids.push_back(*id);
        ++requests;
      }
      if (ids.size() > 8 && rng() % 3 == 0) {
        engine.cancel(ids[ids.size() - 1 - rng() % 8]);
        ++cancelled;
      }
      if (ids.size() > 8 && rng() % 5 == 0) engine.pause(ids[ids.size() - 1 - rng() % 8]);
      if (ids.size() > 60) {  // sixty in flight at most
        engine.resume(ids[ids.size() - 61]);
        receivers[ids.size() - 61]->wait();
      }
      if (ids.size() % 50 == 0) {
        for (const auto one : ids) engine.resume(one);
      }
    }
    for (const auto one : ids) engine.resume(one);
    for (auto& receiver : receivers) receiver->wait();
    EngineStats stats;
    for (int i = 0; i < 5000 && (i == 0 || stats.running + stats.waiting > 0 || stats.blocks_used > stats.states_kept); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      stats = engine.stats();
    }
    ASSERT_LE(stats.blocks_used, stats.states_kept) << describe(stats);
    ASSERT_EQ(stats.states_free + stats.states_kept, stats.states_total) << describe(stats);
    ASSERT_EQ(stats.swap_blocks_used, 0) << describe(stats);
    ASSERT_EQ(stats.running + stats.waiting, 0) << describe(stats);
  }
  std::printf("soak: %ld requests, %ld cancels\n", static_cast<long>(requests), static_cast<long>(cancelled));
}

// Blocks that lie more than 2^31 bytes from the first one: the same rows, the same bits.
TEST(EngineSoakTest, BlocksBeyondTwoGigabytesAreLikeOthers) {
  auto model = load_model(model_directory("mini"),
                          {.max_context_tokens = 400, .max_sequences = 2, .num_blocks = 1, .max_batch_tokens = 300});
  ASSERT_NE(model, nullptr);
  const auto block_bytes = static_cast<int64_t>(model->memory_plan().kv_block_bytes);
  const int64_t blocks = (int64_t{1} << 31) / block_bytes + 10;
  model = load_model(model_directory("mini"),
                     {.max_context_tokens = 400, .max_sequences = 2, .num_blocks = blocks, .max_batch_tokens = 300});
  ASSERT_NE(model, nullptr);
  const auto ids = random_ids(5, 300, 2000);
  std::vector<std::vector<float>> rows;
  for (const int64_t first : {int64_t{0}, blocks - 3}) {
    const std::vector<BlockId> table = {static_cast<BlockId>(first), static_cast<BlockId>(first + 1),
                                        static_cast<BlockId>(first + 2)};
    model->start(model->state(0), 0, {}, {});
    const SequenceSpan span{&model->state(0), 0, ids, LogitsRows::kLast, 0, table};
    const auto logits = model->forward({&span, 1});
    ASSERT_TRUE(logits.ok()) << logits.error().message();
    rows.emplace_back(logits->begin(), logits->end());
  }
  EXPECT_EQ(rows[0], rows[1]);
}

// What the plan says is what the process holds: within 2 % with a pool that dwarfs the program.
TEST(EngineSoakTest, ResidentMemoryIsThatOfThePlan) {
  const int64_t before = resident_kib();
  auto model = load_model(model_directory("mini"), {.max_context_tokens = 2048, .max_sequences = 64, .num_blocks = 60'000});
  ASSERT_NE(model, nullptr);
  Counters counters;
  Engine engine(std::move(model), {}, counters);
  const std::string plan = engine.memory_plan();
  const auto at = plan.find("total ");
  ASSERT_NE(at, std::string::npos);
  const double planned_mib = std::atof(plan.c_str() + at + 6);
  std::vector<std::unique_ptr<Receiver>> receivers;
  for (uint32_t i = 0; i < 60; ++i) {
    receivers.push_back(std::make_unique<Receiver>());
    EngineRequest request;
    request.prompt_ids = random_ids(i, 1000, 2000);
    request.max_tokens = 20;
    ASSERT_TRUE(engine.submit(std::move(request), receivers.back()->sink()).ok());
  }
  for (auto& receiver : receivers) receiver->wait();
  const double held_mib = static_cast<double>(resident_kib() - before) / 1024;
  std::printf("%s\nheld: %.1f MiB\n", plan.c_str(), held_mib);
  EXPECT_NEAR(held_mib, planned_mib, 0.02 * planned_mib);
}

TEST(EngineSoakTest, MemoryStaysFlatOverManyShortRequests) {
  const int64_t count = from_environment("DEEPINFER_SOAK_REQUESTS", 100'000);
  Counters counters;
  auto model = load_model(model_directory("mini"),
                          {.max_context_tokens = 128, .max_sequences = 80, .num_blocks = 80, .max_batch_tokens = 128});
  ASSERT_NE(model, nullptr);
  Engine engine(std::move(model), {.max_running = 64}, counters);
  int64_t warm = 0;
  constexpr int kInFlight = 500;
  std::counting_semaphore<kInFlight> places(kInFlight);
  for (int64_t i = 0; i < count; ++i) {
    EngineRequest request;
    request.prompt_ids = random_ids(static_cast<uint32_t>(i), 2, 2000);
    request.max_tokens = 1;
    places.acquire();
    const auto id = engine.submit(std::move(request), [&places](const EngineEvent& event) {
      if (event.kind == EngineEvent::Kind::kFinished) places.release();
    });
    ASSERT_TRUE(id.ok()) << id.error().message();
    if (i == count / 10) warm = resident_kib();
  }
  for (int i = 0; i < kInFlight; ++i) places.acquire();
  const int64_t now = resident_kib();
  std::printf("resident after a tenth: %ld KiB, at the end: %ld KiB\n", static_cast<long>(warm), static_cast<long>(now));
  EXPECT_LT(now, warm + warm / 20 + 2048);
}

}  // namespace
}  // namespace deepinfer
