// One CPU server and this model: what a step reads and computes, against what the server can. The floor of a decode
// step is the longer of bytes over bandwidth and operations over arithmetic; docs/performance.md has the shares that
// were reached.
#include "planner/planner.h"

namespace deepinfer::planner {
namespace {

constexpr char kCheckpoint[] = "the released checkpoint";

struct Machine {
  explicit Machine(Model& m) : m(m) {}
  Model& m;

  Term<Pure> layers = (m.group("Model"), m.input("layers", "Layers", 40, kNumber, {8, 40, kCheckpoint}));
  Term<Pure> experts = m.input("experts", "Routed experts of a layer", 384, kNumber, {16, 384, kCheckpoint});
  Term<Pure> experts_per_token =
      m.input("experts_per_token", "Experts that a token uses", 6, kNumber, {1, 6, kCheckpoint});
  Term<Pure> hidden = m.input("hidden", "Hidden size", 5120, kNumber, {5120, 5120, kCheckpoint});
  Term<Pure> expert_inner =
      m.input("expert_inner", "Inner size of an expert", 2304, kNumber, {2304, 2304, kCheckpoint});
  Term<Bytes> weight_bytes =
      m.input("weight_bytes", "Bytes of a routed weight", 17.0 / 32, kBytes, {0.5, 1, "FP4, one scale for 32"});
  Term<Bytes> dense_bytes = m.input("dense_bytes", "Weights beside the routed experts, head included", 8.523,
                                    kGigabytes, {6, 10, "tensor list of the checkpoint"});
  Term<Bytes> engram_bytes = m.input("engram_bytes", "Engram tables", 202.76, kGigabytes, {1, 203, kCheckpoint});
  Term<TokenWork> decode_work = m.input("decode_work", "Arithmetic of an output token", 32, kGigaOperationsPerToken,
                                        {30, 34, "16 billion active parameters", kMediumConfidence});
  Term<TokenWork> prefill_work =
      m.input("prefill_work", "Arithmetic of an input token", 16, kGigaOperationsPerToken,
              {15, 32, "half the layers (8 billion); attention comes on top", kMediumConfidence});
  Term<Pure> kv_rows = m.input("kv_rows", "KV rows of a token, all source layers", 2.5, kNumber,
                               {2.5, 2.5, "three layers keep every second, one each"});
  Term<Quotient<Bytes, Tokens>> kv_row_bytes =
      m.input("kv_row_bytes", "Bytes of a row: FP4 values and scales, index key", 356, kBytesPerToken,
              {356, 1280, "256 + 32 + 64 + 4"});
  Term<Tokens> block_tokens =
      m.input("block_tokens", "Tokens of a block", 128, kTokens, {128, 128, "docs/formats/kv-segment.md"});
  Term<Pure> window_rows = m.input("window_rows", "Rows of a window", 128, kNumber, {128, 140, kCheckpoint});
  Term<Pure> window_layers =
      m.input("window_layers", "Layers with a window, drafts' included", 43, kNumber, {40, 43, kCheckpoint});
  Term<Bytes> window_row_bytes =
      m.input("window_row_bytes", "Bytes of a window row", 528, kBytes, {528, 1024, "512 + 16 of scales"});
  Term<Quotient<Bytes, Tokens>> engram_row_bytes =
      m.input("engram_row_bytes", "Bytes of an Engram row", 264, kBytesPerToken, {264, 264, kCheckpoint});
  Term<Pure> engram_rows = m.input("engram_rows", "Engram rows of a token, at most", 48, kNumber,
                                   {48, 48, "two layers, three n-grams, eight heads"});
  Term<Pure> context = m.input("context", "Longest context", 1048576, kNumber, {8192, 1048576, kCheckpoint});

