#include "checkpoint/synthetic.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include "checkpoint/presets.h"
#include "checkpoint/tensor_list.h"
#include "json/json.h"
#include "tensor/formats.h"

namespace deepinfer {
namespace {

// ---- config ----------------------------------------------------------------------------------------------------------

bool is_prime(int64_t value) {
  for (int64_t divisor = 2; divisor * divisor <= value; ++divisor) {
    if (value % divisor == 0) return false;
  }
  return value > 1;
}

JsonValue list_of(const std::vector<int64_t>& values) {
  JsonValue::Array list;
  for (const int64_t value : values) list.emplace_back(value);
  return list;
}

// Layers 0 and 1 read windows only; from 2 on the encoder compresses pairs, from the middle on the decoder keeps rows.
struct LayerLists {
  explicit LayerLists(int64_t layers, int64_t stages) {
    const int64_t decoder = layers / 2;
    for (int64_t layer = 0; layer < layers + stages; ++layer) {
      ratios.push_back(layer < 2 || layer >= layers ? 0 : layer < decoder ? 2 : 1);
    }
    for (int64_t layer = 2; layer < decoder; layer += 6) kv_sources.push_back(layer);
    kv_sources.push_back(decoder);
    index_sources = kv_sources;
    for (int64_t layer = decoder + 4; layer < layers; layer += 4) index_sources.push_back(layer);
    if (index_sources.back() == decoder && decoder + 2 < layers) index_sources.push_back(decoder + 2);  // one reads candidates
    candidate_source = decoder;
    engram = {1, std::min<int64_t>(14, decoder - 1)};
    for (int64_t layer = std::max(decoder, layers - 3); layer < layers; ++layer) targets.push_back(layer);
  }
  std::vector<int64_t> ratios, kv_sources, index_sources, engram, targets;
  int64_t candidate_source;
};

// Rows of the Engram tables: sums of consecutive primes, none used twice.
std::vector<int64_t> engram_rows(int64_t first, int64_t tables, int64_t columns) {
  std::vector<int64_t> rows;
  int64_t prime = first - 1;
  for (int64_t table = 0; table < tables; ++table) {
    rows.push_back(0);
    for (int64_t column = 0; column < columns; ++column) {
      do {
        ++prime;
      } while (!is_prime(prime));
      rows.back() += prime;
    }
  }
  return rows;
}

void set(JsonValue& object, std::string_view key, JsonValue value) {
  JsonValue* member = object.find(key);
  CHECK(member != nullptr);
  *member = std::move(value);
}

void erase(JsonValue& object, std::string_view key) {
  std::erase_if(*object.object(), [key](const JsonMember& member) { return member.key == key; });
}

// ---- values ----------------------------------------------------------------------------------------------------------

constexpr size_t kMostPoolBytes = size_t{8} << 20;
constexpr size_t kPieceBytes = size_t{4} << 10;
constexpr size_t kBufferBytes = size_t{8} << 20;
constexpr float kFp8Spread = 110.0f;  // of the codes' values; the largest of a tile of 1,024 then fills the range
constexpr float kFp4Spread = 2.4f;

// Numbers of one kind: pieces of a pool of random ones, at random places.
class Pool {
 public:
  // make(normal) returns one byte of the pool or two.
  template <typename Make>
  Pool(std::mt19937_64& rng, size_t size_bytes, Make&& make) : bytes_(size_bytes) {
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < bytes_.size();) {
      const auto element = make(normal, rng);
      std::memcpy(bytes_.data() + i, &element, sizeof(element));
      i += sizeof(element);
    }
  }
  void fill(std::span<std::byte> out, std::mt19937_64& rng) const {
    while (!out.empty()) {
      const size_t size = std::min(kPieceBytes, out.size());
      std::memcpy(out.data(), bytes_.data() + rng() % (bytes_.size() - kPieceBytes) / 64 * 64, size);
      out = out.subspan(size);
    }
  }

