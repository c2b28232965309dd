// Every op at the sizes of DeepSeek-V4.1-Flash: time, rate and share of its floor, the larger of bytes / read bandwidth and
// operations / BF16 peak. The bandwidth and the peak are measured in the same rounds as the op, in turn, and the share is
// the median over rounds. The scalar reference and, where it is installed, oneDNN stand beside.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "json/json.h"
#include "kernels/one_op.h"
#include "kernels/ops.h"
#include "kernels/quantize.h"
#include "machine_probe.h"

#ifdef DEEPINFER_ONEDNN
#include <dnnl.h>
#endif

namespace deepinfer::bench {
namespace {

constexpr int64_t kHidden = 5120, kInner = 2304, kHeads = 64, kHeadDim = 512, kQueryRank = 1280;

struct Options {
  std::string isa = "auto";
  int threads = 2;
  int rounds = 15;
  bool shared = false;     // leave the priority as it is: how the kernels do beside other load
  bool reference = false;  // time the scalar reference too: some ops take seconds
  std::string only;
  std::string json_path;
};

struct Case {
  std::string name, shape;
  int64_t rows = 1;
  double bytes = 0, operations = 0;
  std::function<void(const Ops&)> run = nullptr;
  std::function<void()> rival = nullptr;  // oneDNN
};

struct Figures {
  const Case* item;
  Spread seconds, share, reference, rival;
};

std::mt19937_64 rng{7};

void fill_random(std::byte* data, size_t size) {
  for (size_t i = 0; i + 8 <= size; i += 8) {
    const uint64_t word = rng();
    std::memcpy(data + i, &word, 8);
  }
}

// Packed matrices of one shape, together larger than any cache; each call of next() gives another.
class Matrices {
 public:
  Matrices(MatrixKind kind, int64_t rows, int64_t cols, size_t total_bytes) {
    const auto bytes = static_cast<size_t>(Matrix::size_bytes(kind, rows, cols));
    const size_t count = std::max<size_t>(1, total_bytes / bytes);
    auto memory = AlignedBuffer::allocate(count * bytes);
    CHECK(memory.ok());
    memory_ = std::move(*memory);
    fill_random(memory_.data(), memory_.size());
    for (size_t i = 0; i < count; ++i) {
      std::byte* place = memory_.data() + i * bytes;
      if (kind == MatrixKind::kBf16) {  // finite numbers
        for (size_t k = 1; k < bytes; k += 2) place[k] = (place[k] & std::byte{0x83}) | std::byte{0x3c};
      }
      const MatrixView view{kind, rows, cols};
      std::memset(place + view.data_bytes(), kind == MatrixKind::kBf16 ? 0 : 120,
                  static_cast<size_t>(view.scale_bytes()));
      matrices_.push_back(Matrix::place(kind, rows, cols, place));
    }
  }
  const MatrixView& next() { return matrices_[next_++ % matrices_.size()].view(); }
  double bytes() const { return static_cast<double>(matrices_[0].view().data_bytes() + matrices_[0].view().scale_bytes()); }

