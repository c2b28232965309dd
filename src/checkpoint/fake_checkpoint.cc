#include "checkpoint/fake_checkpoint.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "checkpoint/tensor_list.h"

namespace deepinfer {

FakeCheckpoint::FakeCheckpoint(std::string_view config_text, size_t num_shards) : shards(num_shards) {
  auto parsed = parse_json(config_text);
  CHECK(parsed.ok());
  config = std::move(*parsed);
  const ConfigReport report = read_model_config(config_text);
  CHECK(report.shapes_known);
  const auto tensors = expected_tensors(report.config);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const ExpectedTensor& tensor = tensors[i];
    shards[i * num_shards / tensors.size()].push_back(
        {tensor.name, std::string(dtype_name(tensor.dtype)), tensor.shape, tensor.size_bytes()});
  }
  std::string pattern = std::filesystem::temp_directory_path() / "deepinfer_checkpoint_XXXXXX";
  CHECK(::mkdtemp(pattern.data()) != nullptr);
  directory_ = pattern;
}

FakeCheckpoint::~FakeCheckpoint() {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

FakeTensor& FakeCheckpoint::tensor(std::string_view name) {
  for (auto& shard : shards) {
    for (FakeTensor& tensor : shard) {
      if (tensor.name == name) return tensor;
    }
  }
  CHECK(false && "no such tensor");
  std::abort();
}

Status FakeCheckpoint::write() const {
  RETURN_IF_ERROR(write_text(directory_ + "/config.json", to_json(config)));
  std::string index;
  JsonWriter writer(index);
  writer.begin_object().key("weight_map").begin_object();
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    for (const FakeTensor& tensor : shards[shard]) writer.member(tensor.name, shard_name(shard));
    RETURN_IF_ERROR(write_safetensors(shard_path(shard), shards[shard]));
  }
  writer.end_object().end_object();
  return write_text(directory_ + "/model.safetensors.index.json", index);
}

Status write_safetensors(const std::string& path, const std::vector<FakeTensor>& tensors) {
  std::string header;
  JsonWriter writer(header);
  uint64_t offset = 0;
  writer.begin_object().key("__metadata__").begin_object().member("format", "pt").end_object();
  for (const FakeTensor& tensor : tensors) {
    writer.key(tensor.name).begin_object().member("dtype", tensor.dtype_name).key("shape").begin_array();
    for (const int64_t dimension : tensor.shape) writer.value(dimension);
    writer.end_array()
        .key("data_offsets")
        .begin_array()
        .value(offset)
        .value(offset + tensor.size_bytes)
        .end_array();
    writer.end_object();
    offset += tensor.size_bytes;
  }
  writer.end_object();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string text(8, '\0');
  for (size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(header.size() >> (8 * i) & 255);
  RETURN_IF_ERROR(write_text(path, text + header));
  if (::truncate(path.c_str(), static_cast<off_t>(text.size() + header.size() + offset)) != 0) {
    return Error(Code::kIo, "{}: can't grow the file: {}", path, std::strerror(errno));
  }
  return {};
}

Status write_text(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) return Error(Code::kIo, "{}: can't write", path);
  return {};
}

}  // namespace deepinfer