 private:
  std::vector<std::byte> bytes_;
};

// Fills tensors by what their name and type say.
class Values {
 public:
  Values(uint64_t seed, size_t pool_bytes)
      : rng_(seed),
        fp8_(rng_, pool_bytes, [](auto& normal, auto& rng) { return float_to_e4m3(kFp8Spread * normal(rng)); }),
        fp4_(rng_, pool_bytes, [](auto& normal, auto& rng) {
          const uint8_t low = float_to_e2m1(kFp4Spread * normal(rng));
          return static_cast<uint8_t>(low | float_to_e2m1(kFp4Spread * normal(rng)) << 4);
        }),
        bf16_(rng_, pool_bytes, [](auto& normal, auto& rng) { return to_bf16(normal(rng)); }) {}

  // The next bytes of a tensor; `out` is a multiple of its element.
  void fill(const ExpectedTensor& tensor, std::span<std::byte> out) {
    switch (tensor.dtype) {
      case DType::kF8E4M3: return fp8_.fill(out, rng_);
      case DType::kI8: return fp4_.fill(out, rng_);
      case DType::kF8E8M0: return fill_scales(tensor, out);
      case DType::kBF16: return fill_bf16(tensor, out);
      case DType::kF32: return fill_f32(tensor, out);
      default: std::fill(out.begin(), out.end(), std::byte{0});
    }
  }

 private:
  static bool is_norm(std::string_view name) {
    return name.find("norm") != std::string_view::npos || name.ends_with("q_weight") || name.ends_with("k_weight");
  }
  // Exponent of the power of two nearest to the spread that keeps the size of what passes through `columns`.
  static int exponent_of(int64_t columns, float code_spread) {
    return static_cast<int>(std::lround(std::log2(1.0 / (std::sqrt(static_cast<double>(columns)) * code_spread))));
  }

  void fill_scales(const ExpectedTensor& tensor, std::span<std::byte> out) {
    // A scale a row belongs to FP4 or an Engram table, a scale a tile to FP8.
    const bool fp4 = tensor.kind == WeightKind::kRoutedExpert ||
                     (tensor.name.find(".experts.") != std::string::npos);
    const bool table = tensor.name.find("engram.embed") != std::string::npos;
    const int64_t columns = table ? 1 : tensor.shape.back() * 32;
    const int middle = 127 + exponent_of(columns, fp4 ? kFp4Spread : kFp8Spread);
    for (auto& scale : out) scale = static_cast<std::byte>(middle + (rng_() % 4 == 0 ? 1 : 0));
  }

  void fill_bf16(const ExpectedTensor& tensor, std::span<std::byte> out) {
    auto* values = reinterpret_cast<Bf16*>(out.data());
    const size_t count = out.size() / sizeof(Bf16);
    bf16_.fill(out, rng_);
    if (is_norm(tensor.name)) {
      for (size_t i = 0; i < count; ++i) values[i] = to_bf16(1.0f + 0.1f * to_float(values[i]));
      return;
    }
    const bool table = tensor.name == "embed.weight" || tensor.name.ends_with("markov_head.embed.weight");
    const float factor = std::ldexp(1.0f, table ? 0 : exponent_of(tensor.shape.back(), 1.0f));
    for (size_t i = 0; i < count; ++i) values[i] = to_bf16(to_float(values[i]) * factor);
  }

  void fill_f32(const ExpectedTensor& tensor, std::span<std::byte> out) {
    std::normal_distribution<float> normal;
    const bool matrix = tensor.shape.size() > 1;
    const float spread = matrix ? 1.0f / std::sqrt(static_cast<float>(tensor.shape.back())) : 0.1f;
    const float middle = tensor.name.ends_with("_scale") ? 1.0f : 0.0f;
    for (size_t i = 0; i + sizeof(float) <= out.size(); i += sizeof(float)) {
      const float value = middle + spread * normal(rng_);
      std::memcpy(out.data() + i, &value, sizeof(value));
    }
  }

