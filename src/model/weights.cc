#include "model/weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace deepinfer {
namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;  // of the checkpoint, read and packed at once

// Notes where every tensor goes, then reads all of them at once. Nothing is read before run().
class WeightReader {
 public:
  explicit WeightReader(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  // Rows as the checkpoint has them.
  void raw(const std::string& name, RawTensor& out) {
    const TensorLocation& location = at(name);
    const int64_t offset = reserve(static_cast<int64_t>(location.size_bytes));
    placements_.push_back([&out, offset](std::byte* memory) { out.data = memory + offset; });
    add_pieces(name, static_cast<int64_t>(location.size_bytes), 1, [&out](int64_t first, std::span<const std::byte> bytes) {
      std::memcpy(out.data + first, bytes.data(), bytes.size());
    });
  }

  template <typename T>
  void vector(const std::string& name, std::vector<T>& out) {
    out.resize(at(name).size_bytes / sizeof(T));
    small_.push_back({name, std::as_writable_bytes(std::span(out))});
  }

  // `name` without its ".weight" / ".scale" endings for the quantized kinds, the full name for the plain ones.
  void fp8(const std::string& name, Matrix& out) {
    const Shape& shape = at(name + ".weight").shape;
    scaled(name, MatrixKind::kFp8, shape[0], shape[1], out);
  }
  void fp4(const std::string& name, Matrix& out) {
    const Shape& shape = at(name + ".weight").shape;
    scaled(name, MatrixKind::kFp4, shape[0], 2 * shape[1], out);
  }
  void bf16(const std::string& name, Matrix& out) { plain(name, MatrixKind::kBf16, out); }
  void f32(const std::string& name, Matrix& out) { plain(name, MatrixKind::kF32, out); }

  // Reserves the memory and fills it. Returns it; everything noted above points into it.
  Result<AlignedBuffer> run(int num_threads, const ProgressFunction& progress) {
    ASSIGN_OR_RETURN(AlignedBuffer memory, AlignedBuffer::reserve(static_cast<size_t>(reserved_)));
    for (const auto& place : placements_) place(memory.data());
    for (const Piece& piece : pieces_) total_bytes_ += static_cast<uint64_t>(piece.size);
    for (const SmallTensor& tensor : small_) total_bytes_ += tensor.bytes.size();
    for (const SmallTensor& tensor : small_) {
      RETURN_IF_ERROR(checkpoint_.read(tensor.name, tensor.bytes));
      done_bytes_ += tensor.bytes.size();
      packed_bytes_ += tensor.bytes.size();
    }
    {
      // Twice as many as compute threads: while one waits for the disk another packs.
      std::vector<std::jthread> helpers;
      for (int i = 1; i < 2 * num_threads; ++i) helpers.emplace_back([&] { work(memory, {}); });
      work(memory, progress);
    }
    if (!failure_.ok()) return failure_.error();
    if (progress) progress(total_bytes_, total_bytes_);
    return memory;
  }

  uint64_t packed_bytes() const { return packed_bytes_ + static_cast<uint64_t>(reserved_); }

 private:
  // Rows of a tensor, and what to do with them.
  struct Piece {
    std::string name;
    int64_t first = 0;   // row
    int64_t offset = 0;  // byte in the tensor
    int64_t size = 0;
    std::function<void(int64_t first, std::span<const std::byte>)> take;
  };
  struct SmallTensor {
    std::string name;
    std::span<std::byte> bytes;
  };

  const TensorLocation& at(const std::string& name) const { return checkpoint_.tensors().find(name)->second; }

  int64_t reserve(int64_t bytes) {
    return std::exchange(reserved_, reserved_ + static_cast<int64_t>(round_up(static_cast<size_t>(bytes), 64)));
  }

  // Pieces of whole groups of rows (32 of them, so that no line of packed memory belongs to two).
  template <typename Take>
  void add_pieces(const std::string& name, int64_t rows, int64_t row_bytes, Take&& take) {
    const int64_t step = std::max<int64_t>(32, kPieceBytes / row_bytes / 32 * 32);
    for (int64_t first = 0; first < rows; first += step) {
      pieces_.push_back({name, first, first * row_bytes, std::min(step, rows - first) * row_bytes, take});
    }
  }

  void place(MatrixKind kind, int64_t rows, int64_t cols, Matrix& out) {
    const int64_t offset = reserve(Matrix::size_bytes(kind, rows, cols));
    placements_.push_back([=, &out](std::byte* memory) { out = Matrix::place(kind, rows, cols, memory + offset); });
  }
  void add_matrix(const std::string& name, Matrix& out) {
    const TensorLocation& location = at(name);
    const int64_t rows = location.shape[0], row_bytes = static_cast<int64_t>(location.size_bytes) / rows;
    add_pieces(name, rows, row_bytes, [&out, row_bytes](int64_t first, std::span<const std::byte> bytes) {
      out.pack_rows(first, std::ssize(bytes) / row_bytes, bytes.data());
    });
  }
  void plain(const std::string& name, MatrixKind kind, Matrix& out) {
    place(kind, at(name).shape[0], at(name).shape[1], out);
    add_matrix(name, out);
  }
  void scaled(const std::string& name, MatrixKind kind, int64_t rows, int64_t cols, Matrix& out) {
    place(kind, rows, cols, out);
    add_matrix(name + ".weight", out);
    const auto size = static_cast<int64_t>(at(name + ".scale").size_bytes);
    pieces_.push_back({name + ".scale", 0, 0, size,
                       [&out](int64_t, std::span<const std::byte> bytes) { out.pack_scales(bytes.data()); }});
  }

  void fail(const Status& status) {
    const std::lock_guard lock(mu_);
    if (!failed_.exchange(true)) failure_ = status;
  }

  // What each thread does: its share of the pages, then pieces.
  void work(AlignedBuffer& memory, const ProgressFunction& progress) {
    constexpr size_t kChunk = size_t{64} << 20;
    for (size_t at = next_chunk_.fetch_add(kChunk); at < memory.size(); at = next_chunk_.fetch_add(kChunk)) {
      if (const Status status = memory.populate(at, std::min(kChunk, memory.size() - at)); !status.ok()) return fail(status);
    }
    read_pieces(progress);
  }

  // Takes pieces until none is left or one has failed. Only the calling thread of run() has a progress function.
  void read_pieces(const ProgressFunction& progress) {
    std::vector<std::byte> buffer;
    for (size_t i = next_piece_.fetch_add(1); i < pieces_.size() && !failed_.load(); i = next_piece_.fetch_add(1)) {
      const Piece& piece = pieces_[i];
      buffer.resize(std::max(buffer.size(), static_cast<size_t>(piece.size)));
      const std::span bytes = std::span(buffer).first(static_cast<size_t>(piece.size));
      if (const Status status = checkpoint_.read_part(piece.name, static_cast<uint64_t>(piece.offset), bytes); !status.ok()) {
        return fail(status);
      }
      piece.take(piece.first, bytes);
      const uint64_t done = done_bytes_.fetch_add(bytes.size()) + bytes.size();
      if (progress && done < total_bytes_ && done > shown_bytes_) {
        shown_bytes_ = done;
        progress(done, total_bytes_);
      }
    }
  }

  const Checkpoint& checkpoint_;
  int64_t reserved_ = 0;
  std::vector<std::function<void(std::byte*)>> placements_;
  std::vector<Piece> pieces_;
  std::vector<SmallTensor> small_;
  uint64_t total_bytes_ = 0, packed_bytes_ = 0;
  uint64_t shown_bytes_ = 0;  // of the calling thread
  std::atomic<uint64_t> done_bytes_{0};
  std::atomic<size_t> next_piece_{0}, next_chunk_{0};
  std::atomic<bool> failed_{false};
  std::mutex mu_;
  Status failure_;  // guarded by mu_ until the threads have ended
};

void load_hc(WeightReader& reader, const std::string& prefix, HcWeights& out) {
  reader.f32(prefix + "_fn", out.fn);
  reader.vector(prefix + "_base", out.base);
  reader.vector(prefix + "_scale", out.scale);
}

void load_moe(WeightReader& reader, const std::string& prefix, int64_t num_experts, MoeWeights& out) {
  reader.bf16(prefix + "gate.weight", out.gate);
  reader.vector(prefix + "gate.bias", out.bias);
  reader.fp8(prefix + "shared_experts.w1", out.shared.w1);
  reader.fp8(prefix + "shared_experts.w3", out.shared.w3);
  reader.fp8(prefix + "shared_experts.w2", out.shared.w2);
  out.experts.resize(num_experts);
  for (int64_t e = 0; e < num_experts; ++e) {
    const std::string expert = fmt::format("{}experts.{}.", prefix, e);
    reader.fp4(expert + "w1", out.experts[e].w1);
    reader.fp4(expert + "w3", out.experts[e].w3);
    reader.fp4(expert + "w2", out.experts[e].w2);
  }
}

void load_block(WeightReader& reader, const std::string& prefix, int64_t num_experts, BlockWeights& out) {
  reader.vector(prefix + "attn_norm.weight", out.attn_norm);
  reader.vector(prefix + "ffn_norm.weight", out.ffn_norm);
  reader.vector(prefix + "attn.q_norm.weight", out.q_norm);
  reader.vector(prefix + "attn.kv_norm.weight", out.kv_norm);
  reader.vector(prefix + "attn.attn_sink", out.attn_sink);
  reader.fp8(prefix + "attn.wq_a", out.wq_a);
  reader.fp8(prefix + "attn.wq_b", out.wq_b);
  reader.fp8(prefix + "attn.wkv", out.wkv);
  reader.fp8(prefix + "attn.wo_a", out.wo_a);
  reader.fp8(prefix + "attn.wo_b", out.wo_b);
  load_hc(reader, prefix + "hc_attn", out.hc_attn);
  load_hc(reader, prefix + "hc_ffn", out.hc_ffn);
  load_moe(reader, prefix + "ffn.", num_experts, out.moe);
}

void load_compressor(WeightReader& reader, const std::string& prefix, int64_t ratio, CompressorWeights& out) {
  reader.bf16(prefix + "compressor.wkv.weight", out.wkv);
  if (ratio == 2) reader.bf16(prefix + "compressor.wgate.weight", out.wgate.emplace());
  reader.vector(prefix + "compressor.norm.weight", out.norm);
  reader.bf16(prefix + "indexer.wk.weight", out.wk);
  reader.vector(prefix + "indexer.k_norm.weight", out.k_norm);
}

void load_indexer(WeightReader& reader, const std::string& prefix, IndexerWeights& out) {
  reader.fp8(prefix + "indexer.wq_b", out.wq_b);
  reader.bf16(prefix + "indexer.weights_proj.weight", out.weights_proj);
}

void load_engram(WeightReader& reader, const std::string& prefix, EngramWeights& out) {
  reader.raw(prefix + "embed.weight", out.codes);
  reader.raw(prefix + "embed.scale", out.scales);
  reader.fp8(prefix + "wkv", out.wkv);
  reader.vector(prefix + "q_weight", out.q_weight);
  reader.vector(prefix + "k_weight", out.k_weight);
}

void load_dspark(WeightReader& reader, const ModelConfig& config, DsparkWeights& out) {
  const int64_t num_stages = config.num_nextn_predict_layers;
  const std::string last = fmt::format("mtp.{}.", num_stages - 1);
  reader.fp8("mtp.0.main_proj", out.main_proj);
  reader.vector("mtp.0.main_norm.weight", out.main_norm);
  reader.vector(last + "norm.weight", out.norm);
  reader.raw(last + "markov_head.embed.weight", out.markov_embed);
  reader.bf16(last + "markov_head.head.weight", out.markov_head);
  reader.bf16(last + "confidence_head.proj.weight", out.confidence);
  out.stages.resize(num_stages);
  for (int64_t stage = 0; stage < num_stages; ++stage) {
    BlockWeights& block = out.stages[stage];
    load_block(reader, fmt::format("mtp.{}.", stage), config.dspark_n_routed_experts, block);
    block.moe.experts_per_token = config.dspark_num_experts_per_tok;
  }
}

void load_layer(WeightReader& reader, const ModelConfig& config, const LayerPlan& plan, int64_t layer,
                  BlockWeights& out) {
  const std::string prefix = fmt::format("layers.{}.", layer);
  load_block(reader, prefix, config.n_routed_experts, out);
  out.moe.experts_per_token = config.num_experts_per_tok;
  if (plan.owns_kv) load_compressor(reader, prefix + "attn.", plan.ratio, out.compressor.emplace());
  if (plan.owns_index) load_indexer(reader, prefix + "attn.", out.indexer.emplace());
  if (plan.engram) load_engram(reader, prefix + "engram.", out.engram.emplace());
}

}  // namespace

HcParams HcWeights::params(const ModelConfig& config) const {
  return {fn.view(),
          base.data(),
          scale.data(),
          config.hc_sinkhorn_iters,
          static_cast<float>(config.hc_eps),
          static_cast<float>(config.rms_norm_eps)};
}

Result<ModelWeights> load_weights(const Checkpoint& checkpoint, const std::vector<LayerPlan>& plan, int num_threads,
                                  const ProgressFunction& progress) {
  const ModelConfig& config = checkpoint.config();
  WeightReader reader(checkpoint);
  ModelWeights weights;
  reader.raw("embed.weight", weights.embed);
  reader.bf16("head.weight", weights.head);
  reader.vector("norm.weight", weights.norm);
  weights.layers.resize(plan.size());
  for (size_t layer = 0; layer < plan.size(); ++layer) {
    load_layer(reader, config, plan[layer], static_cast<int64_t>(layer), weights.layers[layer]);
  }
  if (config.num_nextn_predict_layers > 0) load_dspark(reader, config, weights.dspark.emplace());
  ASSIGN_OR_RETURN(weights.memory, reader.run(num_threads, progress));
  weights.size_bytes = reader.packed_bytes();
  return weights;
}

}  // namespace deepinfer