 private:
  AlignedBuffer memory_;
  std::vector<Matrix> matrices_;
  size_t next_ = 0;
};

std::vector<Bf16> random_rows(int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<Bf16> values(static_cast<size_t>(count));
  for (auto& value : values) value = to_bf16(normal(rng));
  return values;
}

// Owns what the cases use.
class Suite {
 public:
  explicit Suite(const Options& options)
      : options_(options), pool_(options.threads, ThreadPool::Pinning::kOneCorePerThread) {
    const size_t scratch = std::max({attention_scratch_bytes(640, kHeadDim), hc_scratch_bytes(kHidden),
                                     index_scratch_bytes(32, 128)});
    scratch_.resize(scratch * static_cast<size_t>(options.threads) + 64);
    auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch_.data()) + 63) / 64 * 64);
    context_ = {&pool_, aligned, scratch / 64 * 64};
  }

  ThreadPool& pool() { return pool_; }
  std::vector<Case>& cases() { return cases_; }

  void add(Case item) {
    if (options_.only.empty() || item.name.find(options_.only) != std::string::npos) cases_.push_back(std::move(item));
  }

  void add_product(const std::string& name, MatrixKind kind, int64_t rows, int64_t cols, std::vector<int64_t> counts) {
    if (!options_.only.empty() && name.find(options_.only) == std::string::npos) return;
    auto matrices = std::make_shared<Matrices>(kind, rows, cols, size_t{160} << 20);
    const int64_t most = counts.back();
    auto x = std::make_shared<std::vector<Bf16>>(static_cast<size_t>(most * cols));
    const auto plain = random_rows(most * cols);
    const Ops& ref = **select_ops("ref");
    ref.quantize_rows(plain.data(), most, cols, x->data());
    auto y = std::make_shared<std::vector<Bf16>>(static_cast<size_t>(most * rows));
    for (const int64_t count : counts) {
      Case item{name, fmt::format("{}x{}", rows, cols), count, matrices->bytes(),
                2.0 * static_cast<double>(rows * cols * count)};
      item.run = [=, this](const Ops& ops) {
        run_linear(ops, context_, matrices->next(), {.values = x->data(), .count = count, .stride = cols},
                   {.bf16 = y->data(), .stride = rows});
      };
      if (kind == MatrixKind::kFp4) add_fast_product(item, matrices, x, y);
      if (kind == MatrixKind::kBf16) item.rival = rival_product(rows, cols, count, *x, *y);
      add(std::move(item));
    }
  }

  // The same product in the fast mode; its floor is that of the BF16 peak too, so shares above 1 are
  // possible.
  void add_fast_product(Case item, std::shared_ptr<Matrices> matrices, std::shared_ptr<std::vector<Bf16>> x,
                        std::shared_ptr<std::vector<Bf16>> y) {
    const MatrixView& view = matrices->next();
    const int64_t rows = view.rows, cols = view.cols, count = item.rows;
    auto blocks = std::make_shared<std::vector<Int8Block>>(x->size() / kSumBlock);
    (*select_ops("ref"))->encode_int8(x->data(), std::ssize(*x) / cols, cols, blocks->data());
    item.name += ", fast";
    item.run = [=, this](const Ops& ops) {
      run_linear(ops, context_, matrices->next(), {.count = count, .stride = cols, .int8 = blocks->data()},
                 {.bf16 = y->data(), .stride = rows});
    };
    add(std::move(item));
  }

  // Six routed experts and the shared one, as two lists (docs/spec/model.md 7).
  void add_experts() {
    auto up = std::make_shared<Matrices>(MatrixKind::kFp4, kInner, kHidden, size_t{400} << 20);
    auto shared = std::make_shared<Matrices>(MatrixKind::kFp8, kInner, kHidden, size_t{100} << 20);
    auto x = std::make_shared<std::vector<Bf16>>(random_rows(kHidden));
    auto y = std::make_shared<std::vector<Bf16>>(14 * kInner);
    Case item{"experts gate+up list", "12 FP4 + 2 FP8", 1, 12 * up->bytes() + 2 * shared->bytes(),
              2.0 * 14 * kInner * kHidden};
    item.run = [=, this](const Ops& ops) {
      std::vector<LinearTask> tasks;
      for (int i = 0; i < 14; ++i) {
        tasks.push_back({i < 2 ? shared->next() : up->next(), {.values = x->data(), .count = 1, .stride = kHidden},
                         {.bf16 = y->data() + i * kInner, .stride = kInner}});
      }
      run_linear_list(ops, context_, tasks);
    };
    add(std::move(item));
  }

  void add_attention() {
    constexpr int64_t kWindow = 128, kTop = 512;
    auto rows = std::make_shared<std::vector<std::byte>>(kWindow * window_row_bytes(kHeadDim) +
                                                         kTop * compressed_row_bytes(kHeadDim));
    auto pointers = std::make_shared<std::vector<const std::byte*>>();
    std::byte* place = rows->data();
    for (int64_t i = 0; i < kWindow + kTop; ++i) {
      const auto values = random_rows(kHeadDim);
      pointers->push_back(place);
      if (i < kWindow) {
        pack_window_row(values.data(), kHeadDim, place);
        place += window_row_bytes(kHeadDim);
      } else {
        pack_compressed_row(values.data(), kHeadDim, place);
        place += compressed_row_bytes(kHeadDim);
      }
    }
    for (const int64_t tokens : {1, 32}) {
      auto query = std::make_shared<std::vector<Bf16>>(random_rows(tokens * kHeads * kHeadDim));
      auto out = std::make_shared<std::vector<Bf16>>(query->size());
      auto sinks = std::make_shared<std::vector<float>>(kHeads, 0.1f);
      auto lists = std::make_shared<std::vector<AttentionList>>(
          tokens, AttentionList{pointers->data(), pointers->data() + kWindow, kWindow, kTop});
      Case item{"sparse attention", "64 heads, 640 rows", tokens, static_cast<double>(rows->size()),
                4.0 * static_cast<double>(tokens * kHeads * kHeadDim * (kWindow + kTop))};
      item.run = [=, this](const Ops& ops) {
        (void)rows, (void)pointers;  // keeps what the lists point at
        run_attention(
            ops, context_,
            {tokens, kHeads, kHeadDim, 0.044f, sinks->data(), query->data(), lists->data(), out->data(), kWindow});
      };
      add(std::move(item));
    }
  }

  void add_index_scores() {
    constexpr int64_t kDim = 128, kIndexHeads = 32, kRowsPerBlock = 64, kKeys = 65536;
    const auto block_bytes = static_cast<size_t>(kRowsPerBlock * (index_code_bytes(kDim) + index_scale_bytes(kDim)));
    auto keys = std::make_shared<std::vector<std::byte>>(block_bytes * kKeys / kRowsPerBlock);
    auto blocks = std::make_shared<std::vector<const std::byte*>>();
    for (int64_t row = 0; row < kKeys; ++row) {
      std::byte* block = keys->data() + row / kRowsPerBlock * static_cast<int64_t>(block_bytes);
      const int64_t slot = row % kRowsPerBlock;
      if (slot == 0) blocks->push_back(block);
      const auto values = random_rows(kDim);
      pack_index_row(values.data(), kDim, block + slot * index_code_bytes(kDim),
                     block + kRowsPerBlock * index_code_bytes(kDim) + slot * index_scale_bytes(kDim));
    }
    auto query = std::make_shared<std::vector<float>>(kIndexHeads * kDim);
    for (auto& value : *query) value = e2m1_to_float(static_cast<uint8_t>(rng() & 15));
    auto weights = std::make_shared<std::vector<float>>(kIndexHeads, 0.1f);
    auto scores = std::make_shared<std::vector<float>>(kKeys);
    auto run = std::make_shared<RowRun>(RowRun{0, kKeys});
    Case item{"index scores", "32 heads, 65536 keys", 1, static_cast<double>(keys->size()),
              2.0 * kIndexHeads * kDim * kKeys};
    item.run = [=, this](const Ops& ops) {
      (void)keys;  // keeps what the blocks point at
      ops.index_scores({{blocks->data(), kRowsPerBlock, kDim}, kIndexHeads, query->data(), weights->data(), {run.get(), 1},
                        scores->data(), context_.scratch});
    };
    add(std::move(item));
  }

  void add_single_rows() {
    for (const int64_t rows : {1, 64}) {
      const auto count = static_cast<double>(rows);
      auto h = std::make_shared<std::vector<Bf16>>(random_rows(rows * 4 * kHidden));
      auto x = std::make_shared<std::vector<Bf16>>(random_rows(rows * kHidden));
      auto y = std::make_shared<std::vector<Bf16>>(rows * kHidden);
      auto mixes = std::make_shared<std::vector<HcMix>>(rows);
      auto fn = std::make_shared<Matrix>(
          *Matrix::pack_f32(24, 4 * kHidden, std::vector<float>(24 * 4 * kHidden, 0.001f)));
      auto numbers = std::make_shared<std::vector<float>>(24 + 3 + rows * 24, 0.1f);
      const std::string width = fmt::format("{}", kHidden);
      add({"hyper-connection mix", "24x20480", rows, 24 * 20480 * 4.0, 48.0 * 20480 * count, [=, this](const Ops& ops) {
             const HcParams params{fn->view(), numbers->data(), numbers->data() + 24};
             ops.hc_mix(params, h->data(), rows, kHidden, numbers->data() + 27, mixes->data(), context_.scratch);
           }});
      add({"hyper-connection fold", width, rows, count * kHidden * 10, count * kHidden * 7, [=, this](const Ops& ops) {
             ops.hc_fold(h->data(), numbers->data(), 0, rows, kHidden, {0, kHidden}, y->data());
           }});
      add({"hyper-connection unfold", width, rows, count * kHidden * 18, count * kHidden * 36, [=, this](const Ops& ops) {
             ops.hc_unfold(x->data(), mixes->data(), rows, kHidden, {0, kHidden}, h->data());
           }});
      add({"rms norm", width, rows, count * kHidden * 4, count * kHidden * 4, [=, this](const Ops& ops) {
             ops.rms_norm(x->data(), x->data(), rows, kHidden, 1e-20f, y->data());
           }});
      add({"quantize rows", width, rows, count * kHidden * 4, count * kHidden * 4, [=, this](const Ops& ops) {
             ops.quantize_rows(x->data(), rows, kHidden, y->data());
           }});
      auto int8 = std::make_shared<std::vector<Int8Block>>(rows * kHidden / kSumBlock);
      add({"encode int8", width, rows, count * kHidden * 3, count * kHidden * 4,
           [=, this](const Ops& ops) { ops.encode_int8(x->data(), rows, kHidden, int8->data()); }});
      add({"swiglu", "2304", rows, count * kInner * 6, count * kInner * 20, [=, this](const Ops& ops) {
             ops.swiglu(x->data(), x->data(), nullptr, rows, kInner, 10.0f, y->data());
           }});
    }
  }

 private:
  std::function<void()> rival_product([[maybe_unused]] int64_t rows, [[maybe_unused]] int64_t cols,
                                      [[maybe_unused]] int64_t count, [[maybe_unused]] std::vector<Bf16>& x,
                                      [[maybe_unused]] std::vector<Bf16>& y) {
#ifdef DEEPINFER_ONEDNN
    // oneDNN chooses its own layout for the weights, as ours are packed too.
    dnnl_engine_t engine = nullptr;
    dnnl_stream_t stream = nullptr;
    dnnl_engine_create(&engine, dnnl_cpu, 0);
    dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
    dnnl_memory_desc_t xd, wd, yd;
    const dnnl_dims_t xs = {count, cols}, ws = {cols, rows}, ys = {count, rows};
    dnnl_memory_desc_init_by_tag(&xd, 2, xs, dnnl_bf16, dnnl_ab);
    dnnl_memory_desc_init_by_tag(&wd, 2, ws, dnnl_bf16, dnnl_format_tag_any);
    dnnl_memory_desc_init_by_tag(&yd, 2, ys, dnnl_bf16, dnnl_ab);
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t primitive_desc = nullptr;
    dnnl_primitive_t primitive = nullptr;
    if (dnnl_matmul_desc_init(&desc, &xd, &wd, nullptr, &yd) != dnnl_success ||
        dnnl_primitive_desc_create(&primitive_desc, &desc, nullptr, engine, nullptr) != dnnl_success ||
        dnnl_primitive_create(&primitive, primitive_desc) != dnnl_success) {
      return nullptr;
    }
    const dnnl_memory_desc_t* chosen = dnnl_primitive_desc_query_md(primitive_desc, dnnl_query_weights_md, 0);
    std::vector<dnnl_memory_t> weights(std::max<size_t>(1, (size_t{160} << 20) / dnnl_memory_desc_get_size(chosen)));
    for (auto& memory : weights) {
      dnnl_memory_create(&memory, chosen, engine, DNNL_MEMORY_ALLOCATE);
      void* data = nullptr;
      dnnl_memory_get_data_handle(memory, &data);
      std::memset(data, 0x3c, dnnl_memory_desc_get_size(chosen));  // touched, or all of it is one page of zeros
    }
    dnnl_memory_t xm = nullptr, ym = nullptr;
    dnnl_memory_create(&xm, &xd, engine, x.data());
    dnnl_memory_create(&ym, &yd, engine, y.data());
    return [=, next = size_t{0}]() mutable {
      const dnnl_exec_arg_t args[] = {
          {DNNL_ARG_SRC, xm}, {DNNL_ARG_WEIGHTS, weights[next++ % weights.size()]}, {DNNL_ARG_DST, ym}};
      dnnl_primitive_execute(primitive, stream, 3, args);
      dnnl_stream_wait(stream);
    };  // the library's objects live as long as the program
#else
    return nullptr;
#endif
  }

  const Options& options_;
  ThreadPool pool_;
  std::vector<std::byte> scratch_;
  KernelContext context_;
  std::vector<Case> cases_;
};

