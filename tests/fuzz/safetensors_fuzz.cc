// Any bytes as the weights of a small checkpoint, or as its index; and as a plain safetensors file. Whatever
// opens must be readable to its last byte.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/fake_checkpoint.h"

namespace deepinfer {
namespace {

// Three layers with one expert each: few tensors, so that a run takes microseconds.
std::string tiny_config_text() {
  JsonValue config = *parse_json(small_config_text());
  JsonValue& text = *config.find("text_config");
  *text.find("num_hidden_layers") = 3;
  *text.find("compress_ratios") = JsonValue::Array{0, 2, 1};
  *text.find("kv_source_layer_ids") = JsonValue::Array{1, 2};
  *text.find("index_source_layer_ids") = JsonValue::Array{1, 2};
  *text.find("candidate_source_layer_id") = JsonValue();
  *text.find("n_routed_experts") = 1;
  *text.find("num_experts_per_tok") = 1;
  *text.find("engram_layer_ids") = JsonValue::Array{};
  *text.find("num_nextn_predict_layers") = 0;
  *config.find("vision_config") = JsonValue();
  CHECK(parse_model_config(to_json(config)).ok());
  return to_json(config);
}

std::string make_directory() {
  const std::string directory =
      std::filesystem::temp_directory_path() / ("safetensors_fuzz_" + std::to_string(getpid()));
  std::filesystem::create_directories(directory);
  CHECK(write_text(directory + "/config.json", tiny_config_text()).ok());
  return directory;
}

void open_checkpoint(const std::string& directory) {
  const CheckpointReport report = Checkpoint::inspect(directory);
  CHECK(report.checkpoint.has_value() == report.faults.empty());
  if (!report.checkpoint) return;
  for (const auto& [name, location] : report.checkpoint->tensors()) {
    std::vector<std::byte> bytes(location.size_bytes);
    CHECK(report.checkpoint->read(name, bytes).ok());
  }
}

void load_file(const std::string& path) {
  const auto file = SafetensorsFile::load(path);
  if (!file.ok()) return;
  for (const std::string& name : file->names()) {
    const TensorView view = *file->find(name);
    CHECK(view.size() == num_elements(view.shape));
    for (const std::byte byte : view.bytes) asm volatile("" : : "r"(byte));
  }
}

}  // namespace
}  // namespace deepinfer

// The first byte says what the rest is.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  static const std::string directory = make_directory();
  if (size == 0) return 0;
  const std::string_view content(reinterpret_cast<const char*>(data + 1), size - 1);
  const bool is_index = data[0] == 'i';
  const std::string path = directory + (is_index ? "/model.safetensors.index.json" : "/model.safetensors");
  CHECK(write_text(path, content).ok());
  open_checkpoint(directory);
  if (!is_index) load_file(path);
  std::filesystem::remove(path);
  return 0;
}
