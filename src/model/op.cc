#include "model/op.h"

#include <array>

namespace deepinfer {

std::string_view op_name(const Op& op) {
  static constexpr std::array<std::string_view, std::variant_size_v<Op>> kNames = {
      // in the order of Op
      "EnterSublayer", "Embed",           "FoldRows",    "GatherRows",      "CheckLogits",    "GatherMarkov",
      "AddMarkov",     "MeanOfStreams",   "CheckFinite", "Products",        "NormRows",       "MakeOperands",
      "SetAngles",     "WindowRows",      "ListWindow",  "ListDraftWindow", "ListCompressed", "Attend",
      "GroupedOutput", "AttentionOutput", "StoreWindow", "ListLatents",     "PoolPairs",      "PackLatents",
      "IndexQuery",    "SelectRows",      "Route",       "DispatchExperts", "ExpertUp",       "ExpertDown",
      "HashEngram",    "GatherEngram",    "EngramGate"};
  return kNames[op.index()];
}

}  // namespace deepinfer