  std::mt19937_64 rng_;
  Pool fp8_, fp4_, bf16_;
};

// ---- files -----------------------------------------------------------------------------------------------------------

// Owns a descriptor opened for writing.
class WriteFile {
 public:
  explicit WriteFile(std::string path) : path_(std::move(path)) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  }
  ~WriteFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  WriteFile(const WriteFile&) = delete;

  Status write(std::span<const std::byte> bytes) {
    if (descriptor_ < 0) return Error(Code::kIo, "{}: can't be made: {}", path_, std::strerror(errno));
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return failure(errno);
      done_ += static_cast<uint64_t>(written);
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
    return {};
  }
  Status write(std::string_view text) { return write(std::as_bytes(std::span(text))); }
  Status close() {
    const int result = ::close(std::exchange(descriptor_, -1));
    return result == 0 ? Status() : failure(errno);
  }

 private:
  Error failure(int error) const {
    const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
    return Error(full ? Code::kResourceExhausted : Code::kIo, "{}: can't be written after {} bytes: {}", path_, done_,
                 std::strerror(error));
  }

  std::string path_;
  int descriptor_ = -1;
  uint64_t done_ = 0;
};

Status write_text_file(const std::string& path, std::string_view text) {
  WriteFile file(path);
  RETURN_IF_ERROR(file.write(text));
  return file.close();
}

using Shard = std::vector<const ExpectedTensor*>;

std::string header_of(const Shard& shard) {
  std::string header;
  JsonWriter writer(header);
  uint64_t offset = 0;
  writer.begin_object().key("__metadata__").begin_object().member("format", "pt").end_object();
  for (const ExpectedTensor* tensor : shard) {
    writer.key(tensor->name).begin_object().member("dtype", dtype_name(tensor->dtype)).key("shape").begin_array();
    for (const int64_t side : tensor->shape) writer.value(side);
    writer.end_array().key("data_offsets").begin_array().value(offset).value(offset + tensor->size_bytes()).end_array();
    writer.end_object();
    offset += tensor->size_bytes();
  }
  writer.end_object();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string prefix(8, '\0');
  for (size_t i = 0; i < 8; ++i) prefix[i] = static_cast<char>(header.size() >> (8 * i) & 255);
  return prefix + header;
}

// "layers.3." and "mtp.0." make a shard each, everything else the first.
std::vector<Shard> deal(const std::vector<ExpectedTensor>& tensors) {
  std::vector<Shard> shards(1);
  std::map<std::string, size_t> shard_of;
  for (const ExpectedTensor& tensor : tensors) {
    const size_t first = tensor.name.find('.'), second = tensor.name.find('.', first + 1);
    size_t shard = 0;
    if (tensor.name.starts_with("layers.") || tensor.name.starts_with("mtp.")) {
      const auto [found, is_new] = shard_of.try_emplace(tensor.name.substr(0, second), shards.size());
      if (is_new) shards.emplace_back();
      shard = found->second;
    }
    shards[shard].push_back(&tensor);
  }
  return shards;
}

Status prepare_directory(const std::string& directory, uint64_t bytes) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return Error(Code::kIo, "{}: can't be made: {}", directory, error.message());
  const bool empty = std::filesystem::is_empty(directory, error);
  if (error) return Error(Code::kIo, "{}: can't be read: {}", directory, error.message());
  if (!empty) return Error(Code::kInvalidArgument, "{}: found files, expected an empty directory", directory);
  const auto space = std::filesystem::space(directory, error);
  if (!error && space.available < bytes) {
    return Error(Code::kResourceExhausted, "{}: {} bytes are free, {} are needed", directory, space.available, bytes);
  }
  return {};
}

}  // namespace