template <typename Run>
double seconds_of(Run&& run) {
  const double start = now_seconds();
  run();
  return now_seconds() - start;
}

Figures measure(const Case& item, const Ops& ops, const Options& options, MachineProbe& probe) {
  const Ops& ref = **select_ops("ref");
  std::vector<double> seconds, shares, reference, rival;
  item.run(ops);
  if (item.rival) item.rival();
  const double once = seconds_of([&] { item.run(ops); });
  const int repeats = static_cast<int>(std::clamp(2e-3 / once, 1.0, 1000.0));
  for (int round = 0; round < options.rounds; ++round) {
    const double read = probe.read_gbs(true) * 1e9;
    const double peak = std::max(probe.bf16_gflops(), probe.fp32_gflops()) * 1e9;
    const double time = seconds_of([&] { for (int i = 0; i < repeats; ++i) item.run(ops); }) / repeats;
    seconds.push_back(time);
    shares.push_back(std::max(item.bytes / read, item.operations / peak) / time);
    if (item.rival) rival.push_back(seconds_of(item.rival));
  }
  if (options.reference) reference.push_back(seconds_of([&] { item.run(ref); }));
  return {&item, spread_of(seconds), spread_of(shares), spread_of(reference), spread_of(rival)};
}

std::string time_text(double seconds) {
  if (seconds <= 0) return "-";
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  return fmt::format("{:.2f} ms", seconds * 1e3);
}

