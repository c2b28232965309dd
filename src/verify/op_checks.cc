#include "verify/op_checks.h"

#include <fstream>
#include <sstream>

namespace deepinfer::golden {
namespace {

using CheckFunction = Status (*)(OpCheck&);
struct NamedCheck {
  std::string_view name;  // ending in '*': every op that begins so
  CheckFunction check;
};
constexpr NamedCheck kChecks[] = {
    {"tables", check_tables},
    {"quant", check_quantizers},
    {"gemm_fp8_*", check_gemm},
    {"gemm_fp4_*", check_gemm},
    {"expert", check_expert},
    {"rmsnorm", check_rms_norm},
    {"rope", check_rope},
    {"mhc", check_hyper_connections},
    {"router", check_router},
    {"compressor", check_compressor},
    {"indexer", check_indexer},
    {"sparse_attn", check_sparse_attention},
    {"out_proj_a", check_output_projection},
    {"heads", check_heads},
    {"engram_constants", check_engram_constants},
    {"engram_hash", check_engram_hash},
    {"engram_apply", check_engram_apply},
    {"sampling", check_sampling},
};

CheckFunction find_check(std::string_view op) {
  for (const NamedCheck& entry : kChecks) {
    std::string_view name = entry.name;
    if (name == op) return entry.check;
    if (name.ends_with('*') && op.starts_with(name.substr(0, name.size() - 1))) return entry.check;
  }
  return nullptr;
}

Result<JsonValue> read_manifest(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  if (!(text << file.rdbuf())) return Error(Code::kIo, "{}: can't be read", path);
  auto manifest = parse_json(text.str());
  if (!manifest.ok()) return manifest.error().in(path);
  return manifest;
}

Status check_op(const std::string& name, const JsonRef& entry, const std::string& golden_directory,
                const std::string& model_directory, Bench& bench, Recorder& recorder) {
  const CheckFunction check = find_check(name);
  if (check == nullptr) return Error(Code::kUnimplemented, "no check for an op of this name");
  ASSIGN_OR_RETURN(const std::string relative, entry["file"].string());
  ASSIGN_OR_RETURN(const std::string text, entry["inputs"].string());
  ASSIGN_OR_RETURN(const GeneratorCalls inputs, GeneratorCalls::parse(text));
  ASSIGN_OR_RETURN(const GoldenFile file, GoldenFile::open(golden_directory + "/" + relative));
  OpCheck op{name, inputs, golden_directory + "/ops", model_directory, file, bench, recorder};
  bench.reset_comparison();
  RETURN_IF_ERROR(check(op));
  if (bench.num_compared() > 0) {
    op.compare("ref = " + std::string(bench.ops().name), "mismatches",
               static_cast<double>(bench.num_different()), 0,
               fmt::format("{} outputs", bench.num_compared()));
  }
  return Status();
}

}  // namespace

Status check_ops(const std::string& golden_directory, const std::string& model_directory, Bench& bench,
                 Recorder& recorder) {
  const std::string path = golden_directory + "/ops/manifest.json";
  ASSIGN_OR_RETURN(const JsonValue manifest, read_manifest(path));
  ASSIGN_OR_RETURN(const JsonValue::Object* ops, JsonRef(manifest, path).object());
  for (const JsonMember& member : *ops) {
    const std::string label = "ops/" + member.key;
    if (member.key == "vision") {
      recorder.skip(label, "needs the vision tower (not built yet)");
      continue;
    }
    const Status status = check_op(member.key, JsonRef(member.value, path + ": " + member.key),
                                   golden_directory, model_directory, bench, recorder);
    if (!status.ok()) recorder.fail(label, status.error().message());
  }
  return Status();
}

}  // namespace deepinfer::golden