Result<std::string> synthetic_config(const SyntheticOptions& options) {
  const bool flash = options.preset == SyntheticPreset::kFlash;
  if (options.num_layers < 6 || options.num_layers > 40) {
    return Error(Code::kInvalidArgument, "layers: found {}, expected 6 to 40", options.num_layers);
  }
  auto parsed = parse_json(flash ? flash_config_text() : small_config_text());
  CHECK(parsed.ok());
  JsonValue config = std::move(parsed).value();
  erase(config, "vision_config");
  erase(config, "image_token_id");
  JsonValue& text = *config.find("text_config");
  const auto number = [&text](std::string_view key) { return *text.find(key)->int64(); };
  if (options.num_experts < number("num_experts_per_tok") || options.num_experts > 384) {
    return Error(Code::kInvalidArgument, "experts: found {}, expected {} to 384", options.num_experts,
                 number("num_experts_per_tok"));
  }
  if (options.vocab_size > 0) set(text, "vocab_size", options.vocab_size);
  if (options.engram_classes < 1 || options.engram_classes > number("vocab_size")) {
    return Error(Code::kInvalidArgument, "classes of the tokenizer: found {}, expected 1 to {} (vocab_size)",
                 options.engram_classes, number("vocab_size"));
  }
  const LayerLists lists(options.num_layers, number("num_nextn_predict_layers"));
  const int64_t engram_vocab = flash ? number("engram_vocab_size") / 1000 : number("engram_vocab_size");
  const int64_t columns = (number("engram_max_ngram_size") - 1) * number("engram_n_heads");
  const int64_t draft_experts = std::min(options.num_experts, number("dspark_n_routed_experts"));
  set(text, "num_hidden_layers", options.num_layers);
  set(text, "n_routed_experts", options.num_experts);
  set(text, "compress_ratios", list_of(lists.ratios));
  set(text, "kv_source_layer_ids", list_of(lists.kv_sources));
  set(text, "index_source_layer_ids", list_of(lists.index_sources));
  set(text, "candidate_source_layer_id", lists.candidate_source);
  set(text, "engram_layer_ids", list_of(lists.engram));
  set(text, "engram_vocab_size", engram_vocab);
  set(text, "engram_num_embeddings", list_of(engram_rows(engram_vocab, std::ssize(lists.engram), columns)));
  set(text, "engram_compressed_vocab_size", options.engram_classes);
  set(text, "dspark_target_layer_ids", list_of(lists.targets));
  set(text, "dspark_n_routed_experts", draft_experts);
  return to_json(config);
}

Status write_synthetic_checkpoint(const std::string& directory, const SyntheticOptions& options,
                                  const ProgressFunction& progress) {
  ASSIGN_OR_RETURN(const std::string config_text, synthetic_config(options));
  ASSIGN_OR_RETURN(const ModelConfig config, parse_model_config(config_text));
  const std::vector<ExpectedTensor> tensors = expected_tensors(config);
  uint64_t total = 0, done = 0;
  for (const ExpectedTensor& tensor : tensors) total += tensor.size_bytes();
  RETURN_IF_ERROR(prepare_directory(directory, total));

  const std::vector<Shard> shards = deal(tensors);
  const auto shard_name = [&](size_t shard) {
    return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards.size());
  };
  Values values(options.seed, std::clamp<size_t>(total / 8 / 64 * 64, size_t{64} << 10, kMostPoolBytes));
  std::vector<std::byte> buffer(kBufferBytes);
  std::string index;
  JsonWriter writer(index);
  writer.begin_object().key("metadata").begin_object().member("total_size", total).end_object();
  writer.key("weight_map").begin_object();
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    WriteFile file(directory + "/" + shard_name(shard));
    RETURN_IF_ERROR(file.write(header_of(shards[shard])));
    for (const ExpectedTensor* tensor : shards[shard]) {
      writer.member(tensor->name, shard_name(shard));
      for (uint64_t left = tensor->size_bytes(); left > 0;) {
        const std::span piece = std::span(buffer).first(std::min<uint64_t>(left, kBufferBytes));
        values.fill(*tensor, piece);
        RETURN_IF_ERROR(file.write(piece));
        left -= piece.size();
        done += piece.size();
        if (progress) progress(done, total);
      }
    }
    RETURN_IF_ERROR(file.close());
  }
  writer.end_object().end_object();
  RETURN_IF_ERROR(write_text_file(directory + "/model.safetensors.index.json", index));
  return write_text_file(directory + "/config.json", config_text);
}

}  // namespace deepinfer