void print_row(const Figures& f) {
  const double seconds = f.seconds.median;
  fmt::print("{:<26}{:<22}{:>5}  {:>10} [{:>9}, {:>9}] {:>7.1f} {:>8.1f} {:>6.0f} %  {:>10} {:>10}\n", f.item->name,
             f.item->shape, f.item->rows, time_text(seconds), time_text(f.seconds.low), time_text(f.seconds.high),
             f.item->bytes / seconds / 1e9, f.item->operations / seconds / 1e9, 100 * f.share.median,
             time_text(f.reference.median), time_text(f.rival.median));
}

void write_json(const std::string& path, const MachineFigures& machine, std::string_view isa,
                const std::vector<Figures>& rows, const Spread& fork_join) {
  std::string text;
  JsonWriter writer(text);
  writer.begin_object().member("processor", MachineProbe::cpu_name()).member("isa", isa);
  writer.member("read_gbs_one", machine.read_one.median).member("read_gbs_all", machine.read_all.median);
  writer.member("bf16_gflops", machine.bf16.median).member("fp32_gflops", machine.fp32.median);
  writer.member("int8_gops", machine.int8.median).member("clock_ghz", machine.clock_ghz.median);
  writer.member("fork_join_seconds", fork_join.median).key("ops").begin_array();
  for (const Figures& f : rows) {
    writer.begin_object().member("name", f.item->name).member("shape", f.item->shape).member("rows", f.item->rows);
    writer.member("seconds", f.seconds.median).member("seconds_p10", f.seconds.low).member("seconds_p90", f.seconds.high);
    writer.member("gigabytes_per_second", f.item->bytes / f.seconds.median / 1e9);
    writer.member("gflops", f.item->operations / f.seconds.median / 1e9).member("share_of_floor", f.share.median);
    writer.member("reference_seconds", f.reference.median).member("onednn_seconds", f.rival.median).end_object();
  }
  writer.end_array().end_object();
  std::ofstream(path) << text << '\n';
}