  Term<Pure> sockets = (m.group("Server"), m.input("sockets", "Sockets", 2, kNumber, {1, 2, "your server"}));
  Term<Pure> cores = m.input("cores", "Cores of a socket", 64, kNumber, {8, 192, "your server"});
  Term<BytesPerSecond> bandwidth = m.input("bandwidth", "Memory bandwidth of a socket", 460, kGigabytesPerSecond,
                                           {50, 900, "12 channels of DDR5-4800"});
  Term<Bytes> memory = m.input("memory", "Memory of the server", 1536, kGigabytes, {64, 6000, "your server"});
  Term<OperationsPerSecond> core_compute =
      m.input("core_compute", "BF16 arithmetic of a core", 235, kGigaOperations,
              {60, 450, "Zen 4 measured (docs/performance.md); Zen 5 about twice", kMediumConfidence});
  Term<Pure> memory_reached = m.input(
      "memory_reached", "Bandwidth reached", 80, kPercent,
      {50, 100, "76 to 104 % measured on two cores; many sockets lose some", kMediumConfidence, Bound::kFraction});
  Term<Pure> compute_reached = m.input("compute_reached", "Arithmetic reached", 60, kPercent,
                                       {40, 80, "62 to 78 % measured in prefill", kMediumConfidence, Bound::kFraction});
  Term<Pure> drives = m.input("drives", "NVMe drives", 2, kNumber, {1, 24, "your server"});
  Term<BytesPerSecond> drive_read =
      m.input("drive_read", "Read of a drive", 6, kGigabytesPerSecond, {1, 14, "PCIe 4", kMediumConfidence});
  Term<Bytes> drive_size = m.input("drive_size", "Size of a drive", 7.68, kTerabytes, {0.9, 61, "your server"});
  Term<Pure> answers = m.input("answers", "Answers at a time", 16, kNumber, {1, 4096, "a batch of decode"});
  Term<Pure> rows_per_answer = m.input("rows_per_answer", "Rows of an answer in a step", 1, kNumber,
                                       {1, 6, "1 + drafts verified; more pays only while memory is the limit"});
  Term<Pure> tokens_per_step =
      m.input("tokens_per_step", "Tokens that they bring", 1, kNumber, {1, 5, "1 without drafts"});
  Term<CardPrice> price =
      m.input("price", "Price of the server", 25000, kDollarsPerCard, {5000, 80000, "placeholder", kLowConfidence});
  Term<CardRent> rent = m.input("rent", "The server for an hour, all costs", 3, kDollarsPerCardHour,
                                {0.3, 10, "placeholder", kLowConfidence});
};

}  // namespace

const Model& machine_model() {
  static const Model model = [] {
    Model m("server", "One CPU server");
    const Machine s(m);
    m.group("Model");
    const auto expert =
        m.figure("expert_bytes", "One routed expert", kMegabytes, 3 * s.hidden * s.expert_inner * s.weight_bytes,
                 {.source = "three matrices", .confidence = Confidence::kHigh});
    m.figure("all_experts", "Routed experts", kNumber, s.layers * s.experts, {.confidence = Confidence::kHigh});
    const auto experts = m.figure("experts_bytes", "All routed experts", kGigabytes, s.layers * s.experts * expert,
                                  {.confidence = Confidence::kHigh});
    m.figure("token_experts_bytes", "Routed experts of one token", kGigabytes, s.layers * s.experts_per_token * expert);
    m.figure("token_bytes", "Weights that one token reads", kGigabytes,
             s.dense_bytes + s.layers * s.experts_per_token * expert);
    const auto kv = m.figure("kv_bytes", "KV of a token", kBytesPerToken, s.kv_rows * s.kv_row_bytes,
                             {.confidence = Confidence::kHigh});
    m.figure("kv_block", "KV of a block", kKibibytes, kv * s.block_tokens, {.confidence = Confidence::kHigh});
    m.figure("kv_context", "KV of the longest context", kMegabytes, kv * s.context * constant(1, kTokens));
    m.figure("window_bytes", "Window state of a sequence", kMegabytes,
             s.window_rows * s.window_layers * s.window_row_bytes);
    m.figure("engram_reads", "Engram read for a token", kKilobytesPerToken, s.engram_rows * s.engram_row_bytes);
    m.group("Server");
    const auto bandwidth = m.figure("server_bandwidth", "Bandwidth reached", kGigabytesPerSecond,
                                    s.sockets * s.bandwidth * s.memory_reached);
    const auto compute = m.figure("server_compute", "Arithmetic reached", Measure<OperationsPerSecond>{"TFLOP/s", 1e12},
                                  s.sockets * s.cores * s.core_compute * s.compute_reached);
    const auto rows = s.answers * s.rows_per_answer;
    const auto touched = m.figure("experts_touched", "Experts that a step reads", kPercent,
                                  1 - power(1 - s.experts_per_token / s.experts, rows),
                                  {.source = "rows spread evenly over the experts"});
    const auto bytes = m.figure("step_bytes", "Bytes that a step reads", kGigabytes, s.dense_bytes + experts * touched);
    const auto memory_time = m.figure("memory_time", "Time to read them", kMilliseconds, bytes / bandwidth);
    const auto compute_time = m.figure("compute_time", "Time to compute", kMilliseconds,
                                       rows * s.decode_work * constant(1, kTokens) / compute);
    const auto step = m.figure("step_time", "A decode step", kMilliseconds, larger(memory_time, compute_time));
    const auto one = constant(1, kTokens);
    const auto speed = s.tokens_per_step * one / step;
    m.figure("user_speed", "Speed of an answer", kTokensPerSecond, speed);
    m.figure("decode_rate", "Output of the server", kTokensPerSecond, s.answers * speed);
    m.figure("miss_rate", "Input that it computes", kTokensPerSecond, compute / s.prefill_work);
    m.figure("load_rate", "Input that its drives load", kTokensPerSecond, s.drives * s.drive_read / kv);
    m.figure("memory_needed", "Memory for the weights, Engram on drives", kGigabytes, s.dense_bytes + experts);
    m.figure("memory_needed_all", "the same with Engram in memory", kGigabytes,
             s.dense_bytes + experts + s.engram_bytes);
    const auto left =
        m.figure("memory_left", "Memory left for KV and states", kGigabytes, s.memory - s.dense_bytes - experts);
    m.note(number(1),
           "a server: {server_bandwidth} of bandwidth and {server_compute} of arithmetic reached; a step of {answers} "
           "answers reads {step_bytes} and takes {step_time}");
    m.note(left / s.memory,
           "the weights take {memory_needed} of its {memory}; Engram ({engram_bytes}) is read from drives or memory");
    m.note(0.0 - left / s.memory, "the weights take {memory_needed} and it has {memory}: they don't fit");
    m.note(number(1), "price and rent are placeholders until you set them");
    return m;
  }();
  return model;
}

}  // namespace deepinfer::planner
