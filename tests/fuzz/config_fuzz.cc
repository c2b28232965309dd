// Any bytes as config.json: refused with faults, or a config whose tensors can be listed and counted.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "checkpoint/config.h"
#include "checkpoint/tensor_list.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  const ConfigReport report = read_model_config({reinterpret_cast<const char*>(data), size});
  CHECK(report.shapes_known || !report.faults.empty());
  if (!report.shapes_known || report.config.num_hidden_layers * report.config.n_routed_experts > 1000)
    return 0;
  for (const ExpectedTensor& tensor : expected_tensors(report.config))
    CHECK(num_elements(tensor.shape).has_value());
  if (report.faults.empty()) CHECK(report.config.first_decoder_layer() <= report.config.num_hidden_layers);
  return 0;
}