// An empty region of the pool.
Spread measure_fork_join(ThreadPool& pool) {
  std::vector<double> samples;
  for (int i = 0; i < 2000; ++i) {
    samples.push_back(seconds_of([&] { pool.parallel_for(pool.num_threads(), 1, [](int64_t, int64_t) {}); }));
  }
  return spread_of(samples);
}

void add_cases(Suite& suite) {
  suite.add_product("FP4 expert up", MatrixKind::kFp4, kInner, kHidden, {1, 2, 3, 4, 6, 8, 16, 32, 512});
  suite.add_product("FP4 expert down", MatrixKind::kFp4, kHidden, kInner, {1, 512});
  suite.add_experts();
  suite.add_product("FP8 query up", MatrixKind::kFp8, kHeads * kHeadDim, kQueryRank,
                    {1, 2, 4, 6, 8, 16, 512});
  suite.add_product("FP8 output", MatrixKind::kFp8, kHidden, 8192, {1, 512});
  suite.add_product("FP8 KV", MatrixKind::kFp8, kHeadDim, kHidden, {1});
  suite.add_product("BF16 head", MatrixKind::kBf16, 16160, kHidden, {1, 4, 16, 64});
  suite.add_product("BF16 router", MatrixKind::kBf16, 384, kHidden, {1, 512});
  suite.add_attention();
  suite.add_index_scores();
  suite.add_single_rows();
}

