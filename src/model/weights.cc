#include "model/weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "base/checked_math.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "model/run_pieces.h"

namespace deepinfer {
namespace {

constexpr int64_t kReadBytes = int64_t{4} << 20;  // of the checkpoint, read and packed at once

struct LoadedMemory {
  AlignedBuffer memory;
  bool from_cache = false;
};

// Notes where every tensor goes, then reads all of them at once. Nothing is read before run().
class WeightReader {
 public:
  explicit WeightReader(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  // Rows as the checkpoint has them.
  void raw(const std::string& name, RawTensor& out) {
    const TensorLocation& location = at(name);
    const int64_t offset = reserve(static_cast<int64_t>(location.size_bytes), name);
    placements_.push_back([&out, offset](std::byte* memory) { out.data = memory + offset; });
    add_pieces(name, static_cast<int64_t>(location.size_bytes), 1, [&out](int64_t first, std::span<const std::byte> bytes) {
      std::memcpy(out.data + first, bytes.data(), bytes.size());
    });
  }

  template <typename T>
  void vector(const std::string& name, std::vector<T>& out) {
    out.resize(at(name).size_bytes / sizeof(T));
    small_.push_back({name, std::as_writable_bytes(std::span(out))});
    small_bytes_ += small_.back().bytes.size();
    total_bytes_ += small_.back().bytes.size();
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

  // Reserves the memory, where everything noted above then points, and fills it: from the cache if it can, else from the
  // checkpoint, and then writes the cache.
  Result<LoadedMemory> run(int num_threads, const ProgressFunction& progress, const WeightsCache* cache) {
    for (const SmallTensor& tensor : small_) RETURN_IF_ERROR(checkpoint_.read(tensor.name, tensor.bytes));
    // Twice as many as compute threads: while one waits for the disk another packs.
    const int num_readers = 2 * num_threads;
    const uint32_t layout = crc32c(std::as_bytes(std::span(layout_)));
    LoadedMemory loaded;
    if (cache != nullptr) {
      ASSIGN_OR_RETURN(loaded.memory, place_all());
      const Status status = read_weights_cache(*cache, layout, num_readers, loaded.memory, progress);
      loaded.from_cache = status.ok();
      if (!status.ok() && status.error().code() != Code::kNotFound) {
        log::warn("weights cache: {}; it is made anew from the checkpoint", status.error().message());
      }
      if (!status.ok()) loaded.memory = AlignedBuffer();  // before it is reserved again: never two at once
    }
    if (!loaded.from_cache) {
      ASSIGN_OR_RETURN(loaded.memory, place_all());
      RETURN_IF_ERROR(read_checkpoint(loaded.memory, num_readers, progress));
      if (cache != nullptr) write_cache(*cache, layout, num_readers, loaded.memory);
    }
    if (progress) progress(total_bytes_, total_bytes_);
    return loaded;
  }

  uint64_t packed_bytes() const { return small_bytes_ + static_cast<uint64_t>(reserved_); }

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

  // `what` says what lies there, for the checksum over the layout.
  int64_t reserve(int64_t bytes, std::string_view what) {
    layout_ += fmt::format("{} {} {}\n", reserved_, bytes, what);
    return std::exchange(reserved_, reserved_ + static_cast<int64_t>(round_up(static_cast<size_t>(bytes), 64)));
  }

  // Pieces of whole groups of rows (32 of them, so that no line of packed memory belongs to two).
  template <typename Take>
  void add_pieces(const std::string& name, int64_t rows, int64_t row_bytes, Take&& take) {
    const int64_t step = std::max<int64_t>(32, kReadBytes / row_bytes / 32 * 32);
    total_bytes_ += static_cast<uint64_t>(rows * row_bytes);
    for (int64_t first = 0; first < rows; first += step) {
      pieces_.push_back({name, first, first * row_bytes, std::min(step, rows - first) * row_bytes, take});
    }
  }

  void place(const std::string& name, MatrixKind kind, int64_t rows, int64_t cols, Matrix& out) {
    const int64_t offset = reserve(Matrix::size_bytes(kind, rows, cols),
                                   fmt::format("{} {} {}x{}", name, static_cast<int>(kind), rows, cols));
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
    place(name, kind, at(name).shape[0], at(name).shape[1], out);
    add_matrix(name, out);
  }
  void scaled(const std::string& name, MatrixKind kind, int64_t rows, int64_t cols, Matrix& out) {
    place(name, kind, rows, cols, out);
    add_matrix(name + ".weight", out);
    const auto size = static_cast<int64_t>(at(name + ".scale").size_bytes);
    total_bytes_ += static_cast<uint64_t>(size);
    pieces_.push_back({name + ".scale", 0, 0, size,
                       [&out](int64_t, std::span<const std::byte> bytes) { out.pack_scales(bytes.data()); }});
  }

  Result<AlignedBuffer> place_all() {
    ASSIGN_OR_RETURN(AlignedBuffer memory, AlignedBuffer::reserve(static_cast<size_t>(reserved_)));
    for (const auto& place : placements_) place(memory.data());
    return memory;
  }

  Status read_checkpoint(AlignedBuffer& memory, int num_readers, const ProgressFunction& progress) {
    constexpr size_t kChunk = size_t{64} << 20;
    RETURN_IF_ERROR(run_pieces(num_readers, ceil_div(memory.size(), kChunk), [&](size_t chunk, size_t) -> Result<uint64_t> {
      RETURN_IF_ERROR(memory.populate(chunk * kChunk, std::min(kChunk, memory.size() - chunk * kChunk)));
      return uint64_t{0};
    }));
    std::vector<std::vector<std::byte>> buffers(static_cast<size_t>(num_readers));
    const auto read = [&](size_t i, size_t thread) -> Result<uint64_t> {
      const Piece& piece = pieces_[i];
      std::vector<std::byte>& buffer = buffers[thread];
      buffer.resize(std::max(buffer.size(), static_cast<size_t>(piece.size)));
      const std::span bytes = std::span(buffer).first(static_cast<size_t>(piece.size));
      RETURN_IF_ERROR(checkpoint_.read_part(piece.name, static_cast<uint64_t>(piece.offset), bytes));
      piece.take(piece.first, bytes);
      return bytes.size();
    };
    return run_pieces(num_readers, pieces_.size(), read, [&](uint64_t done) {
      if (progress && done + small_bytes_ < total_bytes_) progress(done + small_bytes_, total_bytes_);
    });
  }

  // What fails here costs the next start time, nothing else.
  static void write_cache(const WeightsCache& cache, uint32_t layout, int num_threads, const AlignedBuffer& memory) {
    const Status status = write_weights_cache(cache, layout, num_threads, memory);
    if (status.ok()) {
      log::info("weights cache: wrote {} ({:.2f} GB)", cache.path, static_cast<double>(memory.size()) / 1e9);
    } else if (status.error().code() == Code::kUnavailable) {
      log::info("weights cache: {}", status.error().message());
    } else {
      log::warn("weights cache: {}; going on without it", status.error().message());
    }
  }

  const Checkpoint& checkpoint_;
  int64_t reserved_ = 0;
  std::string layout_;  // a line for each reserved place
  std::vector<std::function<void(std::byte*)>> placements_;
  std::vector<Piece> pieces_;
  std::vector<SmallTensor> small_;
  uint64_t small_bytes_ = 0, total_bytes_ = 0;
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

void note_all(WeightReader& reader, const ModelConfig& config, const std::vector<LayerPlan>& plan,
              ModelWeights& weights) {
  reader.raw("embed.weight", weights.embed);
  reader.bf16("head.weight", weights.head);
  reader.vector("norm.weight", weights.norm);
  weights.layers.resize(plan.size());
  for (size_t layer = 0; layer < plan.size(); ++layer) {
    load_layer(reader, config, plan[layer], static_cast<int64_t>(layer), weights.layers[layer]);
  }
  if (config.num_nextn_predict_layers > 0) load_dspark(reader, config, weights.dspark.emplace());
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
                                  const ProgressFunction& progress, const WeightsCache* cache) {
  WeightReader reader(checkpoint);
  ModelWeights weights;
  note_all(reader, checkpoint.config(), plan, weights);
  ASSIGN_OR_RETURN(LoadedMemory loaded, reader.run(num_threads, progress, cache));
  weights.memory = std::move(loaded.memory);
  weights.from_cache = loaded.from_cache;
  weights.size_bytes = reader.packed_bytes();
  return weights;
}

uint64_t packed_weight_bytes(const Checkpoint& checkpoint, const std::vector<LayerPlan>& plan) {
  WeightReader reader(checkpoint);
  ModelWeights weights;
  note_all(reader, checkpoint.config(), plan, weights);
  return reader.packed_bytes();
}

}  // namespace deepinfer