int run(const Options& options) {
  const auto ops = select_ops(options.isa);
  if (!ops.ok()) {
    fmt::print(stderr, "kernels_bench: {}\n", ops.error().message());
    return 1;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // lines appear as they come, in a pipe too
  const std::string priority = options.shared ? "as started" : raise_priority();
  Suite suite(options);
  auto probe = MachineProbe::make(suite.pool());
  if (!probe.ok()) {
    fmt::print(stderr, "kernels_bench: {}\n", probe.error().message());
    return 1;
  }
  const MachineFigures machine = probe->measure(options.rounds);
  fmt::print("{}", MachineProbe::text(machine, options.threads));
  const Spread fork_join = measure_fork_join(suite.pool());
  fmt::print("fork-join of {} threads: {:.2f} us [{:.2f}, {:.2f}];  table {}, priority {}, medians of {} rounds\n\n",
             options.threads, fork_join.median * 1e6, fork_join.low * 1e6, fork_join.high * 1e6, (*ops)->name, priority,
             options.rounds);
  fmt::print("{:<26}{:<22}{:>5}  {:>10} [{:>9}, {:>9}] {:>7} {:>8} {:>8}  {:>10} {:>10}\n", "op", "shape", "rows",
             "median", "p10", "p90", "GB/s", "GFLOP/s", "of floor", "reference", "oneDNN");
  add_cases(suite);
  std::vector<Figures> rows;
  for (const Case& item : suite.cases()) {
    rows.push_back(measure(item, **ops, options, *probe));
    print_row(rows.back());
  }
  if (!options.json_path.empty()) write_json(options.json_path, machine, (*ops)->name, rows, fork_join);
  return 0;
}

constexpr char kUsage[] =
    "kernels_bench [--isa NAME] [--threads N] [--rounds N] [--only PART-OF-NAME] [--shared] [--reference] [--json FILE]\n";

}  // namespace
}  // namespace deepinfer::bench

int main(int argc, char** argv) {
  // The threads of oneDNN's OpenMP would spin on through our rounds; its library reads this before main.
  if (setenv("OMP_WAIT_POLICY", "passive", 0) == 0 && std::getenv("DEEPINFER_BENCH_AGAIN") == nullptr) {
    setenv("DEEPINFER_BENCH_AGAIN", "1", 1);
    execv("/proc/self/exe", argv);
  }
  deepinfer::bench::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (option == "--isa") {
      options.isa = value();
    } else if (option == "--threads") {
      options.threads = std::max(1, std::atoi(value().c_str()));
    } else if (option == "--rounds") {
      options.rounds = std::max(1, std::atoi(value().c_str()));
    } else if (option == "--only") {
      options.only = value();
    } else if (option == "--shared") {
      options.shared = true;
    } else if (option == "--reference") {
      options.reference = true;
    } else if (option == "--json") {
      options.json_path = value();
    } else {
      fmt::print(stderr, "{}", deepinfer::bench::kUsage);
      return option == "--help" ? 0 : 2;
    }
  }
  return deepinfer::bench::run(options);
}
